"""Effects over seeds and images: the figures by plain loops, the interval by its formula."""

import importlib.util
import math
import statistics

import numpy as np
import pytest
import torch
from places import ROOT
from scipy import stats

from classwise.classes.counts import ClassCounts
from classwise.errors import ClasswiseError
from classwise.judging.metrics import ConditionReport
from classwise.statistics import effects
from classwise.statistics.effects import difference, paired_effects, relative, share_over

FILE = ROOT / "benchmarks" / "effects.py"


def scene(seeds=3, per_class=(60, 40, 50), rows=2, seed=0):
    draw = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(per_class)), per_class)
    rates = draw.uniform(0.2, 0.9, (seeds, rows, len(per_class)))
    return labels, draw.random((seeds, rows, len(labels))) < rates[..., labels]


def gained(measure):
    return difference([lambda rates: measure(rates[..., 0, :])], [lambda r: measure(r[..., 1, :])])


def plain_rates(labels, right, seed, row):
    """Class accuracies of one network, counted one by one."""
    found = []
    for k in range(3):
        own = [bool(right[seed, row, i]) for i in range(len(labels)) if labels[i] == k]
        found.append(sum(own) / len(own))
    return found


def test_the_figure_of_every_seed_is_counted_on_its_own_networks():
    labels, right = scene()
    [found] = paired_effects(labels, right, [gained(effects.worst)], 3)
    for seed in range(3):
        left, base = (min(plain_rates(labels, right, seed, row)) for row in (0, 1))
        assert found.by_seed[seed] == pytest.approx(left - base)
    assert found.value == pytest.approx(statistics.fmean(found.by_seed))
    assert (found.seeds, found.images) == (3, 150)


def test_the_interval_follows_its_formula():
    labels, right = scene()
    [found] = paired_effects(labels, right, [gained(effects.worst)], 3, level=0.9)
    error = statistics.stdev(found.by_seed) / math.sqrt(3)
    assert found.of_seeds == pytest.approx(error)
    t, z = stats.t.ppf(0.95, 2), stats.norm.ppf(0.95)
    half = math.sqrt((t * error) ** 2 + (z * found.of_images) ** 2) + abs(found.shift)
    assert found.half == pytest.approx(half)
    assert found.low == pytest.approx(found.value - half)


def test_images_vary_as_a_draw_within_each_class_does():
    labels, right = scene(seeds=2, per_class=(300, 200, 250))
    sizes = np.bincount(labels)
    [found] = paired_effects(labels, right, [gained(effects.average(sizes))], 3, draws=4000)
    by_image = (right[:, 0].astype(float) - right[:, 1]).mean(0)  # mean over seeds
    variance = sum(size * by_image[labels == k].var() for k, size in enumerate(sizes))
    assert found.of_images == pytest.approx(math.sqrt(variance) / len(labels), rel=0.06)


def test_one_seed_has_the_interval_of_its_images_alone():
    labels, right = scene(seeds=1)
    [found] = paired_effects(labels, right, [gained(effects.spread)], 3)
    assert math.isnan(found.of_seeds)
    assert found.half == pytest.approx(1.959964 * found.of_images + abs(found.shift), rel=1e-5)


def test_networks_that_agree_image_by_image_are_compared_more_sharply():
    labels, right = scene(seeds=1, per_class=(200, 200, 200))
    alike = right.copy()
    alike[:, 0] = alike[:, 1]
    alike[:, 0, :10] = True
    other = alike.copy()
    for k in range(3):  # the same class accuracies, on other images
        at = np.flatnonzero(labels == k)
        other[:, 0, at] = other[:, 0, np.roll(at, 77)]
    sharp, blunt = (
        paired_effects(labels, one, [gained(effects.average([200] * 3))], 3)[0]
        for one in (alike, other)
    )
    assert sharp.value == pytest.approx(blunt.value)
    assert 3 * sharp.of_images < blunt.of_images


@pytest.mark.parametrize("name", ["worst", "best", "spread", "tail", "average"])
def test_measures_are_those_of_reports(name):
    table = torch.diag(torch.arange(1, 31)) + torch.eye(30, dtype=torch.int64).roll(1, 1) * 15
    report = ConditionReport("x", ClassCounts(table), tuple(str(k) for k in range(30)))
    wanted = {"average": report.overall, "tail": report.tail(0.1).mean}
    measure = effects.average(report.counts.sizes.numpy())
    found = measure if name == "average" else getattr(effects, name)
    assert float(found(report.rates)) == pytest.approx(wanted.get(name) or getattr(report, name))


def test_a_class_without_images_takes_no_part():
    labels, right = scene()
    [found] = paired_effects(labels, right, [gained(effects.worst)], 4)
    [same] = paired_effects(labels, right, [gained(effects.worst)], 3)
    assert found.by_seed == same.by_seed


def test_relative_share_and_order():
    rates = np.array([[0.5, 0.7, 0.9], [0.4, 0.7, 0.5]])
    first, second = (lambda r: r[..., 0, :].mean(-1)), (lambda r: r[..., 1, :].mean(-1))
    assert float(relative(first, second)(rates)) == pytest.approx(0.7 / (1.6 / 3) - 1)
    sides = [[lambda r, k=k, row=row: r[..., row, k] for k in range(3)] for row in (0, 1)]
    assert float(share_over(*sides)(rates)) == pytest.approx((1 + 0.5 + 1) / 3)
    order = effects.same_order(lambda r: r[..., 0, :], lambda r: r[..., 1, :])
    assert float(order(rates)) == pytest.approx(0.5)  # ranks 1 2 3 and 1 3 2


def test_what_has_no_number_is_refused():
    labels, right = scene()
    right[:, 1] = False
    none = relative(lambda r: r[..., 0, 0], lambda r: r[..., 1, 0])
    with pytest.raises(ClasswiseError, match="no number"):
        paired_effects(labels, right, [none], 3)
    with pytest.raises(ClasswiseError, match="needs seeds and images"):
        paired_effects(labels[:5], right, [none], 3)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    """A small part of the simulation of `docs/effects.md`."""
    spec = importlib.util.spec_from_file_location("effects_benchmark", FILE)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    apart = np.linspace(0.2, 0.75, 3)
    truth = benchmark.Truth("small", 40, 3, apart + 0.03, apart, 0.3)
    for ours, _, images, _ in benchmark.coverage(truth, 60, seed=1, draws=100).values():
        assert ours >= 0.85
        assert images < ours  # an interval that knows one seed alone is too short
