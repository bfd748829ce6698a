"""Predictions that are kept, and targets that are named."""

import duckdb
import numpy as np
import pytest
import torch
from asked import evaluate, named, write_predictions
from digit_names import NAMES
from refusals import refused

from classwise.data.batches import Batches
from classwise.data.sources import open_data
from classwise.doors.audit import audit
from classwise.judging.audits import read_audits
from classwise.judging.reports import class_report
from classwise.record.rows import sql_types
from classwise.record.tensors import write_tensors


@pytest.fixture
def stored(digits, tmp_path):
    model, images, labels = digits
    batches = Batches(images, labels, torch.arange(200), 64)
    found = evaluate(model, batches, num_classes=10, attacks="clean,pgd-5(step=0.02)", eps=0.1)
    for one in found:
        write_predictions(tmp_path, one, run="mine", weights="last", split="test")
    about = {"recipe_name": "at", "data": {"class_names": NAMES, "superclass_of": [0] * 10}}
    return tmp_path, found, about


class TestPredictions:
    def test_a_stored_audit_gives_the_same_report(self, stored):
        folder, found, about = stored
        expected = class_report(found, named(NAMES, (0,) * 10))
        (audited,) = read_audits(folder, about)
        assert (audited.recipe, audited.weights, audited.split) == ("at", "last", "test")
        assert set(audited.report) == set(expected)
        for name in ("overall", "by_class", "worst_class", "intervals", "spread", "gap",
                     "false_positive_share", "one_vs_rest_accuracy", "by_superclass"):  # fmt: skip
            assert getattr(audited.report, name) == getattr(expected, name)
        for condition in expected:
            both = audited.report.confusion[condition], expected.confusion[condition]
            assert np.array_equal(*both)
        assert audited.report.about["eps"] == "0.1"

    def test_the_long_table_holds_a_row_per_sample_and_condition(self, stored):
        folder, found, _ = stored
        long = duckdb.sql(f"FROM read_parquet('{folder}/predictions/*.parquet')")
        assert dict(zip(long.columns, map(str, long.types), strict=True)) == sql_types()
        for one in found:
            rows = duckdb.sql(
                "SELECT sample, label, predicted, correct, broken_by, logit_gap, radius, "
                f"iterations FROM long WHERE condition = '{one.condition}' ORDER BY sample"
            ).fetchnumpy()
            assert np.array_equal(rows["sample"], np.arange(200))
            assert np.array_equal(rows["label"], one.label)
            assert np.array_equal(rows["predicted"], one.predicted)
            assert np.array_equal(rows["correct"], one.label == one.predicted)
            assert np.array_equal(rows["logit_gap"], one.logit_gap)
            assert np.array_equal(rows["radius"], one.radius)
            assert np.array_equal(rows["iterations"], one.iterations)
            broken = np.ma.getmaskarray(np.ma.asarray(rows["broken_by"]))
            assert np.array_equal(broken, rows["correct"])

    def test_writing_the_same_condition_again_replaces_it(self, stored):
        folder, found, about = stored
        files = sorted((folder / "predictions").iterdir())
        write_predictions(folder, found[0], run="mine", weights="last", split="test")
        assert sorted((folder / "predictions").iterdir()) == files
        (audited,) = read_audits(folder, about)
        assert int(audited.report["clean"].counts.sizes.sum()) == 200

    def test_two_radii_stand_side_by_side(self, stored, digits):
        folder, _, about = stored
        model, images, labels = digits
        batches = Batches(images, labels, torch.arange(200), 64)
        for eps in (0.1, 0.2):
            (found,) = evaluate(model, batches, num_classes=10, attacks="fgsm", eps=eps)
            write_predictions(folder, found, run="mine", weights="last", split="test")
        (audited,) = read_audits(folder, about)
        both = [name for name in audited.report if name.startswith("fgsm")]
        assert len(both) == 2
        assert any("0.1" in name for name in both)
        assert any("0.2" in name for name in both)

    def test_weights_and_splits_are_rows_of_their_own(self, stored):
        folder, found, about = stored
        write_predictions(folder, found[0], run="mine", weights="ema-last", split="test")
        write_predictions(folder, found[0], run="mine", weights="last", split="train")
        audits = read_audits(folder, about)
        assert [(one.weights, one.split) for one in audits] == [
            ("ema-last", "test"),
            ("last", "test"),
            ("last", "train"),
        ]

    @pytest.mark.parametrize("content", [b"", b"PAR1 no", b"hello" * 100])
    def test_a_damaged_table_is_refused(self, stored, content):
        folder, _, about = stored
        file = next((folder / "predictions").iterdir())
        file.write_bytes(content)
        with refused(file.name):
            read_audits(folder, about)

    def test_a_folder_that_cannot_be_written_is_refused(self, stored, tmp_path):
        _, found, _ = stored
        (tmp_path / "file").write_text("in the way")
        with refused("file"):
            write_predictions(tmp_path / "file", found[0], run="r", weights="last", split="test")


class TestTarget:
    """The same audit by run folder, weights file and module:callable."""

    @pytest.fixture
    def linear(self, digits, tmp_path, monkeypatch):
        model = digits[0]
        write_tensors(tmp_path / "linear.tensors", model.state_dict(), {})
        (tmp_path / "linear_model.py").write_text(
            "from pathlib import Path\n"
            "from torch import nn\n"
            "from classwise.record.tensors import read_tensors\n"
            "def make(num_classes):\n"
            "    model = nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes)).double()\n"
            "    path = Path(__file__).with_name('linear.tensors')\n"
            "    model.load_state_dict(read_tensors(path)[0])\n"
            "    return model.float()\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        return "linear_model:make"

    def test_a_callable_is_audited_and_its_predictions_kept(self, linear, digits, tmp_path):
        from asked import audit_target

        from classwise.training.run import Run

        folder = tmp_path / "kept"
        facts = {"data": "digits", "attacks": "clean,pgd-2", "eps": 0.1, "quiet": True}
        (found,) = audit_target(linear, folder=folder, **facts)
        test = open_data("digits").test
        expected = audit(
            digits[0].float(), test.images, test.labels, attacks="clean,pgd-2", eps=0.1
        )
        digits[0].double()
        assert np.array_equal(found.report.confusion["pgd-2"], expected.confusion["pgd-2"])
        (again,) = read_audits(folder, Run(folder).about)
        assert np.array_equal(again.report.confusion["pgd-2"], expected.confusion["pgd-2"])
        assert list(again.report.by_class["clean"]) == list(NAMES)

    def test_a_target_that_is_nothing_is_refused(self, tmp_path):
        from asked import audit_target

        with refused("nothing_here"):
            audit_target("nothing_here", data="digits")
        with refused("nothing_here is neither a run folder", "there is no such file or folder"):
            audit_target("nothing_here")
        with refused("--data"):
            audit_target("some_module:make")
        with refused("not a run"):
            audit_target(str(tmp_path), data="digits")
        with refused("no checkpoint"):
            audit_target(str(tmp_path / "gone.safetensors"), data="digits")
