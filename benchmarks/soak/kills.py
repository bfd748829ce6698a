"""SIGKILL in the middle of a training or an audit; then it goes on, and the result is the same."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from soak.command import FileOperations, command, run
from soak.fault import Attempt, Fault, must
from soak.scene import audit_words, go_on, learnt, result_of, train_words

SECTION = "killed"
DRAWS = 40  # a kill that comes too late is drawn again
Words = Callable[[Path], list[str]]
TRAININGS, AUDITS = 100, 50


def _training(_: Path) -> Words:
    return train_words


def _audit(place: Path) -> Words:
    weights = learnt(place)
    return lambda folder: audit_words(weights, folder)


def _prepare(place: Path, work: Callable[[Path], Words], at_files: bool) -> Attempt:
    """Run it once undisturbed, with a watch; then kill it again and again."""
    words_for, folder, log = work(place), place / "killed", place / "killed.log"
    straight = place / "straight"
    touched, began = FileOperations(straight), time.monotonic()
    run(words_for(straight), log, touched.watch())
    seconds, words = time.monotonic() - began, words_for(folder)
    wanted = result_of(words, straight)

    def killed(rng: Random) -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        if at_files:
            last = rng.randint(1, touched.count)
            process = command(words, log, FileOperations(folder).watch(last))
        else:
            process = command(words, log)
            process.kill(seconds * rng.random())
        return process.end() == -signal.SIGKILL

    def attempt(rng: Random) -> None:
        must(any(killed(rng) for _ in range(DRAWS)), f"{DRAWS} kills came too late")
        go_on(words, folder, log)
        must(result_of(words, folder) == wanted, "the result differs from an undisturbed run's")
        must(not list(folder.glob("*.lock")), "a lock is left")

    return attempt


def _fault(name: str, count: int, work: Callable[[Path], Words], at_files: bool) -> Fault:
    return Fault(SECTION, name, count, lambda place: _prepare(place, work, at_files), parallel=True)


FAULTS = (
    _fault("a training, at any moment", TRAININGS // 2, _training, False),
    _fault("a training, before any operation on a file", TRAININGS // 2, _training, True),
    _fault("an audit by a full suite, at any moment", AUDITS // 2, _audit, False),
    _fault("an audit by a full suite, before any operation on a file", AUDITS // 2, _audit, True),
)
