"""Several true labels per image: judged by plain loops, kept, read back, and what is refused."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import classwise
from classwise.errors import ClasswiseError
from classwise.judging.audits import read_ledger
from classwise.judging.truth import ManyLabels

COUNT, CLASSES = 60, 5


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(27, CLASSES))


def data():
    rng = torch.Generator().manual_seed(4)
    images = torch.randint(0, 256, (COUNT, 3, 3, 3), generator=rng, dtype=torch.uint8)
    return images, torch.arange(COUNT) % CLASSES


def truths(seed=0):
    """None, one or two labels; often without the original one."""
    rng = np.random.default_rng(seed)
    return [sorted(rng.choice(CLASSES, rng.integers(0, 3), replace=False).tolist())
            for _ in range(COUNT)]  # fmt: skip


def by_hand(predicted, labels, true):
    """Right and all, by original label, without images that have no label."""
    right, seen = [0] * CLASSES, [0] * CLASSES
    for said, label, several in zip(predicted, labels, true, strict=True):
        if several:
            seen[label] += 1
            right[label] += said in several
    return right, seen


def test_any_label_is_right_and_empty_entries_are_left_out():
    images, labels = data()
    network, true = model(), truths()
    report = classwise.audit(network, images, labels, attacks="clean", true_labels=true)
    predicted = network(images.float() / 255).argmax(1).tolist()
    right, seen = by_hand(predicted, labels.tolist(), true)
    again = report.relabelled["clean"]
    assert again.tally.hits.tolist() == right
    assert again.tally.sizes.tolist() == seen
    assert report["clean"].tally.sizes.sum() == COUNT  # the original labels stay as they are
    empty = sum(not one for one in true)
    assert empty > 3
    assert f"{empty} images without any are left out" in report.relabelled.about["note"]
    assert report.to_dict()["relabelled"]["conditions"][0]["overall"] == again.overall


def test_a_folder_keeps_them_and_readers_judge_alike(tmp_path):
    images, labels = data()
    given = {"attacks": "clean,fgsm", "eps": 0.1, "out": tmp_path, "name": "mine"}
    live = classwise.audit(model(), images, labels, true_labels=truths(), **given)
    (kept,) = read_ledger(tmp_path)
    for name in ("clean", "fgsm"):
        here, there = live.relabelled[name], kept.report.relabelled[name]
        assert np.array_equal(here.confusion, there.confusion)
    later = classwise.audit(model(), images, labels, **given)  # nothing is given again
    assert later.relabelled["fgsm"].overall == live.relabelled["fgsm"].overall
    classwise.report(tmp_path, tmp_path / "x.csv")
    lines = (tmp_path / "x.real.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * CLASSES
    for ending in ("md", "tex", "json", "html"):
        classwise.report(tmp_path, tmp_path / f"x.{ending}")
        assert "true_labels" in (tmp_path / f"x.{ending}").read_text()


def test_a_wrong_original_label_is_no_hit():
    truth = ManyLabels.of("x", [[1], [0, 2], [2]], 3, 3)
    found = classwise.record.rows.Predictions(
        "clean",
        np.arange(3),
        np.array([0, 0, 1]),
        np.array([0, 2, 1]),
        *(np.zeros(3) for _ in range(4)),
    )
    counts = truth.judged(found, 3)
    assert counts.confusion.tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([[1]], "has 1 entries, and the data 2 images"),
        ({"a": 1}, "has dict entries"),
        ([[1], [5]], "image 1 has .* whole numbers from 0 to 4"),
        ([[1], 3], "image 1 has 3"),
        ([[True], [1]], "image 0 has"),
        ([[1.0], [1]], "image 0 has"),
    ],
)
def test_what_is_refused(tmp_path, entries, words):
    path = tmp_path / "real.json"
    path.write_text(json.dumps(entries))
    with pytest.raises(ClasswiseError, match=words):
        ManyLabels.read(path, 2, 5)


def test_a_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(ClasswiseError, match="cannot read"):
        ManyLabels.read(tmp_path / "none.json", 2, 5)
    (tmp_path / "x.json").write_text("[[1], ")
    with pytest.raises(ClasswiseError, match="not JSON"):
        ManyLabels.read(tmp_path / "x.json", 2, 5)
