"""Predictions made elsewhere: figures, groups, diff and gate without a model; bad files."""

import duckdb
import numpy as np
import pytest
from refusals import refused
from typer.testing import CliRunner

import classwise
from classwise.cli import app
from classwise.doors.predictions import audit_predictions
from classwise.record import foreign_table, prediction_files
from classwise.record.shard_files import bounds, connected

NAMES = ("cat", "dog", "owl")


def rows(wrong=0.3, seed=0, count=60):
    """(sample, label, predicted, condition, eps, camera) of two conditions."""
    random = np.random.default_rng(seed)
    for condition, eps, share in (("clean", 0, wrong / 2), ("pgd-20", "8/255", wrong)):
        for k in range(count):
            label = NAMES[k % 3]
            said = NAMES[(k + 1) % 3] if random.random() < share else label
            yield (f"img_{k:03d}.png", label, said, condition, eps, ("front", "rear")[k % 2])


HEADS = "sample,label,predicted,condition,eps,camera"


def put(path, found=None, heads=HEADS):
    lines = [heads, *(",".join(map(str, row)) for row in (rows() if found is None else found))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_figures_are_those_of_plain_counting(tmp_path):
    (audit,) = audit_predictions(put(tmp_path / "mine.csv"), tmp_path / "out")
    assert audit.recipe == "mine"
    assert list(audit.report) == ["clean", "pgd-20"]
    found = [row for row in rows() if row[3] == "pgd-20"]
    for name in NAMES:
        mine = [row[1] == row[2] for row in found if row[1] == name]
        assert audit.report["pgd-20"].by_class[name] == pytest.approx(np.mean(mine))
    for camera in ("front", "rear"):
        mine = [row[1] == row[2] for row in found if row[5] == camera]
        assert audit.report["pgd-20"].by("camera").by_group[camera] == pytest.approx(np.mean(mine))
    assert audit.report["pgd-20"].eps == pytest.approx(8 / 255)
    assert "made-elsewhere" in audit.report.about["flags"][0]


def test_parquet_and_numbers_say_the_same(tmp_path):
    put(tmp_path / "a.csv")
    with duckdb.connect() as base:
        base.execute(
            f"COPY (SELECT * REPLACE (CAST(substr(sample, 5, 3) AS INT) AS sample, "
            f"CASE label WHEN 'cat' THEN 0 WHEN 'dog' THEN 1 ELSE 2 END AS label, "
            f"CASE predicted WHEN 'cat' THEN 0 WHEN 'dog' THEN 1 ELSE 2 END AS predicted) "
            f"FROM '{tmp_path}/a.csv') TO '{tmp_path}/b.parquet' (FORMAT parquet)"
        )
    (one,), (two,) = (audit_predictions(tmp_path / n) for n in ("a.csv", "b.parquet"))
    first, second = (each.report["pgd-20"].by_class.values() for each in (one, two))
    assert list(first) == list(second)
    assert two.report["clean"].class_names == ("0", "1", "2")
    (tmp_path / "names.txt").write_text("cat\ndog\nowl\n")
    (named,) = audit_predictions(tmp_path / "b.parquet")
    assert named.report["clean"].class_names == NAMES


def test_scores_in_place_of_a_prediction(tmp_path, monkeypatch):
    monkeypatch.setattr(prediction_files, "PIECE", 6)  # two rows at a time
    scores = np.random.default_rng(0).normal(size=(9, 3)).round(4)
    found = [(k, NAMES[k % 3], *scores[k]) for k in range(9)]
    file = put(tmp_path / "s.csv", found, "index,label,score_cat,score_dog,score_owl")
    told = prediction_files.read_predictions(file)
    label, rest = np.arange(9) % 3, scores.copy()
    true = rest[np.arange(9), label].copy()
    rest[np.arange(9), label] = -np.inf
    assert told.found[0].predicted.tolist() == scores.argmax(1).tolist()
    assert told.found[0].logit_gap == pytest.approx(true - rest.max(1), abs=1e-6)
    assert told.found[0].condition == "clean"


def test_diff_and_gate_and_report(tmp_path):
    for name, wrong, seed in (("good", 0.1, 1), ("bad", 0.7, 2)):
        put(tmp_path / f"{name}.csv", rows(wrong, seed, 300))
        done = CliRunner().invoke(
            app,
            [
                "audit",
                "--predictions",
                str(tmp_path / f"{name}.csv"),
                "--out",
                str(tmp_path / name),
            ],
        )
        assert done.exit_code == 0, done.output
        assert "made-elsewhere" in " ".join(done.output.split())
    found = {one.condition: one for one in classwise.diff(tmp_path / "good", tmp_path / "bad")}
    assert set(found) == {"clean", "pgd-20"}
    rule = '[[rule]]\nno_class_below = "60 %"\nunder = "pgd-20"\n'
    rule += '[[rule]]\ngroups = "camera"\nno_group_below = "60 %"\nunder = "pgd-20"\n'
    (tmp_path / "contract.toml").write_text(rule)
    codes = [
        classwise.gate(tmp_path / "contract.toml", tmp_path / n).exit_code for n in ("good", "bad")
    ]
    assert codes == [0, 1]
    classwise.report([tmp_path / "good", tmp_path / "bad"], tmp_path / "r.html")
    assert "pgd-20" in (tmp_path / "r.html").read_text()


def test_the_same_file_twice_is_one_audit(tmp_path):
    file = put(tmp_path / "a.csv")
    audit_predictions(file, tmp_path / "out")
    audit_predictions(file, tmp_path / "out")
    (audit,) = classwise.read_ledger(tmp_path / "out")
    assert audit.report["clean"].sizes == {"cat": 20, "dog": 20, "owl": 20}
    put(file, rows(0.9, 5))
    (changed,) = audit_predictions(file, tmp_path / "out")  # other predictions, another model
    assert "@" in changed.weights
    assert len(classwise.read_ledger(tmp_path / "out")) == 2


def test_nothing_is_kept_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "a.csv")
    audit_predictions("a.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_options_of_an_audit_are_refused(tmp_path):
    done = CliRunner().invoke(
        app, ["audit", "--predictions", str(put(tmp_path / "a.csv")), "--eps", "0.1"]
    )
    assert done.exit_code == 2
    assert "--predictions only reads" in done.output


HEAD = "sample,label,predicted\n"
BAD = {
    "nothing": ("", "cannot be read|has no"),
    "no rows": (HEAD, "it has no row"),
    "no label": ("sample,predicted\n1,2\n", "it has no column label"),
    "no verdict": ("sample,label\n1,2\n", "it has no column predicted (or score_CLASS"),
    "two": ("sample,index,label,predicted\n1,1,0,1\n", "two columns are called sample"),
    "empty cell": (HEAD + "0,0,1\n1,,1\n", "line 3: label is empty"),
    "twice": (HEAD + "0,a,b\n1,b,b\n0,a,a\n", "line 4: a sample is there twice"),
    "labels": (
        "sample,label,predicted,condition\n0,a,b,clean\n0,b,b,fog\n",
        "line 3: a sample has two labels",
    ),
    "from 1": (HEAD + "0,1,2\n1,2,1\n", "classes run from 1 to 2"),
    "10 000 classes": (HEAD + "0,0,10000\n", "classes by number are 0 to 9999"),
    "one class": (HEAD + "0,a,a\n", "all images are of one class"),
    "eps": ("sample,label,predicted,eps\n0,a,b,8\n", "line 2: eps is 8.0, but images live"),
    "eps twice": (
        f"sample,label,predicted,eps\n0,a,b,8/255\n1,a,b,{8 / 255!r}\n",
        "one eps is written in two ways",
    ),
    "norm": ("sample,label,predicted,norm\n0,a,b,L9\n", "line 2: "),
    "samples": (HEAD + "7,a,b\n07,b,b\n", "each written in one way"),
    "score": ("sample,label,score_a\n0,a,1\n1,b,2\n", "it has no column 'score_b'"),
    "no score": ("sample,label,score_a,score_b\n0,a,1,x\n", "line 2: a score is missing"),
    "not the best": (
        "sample,label,predicted,score_a,score_b\n0,a,b,1,0\n",
        "line 2: predicted is not the class of the highest score",
    ),
    "groups": (
        "sample,label,predicted,condition,camera\n0,a,b,clean,x\n0,a,b,fog,y\n1,b,b,fog,z\n",
        "a sample is in different groups of 'camera'",
    ),
    "reserved": ("sample,label,predicted,class\n0,a,b,x\n", "give yours another name"),
    "cells": (HEAD + "0,a\n", "cannot be read as CSV"),
}


@pytest.mark.parametrize("name", BAD)
def test_files_that_are_refused(tmp_path, name):
    text, words = BAD[name]
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(classwise.ClasswiseError) as caught:
        audit_predictions(tmp_path / "x.csv", tmp_path / "out")
    assert any(word in str(caught.value) for word in words.split("|")), str(caught.value)
    assert not (tmp_path / "out" / "predictions").exists()


def test_too_many_rows_and_other_files(tmp_path, monkeypatch):
    with refused("no file"):
        audit_predictions(tmp_path / "none.csv")
    (tmp_path / "x.txt").write_text("x")
    with refused("end in .csv or .parquet"):
        audit_predictions(tmp_path / "x.txt")
    put(tmp_path / "x[1].csv")
    with refused("rename it"):
        audit_predictions(tmp_path / "x[1].csv")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no such thing PAR1")
    with refused("cannot be read as Parquet"):
        audit_predictions(tmp_path / "x.parquet")
    monkeypatch.setattr(foreign_table, "MOST_PREDICTIONS", 10)
    with refused("rows or more; 10 are the most"):
        audit_predictions(put(tmp_path / "a.csv"))
    monkeypatch.setattr(foreign_table, "MOST_BYTES", 10)
    with refused("is larger than"):
        audit_predictions(tmp_path / "a.csv")


def test_the_engine_takes_no_more_than_it_may():
    said = bounds()["memory_limit"]
    assert said.endswith("MiB")
    with connected() as base:
        ((limit,),) = base.execute("SELECT current_setting('memory_limit')").fetchall()
    with duckdb.connect() as plain:
        ((free,),) = plain.execute("SELECT current_setting('memory_limit')").fetchall()
    assert limit != free  # 80 % of the machine
