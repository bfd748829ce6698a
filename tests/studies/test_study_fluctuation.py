"""How much the worst class swings, and classes over windows of a sweep, against plain loops."""

import numpy as np
import pytest
from refusals import refused
from trained_runs import NAMES, column, found_runs, history, record

from classwise.studies.artefacts.fluctuation import FluctuationOptions, fluctuation
from classwise.studies.artefacts.window import WindowOptions, window

DRAWN = np.random.default_rng(1).random((20, 4)).round(3)
MEAN = "change of the worst class, mean"


def swings(**more):
    wanted = {"of": ["test:robust"], **more}
    return FluctuationOptions(kind="fluctuation", title="Swings", **wanted)


def plain_change(values, epochs):
    """Mean of |v(e) − v(e − 1)| where both epochs are among these; epochs count from 1."""
    total, count = 0.0, 0
    for epoch in epochs:
        if epoch - 1 in epochs:
            total += abs(values[epoch - 1] - values[epoch - 2])
            count += 1
    return total / count


class TestFluctuation:
    def test_against_a_plain_loop(self):
        found = found_runs(({"recipe": "at"}, record(history({"test:pgd-10": DRAWN.tolist()}))))
        made = fluctuation(found, swings(within=[0.5, 0.8]))
        worst, overall, inside = DRAWN.min(1), DRAWN.mean(1), range(11, 17)
        cell = column(made, MEAN, "at")
        assert cell.rates == pytest.approx([plain_change(worst, inside)])
        assert column(made, "largest", "at").rates == pytest.approx(
            [max(abs(worst[e - 1] - worst[e - 2]) for e in range(12, 17))]
        )
        assert column(made, "change of the overall, mean", "at").rates == pytest.approx(
            [plain_change(overall, inside)]
        )
        assert column(made, "worst class, whole run", "at").rates == pytest.approx(
            [plain_change(worst, range(1, 21))]
        )
        assert column(made, "worst class, mean", "at").rates == pytest.approx([worst[10:16].mean()])
        assert "epochs 11 to 16 of 20" in " ".join(made.notes)

    def test_averages_stand_beside_the_live_weights(self):
        calm = (0.1 * DRAWN + 0.5).tolist()
        looks = {"test:pgd-10": DRAWN.tolist(), "test:pgd-10@fawa": dict(enumerate(calm[:10], 11))}
        found = found_runs(({"recipe": "at+fawa"}, record(history(looks, 20))))
        made = fluctuation(found, swings(of=["test:robust", "test:robust@fawa"]))
        live = column(made, MEAN, "at+fawa", "test:robust").mean
        averaged = column(made, MEAN, "at+fawa", "test:robust@fawa").mean
        low = np.array(calm[:10]).min(1)
        assert averaged == pytest.approx(abs(low[1] - low[0]))
        assert live > averaged
        panel = made.figure.panels[1]
        moves = {series.name: series for series in panel.series}["change of the worst"]
        assert moves.x == tuple(float(epoch) for epoch in range(12, 21))
        assert moves.y == pytest.approx(np.abs(np.diff(low)))

    def test_a_recipe_without_an_average_has_no_row_for_it(self):
        lines = history({"test:pgd-10": DRAWN.tolist()})
        bare, averaged = ([{**line, "averages": a} for line in lines] for a in ({}, {"fawa": 0}))
        found = found_runs(
            ({"recipe": "at"}, record(bare)), ({"recipe": "at+fawa"}, record(averaged))
        )
        made = fluctuation(found, swings(of=["test:robust", "test:robust@fawa"]))
        named = [(line[0].words, line[1].words) for line in made.rows]
        assert ("at", "test:robust@fawa") not in named
        assert "gate stayed shut" in column(made, MEAN, "at+fawa", "test:robust@fawa").hole

    def test_looks_that_leave_epochs_out_are_a_hole(self):
        sparse = {epoch: DRAWN[epoch - 1].tolist() for epoch in (2, 4, 6, 20)}
        found = found_runs(({"recipe": "at"}, record(history({"test:pgd-10": sparse}, 20))))
        made = fluctuation(found, swings(within=[0.0, 1.0]))
        assert "no two epochs in a row" in column(made, MEAN, "at").hole
        assert column(made, "overall, mean", "at").rates

    def test_a_short_run_has_two_epochs_in_its_window(self):
        rows = DRAWN[:2].tolist()
        found = found_runs(({"recipe": "at"}, record(history({"test:pgd-10": rows}))))
        cell = column(fluctuation(found, swings()), MEAN, "at")
        assert cell.rates == pytest.approx([abs(min(rows[1]) - min(rows[0]))])


def sweep(values=("4/255", "8/255", "16/255"), seeds=("0", "1")):
    """Runs whose classes follow the axis, each with its own noise."""
    made = {}
    for n, value in enumerate(values):
        for seed in seeds:
            noise = np.random.default_rng([n, int(seed)]).random((20, 4)) / 10
            made[value, seed] = np.array([0.1, 0.3, 0.5, 0.7]) + 0.05 * n + noise
    pairs = [
        (
            {"recipe": "at", "eps": value, "seed": seed},
            record(history({"test:pgd-10": rows.tolist()})),
        )
        for (value, seed), rows in made.items()
    ]
    return made, found_runs(*pairs)


def windows(**more):
    wanted = {"axis": "eps", "of": ["test:robust"], **more}
    return WindowOptions(kind="window", title="Windows", **wanted)


class TestWindow:
    EARLY = "at, test:robust, 50 to 60 % of the run"
    LATE = "at, test:robust, 90 to 100 % of the run"

    def test_classes_are_averaged_over_the_windows(self):
        rows, found = sweep()
        made = window(found, windows())
        for title, part in ((self.EARLY, slice(10, 12)), (self.LATE, slice(18, 20))):
            for k, name in enumerate(NAMES):
                cell = column(made, "eps 8/255", title, name)
                wanted = [rows["8/255", seed][part, k].mean() for seed in ("0", "1")]
                assert cell.rates == pytest.approx(wanted)
        overall = column(made, "eps 16/255", self.LATE, "overall")
        wanted = [rows["16/255", seed][18:20].mean() for seed in ("0", "1")]
        assert overall.rates == pytest.approx(wanted)
        early = made.figure.panels[0]
        assert [series.name for series in early.series] == ["overall", *NAMES]
        assert early.series[1].x == ("4/255", "8/255", "16/255")

    def test_changes_are_seed_by_seed_for_hard_and_easy_classes(self):
        rows, found = sweep()
        made = window(found, windows(since="8/255"))
        cell = column(made, "8/255 to 16/255", self.EARLY, "hard classes, mean")
        wanted = [
            rows["16/255", seed][10:12, :2].mean() - rows["8/255", seed][10:12, :2].mean()
            for seed in ("0", "1")
        ]
        assert cell.rates == pytest.approx(wanted)
        easy = column(made, "eps 4/255", self.LATE, "easy classes, mean")
        assert easy.rates[0] == pytest.approx(rows["4/255", "0"][18:20, 2:].mean())
        assert "ant, bee" in " ".join(made.notes)

    def test_one_missing_seed_leaves_the_others(self):
        _, found = sweep()
        gone = found_runs(
            *((one.labels, one.run) for one in found.runs[:-1]),
            (found.runs[-1].labels, "failed: diverged"),
        )
        made = window(gone, windows(since="8/255"))
        last = column(made, "eps 16/255", self.EARLY, "ant")
        assert len(last.rates) == 1
        assert "failed: diverged" in last.hole
        assert len(column(made, "8/255 to 16/255", self.EARLY, "ant").rates) == 1

    def test_a_whole_sweep_that_was_not_run_keeps_its_columns(self):
        found = found_runs(*(({"eps": eps}, "not run yet") for eps in ("4/255", "8/255")))
        made = window(found, windows())
        assert made.head[2:] == ("eps 4/255", "eps 8/255")
        assert {cell.hole for line in made.rows for cell in line[2:]} == {"not run yet"}

    def test_what_is_not_on_the_axis_is_refused(self):
        _, found = sweep()
        with refused("8/255"):
            window(found, windows(since="9/255"))
        with refused("eps"):
            window(found, windows(axis="esp"))
        with pytest.raises(ValueError, match="smaller first"):
            windows(windows=[[0.6, 0.5]])
