"""What the tables of photographs by metaclass are computed from."""

import importlib
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "lite_seen", raising=False)
    return importlib.import_module("lite_seen")


def made_up(seen, rates, size=40, name="net", seed=0):
    """Photographs of groups whose values lie around `rates`."""
    random = np.random.default_rng(seed)
    of = np.repeat(np.arange(len(rates)), size)
    values = np.clip(np.array(rates)[of] + random.normal(0, 0.05, len(of)), 0, 1)
    clean = np.ones(len(of))
    return seen.Seen(name, clean, values, of, tuple(f"g{k}" for k in range(len(rates))))


def test_groups_that_differ_are_told_from_equal_ones(seen, monkeypatch):
    monkeypatch.setattr(seen, "DEALS", 300)
    low = made_up(seen, [0.2, 0.6, 0.6, 0.6])
    alike, each = seen.differ(low, low.values)
    assert alike == pytest.approx(1 / 301)
    assert each[0] == pytest.approx(4 / 301)  # Holm: the least of four times four
    equal = made_up(seen, [0.5, 0.5, 0.5, 0.5])
    alike, each = seen.differ(equal, equal.values)
    assert alike > 0.05
    assert (each > 0.05).all()
    by_hand = [low.values[low.of == k].mean() for k in range(4)]
    assert low.rates(low.values) == pytest.approx(by_hand)


def test_halves_compare_other_photographs(seen):
    pair = [made_up(seen, [0.1, 0.3, 0.5, 0.7, 0.9], seed=k) for k in range(2)]
    both = seen.halves(pair, [one.values for one in pair], np.random.default_rng(0))
    assert both == pytest.approx(np.ones((2, 2)))
    # only luck differs: one's own photographs agree with themselves, other photographs do not
    lucky = made_up(seen, [0.5] * 200, size=2)
    values = [np.random.default_rng(5).random(400)] * 2
    crossed = seen.halves([lucky, lucky], values, np.random.default_rng(0))
    assert np.abs(crossed).max() < 0.3


def test_drawn_anew_within_groups(seen):
    one = made_up(seen, [0.0, 1.0], size=9)
    values = np.repeat([0.0, 1.0], 9)
    rates = seen.redrawn([one, one], [values, values], np.random.default_rng(0))
    assert set(rates[:, 0]) <= {0.0, 0.1}  # nothing but the coin moves a group of equals
    assert set(rates[:, 1]) <= {0.9, 1.0}


def test_the_figure_is_a_picture(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    figure = importlib.import_module("lite_figure")
    lanes = [figure.Lane(0.9, 0.5, 0.4, 0.6)] * 3
    text = figure.drawn("A <title>", ["a", "b", "c"], [figure.Row("snake & co", 17, lanes)])
    root = ElementTree.fromstring(text)
    assert "snake & co (17)" in [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
