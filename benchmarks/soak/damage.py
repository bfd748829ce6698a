"""One file of a run, a ledger or a data set damaged: it is named, or what is read is the same."""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from boundaries import quick_train
from damages import EPOCHS, again, cut_tails, flipped, judge, numbers, refusal, same_tensors

from classwise.data.archives import read_form
from classwise.data.official import FORMS
from classwise.judging.audits import read_ledger
from classwise.judging.group_files import groupings_in
from classwise.judging.samples import read_samples
from classwise.laws.made_up import few_digits
from classwise.record.remarks import note_on, read_remarks
from classwise.record.tensors import read_tensors
from classwise.training.run import Run
from soak.fault import Attempt, Fault, must
from soak.scene import trained

SECTION = "damaged"
NOTED = {"model_hash": "m", "data_hash": "d", "attack_key": "a"}
EACH = 150
BLOCK = 512


def _zeroed(rng: Random, content: bytes) -> bytes:
    """The end is full of zeros."""
    found: bytes = [*cut_tails(content, rng.random(), 2)][-1]
    return found


def _exchanged(rng: Random, content: bytes) -> bytes:
    """Two blocks have changed places."""
    size = min(BLOCK, len(content) // 2)
    one = rng.randrange(len(content) - 2 * size + 1)
    other = rng.randrange(one + size, len(content) - size + 1)
    return (
        content[:one]
        + content[other : other + size]
        + content[one + size : other]
        + content[one : one + size]
        + content[other + size :]
    )


def _garbage(rng: Random, content: bytes) -> bytes:
    """The end is somebody else's."""
    begin = rng.randrange(len(content))
    return content[:begin] + rng.randbytes(len(content) - begin)


WAYS: tuple[Callable[[Random, bytes], bytes], ...] = (
    lambda rng, content: next(flipped(content, rng.random(), 1)),
    lambda rng, content: next(flipped(content, rng.random(), 1)),  # the one that is hard to see
    lambda rng, content: next(cut_tails(content, rng.random(), 1), b""),
    _zeroed,
    _exchanged,
    _garbage,
    lambda *_: b"",
)


def damaged(rng: Random, content: bytes) -> bytes:
    """The content of a file after some damage; never the same."""
    for _ in range(100):
        found = rng.choice(WAYS)(rng, content)
        if found != content:
            return found
    raise AssertionError("no damage was done")


@dataclass(frozen=True)
class Kind:
    """A kind of file: the file itself, what reads it, and what must be the same."""

    path: Path
    read: Callable[[], Any]
    same: Callable[[Any, Any], bool] = lambda one, other: one == other
    siblings: tuple[Path, ...] = ()  # whose content may have come here instead
    called: str = ""  # what a refusal must name; the file, unless this is said


def attempts_on(kind: Kind) -> Attempt:
    """Damage it again and again; it is whole afterwards."""
    good, before = kind.path.read_bytes(), kind.read()
    others = [path.read_bytes() for path in kind.siblings]

    def attempt(rng: Random) -> str | None:
        swapped = others and rng.random() < 0.1
        content = rng.choice(others) if swapped else damaged(rng, good)
        try:
            said = refusal(kind.path, content, kind.read, kind.same, before, kind.called)
        finally:
            kind.path.write_bytes(good)
        return said and f"classwise: {said}"

    return attempt


def _run(place: Path) -> Run:
    looks = {"watch": "train:clean", "watch_every": 1}
    return quick_train("at(steps=1)+ccm+ema", place / "run", few_digits(), epochs=EPOCHS, **looks)


def _state(place: Path, name: str) -> Kind:
    path = _run(place).path / name
    return Kind(path, lambda: read_tensors(path), same_tensors)


def _weights(place: Path) -> Kind:
    run = _run(place)
    path, other = run.weights_path("last"), run.weights_path("ema-last")
    must(path.read_bytes() != other.read_bytes(), "both weights are the same")

    def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
        return set(one) == set(two) and all(torch.equal(one[n], two[n]) for n in one)

    return Kind(path, lambda: run.model("last").state_dict(), same, (other,))


def _card(place: Path) -> Kind:
    path = _run(place).path

    def same(found: dict[str, Any], before: dict[str, Any]) -> bool:
        # a checksum whose own name was hit is one more entry that nobody reads
        return {**found, **before} == found

    return Kind(path / "run.json", lambda: dict(Run(path).about), same)


def _log(place: Path, name: str) -> Kind:
    """A lost end is read as what is left of it: `--resume` has the rest."""
    run = _run(place)

    def same(found: list[dict[str, Any]], before: list[dict[str, Any]]) -> bool:
        return all({**a, **b} == a for a, b in zip(found, before, strict=False))

    read = {"history.jsonl": lambda: run.history, "watch.jsonl": lambda: run.looks}[name]
    return Kind(run.path / name, read, same)


def _remarks(place: Path) -> Kind:
    note_on(place, [NOTED], "something to know")
    return Kind(place / "remarks.json", lambda: read_remarks(place, [NOTED]))


def _groups(place: Path) -> Kind:
    judge(place / "kept")
    (path,) = (place / "kept" / "groups").glob("*.json")
    return Kind(path, lambda: str(groupings_in(place / "kept")))


def _shard(place: Path) -> Kind:
    folder = place / "kept"
    judge(folder)
    path, _ = sorted((folder / "predictions").glob("*.parquet"))

    def read() -> Any:
        samples = read_samples(folder)
        return [numbers(one.report) for one in read_ledger(folder)], samples.remarks

    return Kind(path, read)


def _archive(place: Path) -> Kind:
    """An archive of the official form, with few images in it."""
    files = {f"part{number}": bytes([number]) * 400 for number in range(3)}
    form = replace(
        FORMS["cifar10"][0],
        md5={name: hashlib.md5(content).hexdigest() for name, content in files.items()},
    )
    path = place / form.archive
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{form.folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return Kind(path, lambda: read_form(path, [form], "get it again")[1])


def heard(do: Callable[[], Any]) -> str | None:
    """What is said on stderr meanwhile, if anything."""
    with contextlib.redirect_stderr(io.StringIO()) as stream:
        do()
    return stream.getvalue().strip() or None


def _resumed(place: Path) -> Attempt:
    """Any file that training writes for itself is damaged, then the run goes on."""
    run = _run(place)
    good, wanted = place / "good", trained(run.path)
    shutil.copytree(run.path, good)
    names = [*(f"state{which}.safetensors" for which in ("", "-before")), "history.jsonl"]

    def attempt(rng: Random) -> str | None:
        shutil.rmtree(run.path)
        shutil.copytree(good, run.path)
        path = run.path / rng.choice([*names, "watch.jsonl", "times.jsonl"])
        path.write_bytes(damaged(rng, path.read_bytes()))
        said = heard(lambda: again(run))
        found = trained(run.path)
        # of its looks there is no copy; the state before is not read where the last one is whole
        lost = {path.name} & {"watch.jsonl", "state-before.safetensors"}
        differing = {name for name in wanted if found.get(name) != wanted[name]} - lost
        must(not differing, f"{differing} differ after damage of {path.name}")
        return said

    return attempt


def _judged_again(place: Path) -> Attempt:
    """A shard is damaged, then the audit is repeated."""
    kept, good = place / "kept", place / "good"
    wanted = numbers(judge(kept))
    shutil.copytree(kept, good)

    def attempt(rng: Random) -> str | None:
        shutil.rmtree(kept)
        shutil.copytree(good, kept)
        path = rng.choice(sorted((kept / "predictions").glob("*.parquet")))
        path.write_bytes(damaged(rng, path.read_bytes()))
        said = heard(lambda: must(numbers(judge(kept)) == wanted, "the audit says another thing"))
        must([numbers(one.report) for one in read_ledger(kept)] == [wanted], "its ledger does")
        return said

    return attempt


def _fault(name: str, make: Callable[[Path], Kind], count: int = EACH) -> Fault:
    return Fault(SECTION, name, count, lambda place: attempts_on(make(place)))


FAULTS = (
    _fault("`state.safetensors`", lambda place: _state(place, "state.safetensors")),
    _fault("`state-before.safetensors`", lambda place: _state(place, "state-before.safetensors")),
    _fault("`weights/*.safetensors`", _weights, 250),
    _fault("`run.json`", _card, 200),
    _fault("`history.jsonl`", lambda place: _log(place, "history.jsonl"), 200),
    _fault("`watch.jsonl`", lambda place: _log(place, "watch.jsonl")),
    _fault("`remarks.json`", _remarks),
    _fault("`groups/*.json`", _groups),
    _fault("`predictions/*.parquet`", _shard, 250),
    _fault("an archive of CIFAR", _archive),
    Fault(SECTION, "states and logs, then `--resume`", 100, _resumed),
    Fault(SECTION, "a shard, then the audit again", 100, _judged_again),
)
