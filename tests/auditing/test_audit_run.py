"""Audits through a ledger: begun, broken off, and gone on with."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from asked import audit_target, evaluate
from ledgers import ABOUT, Counting, Tiny, audit_model, complete, data, stamp, verdicts
from refusals import refused

import classwise
from classwise.attacks.condition import Condition
from classwise.attacks.fixed_steps import FixedSteps
from classwise.errors import ClasswiseError
from classwise.judging.audits import read_ledger
from classwise.judging.samples import read_samples
from classwise.record import shards
from classwise.record.ledger import Ledger


class TestGivenModels:
    """`classwise.audit` with a folder."""

    facts: ClassVar = {"attacks": "clean,pgd-3", "eps": 0.1, "class_names": ("a", "b", "c")}

    @pytest.fixture
    def given(self):
        torch.manual_seed(0)
        batches = data(40)
        return Tiny(), batches.images, batches.labels

    def test_nothing_is_attacked_twice(self, given, tmp_path):
        plain = classwise.audit(*given, **self.facts)
        kept = classwise.audit(*given, **self.facts, out=tmp_path / "kept", name="tiny")
        for condition in ("clean", "pgd-3"):
            assert np.array_equal(kept.confusion[condition], plain.confusion[condition])
        files = sorted((tmp_path / "kept" / "predictions").glob("*.parquet"))
        times = [path.stat().st_mtime_ns for path in files]
        again = classwise.audit(*given, **self.facts, out=tmp_path / "kept", name="tiny")
        assert np.array_equal(again.confusion["pgd-3"], plain.confusion["pgd-3"])
        assert [path.stat().st_mtime_ns for path in files] == times
        (read,) = read_ledger(tmp_path / "kept")
        assert (read.recipe, read.split) == ("tiny", "test")
        assert list(read.report.by_class["clean"]) == ["a", "b", "c"]

    @pytest.mark.parametrize("many", [2, 12])
    def test_files_are_opened_once_for_all_conditions(self, given, tmp_path, monkeypatch, many):
        """A first audit writes and compacts each condition; a second reads all of them at once."""
        opened, load = [], shards._load

        def counted(base, folder, where, begins):
            opened.append(sum(p.name.startswith(begins) for p in folder.glob("*.parquet")))
            return load(base, folder, where, begins)

        monkeypatch.setattr(shards, "_load", counted)
        names = ["clean", *(f"pgd-{steps}" for steps in range(1, many))]
        facts = {**self.facts, "attacks": names, "out": tmp_path / "kept"}
        classwise.audit(*given, **facts)
        assert max(opened[:-1]) <= 3  # one to begin with, then the pieces of one condition
        opened.clear()
        classwise.audit(*given, **facts)
        assert opened == [many] * len(opened)
        assert len(opened) <= 2  # what is known, and what else there is
        opened.clear()
        samples = read_samples(tmp_path / "kept")
        assert len(samples.conditions) == many
        assert len(opened) <= 3

    def test_an_interrupted_audit_goes_on(self, given, tmp_path, monkeypatch):
        judged, lucky, judge = [], [3], FixedSteps.judge

        def counted(self, subject, batch, *rest):
            if len(judged) == lucky[0]:
                raise RuntimeError("out of luck")
            judged.append(len(batch))
            return judge(self, subject, batch, *rest)

        monkeypatch.setattr(FixedSteps, "judge", counted)
        facts = {**self.facts, "attacks": "pgd-3", "batch_size": 4, "out": tmp_path / "kept"}
        with refused("samples 18 to 25", "out of luck", "18 of 40 samples are kept"):
            classwise.audit(*given, **facts)
        lucky[0] = 99
        report = classwise.audit(*given, **facts)
        assert judged == [2, 8, 8, *[2, 8, 8, 4]]
        plain = classwise.audit(*given, **{**self.facts, "attacks": "pgd-3"})
        assert np.array_equal(report.confusion["pgd-3"], plain.confusion["pgd-3"])

    def test_without_a_folder_the_error_says_where_it_was(self, given, monkeypatch):
        def broken(*_, **__):
            raise RuntimeError("out of luck")

        monkeypatch.setattr(Condition, "judge", broken)
        with pytest.raises(RuntimeError, match="out of luck") as caught:
            classwise.audit(*given, **self.facts)
        assert caught.value.__notes__ == ["while clean was run on samples 0 to 39"]

    def test_a_function_needs_a_name_and_a_new_one_for_new_weights(self, given, tmp_path):
        model, images, labels = given
        facts = {**self.facts, "attacks": "clean", "out": tmp_path / "kept"}
        with refused("name="):
            classwise.audit(lambda x: model(x), images, labels, **facts)
        classwise.audit(lambda x: model(x), images, labels, **facts, name="v1")
        classwise.audit(lambda x: -model(x), images, labels, **facts, name="v2")
        first, second = read_ledger(tmp_path / "kept")
        assert {first.recipe, second.recipe} == {"v1", "v2"}
        assert first.report.overall["clean"] != second.report.overall["clean"]

    def test_a_radius_for_each_image_and_what_is_said_of_the_model(self, given, tmp_path):
        eps = torch.linspace(0, 0.2, 40)
        facts = {**self.facts, "attacks": "pgd-3", "eps": eps}
        plain = classwise.audit(*given, **facts)
        kept = classwise.audit(*given, **facts, out=tmp_path / "kept")
        assert np.array_equal(kept.confusion["pgd-3"], plain.confusion["pgd-3"])

    def test_superclasses_may_come_later(self, given, tmp_path):
        facts = {**self.facts, "attacks": "clean", "out": tmp_path / "kept"}
        classwise.audit(*given, **facts)
        groups = {"superclass_of": (0, 0, 1), "superclass_names": ("both", "alone")}
        classwise.audit(*given, **facts, **groups)
        (read,) = read_ledger(tmp_path / "kept")
        assert read.report["clean"].superclass_names == ("both", "alone")

    def test_a_training_run_is_not_overwritten(self, given, tmp_path):
        card = tmp_path / "run.json"
        card.write_text('{"identity": "abc", "data": {"class_names": ["a"]}}')
        with refused("training run", "another folder"):
            classwise.audit(*given, **self.facts, out=tmp_path)
        assert "abc" in card.read_text()


def test_an_audit_through_the_ledger_equals_the_plain_one_for_any_batch_size(tmp_path):
    torch.manual_seed(0)
    model = Tiny()
    facts = {"num_classes": 3, "attacks": "clean,pgd-3", "eps": 0.1}
    plain = evaluate(model, data(40), **facts)
    for size in (7, 40):
        ledger = Ledger(tmp_path / str(size), ABOUT)
        found = audit_model(model, data(40, size), ledger=ledger, **facts)
        for one, other in zip(found, plain, strict=True):
            assert one.condition == other.condition
            assert np.array_equal(one.sample, other.sample)
            assert np.array_equal(one.predicted, other.predicted)
            assert one.broken_by.tolist() == other.broken_by.tolist()


def test_a_small_audit_of_a_target_begins_the_large_one(tmp_path, monkeypatch):
    (tmp_path / "own_net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def make(num_classes):\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    shown, judge = [], Condition.judge

    def counting(self, subject, batch, tell):
        shown.append(len(batch))
        return judge(self, subject, batch, tell)

    monkeypatch.setattr(Condition, "judge", counting)
    facts = {"data": "digits", "attacks": "clean,pgd-2", "eps": 0.1, "quiet": True}
    folder = tmp_path / "kept"
    (small,) = audit_target("own_net:make", folder=folder, limit=50, **facts)
    assert sum(shown) == 100
    (large,) = audit_target("own_net:make", folder=folder, **facts)
    count = int(large.report["pgd-2"].counts.sizes.sum())
    assert sum(shown) == 2 * count
    (again,) = audit_target("own_net:make", folder=folder, limit=50, **facts)
    assert sum(shown) == 2 * count
    assert again.report.by_class == small.report.by_class
    (fresh,) = audit_target("own_net:make", folder=tmp_path / "other", **facts)
    assert fresh.report.by_class == large.report.by_class
    (read,) = read_ledger(folder)
    assert read.report.by_class == large.report.by_class


def test_a_batch_that_says_too_little_is_an_error_with_its_cause(tmp_path):
    with pytest.raises(ClasswiseError) as caught:
        complete(Ledger(tmp_path), stamp(), data(), Counting(fail_at=0))
    assert isinstance(caught.value.__cause__, RuntimeError)


class Shift:
    """Someone else's attack, with a setting."""

    def __init__(self, by):
        self.by = by

    def __call__(self, images, _):
        return (images + self.by).clamp(0, 1)


def test_someone_elses_attack_is_known_by_its_settings(tmp_path):
    torch.manual_seed(0)
    model, ledger = Tiny(), Ledger(tmp_path, ABOUT)
    facts = {"num_classes": 3, "eps": 0.1, "ledger": ledger}
    for by in (0.1, -0.1):
        (found,) = audit_model(model, data(), attacks=[Shift(by)], **facts)
        images = (data().images + by).clamp(0, 1)
        assert np.array_equal(found.predicted, model(images).argmax(1).numpy())
    assert len(list(tmp_path.iterdir())) == 2
    with refused("settings"):
        audit_model(model, data(), attacks=[lambda images, _: images], **facts)


def test_a_radius_per_image_follows_its_image_into_every_batch(tmp_path):
    torch.manual_seed(0)
    model, eps = Tiny(), torch.linspace(0, 0.3, 20)
    facts = {"num_classes": 3, "attacks": "fgsm", "eps": eps}
    (plain,) = evaluate(model, data(), **facts)
    ledger = Ledger(tmp_path, ABOUT)
    ledger.append(verdicts([3, 11]), stamp())  # another key, same folder
    (found,) = audit_model(model, data(batch_size=7), ledger=ledger, **facts)
    assert found.radius == pytest.approx(eps.numpy())
    assert np.array_equal(found.predicted, plain.predicted)
