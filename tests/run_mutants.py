"""Apply every mutant of `mutants.py` to a copy of the package, and see whether its tests notice.

A mutant is killed if a test fails (pytest's exit code 1). That a test cannot be found or collected
is no kill: the table must not rot, nor may a test that fails anyway count. So the text of a mutant
must stand in its file exactly once, and all named tests must pass on the code as it is.

    python tests/run_mutants.py [--jobs 2] [--sample 4 --seed 0] [--only words] [--list]
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutants import MUTANTS, Mutant
from places import ROOT, TESTS

PATIENCE = 1800  # seconds for one run of pytest: nobody knows what hangs from what is slow
KILLED, ALIVE = 1, 0  # pytest's exit codes: some test failed, and all passed


def mutated(mutant: Mutant, text: str) -> str:
    """The text of a file with the mutant in it."""
    count = text.count(mutant.before)
    if count != 1:
        raise SystemExit(f"{mutant.file}: {mutant.before!r} stands there {count} times, not once")
    return text.replace(mutant.before, mutant.after)


def run_tests(package: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run some tests on a copy of the package."""
    command = [sys.executable, "-m", "pytest", "-x", "-o", "addopts=", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", "-q", *(str(TESTS / test) for test in tests)]
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


def copy_of_package(folder: str) -> Path:
    """Copy `src` into a folder that is thrown away."""
    package = Path(folder) / "src"
    shutil.copytree(ROOT / "src", package, ignore=shutil.ignore_patterns("__pycache__", "*.egg*"))
    return package


def verdict(mutant: Mutant) -> tuple[str, float]:
    """`killed`, `ALIVE`, or what went wrong; and after how many seconds."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        package = copy_of_package(folder)
        place = package / "classwise" / mutant.file
        place.write_text(mutated(mutant, place.read_text()))
        try:
            code = run_tests(package, mutant.tests).returncode
        except subprocess.TimeoutExpired:
            code = -1
    words = {KILLED: "killed", ALIVE: "ALIVE", -1: f"no end in {PATIENCE} s"}
    found = words.get(code, f"pytest ended with {code}: are its tests still there?")
    return found, time.perf_counter() - began


def check_unmutated(mutants: list[Mutant]) -> None:
    """See that all named tests pass on the code as it is; else they would prove nothing."""
    tests = tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    with tempfile.TemporaryDirectory() as folder:
        found = run_tests(copy_of_package(folder), tests)
    if found.returncode:
        print(found.stdout[-4000:], found.stderr[-2000:])
        raise SystemExit("the named tests do not pass on the code as it is")


def chosen(words: argparse.Namespace) -> list[Mutant]:
    """The mutants that were asked for."""
    some = [one for one in MUTANTS if words.only in f"{one.file} {one.why}"]
    if words.sample is not None:
        some = random.Random(words.seed).sample(some, min(words.sample, len(some)))
    if not some:
        raise SystemExit(f"no mutant has {words.only!r} in its file or in its reason")
    return some


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
    if words.list:
        return
    check_unmutated(mutants)
    lived = 0
    with ThreadPoolExecutor(max(1, words.jobs)) as pool:
        for one, (found, seconds) in zip(mutants, pool.map(verdict, mutants), strict=True):
            lived += found != "killed"
            print(f"{found:<8}{seconds:5.0f} s  {one.file:<32} {one.why}", flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = used.ru_utime + used.ru_stime
    print(f"{len(mutants) - lived} of {len(mutants)} killed; {spent:.0f} s of processor time")
    raise SystemExit(min(lived, 1))


if __name__ == "__main__":
    main()
