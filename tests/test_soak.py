"""A soak in small: every section is tried and stands on its page, and failures are failures."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT, TESTS

import classwise

PAGE = ROOT / "docs" / "reliability.md"
SECTIONS = ["killed", "two at once", "no room", "damaged", "yours", "words", "files"]
BROKEN = """
import os, random, sys, time
from pathlib import Path
from soak.engine import Stretch, run, stretches
from soak.fault import Fault

def prepare(place):
    def attempt(rng):
        number = int(rng.random() * 1e9)
        if number == int(sys.argv[2]):
            {do}
        return "classwise: something was refused in so many words"
    return attempt

fault = Fault("x", "y", 4, prepare, patience=1.0)
(found,) = run(list(stretches(fault, 4, 0, 2)), 7, Path(sys.argv[1]), 2, print).values()
print(found.tried, [number for number, _ in found.failures], found.told, found.failures)
"""
DOINGS = {
    "raises": ("raise ValueError('lost')", "ValueError: lost"),
    "dies": ("os._exit(9)", "ended the process (9)"),
    "hangs": ("time.sleep(60)", "took more than 1 s"),
}


def python(*words):
    paths = [Path(classwise.__file__).parents[1], ROOT / "benchmarks", TESTS]
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_in_small_every_section_is_tried_and_nothing_fails(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    done = python("-m", "soak", "--smoke", "--seed", "1", "--page", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "**0 failures**" in text
    assert "seed 1" in text
    for section in SECTIONS:
        assert f"\n### {section.capitalize()}\n" in text
    assert text.partition("## Measured")[0] == PAGE.read_text().partition("## Measured")[0]


def tried(text):
    """How often each fault was tried, by section and name, as the tables of a page have it."""
    found, section = {}, ""
    for line in text.splitlines():
        if line.startswith("### "):
            section = line[4:].lower()
        elif re.match(r"\| [^|]+ \| \d+ \|", line):
            name, count = (cell.strip() for cell in line.split("|")[1:3])
            found[f"{section}: {name}"] = int(count)
    return found


def test_the_page_in_the_repository_is_of_a_whole_soak(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    faults = importlib.import_module("soak.__main__").FAULTS
    text = PAGE.read_text().partition("## Measured")[2]
    assert "**0 failures**" in text
    assert [line[4:].lower() for line in text.splitlines() if line[:4] == "### "] == SECTIONS
    times = re.search(r", seed \d+, (\S+) times the usual numbers: ", text)
    assert times, "the page is of a small soak; `make soak` writes one of a whole"
    assert float(times[1]) >= 1
    assert tried(text) == {one.title: round(float(times[1]) * one.count) for one in faults}


@pytest.mark.parametrize("how", DOINGS)
def test_one_attempt_that_fails_is_counted_and_the_others_are_made(tmp_path, how):
    do, words = DOINGS[how]
    import random

    wrong = int(random.Random("7 x: y 2").random() * 1e9)
    done = python("-c", BROKEN.format(do=do), tmp_path, wrong)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("4 [2] "), done.stdout + done.stderr
    assert words in last
