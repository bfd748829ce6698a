"""Whether training foretells robustness, and overfitting by class, against plain computations."""

import numpy as np
import pytest
from scipy import stats
from trained_runs import column, condition, found_runs, history, record

from classwise.statistics.ranks import random_agreement
from classwise.studies.artefacts.convergence import ConvergenceOptions, convergence, predicted
from classwise.studies.found import FoundRun, Hole
from classwise.studies.looks import over_epochs, parse_look

NAMES = tuple("abcdefgh")
DRAWN = np.random.default_rng(3).random((5, 8)).round(3)
HITS = [12, 60, 33, 80, 5, 41, 70, 22]


def one_run(rows=DRAWN, hits=HITS, **more):
    report = condition("pgd-20", hits, names=NAMES)
    lines = history({"train:clean": np.asarray(rows).tolist()})
    return record(lines, report, names=NAMES, **more)


def options(**more):
    return ConvergenceOptions(kind="convergence", title="Convergence", **{"draws": 200, **more})


def test_rho_of_every_epoch_is_spearmans():
    made = convergence(found_runs(({"recipe": "at"}, one_run())), options(at=[0.2, 0.6, 1.0]))
    for share, epoch in ((0.2, 1), (0.6, 3), (1.0, 5)):
        cell = column(made, f"at {share:.0%} of the run", "at", "train:clean", "level")
        rho = stats.spearmanr(DRAWN[epoch - 1], HITS).statistic
        assert cell.rates == pytest.approx([rho])
        assert cell.interval[0] <= rho <= cell.interval[1]
    (line,) = made.figure.panels[0].series
    assert line.y == pytest.approx([stats.spearmanr(row, HITS).statistic for row in DRAWN])
    assert made.figure.panels[0].level == random_agreement(8)


def test_steadiness_is_how_little_a_class_has_moved_so_far():
    made = convergence(found_runs(({"recipe": "at"}, one_run())), options(at=[1.0]))
    moved = []
    for k in range(8):
        steps = [abs(DRAWN[e, k] - DRAWN[e - 1, k]) for e in range(1, 5)]
        moved.append(-sum(steps) / len(steps))
    cell = column(made, "at 100% of the run", "at", "train:clean", "steadiness")
    assert cell.rates == pytest.approx([stats.spearmanr(moved, HITS).statistic])


def test_a_training_that_foretells_everything_is_told_from_one_that_foretells_nothing():
    sure = np.tile(np.array(HITS) / 100, (3, 1))
    found = found_runs(
        ({"recipe": "sure"}, one_run(sure)),
        ({"recipe": "turned"}, one_run(1 - sure)),
    )
    made = convergence(found, options(at=[1.0], measures=["level"]))
    for recipe, sign in (("sure", 1), ("turned", -1)):
        cell = column(made, "at 100% of the run", recipe)
        assert cell.rates == pytest.approx([sign])
        low, high = cell.interval
        assert (low > 0.8) if sign > 0 else (high < -0.8)


def test_few_images_widen_the_interval():
    seen = over_epochs(FoundRun({}, one_run()), parse_look("train:clean"))
    few = predicted(seen, condition("x", [1, 6, 3, 8, 0, 4, 7, 2], 10, NAMES), "level", 0.95, 400)
    many = predicted(seen, condition("x", HITS, names=NAMES), "level", 0.95, 400)
    assert (few.high - few.low).mean() > 1.5 * (many.high - many.low).mean()


def test_seeds_share_a_cell_whose_interval_holds_all_of_theirs():
    pairs = [
        ({"recipe": "at", "seed": str(n)}, one_run(DRAWN[::step])) for n, step in ((0, 1), (1, -1))
    ]
    both = convergence(found_runs(*pairs), options(at=[1.0], measures=["level"]))
    apart = [convergence(found_runs(one), options(at=[1.0], measures=["level"])) for one in pairs]
    cells = [column(made, "at 100% of the run", "at") for made in (both, *apart)]
    assert cells[0].rates == cells[1].rates + cells[2].rates
    assert cells[0].interval[0] == min(cells[1].interval[0], cells[2].interval[0])
    assert cells[0].interval[1] == max(cells[1].interval[1], cells[2].interval[1])
    assert cells[0].words == "{:.2f} to {:.2f}".format(*cells[0].interval)


def test_classes_without_samples_are_left_out():
    hits, sizes = [0, *HITS[1:]], [0, *[100] * 7]
    report = condition("pgd-20", hits, sizes, NAMES)
    lines = history({"train:clean": DRAWN.tolist()})
    found = found_runs(({"recipe": "at"}, record(lines, report, names=NAMES)))
    made = convergence(found, options(at=[1.0], measures=["level"]))
    cell = column(made, "at 100% of the run", "at")
    assert cell.rates == pytest.approx([stats.spearmanr(DRAWN[-1, 1:], HITS[1:]).statistic])


def test_equal_classes_and_missing_looks_are_holes():
    equal = convergence(
        found_runs(({"recipe": "at"}, one_run(hits=[50] * 8))), options(measures=["level"])
    )
    assert "no order" in equal.rows[0][3].hole
    unwatched = record(history({"valid:clean": DRAWN.tolist()}), names=NAMES)
    made = convergence(found_runs(({"recipe": "at"}, unwatched)), options())
    assert all(cell.hole for line in made.rows for cell in line[3:])
    seen = over_epochs(FoundRun({}, one_run(DRAWN[:1])), parse_look("train:clean"))
    with pytest.raises(Hole, match="0 epochs"):
        predicted(seen, condition("x", HITS, names=NAMES), "steadiness", 0.95, 100)
