"""Damage to files that users write themselves, which carry no checksum of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile_files import set_out

from classwise.data.dataset import DataSource
from classwise.data.sources import open_data
from classwise.judging.contract import load_contract
from classwise.recipe_text import load_recipe
from soak.damage import Kind, attempts_on
from soak.fault import Fault
from soak.files import MORE, quietly

SECTION = "yours"
EACH = 100
Seen = tuple[list[str], list[bytes]]  # hashes by which data are known, and what they are


def _seen(source: DataSource) -> Seen:
    parts = (source.train, source.test)
    content = [
        part.images.numpy().tobytes()
        + part.labels.numpy().tobytes()
        + repr(part.class_names).encode()
        for part in parts
    ]
    return [part.content_hash for part in parts], content


def _told_apart(one: Seen, other: Seen) -> bool:
    """Data have the same hash if they are the same, and another one if they are not."""
    return (one[0] == other[0]) == (one[1] == other[1])


def _data(place: Path, name: str, spec: str, called: str = "") -> Kind:
    _, path, _ = MORE[name](place) if name in MORE else set_out(name, place)
    where = spec.format(file=path, folder=place)

    def read() -> Seen:
        seen: Seen = quietly(lambda: _seen(open_data(where)))
        return seen

    return Kind(path, read, _told_apart, called=called)


def _text(place: Path, name: str, meaning: Callable[[Path], Any]) -> Kind:
    """What it says now is what is held against it: it can only be read or refused."""
    _, path, _ = MORE[name](place)
    return Kind(path, lambda: meaning(path), lambda _, __: True)


KINDS: dict[str, Callable[[Path], Kind]] = {
    "`npz:` data": lambda place: _data(place, "npz", "npz:{file}"),
    "`npy:` data": lambda place: _data(place, "npy", "npy:{folder}"),
    "`npy:` labels": lambda place: _data(place, "npy labels", "npy:{folder}", "labels"),
    "a picture of a `folder:`": lambda place: _data(place, "folder of pictures", "folder:{folder}"),
    "a contract": lambda place: _text(place, "contract", lambda path: load_contract(path).rules()),
    "a recipe": lambda place: _text(place, "recipe", lambda path: load_recipe(path).name),
}


def _fault(name: str, make: Callable[[Path], Kind]) -> Fault:
    return Fault(SECTION, name, EACH, lambda place: attempts_on(make(place)))


FAULTS = tuple(_fault(name, make) for name, make in KINDS.items())
