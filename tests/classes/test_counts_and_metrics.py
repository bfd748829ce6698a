import math

import numpy as np
import pytest
import torch
from refusals import refused
from scipy import stats
from sklearn import metrics

from classwise.classes.counts import ClassCounts
from classwise.judging.metrics import ClassReport, ConditionReport
from classwise.statistics.intervals import wilson

WORLDS = [(2, None), (2, 1), (3, None), (3, 0), (10, None), (10, 6), (100, None), (100, 41)]


def draw_world(num_classes, missing, count=3000, seed=0):
    """Unbalanced labels, predictions right for some classes more often than for others."""
    rng = np.random.default_rng(seed + num_classes)
    odds = rng.dirichlet(np.full(num_classes, 2.0))
    labels = np.concatenate([np.arange(num_classes), rng.choice(num_classes, count, p=odds)])
    if missing is not None:
        labels = labels[labels != missing]
    skill = rng.uniform(0.1, 0.95, num_classes)
    guess = rng.integers(num_classes, size=len(labels))
    predicted = np.where(rng.random(len(labels)) < skill[labels], labels, guess)
    return labels, predicted


@pytest.fixture(params=WORLDS, ids=lambda w: f"K={w[0]}" + ("" if w[1] is None else ", one empty"))
def world(request):
    num_classes, missing = request.param
    labels, predicted = draw_world(num_classes, missing)
    counts = ClassCounts.of(
        torch.from_numpy(labels), torch.from_numpy(predicted), num_classes=num_classes
    )
    names = tuple(f"class {k}" for k in range(num_classes))
    groups = tuple(k // 2 for k in range(num_classes))
    report = ConditionReport("pgd-20", counts, names, superclass_of=groups)
    return labels, predicted, num_classes, missing, counts, report


def straight_recalls(labels, predicted, num_classes):
    """Hits over size, class by class; None for no samples."""
    found = []
    for k in range(num_classes):
        size = hits = 0
        for label, said in zip(labels.tolist(), predicted.tolist(), strict=True):
            size += label == k
            hits += label == k and said == k
        found.append(hits / size if size else None)
    return found


def test_confusion_agrees_with_scikit_learn(world):
    labels, predicted, k, _, counts, report = world
    expected = metrics.confusion_matrix(labels, predicted, labels=range(k))
    assert np.array_equal(counts.confusion.numpy(), expected)
    assert np.array_equal(report.confusion, expected)


def test_class_accuracy_agrees_with_scikit_learn_and_a_loop(world):
    labels, predicted, k, missing, _, report = world
    recall = metrics.recall_score(
        labels, predicted, labels=range(k), average=None, zero_division=np.nan
    )
    by_class = list(report.by_class.values())
    assert by_class == pytest.approx(straight_recalls(labels, predicted, k), abs=1e-15)
    for c in range(k):
        if c == missing:
            assert by_class[c] is None
        else:
            assert by_class[c] == pytest.approx(recall[c], abs=1e-15)


def test_overall_agrees_with_scikit_learn(world):
    labels, predicted, _, _, counts, report = world
    expected = metrics.accuracy_score(labels, predicted)
    assert report.overall == pytest.approx(expected, abs=1e-15)
    assert counts.overall == pytest.approx(expected, abs=1e-15)


def test_worst_best_gap_and_spread_pass_over_the_empty_class(world):
    labels, predicted, k, missing, counts, report = world
    recalls = straight_recalls(labels, predicted, k)
    seen = [rate for rate in recalls if rate is not None]
    assert len(seen) == k - (missing is not None)
    mean = sum(seen) / len(seen)
    assert report.worst == counts.worst == min(seen)
    assert report.worst_class == f"class {recalls.index(min(seen))}"
    assert report.best == max(seen)
    assert report.best_class == f"class {recalls.index(max(seen))}"
    assert report.gap == max(seen) - min(seen)
    expected = math.sqrt(sum((rate - mean) ** 2 for rate in seen) / len(seen))
    assert report.spread == pytest.approx(expected, abs=1e-12)


def test_the_mean_of_all_classes_is_balanced_accuracy():
    labels, predicted = draw_world(10, None)
    counts = ClassCounts.of(torch.from_numpy(labels), torch.from_numpy(predicted), num_classes=10)
    expected = metrics.balanced_accuracy_score(labels, predicted)
    assert float(counts.accuracy.mean()) == pytest.approx(expected, abs=1e-12)


def test_one_vs_rest_accuracy_agrees_with_scikit_learn(world):
    labels, predicted, k, _, _, report = world
    for c, table in enumerate(
        metrics.multilabel_confusion_matrix(labels, predicted, labels=range(k))
    ):
        (tn, _), (_, tp) = table
        expected = (tn + tp) / len(labels)
        assert report.one_vs_rest_accuracy[f"class {c}"] == pytest.approx(expected, abs=1e-15)


def test_false_positive_share_agrees_with_scikit_learn_and_sums_to_one(world):
    labels, predicted, k, _, _, report = world
    tables = metrics.multilabel_confusion_matrix(labels, predicted, labels=range(k))
    false_positives = tables[:, 0, 1]
    found = np.array(list(report.false_positive_share.values()))
    assert found == pytest.approx(false_positives / false_positives.sum(), abs=1e-15)
    assert found.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 1.0])
def test_tail_is_the_mean_of_the_worst_classes_and_names_them(world, share):
    *_, report = world
    seen = sorted((rate, name) for name, rate in report.by_class.items() if rate is not None)
    count = max(1, round(share * len(seen)))
    tail = report.tail(share)
    assert tail.mean == pytest.approx(sum(rate for rate, _ in seen[:count]) / count, abs=1e-12)
    assert len(tail.classes) == len(set(tail.classes)) == count
    chosen = [report.by_class[name] for name in tail.classes]
    assert chosen == sorted(chosen) == pytest.approx([rate for rate, _ in seen[:count]])


def test_superclasses_average_their_classes_with_samples(world):
    *_, k, _, _, report = world
    found = report.by_superclass
    for group in range((k + 1) // 2):
        members = [report.by_class[f"class {c}"] for c in range(k) if c // 2 == group]
        seen = [rate for rate in members if rate is not None]
        expected = sum(seen) / len(seen) if seen else None
        assert found[str(group)] == pytest.approx(expected, abs=1e-12)


def test_sizes_count_the_samples(world):
    labels, _, k, _, counts, report = world
    assert counts.sizes.tolist() == np.bincount(labels, minlength=k).tolist()
    assert list(report.sizes.values()) == counts.sizes.tolist()


def test_intervals_are_wilsons_as_scipy_computes_them(world):
    labels, predicted, k, missing, _, report = world
    for c in range(k):
        found = report.intervals[f"class {c}"]
        if c == missing:
            assert found is None
            continue
        mine = labels == c
        test = stats.binomtest(int((predicted[mine] == c).sum()), int(mine.sum()))
        expected = test.proportion_ci(0.95, method="wilson")
        assert found == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
@pytest.mark.parametrize(("hits", "samples"), [(0, 1), (1, 1), (0, 7), (7, 7), (3, 7), (50, 1000)])
def test_wilson_agrees_with_scipy_at_the_edges(hits, samples, level):
    low, high = wilson([hits], [samples], level)
    expected = stats.binomtest(hits, samples).proportion_ci(level, method="wilson")
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= low[0] <= hits / samples <= high[0] <= 1


def test_a_class_without_samples_is_said_to_have_none():
    counts = ClassCounts.of(torch.tensor([0, 0, 2]), torch.tensor([0, 1, 2]), num_classes=3)
    report = ConditionReport("clean", counts, ("cat", "dog", "fox"))
    assert report.by_class == {"cat": 0.5, "dog": None, "fox": 1.0}
    assert report.intervals["dog"] is None
    assert (report.worst, report.worst_class, report.gap) == (0.5, "cat", 0.5)
    assert report.spread == 0.25
    assert report.tail(1.0).mean == 0.75
    assert "no samples: dog" in repr(ClassReport([report]))


def test_policies_see_the_overall_accuracy_for_a_class_without_samples():
    counts = ClassCounts.of(torch.tensor([0, 0, 2, 2]), torch.tensor([0, 1, 2, 2]), num_classes=3)
    assert counts.known_accuracy.tolist() == [0.5, 0.75, 1.0]
    nothing = ClassCounts(torch.zeros(3, 3, dtype=torch.int64))
    assert nothing.known_accuracy.tolist() == [0.0, 0.0, 0.0]


def test_no_samples_at_all_is_refused():
    with refused("no samples at all"):
        ConditionReport("clean", ClassCounts(torch.zeros(2, 2, dtype=torch.int64)), ("a", "b"))


def test_without_mistakes_no_class_has_a_share_of_them():
    counts = ClassCounts.of(torch.arange(4), torch.arange(4), num_classes=4)
    assert counts.false_positive_share.tolist() == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("share", [0, -0.1, 1.5, math.nan])
def test_a_tail_that_is_no_share_is_refused(share):
    counts = ClassCounts.of(torch.arange(4), torch.arange(4), num_classes=4)
    with refused("tail"):
        ConditionReport("clean", counts, tuple("abcd")).tail(share)


def test_aliases_say_what_the_plain_names_say(world):
    *_, report = world
    assert report.by_group == report.by_class
    assert report.group_min() == report.worst
    assert report.group_max() == report.best
    assert report.difference() == report.gap
    assert report.ratio() == pytest.approx(report.worst / report.best)


def test_a_ratio_of_two_zeros_is_one():
    counts = ClassCounts.of(torch.tensor([0, 1]), torch.tensor([1, 0]), num_classes=2)
    assert ConditionReport("clean", counts, ("a", "b")).ratio() == 1


def full_counts(labels, predicted, num_classes, seed):
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(labels), num_classes, generator=rng, dtype=torch.float64)
    losses = {"ce": torch.rand(len(labels), generator=rng, dtype=torch.float64)}
    labels, predicted = torch.from_numpy(labels), torch.from_numpy(predicted)
    counts = ClassCounts.of(
        labels, predicted, num_classes=num_classes, logits=logits, losses=losses
    )
    return counts, logits, losses["ce"]


def assert_same_counts(one, other):
    assert torch.equal(one.confusion, other.confusion)
    torch.testing.assert_close(one.probability, other.probability, rtol=0, atol=1e-12)
    torch.testing.assert_close(one.losses["ce"], other.losses["ce"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("num_classes", "missing"), WORLDS)
def test_counts_add_and_commute(num_classes, missing):
    labels, predicted = draw_world(num_classes, missing, 200)
    whole, logits, ce = full_counts(labels, predicted, num_classes, 0)
    parts = [
        ClassCounts.of(
            torch.from_numpy(labels[rows]),
            torch.from_numpy(predicted[rows]),
            num_classes=num_classes,
            logits=logits[rows],
            losses={"ce": ce[rows]},
        )
        for rows in np.array_split(np.arange(len(labels)), 7)
    ]
    forwards, backwards = parts[0], parts[-1]
    for part in parts[1:]:
        forwards = forwards + part
    for part in parts[-2::-1]:
        backwards = backwards + part
    assert_same_counts(forwards, whole)
    assert_same_counts(backwards, whole)
    assert_same_counts(parts[0] + parts[1], parts[1] + parts[0])


@pytest.mark.parametrize(("num_classes", "missing"), WORLDS)
def test_summed_probabilities_and_losses_agree_with_a_loop(num_classes, missing):
    labels, predicted = draw_world(num_classes, missing, 60)
    counts, logits, ce = full_counts(labels, predicted, num_classes, 1)
    probability = [[0.0] * num_classes for _ in range(num_classes)]
    loss = [0.0] * num_classes
    for row, (label, value) in enumerate(zip(labels.tolist(), ce.tolist(), strict=True)):
        powers = [math.exp(z) for z in logits[row].tolist()]
        for j in range(num_classes):
            probability[label][j] += powers[j] / sum(powers)
        loss[label] += value
    torch.testing.assert_close(counts.probability, torch.tensor(probability).double())
    torch.testing.assert_close(counts.losses["ce"], torch.tensor(loss).double())


def test_a_report_shows_every_metric_by_condition(world):
    *_, counts, report = world
    clean = ConditionReport("clean", counts, report.class_names, report.superclass_of)
    both = ClassReport([clean, report], {"eps": 0.1})
    for name in ("overall", "by_class", "intervals", "worst", "worst_class", "best", "best_class",
                 "spread", "gap", "false_positive_share", "one_vs_rest_accuracy", "by_superclass",
                 "by_group"):  # fmt: skip
        assert getattr(both, name) == {
            "clean": getattr(clean, name),
            "pgd-20": getattr(report, name),
        }
    for name in ("tail", "group_min", "group_max", "difference", "ratio"):
        assert getattr(both, name)()["pgd-20"] == getattr(report, name)()
    assert np.array_equal(both.confusion["clean"], report.confusion)
    assert report.worst_class in repr(both)
    with refused("pgd-2", "did you mean 'pgd-20'"):
        both["pgd-2"]
