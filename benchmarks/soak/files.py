"""Hostile bytes for everything that reads a file: read, or refused in one line."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import pickle
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np
import torch
from hostile import refusal
from hostile_bombs import BOMBS
from hostile_files import READERS, damaged, set_out
from PIL import Image

from classwise.data import cifar
from classwise.data.archives import read_members
from classwise.data.official import FORMS
from classwise.data.sources import open_data
from classwise.judging.contract import load_contract
from classwise.recipe_text import load_recipe
from classwise.record.lines import line_of
from classwise.record.state_dict import read_state_dict
from classwise.training.run import Run
from soak.fault import Attempt, Fault
from soak.words import PATIENCE, ROOM

SECTION = "files"
COUNT = 10_000
EVERY = 10  # attempts of which one is a whole file
RATES = {"clean": {"overall": 0.5, "by_class": [0.5, None]}}
RECORD = {"loss": {"total": 1.0}, "train": RATES, "valid": {"live": RATES}, "settings": {}}
CONTRACT = b'[[rule]]\nunder = "pgd-20"\nno_class_below = "20 %"\n'
RECIPE = b'compose = "trades + ccm"\n[trades]\nbeta = 6\n'
Whole = tuple[bytes, Path, Callable[[], Any]]  # content, where it stands, what reads it


def _tar(files: dict[str, bytes], how: Literal["w", "w:gz"]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=how) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def _written(place: Path, name: str, content: bytes, read: Callable[[Path], Any]) -> Whole:
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return content, path, lambda: read(path)


def _archive(place: Path, how: Literal["w", "w:gz"]) -> Whole:
    content = _tar({"a/one": b"1" * 600, "a/two": b"2" * 40}, how)
    return _written(
        place, "x.tar", content, lambda path: read_members(path, ["a/one", "a/two"], "again")
    )


def _cifar(place: Path) -> Whole:
    """A batch of CIFAR-10 in an unpacked folder, believed whatever its checksum is."""
    form = next(form for form in FORMS["cifar10"] if "data_batch_1" in form.md5)
    batch = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [3, 9]}
    content = pickle.dumps(batch, protocol=4)
    names = pickle.dumps({b"label_names": [name.encode() for name in cifar.NAMES_10]}, protocol=4)
    for name in form.md5:
        (place / name).write_bytes(names if "meta" in name else content)

    def read(path: Path) -> None:
        sums = {
            name: hashlib.md5((place / name).read_bytes(), usedforsecurity=False).hexdigest()
            for name in form.md5
        }
        FORMS["cifar10"] = (replace(form, md5=sums),)
        open_data(f"cifar10:{path.parent}")

    return _written(place, "data_batch_1", content, read)


def quietly(read: Callable[[], Any]) -> Any:
    """Read without the remark that pictures are decoded once: here it is ten thousand times."""
    with contextlib.redirect_stderr(io.StringIO()):
        return read()


def _folder(place: Path) -> Whole:
    stream = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(stream, "PNG")
    for name in ("a/1", "a/2", "b/1", "b/2"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / f"{name}.png").write_bytes(stream.getvalue())

    def read(path: Path) -> Any:
        return quietly(lambda: open_data(f"folder:{path.parents[1]}"))

    return _written(place, "a/1.png", stream.getvalue(), read)


def _history(place: Path) -> Whole:
    (place / "run.json").write_text(json.dumps({"data": {"class_names": ["a", "b"]}}))
    lines = b"".join(line_of({"epoch": n, **RECORD}, n - 1) for n in (1, 2, 3))
    return _written(place, "history.jsonl", lines, lambda path: Run(path.parent).history)


def _pth(place: Path) -> Whole:
    stream = io.BytesIO()
    torch.save({"state_dict": {"weight": torch.zeros(3, 2)}}, stream)
    return _written(place, "x.pth", stream.getvalue(), read_state_dict)


MORE: dict[str, Callable[[Path], Whole]] = {
    "tar archive": lambda place: _archive(place, "w"),
    "compressed tar archive": lambda place: _archive(place, "w:gz"),
    "batch of CIFAR-10": _cifar,
    "folder of pictures": _folder,
    "history.jsonl": _history,
    "weights by torch.save": _pth,
    "contract": lambda place: _written(place, "contract.toml", CONTRACT, load_contract),
    "recipe": lambda place: _written(place, "recipe.toml", RECIPE, load_recipe),
}


def _reading(whole: Whole) -> Attempt:
    good, path, read = whole

    def attempt(rng: Random) -> str | None:
        content = good if rng.randrange(EVERY) == 0 else damaged(rng, good)
        path.write_bytes(content)
        said = refusal(read, repr(content[:200]))
        if said is not None and content == good:
            raise AssertionError(f"a whole file is refused: {said}")
        return said and f"classwise: {said}"

    return attempt


def _bombs(place: Path) -> Attempt:
    def attempt(rng: Random) -> str:
        name = rng.choice(list(BOMBS))
        here = place / f"{rng.random()}"
        here.mkdir()
        said = refusal(lambda: quietly(lambda: BOMBS[name](here)), name)
        if said is None:
            raise AssertionError(f"{name} was taken")
        return f"classwise: {said}"

    return attempt


def _fault(name: str, make: Callable[[Path], Whole], count: int = COUNT) -> Fault:
    return Fault(SECTION, name, count, lambda place: _reading(make(place)), PATIENCE, room=ROOM)


FAULTS = (
    *(_fault(name, partial(set_out, name)) for name in READERS),
    *(_fault(name, make) for name, make in MORE.items()),
    Fault(SECTION, "bombs", 200, _bombs, PATIENCE, room=ROOM),
)
