"""Confusions and likeness of classes, what methods cost, and what they train on."""

from dataclasses import replace

import numpy as np
import pytest
from refusals import refused
from scipy import stats
from trained_runs import column, condition, found_runs, record, row

from classwise.judging.asymmetry import Asymmetry
from classwise.judging.similarity import Similarity
from classwise.recipe_text import parse_recipe
from classwise.record.means import ClassMeans, write_means
from classwise.studies.artefacts.both_views import (
    ATTACKED,
    BOTH,
    BothViewsOptions,
    both_views,
    difference,
)
from classwise.studies.artefacts.cost import CostOptions, cost
from classwise.studies.artefacts.similarity import NOT_MADE, SimilarityOptions, similarity
from classwise.studies.class_means import FoundRunWithMeans, means_in

CONFUSION = np.array([[50, 30, 15, 5], [20, 60, 10, 10], [5, 5, 80, 10], [0, 10, 20, 70]])
CLASSES = ("ant", "bee", "cat", "dog")


def class_means(**more):
    means = np.random.default_rng(0).normal(size=(4, 4))
    facts = {"model_hash": "ab", "data_hash": "cd", "weights": "last", "split": "test", **more}
    return ClassMeans(means, np.full(4, 25), CLASSES, **facts)


class TestSimilarity:
    def runs(self, *means, **more):
        report = condition("pgd-20", None, confusion=CONFUSION, **more)
        found = found_runs(({"recipe": "at"}, record((), report)))
        (run,) = found.runs
        with_means = FoundRunWithMeans(run.labels, run.run, means=means)
        return replace(found, runs=(with_means,))

    def made(self, *means, **more):
        wanted = SimilarityOptions(kind="similarity", title="Similarity")
        return similarity(self.runs(*means, **more), wanted)

    def test_cosines_and_confusions_go_together_as_the_statistic_says(self):
        made = self.made(class_means())
        wanted = Similarity.of(class_means(), Asymmetry(CLASSES, CONFUSION))
        rho = column(made, "ρ of likeness and confusion", "at")
        assert rho.rates == (wanted.with_confusion.rho,)
        assert rho.words == f"p {wanted.with_confusion.p_value:.2g}"
        assert column(made, "ρ of likeness and accuracy", "at").rates == (wanted.with_accuracy.rho,)
        first, second, cosine = wanted.closest[0]
        alike = column(made, "most alike", "at")
        assert (alike.rates, alike.words) == ((cosine,), f"{first} and {second}")
        assert [panel.title for panel in made.figure.panels] == ["at, confusion", "at, cosine"]

    def test_the_most_confused_pair_is_of_both_directions(self):
        cell = column(self.made(), "most confused", "at")
        assert cell.rates == pytest.approx([(0.3 + 0.2) / 2])
        assert cell.words == "ant and bee"

    def test_mistakes_within_superclasses(self):
        made = self.made(superclass_of=(0, 0, 1, 1), superclass_names=("x", "y"))
        wrong = CONFUSION - np.diag(np.diag(CONFUSION))
        inside = wrong[0, 1] + wrong[1, 0] + wrong[2, 3] + wrong[3, 2]
        share = column(made, "mistakes within the superclass", "at")
        assert share.rates == pytest.approx([inside / wrong.sum()])
        assert column(made, "if spread evenly", "at").rates == pytest.approx([1 / 3])
        assert "no superclasses" in column(self.made(), "if spread evenly", "at").hole

    @pytest.mark.parametrize("means", [(), (class_means(weights="best"),)])
    def test_without_mean_logits_of_these_weights_there_is_a_hole(self, means):
        made = self.made(*means)
        assert column(made, "most alike", "at").hole == NOT_MADE
        assert [panel.title for panel in made.figure.panels] == ["at, confusion"]

    def test_means_are_read_back_from_a_folder(self, tmp_path):
        assert means_in(tmp_path) == ()
        write_means(tmp_path, class_means())
        path = write_means(tmp_path, class_means(model_hash="ef"))
        path.write_bytes(b"nothing")
        (found,) = means_in(tmp_path)
        assert found.model_hash == "ab"
        assert found.means.tolist() == class_means().means.tolist()


def trained(text, *reports, **config):
    return record((), *reports, recipe=parse_recipe(text).canonical, **config)


class TestCost:
    def made(self, *pairs, **more):
        return cost(found_runs(*pairs), CostOptions(kind="cost", title="Cost", **more))

    def test_passes_are_counted_and_compared(self):
        made = self.made(
            ({"recipe": "at"}, trained("at", epochs=10)),
            ({"recipe": "trades"}, trained("trades", epochs=20)),
        )
        # ten steps of two passes and one step of the weights; TRADES: clean logits, two views
        assert column(made, "passes an epoch", "at").rates == (23,)
        assert column(made, "passes in all", "trades").rates == (20 * (1 + 20 + 6),)
        assert column(made, "times at", "trades").rates == pytest.approx([540 / 230])

    def test_the_warm_up_of_frl_is_its_pre_training(self):
        made = self.made(
            ({"recipe": "trades+cfa"}, trained("trades+cfa", epochs=8)),
            ({"recipe": "trades+frl"}, trained("trades+frl", epochs=8)),
            base="trades+cfa",
        )
        assert column(made, "of it pre-training", "trades+cfa").rates == (0,)
        assert column(made, "of it pre-training", "trades+frl").rates == (27 * 6,)  # 3/4 of 8

    def test_weights_that_somebody_else_trained_are_said(self):
        made = self.made(({"recipe": "at"}, trained("at", epochs=2, begin="other@best")))
        assert any("begun from other weights" in note for note in made.notes)

    def test_code_of_strangers_is_not_loaded(self):
        made = self.made(({"recipe": "x"}, record((), recipe={"nobody.here:Method": {}})))
        assert "not part of classwise" in column(made, "passes in all", "x").hole

    def test_a_base_that_is_not_there_is_refused(self):
        with refused("trades"):
            self.made(({"recipe": "trades"}, "not run yet"), base="tardes")


HITS = {
    "at": [10, 50, 90, 30],
    "at+idbh": [12, 55, 88, 40],
    "at+avmixup": [30, 50, 60, 40],
    "trades": [25, 50, 70, 35],
    "trades+frl": [40, 50, 55, 45],
    "clean": [0, 0, 0, 0],
}


class TestBothViews:
    def made(self, **hits):
        pairs = [
            ({"recipe": text}, trained(text, condition("pgd-20", one)))
            for text, one in (hits or HITS).items()
        ]
        wanted = BothViewsOptions(kind="both-views", title="Both", conditions=["pgd-20"])
        return both_views(found_runs(*pairs), wanted)

    def test_methods_are_grouped_by_what_they_train_on(self):
        notes = " ".join(self.made().notes)
        assert f"{BOTH}: at+avmixup, trades, trades+frl." in notes
        assert f"{ATTACKED}: at, at+idbh." in notes
        assert "clean is in no group: it trains without an attack" in notes

    def test_the_difference_of_the_means_has_welchs_interval(self):
        made = self.made()
        stds = {name: np.std(np.array(hits) / 100) for name, hits in HITS.items()}
        both = [stds[name] for name in ("at+avmixup", "trades", "trades+frl")]
        alone = [stds[name] for name in ("at", "at+idbh")]
        assert column(made, BOTH, "pgd-20", "spread").rates == pytest.approx([np.mean(both)])
        cell = column(made, "difference", "pgd-20", "spread")
        assert cell.rates == pytest.approx([np.mean(both) - np.mean(alone)])
        span = stats.ttest_ind(both, alone, equal_var=False).confidence_interval(0.95)
        assert cell.words == f"{100 * span.low:+.1f} to {100 * span.high:+.1f} over methods"
        assert column(made, "p over methods", "pgd-20", "spread").rates == (0.1,)  # one of ten

    def test_a_group_without_methods_is_a_hole(self):
        made = self.made(at=[10, 50, 90, 30])
        assert column(made, BOTH, "pgd-20", "worst").hole
        assert column(made, "difference", "pgd-20", "worst").hole
        assert column(made, ATTACKED, "pgd-20", "worst").rates == (0.1,)

    def test_methods_without_a_number_are_named(self):
        pairs = [
            ({"recipe": "at"}, trained("at", condition("pgd-20", [10, 50, 90, 30]))),
            ({"recipe": "trades"}, trained("trades")),
            ({"recipe": "mart"}, "not run yet"),
        ]
        wanted = BothViewsOptions(kind="both-views", title="Both", conditions=["pgd-20"])
        made = both_views(found_runs(*pairs), wanted)
        assert "trades has no number somewhere, and is left out there." in made.notes
        assert "mart is in no group: not run yet." in made.notes
        assert column(made, BOTH, "pgd-20", "worst").hole

    def test_one_method_on_a_side_has_no_interval(self):
        cell = row(self.made(at=[10, 50, 90, 30], trades=[25, 50, 70, 35]), "pgd-20", "worst")[4]
        assert cell.rates == pytest.approx([0.15])
        assert "two methods" in cell.words

    def test_permutations_against_all_ways_to_divide(self):
        assert difference([1, 2], [3, 4]).p_value == pytest.approx(2 / 6)
        assert difference([1, 4], [2, 3]).p_value == 1
        assert np.isnan(difference(range(12), range(12)).p_value)
