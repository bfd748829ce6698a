"""Run folders made of chosen predictions, and reading them back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from asked import write_predictions

from classwise.errors import ClasswiseError
from classwise.record.card import write_card
from classwise.record.rows import Predictions
from classwise.report.html import load_runs

NASTY = ["<script>alert(1)</script>", 'a&b"c', "100 % $x_1$ {\\}", "a|b *c*"]
WATCHED = {"overall": 0.5, "by_class": [0.5]}


def class_names(num_classes):
    """Hostile names first, then harmless ones."""
    return [*NASTY, *(f"class {k}" for k in range(4, num_classes))][:num_classes]


def synthetic_run(
    folder: Path,
    num_classes: int,
    *,
    recipe="at",
    weights=("last",),
    conditions=(("clean", 0.0, 0.85), ("pgd-20", 8 / 255, 0.45)),
    per_class=20,
    epochs=5,
    seed=0,
    split="test",
    empty=(),
    superclasses=0,
) -> Path:
    """Write a run whose class rates fall from class to class, with audits and a history."""
    random = np.random.default_rng(seed)
    data = {"name": "made-up", "class_names": class_names(num_classes)}
    if superclasses:
        data["superclass_of"] = [k % superclasses for k in range(num_classes)]
        data["superclass_names"] = [f"super <{s}>" for s in range(superclasses)]
    write_card(folder, recipe, data)
    card = json.loads((folder / "run.json").read_text())
    del card["checksum"]  # changed by hand
    card["config"] = {"model": "cnn", "epochs": epochs, "eps": 8 / 255, "seed": seed}
    card["recipe"] = {recipe: {}}
    (folder / "run.json").write_text(json.dumps(card))
    labels = np.repeat(np.setdiff1d(np.arange(num_classes), empty), per_class)
    for name in weights:
        for condition, radius, level in conditions:
            chance = np.clip(level + 0.4 * (random.random(num_classes) - 0.5), 0.02, 0.98)
            right = random.random(len(labels)) < chance[labels]
            near = (labels + random.integers(1, min(num_classes, 4), len(labels))) % num_classes
            predicted = np.where(right, labels, near)
            found = Predictions(
                condition,
                np.arange(len(labels)),
                labels,
                predicted,
                np.zeros(len(labels), np.float32),
                radius=np.full(len(labels), radius),
                iterations=np.full(len(labels), 20 if radius else 0, np.int32),
                broken_by=np.array([condition, None], dtype=object)[right.astype(int)],
            )
            write_predictions(folder, found, run=folder.name, weights=name, split=split)
    with (folder / "history.jsonl").open("w") as stream:
        for epoch in range(1, epochs + 1):
            stream.write(json.dumps(history_record(epoch, epochs, num_classes, random)) + "\n")
    (folder / "watch.jsonl").write_text(json.dumps({"epoch": epochs, "test:clean": WATCHED}) + "\n")
    return folder


def history_record(epoch, epochs, num_classes, random):
    """One epoch in the format of the training loop."""

    def rates(top):
        grown = top * (1 - np.exp(-3 * epoch / epochs)) * np.linspace(0.5, 1, num_classes)
        by_class = np.clip(grown + 0.02 * random.standard_normal(num_classes), 0, 1).tolist()
        by_class[0] = None
        return {"overall": float(grown.mean()), "by_class": by_class}

    return {
        "epoch": epoch,
        "lr": 0.1,
        "loss": {"total": 1 / epoch},
        "train": {"robust": rates(0.7)},
        "valid": {"live": {"clean": rates(0.9), "pgd-10": rates(0.6)}},
        "settings": {
            "margin": (np.linspace(4, 8, num_classes) / 255).tolist(),
            "target_odds": np.eye(2).tolist(),
        },
    }


def test_reads_back_what_was_written(tmp_path):
    folder = synthetic_run(tmp_path / "one", 3, weights=("last", "best"))
    (run,) = load_runs([folder])
    assert (run.name, run.recipe, len(run.history)) == ("one", "at", 5)
    assert [record["watch"] for record in run.history] == [{}] * 4 + [{"test:clean": WATCHED}]
    assert [audit.weights for audit in run.audits] == ["best", "last"]
    assert run.about["config"]["model"] == "cnn"


def test_folders_of_the_same_name_are_told_apart(tmp_path):
    folders = [synthetic_run(tmp_path / side / "run", 2) for side in ("a", "b")]
    names = [run.name for run in load_runs(folders)]
    assert len(set(names)) == 2
    assert [run.audits[0].run for run in load_runs(folders)] == names


def test_bad_folders_are_named(tmp_path):
    with pytest.raises(ClasswiseError, match="at least one run"):
        load_runs([])
    with pytest.raises(ClasswiseError, match=r"nowhere is not a run: it has no run\.json"):
        load_runs([tmp_path / "nowhere"])
    write_card(tmp_path / "new", "at", {"name": "x", "class_names": ["a", "b"]})
    with pytest.raises(ClasswiseError, match=r"no audit yet; first run: classwise audit .*new"):
        load_runs([tmp_path / "new"])
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "run.json").write_text('{"data": {}}')
    with pytest.raises(ClasswiseError, match="does not describe a run: it names no classes"):
        load_runs([tmp_path / "odd"])
    broken = synthetic_run(tmp_path / "broken", 2)
    next((broken / "predictions").iterdir()).write_bytes(b"<html>")
    with pytest.raises(ClasswiseError, match="is not a table of predictions"):
        load_runs([broken])
