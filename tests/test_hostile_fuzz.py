"""Whatever a parser or a reader is given, it takes it or says in words why not."""

import os
import subprocess
import sys
from pathlib import Path

import hostile
import pytest

import classwise

CEILING = 6 << 30  # bytes of address space; the libraries alone reserve most of it
PEAK = 1 << 30  # bytes that are really taken


@pytest.mark.parametrize("name", hostile.PARSERS)
def test_parsers_take_words_or_refuse_them(name):
    hostile.try_parser(name, hostile.WORDS)


@pytest.mark.parametrize("name", hostile.TEXT_FILES)
def test_text_files_are_taken_or_refused(name, tmp_path):
    hostile.try_parser(name, hostile.WORDS // 4, place=tmp_path)


READ = """
import pathlib, resource, sys
import hostile_bombs, hostile_files
ceiling, peak = {ceiling}, {peak}
resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
place = pathlib.Path(sys.argv[1])
{do}
taken = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert taken < peak, f"{{taken / 1e9:.1f}} GB were taken"
"""
ALL = """
for name in hostile_files.READERS:
    here = place / name.replace(" ", "-")
    here.mkdir()
    slow = name in ("parquet", "predictions")  # opening one takes long
    count = hostile_files.FILES // (4 if slow else 1)
    assert hostile_files.try_reader(name, count, here), f"not even a whole {name} was read"
"""


def in_another_process(do: str, place: Path) -> None:
    paths = [Path(classwise.__file__).parents[1], Path(hostile.__file__).parent]
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            READ.format(ceiling=CEILING, peak=PEAK, do=do),
            place,
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(sys.platform != "linux", reason="the ceiling is Linux's")
def test_damaged_files_are_read_or_refused_in_little_memory(tmp_path):
    in_another_process(ALL, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="the ceiling is Linux's")
def test_bombs_are_refused_in_little_memory(tmp_path):
    in_another_process("hostile_bombs.refuse_bombs(place)", tmp_path)
