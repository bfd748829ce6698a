"""Apply every mutant of `mutants.py` to a copy of the package, and see whether its tests notice.

A mutant is killed if a test fails (pytest's exit code 1). That a test cannot be found or collected
is no kill: the table must not rot, nor may a test that fails anyway count. So the text of a mutant
must stand in its file exactly once, and all named tests must pass on the code as it is.

    python tests/run_mutants.py [--jobs 2] [--sample 4 --seed 0] [--only words] [--list]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from mutant import Mutant
from mutants import MUTANTS
from places import ROOT, TESTS

PATIENCE = 1800  # seconds for one run of pytest; what takes longer is a failure, not a kill
WORDS = {0: "ALIVE", 1: "killed", 2: "no end, or not collected"}  # by pytest's exit code
# Every mutant has a process of its own, forked from one that has imported these already.
SHARED = ["torch", "torch.fx", "scipy.stats", "numpy", "duckdb", "pydantic", "pytest"]


def mutated(mutant: Mutant, text: str) -> str:
    """The text of a file with the mutant in it."""
    count = text.count(mutant.before)
    if count != 1:
        raise SystemExit(f"{mutant.file}: {mutant.before!r} stands there {count} times, not once")
    return text.replace(mutant.before, mutant.after)


def run_tests(package: Path, tests: tuple[str, ...], log: Path) -> int:
    """Run some tests on a copy of the package, in a process that has not imported it yet."""
    assert "classwise" not in sys.modules
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(package)  # for processes that tests start
    sys.path.insert(0, str(package))
    found = importlib.import_module("classwise").__file__
    assert found is not None
    assert Path(found).is_relative_to(package), f"{found} is not the copy"
    words = ["-x", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:xdist"]
    words += ["--basetemp", str(log.with_name(f"tmp{os.getpid()}"))]  # nobody else tidies up there
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # ends pytest with code 2
    signal.alarm(PATIENCE)
    with log.open("w") as stream, contextlib.redirect_stdout(stream):
        return int(pytest.main([*words, *(str(TESTS / test) for test in tests)]))


def verdict(mutant: Mutant, whole: Path) -> tuple[str, float]:
    """`killed`, `ALIVE` or what went wrong, and the processor time it took."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "src"
        shutil.copytree(whole, package)  # with what is compiled already
        place = package / "classwise" / mutant.file
        for stale in (place.parent / "__pycache__").glob(f"{place.stem}.*"):
            stale.unlink()
        place.write_text(mutated(mutant, place.read_text()))
        code = run_tests(package, mutant.tests, Path(folder) / "log")
    return WORDS.get(
        code, f"pytest ended with {code}: are its tests still there?"
    ), processor_time()


def unmutated(tests: tuple[str, ...], whole: Path) -> tuple[int, float]:
    """Whether these tests pass on the code as it is; else they would prove nothing."""
    return run_tests(whole, tests, whole.parent / "log"), processor_time()


def processor_time() -> float:
    """Seconds that this process and its children have used."""
    return sum(os.times()[:4])


def chosen(words: argparse.Namespace) -> list[Mutant]:
    """The mutants that were asked for."""
    some = [one for one in MUTANTS if words.only in f"{one.file} {one.why}"]
    if words.sample is not None:
        some = random.Random(words.seed).sample(some, min(words.sample, len(some)))
    if not some:
        raise SystemExit(f"no mutant has {words.only!r} in its file or in its reason")
    return some


def run(mutants: list[Mutant], jobs: int) -> int:
    """Run the mutants, print what became of each, and return how many were not killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(SHARED)
    lived = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(max(1, jobs), context, max_tasks_per_child=1) as pool,
    ):
        whole = Path(folder) / "src"
        shutil.copytree(ROOT / "src", whole, ignore=shutil.ignore_patterns("*.egg*"))
        tests = tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
        code, spent = pool.submit(unmutated, tests, whole).result()
        if code:
            print((Path(folder) / "log").read_text()[-4000:])
            raise SystemExit("the named tests do not pass on the code as it is")
        for one, (found, seconds) in zip(
            mutants, pool.map(verdict, mutants, [whole] * len(mutants)), strict=True
        ):
            lived, spent = lived + (found != "killed"), spent + seconds
            print(f"{found:<8}{seconds:5.1f} s  {one.file:<26} {one.why}", flush=True)
    print(f"{len(mutants) - lived} of {len(mutants)} killed in {spent:.0f} s of processor time")
    return lived


def main() -> None:
    """Run the mutants and say who lives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sample", type=int, help="so many of them, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="those with these words in file or reason")
    parser.add_argument("--list", action="store_true", help="show the table and run nothing")
    words = parser.parse_args()
    mutants = chosen(words)
    for one in mutants:  # before anything runs: the table fits the code
        mutated(one, (ROOT / "src" / "classwise" / one.file).read_text())
        if words.list:
            print(f"{one.file}\n  - {one.before}\n  + {one.after}\n  {one.why}")
    if not words.list:
        raise SystemExit(min(run(mutants, words.jobs), 1))


if __name__ == "__main__":
    main()
