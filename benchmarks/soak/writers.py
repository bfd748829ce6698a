"""Two processes that write into one folder at the same time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import patch

from classwise.data import download
from classwise.record.remarks import read_remarks, write_remarks
from classwise.studies import digits, grid
from classwise.training.config import TrainConfig
from soak.command import Process, command, run
from soak.fault import Attempt, Fault, must
from soak.scene import audit_words, learnt, result_of, train_words

SECTION = "two at once"
MODELS = 6  # whose remarks each process writes
MOMENT = 0.05  # seconds


def _until(ready: Callable[[], bool], process: Process) -> None:
    """Wait for something that a process does; the watch over all attempts ends a wait for ever."""
    while not ready():
        must(process.pid > 0, "nothing was started")
        time.sleep(0.002)


def _trainings(place: Path) -> Attempt:
    folder, straight = place / "run", place / "straight"
    began = time.monotonic()
    run(train_words(straight), place / "first.log")
    seconds = time.monotonic() - began
    words = train_words(folder)
    wanted = result_of(words, straight)

    def attempt(rng: Random) -> str:
        shutil.rmtree(folder, ignore_errors=True)
        first = command(words, place / "first.log")
        time.sleep(rng.choice([0, seconds * rng.random() / 2]))
        second = command(words, place / "second.log")
        codes = first.end(), second.end()
        must(sorted(codes) == [0, 2], f"exit codes {codes}: {first.said} {second.said}")
        line = (first if codes[0] else second).line
        must(" is in use by " in line or " already holds " in line, line)
        must(result_of(words, folder) == wanted, "the result differs from that of one alone")
        must(not list(folder.glob("*.lock")), "a lock is left")
        return line

    return attempt


def _waiting(place: Path) -> Attempt:
    folder, straight = place / "run", place / "straight"
    run(train_words(straight), place / "first.log")
    words = train_words(folder)
    wanted = result_of(words, straight)

    def attempt(_: Random) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        first = command(words, place / "first.log")
        _until((folder / "run.json").exists, first)
        second = command([*words, "--resume", "--wait"], place / "second.log")
        codes = first.end(), second.end()
        must(codes == (0, 0), f"exit codes {codes}: {first.said} {second.said}")
        must(result_of(words, folder) == wanted, "the result differs from that of one alone")

    return attempt


def _audits(place: Path) -> Attempt:
    weights, folder, straight = learnt(place), place / "kept", place / "straight"
    run(audit_words(weights, straight), place / "first.log")
    words = audit_words(weights, folder)
    wanted = result_of(words, straight)

    def attempt(rng: Random) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        first = command(words, place / "first.log")
        time.sleep(rng.choice([0, MOMENT * rng.random()]))
        second = command(words, place / "second.log")
        codes = first.end(), second.end()
        must(codes == (0, 0), f"exit codes {codes}: {first.said} {second.said}")
        must(result_of(words, folder) == wanted, "rows are missing, there twice, or others")

    return attempt


def _remarks(place: Path) -> Attempt:
    folder = place / "kept"

    def write(who: str) -> None:
        for number in range(MODELS):
            note = {f"data/{number}": f"{who} {number}"}
            name = f"{who}{number}"
            write_remarks(folder, name, seen={}, probed=None, black_box=False, notes=note)

    def attempt(_: Random) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        both = [Process(partial(write, who), place / f"{who}.log").start() for who in "ab"]
        must([one.end() for one in both] == [0, 0], "".join(one.said for one in both))
        for who in "ab":
            for number in range(MODELS):
                facts = {"model_hash": f"{who}{number}", "data_hash": "data"}
                found = read_remarks(folder, [{**facts, "attack_key": str(number)}])
                must(found == {"note": f"{who} {number}"}, f"{who}{number} says {found}")

    return attempt


def _downloads(place: Path) -> Attempt:
    """Both want the same data set; the way it comes is played, the lock is not."""
    folder = place / "data"

    def fetch() -> None:
        def slowly(where: Path, _: bool) -> Path:
            time.sleep(MOMENT)
            made = where / "there"
            made.mkdir()  # a second one would fail
            return made

        def here(_: str, folders: Sequence[Path]) -> Path | None:
            return next((one / "there" for one in folders if (one / "there").exists()), None)

        def ways(_: str) -> Iterator[tuple[str, download.Fetch]]:
            return iter([("nowhere", slowly)])

        with patch.multiple(download, _ways=ways, locate=here, check=lambda *_: None):
            download.get("cifar10", where=folder, quiet=True)

    def attempt(_: Random) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        both = [Process(fetch, place / f"{who}.log").start() for who in "ab"]
        must([one.end() for one in both] == [0, 0], "".join(one.said for one in both))
        must([one.name for one in folder.iterdir()] == ["there"], str(list(folder.iterdir())))

    return attempt


def _studies(place: Path) -> Attempt:
    """A study of one recipe and few images, its runs in one process."""
    folder = place / "study"
    words = ["study", "digits", "--seeds", "2", "--workers", "1", "--out", str(folder)]

    def small() -> None:
        config = TrainConfig(
            **{"data": "digits", "model": "cnn(width=2)", "epochs": 1, "subset": 60},
            **{"valid": "0.3", "valid_attack": "pgd-1", "batch_size": 16},
        )

        def one_by_one(jobs: Sequence[grid.Job], **_: object) -> list[Path]:
            for job in jobs:
                grid.run_job(job)
            return [job.path for job in jobs]

        # never stopped: the process is its own
        patch.multiple(digits, RECIPES=("clean",), ATTACKS="clean,pgd-1", CONFIG=config).start()
        patch.object(grid, "run_grid", one_by_one).start()

    def table() -> str:
        return (folder / "digits.md").read_text()

    run(words, place / "first.log", small)
    wanted = table()

    def attempt(_: Random) -> str:
        shutil.rmtree(folder)
        first = command(words, place / "first.log", small)
        _until((folder / ".writer.lock").exists, first)
        second = command(words, place / "second.log", small)
        codes = first.end(), second.end()
        must(codes in ((0, 2), (0, 0)), f"exit codes {codes}: {first.said} {second.said}")
        must(table() == wanted, "the table differs from that of one alone")
        return second.line if codes[1] else ""

    return attempt


FAULTS = (
    Fault(SECTION, "trainings", 40, _trainings, parallel=True),
    Fault(SECTION, "trainings, the second with `--wait`", 20, _waiting),
    Fault(SECTION, "audits by a full suite", 20, _audits),
    Fault(SECTION, "remarks on audits", 50, _remarks),
    Fault(SECTION, "downloads", 50, _downloads),
    Fault(SECTION, "studies", 10, _studies),
)
