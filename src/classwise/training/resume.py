"""Going on with a run: which of its two states is whole, and what its logs must say.

Every save keeps the state before it. Both hold a copy of the history, so that one that was
damaged is written again, and a damaged state costs one epoch, which is trained again bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.files import append, set_aside, write_atomically
from classwise.locks import FolderLock
from classwise.record.lines import damaged_lines, line_of, parse_lines, read_bytes
from classwise.sealed import Damaged
from classwise.training.progress import tell
from classwise.training.run import Run
from classwise.training.state import Progression, load_state, save_state

STATE, BEFORE = "state.safetensors", "state-before.safetensors"
HISTORY = "history.jsonl"  # the log that every run has the same, so that its state has a copy
OTHERS = ("watch.jsonl", "times.jsonl")
COPY = "log.history"


@dataclass
class Logs:
    """What a run writes line by line, on disk and at hand for the next state."""

    folder: Path
    content: dict[str, bytearray] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)  # epoch of each log's last line

    def add(self, name: str, record: dict[str, Any]) -> None:
        """Write one line."""
        line = line_of(record, self.last.get(name, 0))
        append(self.folder / name, line)
        self._note(name, line, record["epoch"])

    def _note(self, name: str, content: bytes, epoch: int) -> None:
        self.content.setdefault(name, bytearray()).extend(content)
        self.last[name] = epoch

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The history as a state keeps it."""
        lines = self.content.get(HISTORY)
        return {COPY: torch.frombuffer(lines.copy(), dtype=torch.uint8)} if lines else {}

    @property
    def previous(self) -> dict[str, Any] | None:
        """The last line of the history."""
        records, _ = parse_lines(bytes(self.content.get(HISTORY, b"")))
        return records[-1] if records else None

    def put_back(self, name: str, content: bytes, epoch: int, *, sure: bool) -> None:
        """Leave a log with the lines up to an epoch, which are these; `sure`: a state says so."""
        path = self.folder / name
        found = read_bytes(path)
        if not found.startswith(content) or parse_lines(found)[1]:
            tell(f"{path} was damaged and is written again from the state", quiet=not sure)
        if found != content:
            write_atomically(path, content)
        if content:
            self._note(name, content, epoch)


@dataclass(frozen=True)
class Checkpoints:
    """The two states of a run on disk, and what they are put back into."""

    run: Run
    identity: str
    model: nn.Module
    optimiser: torch.optim.Optimizer
    device: torch.device
    lock: FolderLock | None = None  # of the folder; None: nobody else knows of it

    def save(self, state: Progression, logs: Logs) -> None:
        """Write the state down; the one before it stays, too."""
        if self.lock is not None:
            self.lock.check()
        _keep_before(self.run.path)
        path = self.run.path / STATE
        save_state(path, self.identity, self.model, self.optimiser, state, logs.tensors)

    def resume(self, begin: Progression) -> tuple[Progression, Logs] | None:
        """Put back the last whole state and the logs; None where nothing was begun."""
        run, broken = self.run, dict[Path, Damaged]()
        for path in (run.path / STATE, run.path / BEFORE):
            if not path.exists():
                continue
            try:
                state, tensors = load_state(
                    path, self.identity, self.model, self.optimiser, begin, self.device
                )
            except Damaged as reason:
                broken[path] = reason
                continue
            for file, why in broken.items():
                tell(
                    f"{why}; it is set aside as {set_aside(file)}. {path.name} is whole: training "
                    f"goes on after epoch {state.epoch}, what came later is trained again",
                    quiet=False,
                )
            self._tell_other_threads(state.epoch)
            return state, _logs_at(run, state, tensors)
        if broken and (run.weights or read_bytes(run.path / HISTORY)):
            first = next(iter(broken))
            raise Damaged(
                f"{broken[first]}; there is no earlier state to go on from: restore {first} from a "
                f"copy, or train again into another folder, beginning from {run.path}@last, the "
                "weights that are kept, or from nothing"
            )
        for file, why in broken.items():  # before the first epoch nothing is lost
            tell(f"{why}; it is set aside as {set_aside(file)}, the run begins again", quiet=False)
        return None

    def _tell_other_threads(self, epoch: int) -> None:
        """Say that what is left will be rounded otherwise than what is there."""
        begun, now = self.run.about.get("threads"), torch.get_num_threads()
        on_cpu = self.device.type == "cpu"
        if on_cpu and type(begun) is int and begun != now and epoch < self.run.config.epochs:
            tell(
                f"{self.run.path}: the number of threads was {begun} and is now {now}, which "
                "rounds otherwise: the run will not be bit for bit what it would have been; for "
                f"that, stop it and set OMP_NUM_THREADS={begun}",
                quiet=False,
            )


def _keep_before(folder: Path) -> None:
    """Keep the state that is about to be replaced; at no moment is there none."""
    state, before = folder / STATE, folder / BEFORE
    if not state.exists():
        return
    part = before.with_name(f".{BEFORE}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        try:
            os.link(state, part)
        except (OSError, NotImplementedError):
            state.replace(before)  # no hard links there: a kill now leaves the one before
        else:
            part.replace(before)
    except OSError as reason:
        raise ClasswiseError(f"cannot write {before}: {reason.strerror or reason}") from None


def _logs_at(run: Run, state: Progression, tensors: Mapping[str, Tensor]) -> Logs:
    """Bring the logs to where the state stands: what was written after it is trained again."""
    logs = Logs(run.path)
    if COPY in tensors:
        content = tensors[COPY].numpy().tobytes()
        logs.put_back(HISTORY, content, state.epoch, sure=True)
    for name in OTHERS if COPY in tensors else (HISTORY, *OTHERS):
        path = run.path / name
        records, wrong = parse_lines(read_bytes(path))
        records = [record for record in records if record["epoch"] <= state.epoch]
        whole = [record["epoch"] for record in records] == list(range(1, state.epoch + 1))
        if name == HISTORY and not whole:  # a run of an older version, without a copy
            raise damaged_lines(path, wrong or "epochs are missing")
        if wrong:
            where, last = set_aside(path), records[-1]["epoch"] if records else 0
            tell(
                f"{path} is damaged: {wrong}; it is set aside as {where}, and what it said up to "
                f"epoch {last} is kept",
                quiet=False,
            )
        last, content = 0, b""
        for record in records:
            content += line_of(record, last)
            last = record["epoch"]
        logs.put_back(name, content, last, sure=False)
    return logs
