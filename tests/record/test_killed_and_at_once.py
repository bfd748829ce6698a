"""Audits that are killed at any moment, and audits of one folder by two processes at once.

One process starts all the others by forking, so that what is long to import is imported once.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Thread

import conditions
import duckdb
import pytest
from conditions import COUNT, Scene
from doors_in import data_file
from ledgers import Counting, stamp, verdicts

import classwise
from classwise.attacks.condition import Condition
from classwise.attacks.threat import Threat
from classwise.auditing.run import FIRST
from classwise.judging.audits import read_ledger
from classwise.record import ledger
from classwise.record.ledger import Ledger
from classwise.record.record import Record

SUITE = "suite(apgd-ce(steps=3),apgd-t(steps=3),square(queries=20))"
ATTACKS = ("clean", "pgd-2", SUITE)
PIECE = 4  # images: twice the batch size; the first piece has FIRST
PIECES = 1 + -(-(COUNT - FIRST) // PIECE)
# Where a process kills itself: at the n-th time that it comes by.
KILLS = [
    ("judged", 2),  # a piece is judged, and nothing of it written
    ("sealed", 4),  # its file is written beside its place
    ("kept", 5),  # it is in its place
    ("sealed", PIECES + 1),  # all pieces are there, and about to become one file
]
TIMES = 3

_SCRIPT = """
import json, os, signal, sys
from collections import Counter
from pathlib import Path
import torch
torch.set_num_threads(1)
import conditions, scipy.stats, classwise.doors.folders, classwise.report.html
from classwise.attacks.condition import Condition
from classwise.cli import app
from classwise.record import shards
from classwise.record.record import Record

here, data, suite, attacks, kills, times = *sys.argv[1:5], *map(json.loads, sys.argv[5:7])

def child(folder, attacks, batch_size, kill=None):
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        log = os.open(f"{folder}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        judge, append, seal = Condition.judge, Record.append, shards.seal_file
        came = Counter()
        def passing(word, images=0):
            came[word] += 1
            os.write(log, f"{word} {images} {os.getpid()}\\n".encode())
            if [word, came[word]] == kill:
                os.kill(os.getpid(), signal.SIGKILL)
        def judging(self, subject, batch, *tell):
            passing("judge", len(batch))
            found = judge(self, subject, batch, *tell)
            passing("judged", len(batch))
            return found
        def appended(self, condition, found):
            append(self, condition, found)
            passing("kept", len(found.sample))
        def sealed(path):
            seal(path)
            passing("sealed")
        Condition.judge, Record.append, shards.seal_file = judging, appended, sealed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(f"{folder}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        app(["audit", "doors_in:held", "--data", data, "--attacks", attacks, "--eps", "0.04",
             "--batch-size", str(batch_size), "--out", folder, "--device", "cpu", "--quiet"])
    except SystemExit as end:
        code = end.code or 0
    finally:
        os._exit(code)

def ended(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

def log(folder):
    path = Path(f"{folder}.log")
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

found = {"straight": ended(child(f"{here}/straight", suite, 2)), "killed": [], "at once": []}
for number, kill in enumerate(kills):
    folder = f"{here}/killed{number}"
    end, before = ended(child(folder, suite, 2, kill)), log(folder)
    again = ended(child(folder, suite, 2))
    found["killed"].append([end, before, again, log(folder)[len(before):]])
for number in range(times):
    folder = f"{here}/twice{number}"
    both = [child(folder, attacks, 2), child(folder, attacks, 2 + number % 2)]
    found["at once"].append([ended(process) for process in both])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    here = tmp_path_factory.mktemp("story")
    package = Path(classwise.__file__).parents[1]
    paths = os.pathsep.join([str(Path(conditions.__file__).parent), str(package)])
    words = [str(here), data_file(Scene(), here), SUITE, ",".join(ATTACKS)]
    words += [json.dumps(KILLS), json.dumps(TIMES)]
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *words],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = "".join(path.read_text() for path in sorted(here.glob("*.err")))
    assert done.returncode == 0, done.stderr
    return here, json.loads(done.stdout), said


def rows(folder, condition=SUITE):
    """Everything that is in the files, also twice."""
    return duckdb.sql(
        f"SELECT sample, label, predicted, iterations, broken_by FROM "
        f"'{folder}/predictions/*.parquet' WHERE condition = '{condition}' ORDER BY ALL"
    ).fetchall()


def images(log, word):
    return [int(count) for what, count, _ in log if what == word]


def test_a_kill_at_any_moment_loses_at_most_the_piece_at_work(story):
    here, found, said = story
    assert found["straight"] == 0, said
    straight = rows(here / "straight")
    assert [row[0] for row in straight] == list(range(COUNT))
    assert len(found["killed"]) == len(KILLS)
    for number, (end, before, again, after) in enumerate(found["killed"]):
        word, times = KILLS[number]
        assert end == -9, (KILLS[number], said)
        assert len(images(before, word)) == times
        assert again == 0, said
        begun, kept = sum(images(before, "judge")), sum(images(before, "kept"))
        assert begun - kept <= PIECE
        # What was on disk is not judged again: the rest is, and at most one piece twice.
        assert sum(images(after, "judge")) == COUNT - kept
        pieces = {"kept": times}.get(word, times - 1)
        assert kept == (COUNT if pieces == PIECES else FIRST + PIECE * (pieces - 1))
        assert rows(here / f"killed{number}") == straight


def test_two_audits_at_once_both_finish_and_every_row_is_there_once(story):
    here, found, said = story
    for number, ends in enumerate(found["at once"]):
        assert ends == [0, 0], said
        folder = here / f"twice{number}"
        for condition in ATTACKS:
            samples = [row[0] for row in rows(folder, condition)]
            assert samples == list(range(COUNT)), condition
        assert rows(folder) == rows(here / "straight")
        assert len(list(folder.glob("predictions/*.parquet"))) == len(ATTACKS)
        (audited,) = read_ledger(folder)
        assert set(audited.report) == set(ATTACKS)
    assert not list(here.glob("twice*/**/*.part"))  # a kill may leave one, an end may not


def test_a_compaction_waits_for_another_ones_end(tmp_path, monkeypatch):
    """Whoever reads the shards writes and removes them before the next one looks."""
    condition = Condition(None, Counting(), Threat.of(0.1))
    whose = replace(stamp(), attack_key=condition.key)

    def record():
        return Record(tmp_path, Ledger(tmp_path), replace(whose, attack_key=""))

    for samples in ([0, 1], [2, 3]):
        record().append(condition, verdicts(samples))
    read, others = ledger._read, []

    def meanwhile(*given):
        found = read(*given)
        if not others:  # another process has finished its piece, and tidies up, too
            record().append(condition, verdicts([3, 4]))
            others.append(Thread(target=record().tidy, args=(condition,)))
            others[0].start()
            others[0].join(timeout=0.5)
        return found

    monkeypatch.setattr(ledger, "_read", meanwhile)
    record().tidy(condition)
    others[0].join()
    kept = duckdb.sql(f"SELECT sample FROM '{tmp_path}/*.parquet' ORDER BY ALL").fetchall()
    assert kept == [(0,), (1,), (2,), (3,), (4,)]


def test_images_that_were_not_asked_for_at_first_are_there_when_they_are(tmp_path):
    """Rows with and without their image are one condition, and compaction keeps the image."""
    scene = Scene()
    given, facts = (
        (scene.images, scene.labels),
        {"eps": scene.eps, "class_names": scene.class_names},
    )
    name = "suite(apgd-ce(steps=3),square(queries=5))"

    def images_of(folder):
        attack = classwise.AutoAttack(
            scene.model, eps=scene.eps, verbose=False, version="custom",
            attacks_to_run=["apgd-ce(steps=3)", "square(queries=5)"],
            class_names=scene.class_names,
        )  # fmt: skip
        return attack.run_standard_evaluation(*given, bs=3, state_path=folder)

    straight = images_of(tmp_path / "straight")
    classwise.audit(scene.model, *given, attacks=name, out=tmp_path / "kept", **facts)
    for _ in range(2):
        assert images_of(tmp_path / "kept").equal(straight)
    ((count, pictured),) = duckdb.sql(
        f"SELECT count(*), count(image) FROM '{tmp_path}/kept/predictions/*.parquet' "
        f"WHERE condition = '{name}'"
    ).fetchall()
    assert count == pictured == COUNT
