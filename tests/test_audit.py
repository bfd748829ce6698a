import math

import duckdb
import numpy as np
import pytest
import torch
from asked import evaluate, named, write_predictions
from refusals import refused
from sklearn.linear_model import LogisticRegression
from torch import nn

import classwise
from classwise.attacks.losses import LogitGap
from classwise.data.batches import Batches
from classwise.data.sources import open_data
from classwise.doors.audit import audit
from classwise.judging.audits import read_audits
from classwise.judging.reports import class_report
from classwise.record.rows import sql_types
from classwise.record.tensors import write_tensors

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@pytest.fixture(scope="module")
def digits():
    """200 test digits in float64, and a linear model that knows most of them."""
    source = open_data("digits")
    train, test = source.train, source.test
    fitted = LogisticRegression(max_iter=2000).fit(
        train.images.flatten(1).numpy() / 255, train.labels.numpy()
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.from_numpy(fitted.coef_))
        model[1].bias.copy_(torch.from_numpy(fitted.intercept_))
    return model, test.images[:200].double() / 255, test.labels[:200]


def test_the_package_shows_audit_at_its_top():
    assert classwise.audit is audit


def test_a_module_is_audited_class_by_class(digits):
    model, images, labels = digits
    report = audit(model, images, labels, eps=0.1, class_names=NAMES)
    assert list(report) == ["clean", "pgd-20"]
    predicted = model(images).argmax(1)
    for k, name in enumerate(NAMES):
        expected = (predicted[labels == k] == k).double().mean().item()
        assert report.by_class["clean"][name] == pytest.approx(expected)
    assert report.overall["clean"] > 0.9
    assert report.overall["pgd-20"] < report.overall["clean"] - 0.2
    assert report.about["eps"] == 0.1


def test_worst_classes_are_named_beside_their_numbers(digits):
    report = audit(*digits, eps=0.1, class_names=NAMES)
    text = repr(report)
    for condition in report:
        assert report.worst_class[condition] in text
        assert report.tail()[condition].classes[0] == report.worst_class[condition]
        assert report.worst[condition] == min(report.by_class[condition].values())


def test_a_plain_function_is_audited_as_its_module_is(digits):
    model, images, labels = digits
    weight, bias = model[1].weight.detach(), model[1].bias.detach()
    function = audit(lambda x: x.flatten(1) @ weight.T + bias, images, labels, eps=0.1)
    module = audit(model, images, labels, eps=0.1)
    for condition in module:
        assert np.array_equal(function.confusion[condition], module.confusion[condition])


def test_uint8_images_numpy_and_lists_are_the_same_data(digits):
    model, images, labels = digits
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    whole = (images * 255).round().to(torch.uint8)
    expected = audit(model, images.float(), labels, eps=0.1).confusion["pgd-20"]
    assert np.array_equal(audit(model, whole, labels, eps=0.1).confusion["pgd-20"], expected)
    given = audit(model, whole.numpy(), labels.tolist(), eps="1/10").confusion["pgd-20"]
    assert np.array_equal(given, expected)


def test_images_are_taken_in_the_precision_of_the_model(digits):
    model, images, labels = digits
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    found = audit(plain, images.numpy(), labels.numpy(), eps=0.1)  # float64, as numpy makes them
    expected = audit(plain, images.float(), labels, eps=0.1)
    assert np.array_equal(found.confusion["pgd-20"], expected.confusion["pgd-20"])
    whole = (images * 255).round().to(torch.uint8)
    assert audit(model, whole, labels, eps=0.1).overall["clean"] > 0.9


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
def test_the_batch_size_does_not_matter(digits, batch_size):
    model, images, labels = digits
    whole, parts = (
        evaluate(
            model,
            Batches(images, labels, torch.arange(len(labels)), size),
            num_classes=10,
            attacks="clean,fgsm,pgd-5",
            eps=0.1,
        )
        for size in (200, batch_size)
    )
    for one, other in zip(whole, parts, strict=True):
        assert np.array_equal(one.sample, other.sample)
        assert np.array_equal(one.predicted, other.predicted)
        assert one.logit_gap == pytest.approx(other.logit_gap, abs=1e-5)


def test_the_order_of_samples_does_not_matter_to_their_verdicts(digits):
    model, images, labels = digits
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    facts = {"num_classes": 10, "attacks": "pgd-5", "eps": 0.1}
    batches = Batches(images, labels, torch.arange(200), 64)
    (straight,) = evaluate(model, batches, **facts)
    (shuffled,) = evaluate(model, Batches(images[order], labels[order], order, 64), **facts)
    assert np.array_equal(shuffled.predicted, straight.predicted[order.numpy()])


def test_another_seed_is_another_start_and_the_same_seed_the_same(digits):
    model, images, labels = digits

    def gaps(seed):
        batches = Batches(images, labels, torch.arange(200), 64)
        return evaluate(model, batches, num_classes=10, attacks="pgd-1", eps=0.1, seed=seed)[0]

    assert np.array_equal(gaps(0).logit_gap, gaps(0).logit_gap)
    assert not np.array_equal(gaps(0).logit_gap, gaps(1).logit_gap)


def test_no_radius_is_no_attack(digits):
    report = audit(*digits, attacks="clean,fgsm,pgd-5", eps=0)
    assert np.array_equal(report.confusion["pgd-5"], report.confusion["clean"])
    assert np.array_equal(report.confusion["fgsm"], report.confusion["clean"])


def test_more_radius_is_never_kinder_to_a_linear_model(digits):
    found = [audit(*digits, attacks="pgd-10", eps=eps).overall["pgd-10"] for eps in (0, 0.05, 0.2)]
    assert found[0] > found[1] > found[2]


@pytest.mark.usefixtures("untouched_random_state")
def test_an_audit_leaves_the_model_as_it_was(net):
    model = net(10).train()
    model.head.eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    images = torch.full((6, 1, 8, 8), 0.5, dtype=torch.float64)
    audit(model, images, torch.arange(6), attacks="clean,pgd-2")
    assert model.training
    assert model.conv.training
    assert not model.head.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all((p.grad == 1).all() and p.requires_grad for p in model.parameters())


def test_it_judges_in_eval_mode(net):
    model = net(10).train()
    images = torch.rand(
        30, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    labels = torch.arange(30) % 10
    found = audit(model, images, labels, attacks="clean").confusion["clean"]
    expected = net(10).eval()(images).argmax(1)
    for a in range(10):
        for b in range(10):
            assert found[a, b] == int(((labels == a) & (expected == b)).sum())


def test_the_stored_gap_is_positive_where_the_model_is_right(digits):
    model, images, labels = digits
    batches = Batches(images, labels, torch.arange(200), 64)
    (found,) = evaluate(model, batches, num_classes=10, attacks="pgd-2", eps=0.1)
    assert 0 < found.correct.sum() < 200
    assert np.array_equal(found.logit_gap > 0, found.correct)


def test_a_logit_gap_is_the_best_other_logit_minus_the_true_one():
    logits = torch.randn(50, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(50) % 5
    found = LogitGap(labels)(logits)
    for n in range(50):
        row, y = logits[n].tolist(), labels[n].item()
        expected = max(z for k, z in enumerate(row) if k != y) - row[y]
        assert found[n].item() == pytest.approx(expected)
        assert (found[n] < 0).item() == (logits[n].argmax() == y).item()


def test_superclasses_are_reported_by_name(digits):
    groups, words = [0] * 5 + [1] * 5, ["small", "large"]
    report = audit(
        *digits, attacks="clean", class_names=NAMES, superclass_of=groups, superclass_names=words
    )
    rates = list(report.by_class["clean"].values())
    assert report.by_superclass["clean"] == pytest.approx(
        {"small": sum(rates[:5]) / 5, "large": sum(rates[5:]) / 5}
    )
    assert audit(*digits, attacks="clean").by_superclass["clean"] is None


def test_the_radius_is_reported_whatever_the_order_of_attacks(digits):
    for attacks in ("clean,pgd-2", "pgd-2,clean"):
        assert audit(*digits, attacks=attacks, eps=0.1).about["eps"] == 0.1


class TestBadInput:
    def images(self):
        return torch.full((6, 1, 8, 8), 0.5)

    def refuse(self, *words, model=None, images=None, labels=None, **options):
        plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        with refused(*words):
            audit(
                plain if model is None else model,
                self.images() if images is None else images,
                torch.arange(6) % 3 if labels is None else labels,
                **{"eps": 0.1, "attacks": "clean,pgd-2", **options},
            )

    @pytest.mark.parametrize("eps", [8, "8", 8.0, 255])
    def test_eps_in_grey_levels(self, eps):
        self.refuse("eps", "[0, 1]", "/255", eps=eps)

    @pytest.mark.parametrize("eps", [-0.1, math.nan, math.inf, "much", None, True, "8/0"])
    def test_eps_that_makes_no_sense(self, eps):
        self.refuse("eps", eps=eps)

    @pytest.mark.parametrize("pixel", [math.nan, math.inf, -0.01, 1.01, 255.0])
    def test_pixels_out_of_range(self, pixel):
        images = self.images()
        images[3, 0, 2, 2] = pixel
        word = "[0, 1]" if math.isfinite(pixel) else "NaN"
        self.refuse(word, images=images)

    @pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.int8, torch.bool])
    def test_pixels_that_are_whole_numbers_but_not_bytes(self, dtype):
        self.refuse("uint8", images=self.images().to(dtype), attacks="clean")

    @pytest.mark.parametrize("shape", [(6, 8, 8), (6, 64), (6,)])
    def test_images_of_another_shape(self, shape):
        self.refuse("shape", images=torch.zeros(shape))

    def test_no_images(self):
        self.refuse("no images", images=torch.zeros(0, 1, 8, 8), labels=torch.zeros(0).long())

    @pytest.mark.parametrize(
        ("labels", "word"),
        [
            ([0, 1, 2, 0, 1], "6 images"),
            ([0, 1, 2, 0, 1, 2, 0], "6 images"),
            ([[0], [1], [2], [0], [1], [2]], "6 images"),
            ([0, 1, 2, 0, 1, 3], "3 classes"),
            ([0, 1, 2, 0, 1, -1], "-1"),
            ([0.0, 1.0, 2.0, 0.0, 1.0, 2.0], "whole class numbers"),
        ],
    )
    def test_labels(self, labels, word):
        self.refuse(word, labels=labels)

    @pytest.mark.parametrize("attacks", ["clean,pgd-2", "pgd-2", "fgsm"])
    @pytest.mark.parametrize("outputs", [2, 4])
    def test_the_wrong_number_of_outputs(self, outputs, attacks):
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, outputs))
        self.refuse(str(outputs), "3 classes", model=model, class_names="abc", attacks=attacks)

    @pytest.mark.parametrize("attacks", ["clean", "pgd-2"])
    @pytest.mark.parametrize("names", [None, "abc"])
    def test_outputs_that_are_no_logits(self, names, attacks):
        for model in (lambda x: (x.flatten(1),), lambda _: None, lambda x: x):
            self.refuse("logits", model=model, class_names=names, attacks=attacks)

    def test_logits_that_are_not_finite(self):
        self.refuse("NaN", model=lambda x: x.flatten(1)[:, :3] * math.nan, attacks="clean")

    @pytest.mark.parametrize(
        ("attacks", "words"),
        [
            ("pdg-20", ("'pdg-20'", "did you mean 'pgd-", "clean", "fgsm")),
            ("clean,fgms", ("'fgms'", "did you mean 'fgsm'")),
            ("pgd-0", ("pgd-0",)),
            ("pgd", ("pgd-K",)),
            ("pgd-2(stp=0.1)", ("'stp'", "did you mean 'step'")),
            ("pgd-2(step=2)", ("step",)),
            ("pgd-2(step=big)", ("step",)),
            ("pgd-2(start=middle)", ("middle", "uniform")),
            ("pgd-2(0.1)", ("pgd-2",)),
            ("fgsm(step=0.1)", ("step",)),
            ("clean(3)", ("clean",)),
            ("clean,clean", ("twice",)),
            ("", ("no attack",)),
        ],
    )
    def test_attacks(self, attacks, words):
        self.refuse(*words, attacks=attacks)

    def test_an_unknown_norm(self):
        self.refuse("L7", "Linf", norm="L7")

    @pytest.mark.parametrize("batch_size", [0, -3])
    def test_a_batch_of_nothing(self, batch_size):
        self.refuse("batch_size", batch_size=batch_size)

    def test_names_that_appear_twice(self):
        self.refuse("'a'", "twice", class_names=["a", "b", "a"])

    @pytest.mark.parametrize("groups", [[0, 1], [0, 1, 0, 1], [0, -1, 1]])
    def test_superclasses_that_do_not_fit_the_classes(self, groups):
        self.refuse("superclass", superclass_of=groups)

    @pytest.mark.parametrize("words", [["x"], []])
    def test_names_of_superclasses_that_do_not_fit(self, words):
        self.refuse("superclass", superclass_of=[0, 1, 1], superclass_names=words)


def test_class_names_may_be_an_array(digits):
    report = audit(*digits, attacks="clean", class_names=np.array(NAMES))
    assert list(report.by_class["clean"]) == list(NAMES)


def test_a_class_without_samples_is_none_and_enters_no_mean(digits):
    model, images, labels = digits
    keep = labels != 4
    report = audit(model, images[keep], labels[keep], eps=0.1, class_names=NAMES)
    for condition in report:
        rates = report.by_class[condition]
        assert rates["four"] is None
        seen = [rate for name, rate in rates.items() if name != "four"]
        assert report.worst[condition] == min(seen)
        assert report.spread[condition] == pytest.approx(np.std(seen))
        assert report.intervals[condition]["four"] is None
        assert "four" not in report.tail(1.0)[condition].classes
    assert "no samples: four" in repr(report)


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
        with refused("nothing_here is neither a run folder"):
            audit_target("nothing_here")
        with refused("--data"):
            audit_target("some_module:make")
        with refused("not a run"):
            audit_target(str(tmp_path), data="digits")
        with refused("no checkpoint"):
            audit_target(str(tmp_path / "gone.safetensors"), data="digits")
