"""How methods compose into a recipe, and who owns which slot."""

import itertools
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from refusals import refused

from classwise.classes.settings import ClassPolicy, ClassSettings, Feedback
from classwise.methods import at, ccm, clean, ema, trades
from classwise.recipe import Method, compose
from classwise.recipe_text import parse_recipe, read_recipe
from classwise.slots import Average, Slots
from classwise.stages import epoch_of


def names(methods) -> str:
    return "|".join(method.name for method in methods)


@pytest.mark.parametrize("parts", [*itertools.permutations([trades(), ccm(), ema()])], ids=names)
def test_python_composes_in_any_order_and_grouping(parts):
    one, two, three = parts
    expected = parse_recipe("trades+ccm+ema")
    assert (one | two) | three == expected
    assert one | (two | three) == expected


class Curious(Method):
    """Its default depends on its company."""

    decay: float | None = None

    def resolve(self, among):
        if self.decay is not None:
            return self
        return self.model_copy(update={"decay": 0.9 if "ema" in among.names else 0.1})

    def fill(self):
        return Slots(averages=(Average("curious", self.decay, 0),))


def test_defaults_follow_the_whole_company_however_it_was_grouped():
    expected = compose([at(), Curious(), ema()])
    assert expected.canonical[Curious.name] == {"decay": 0.9}
    assert at() | Curious() | ema() == expected
    assert at() | (Curious() | ema()) == expected
    assert (at() | ema()) | Curious() == expected
    assert at() | Curious(decay=0.3) | ema() == compose([at(), ema(), Curious(decay=0.3)])


class TestClashes:
    def test_two_bases_name_both_owners(self):
        with refused("at", "trades", "both set"):
            at() | trades()
        with refused("at", "clean"):
            parse_recipe("clean+at")

    def test_two_writers_of_one_setting_name_both_owners(self):
        with refused("ccm", "test_recipe:Rival", "margin"):
            at() | ccm() | Rival()
        with refused("ccm", "test_recipe:Rival", "margin"):
            Rival() | (at() | ccm())

    def test_two_averages_of_one_name_name_both_owners(self):
        with refused("ema", "test_recipe:Shadow", "average"):
            at() | ema() | Shadow()

    def test_the_same_method_twice(self):
        for text in ("at+ccm+ccm", "at+ccm(margin_floor=0.2)+ccm", "at+at"):
            with refused("twice"):
                parse_recipe(text)
        with refused("ccm appears twice"):
            at() | ccm() | ccm(margin_floor=0.4)

    def test_a_margin_per_class_needs_an_attack(self):
        with refused("ccm", "clean"):
            clean() | ccm()

    def test_a_beta_per_class_needs_a_beta(self):
        with refused("test_recipe:Betas", "at", "trades"):
            at() | Betas()


@dataclass(frozen=True)
class Writer(ClassPolicy):
    setting: str

    @property
    def writes(self):
        return frozenset({self.setting})

    def update(self, settings: ClassSettings, feedback: Feedback):  # noqa: ARG002
        table = getattr(settings, self.setting)
        return replace(settings, **{self.setting: 2 * table}), self


class Rival(Method):
    def fill(self):
        return Slots(policies=(Writer("margin"),))


class Betas(Method):
    def fill(self):
        return Slots(policies=(Writer("beta"),))


class Steps(Method):
    def fill(self):
        return Slots(policies=(Writer("step"),))


class Shadow(Method):
    def fill(self):
        return Slots(averages=(Average("ema", 0.5, 0),))


class Patient(Method):
    """Replaces one part of AT, and brings AT where nobody else brings a base."""

    extends: ClassVar[frozenset[str]] = frozenset({"at", "trades"})
    implies: ClassVar[str | None] = "at"

    def fill(self):
        return Slots(start="none", batchnorm="eval")


class TestOwners:
    def test_a_policy_may_calibrate_the_beta_that_a_base_brought(self):
        recipe = trades(beta=2) | Betas()
        assert recipe.slots.beta == 2
        owner = {slot: who for slot, _, who in recipe.explain()}
        assert (owner["beta"], owner["class beta"]) == ("trades", Betas.name)

    def test_a_policy_may_calibrate_the_step_that_a_base_brought(self):
        recipe = at(step=0.01) | Steps()
        assert recipe.slots.step == 0.01
        owner = {slot: who for slot, _, who in recipe.explain()}
        assert (owner["step"], owner["class step"]) == ("at", Steps.name)

    @pytest.mark.parametrize("base", [at, trades])
    def test_an_extension_takes_over_its_parts_only(self, base):
        recipe = base() | Patient()
        assert recipe.slots.inner.start == "none"
        assert recipe.slots.inner.batchnorm == "eval"
        assert recipe.slots.inner.steps == 10
        assert recipe.owners["start"] == Patient.name
        assert recipe.owners["objective"] == base().name

    def test_an_extension_alone_brings_the_base_it_implies(self):
        assert compose([Patient()]) == at() | Patient()

    def test_explain_names_slot_value_and_owner(self):
        rows = parse_recipe("trades(beta=3)+ccm+ema").explain()
        table = {slot: (value, owner) for slot, value, owner in rows}
        assert table["reference"] == ("clean", "trades")
        assert table["start"] == ("gaussian", "trades")
        assert table["steps"] == ("10", "trades")
        assert table["step"] == ("eps/4", "trades")
        assert table["batchnorm"] == ("eval", "trades")
        assert table["beta"] == ("3.0", "trades")
        assert table["objective"][1] == "trades"
        assert table["class margin"][1] == "ccm"
        assert "0.3" in table["class margin"][0]
        assert table["averages"][1] == "ema"
        assert table["reduction"] == ("mean", "-")
        assert [value for slot, value, _ in rows if slot == "keeps"]

    def test_explain_shows_no_attack_where_there_is_none(self):
        slots = {slot for slot, _, _ in (clean() | ema()).explain()}
        assert not slots & {"reference", "start", "steps", "step", "stop", "batchnorm"}
        assert {"objective", "averages", "augment"} <= slots


class TestDefaults:
    def test_the_margin_floor_follows_the_base(self):
        assert parse_recipe("at+ccm").canonical["ccm"]["margin_floor"] == 0.5
        assert parse_recipe("trades+ccm").canonical["ccm"]["margin_floor"] == 0.3
        for base in ("at", "trades"):
            recipe = parse_recipe(f"{base}+ccm(margin_floor=0.4)")
            assert recipe.slots.policies[0].margin_floor == 0.4

    def test_trades_is_plain_unless_asked(self):
        assert parse_recipe("trades").canonical["trades"]["normalised"] is False
        assert parse_recipe("trades+ccm").slots.objective.normalised is False
        assert parse_recipe("trades(normalised=true)").slots.objective.normalised is True
        assert parse_recipe("trades(normalised=false)") == parse_recipe("trades")

    def test_at_attacks_in_train_mode_from_a_uniform_start(self):
        inner = parse_recipe("at").slots.inner
        assert (inner.reference, inner.start, inner.steps, inner.batchnorm) == (
            *("label", "uniform"),
            *(10, "train"),
        )

    @pytest.mark.parametrize("start", ["none", "uniform", "gaussian", "clipped gaussian"])
    def test_at_starts_where_it_is_told_to(self, start, tmp_path):
        expected = at(start=start)
        assert expected.fill().start == start
        file = tmp_path / "recipe.toml"
        file.write_text(f'compose = "at"\n[at]\nstart = "{start}"')
        assert parse_recipe(f"at(start='{start}')") == read_recipe(file) == compose([expected])
        if " " not in start:
            assert parse_recipe(f"at(start={start})") == compose([expected])
        with refused("at(start='near')", "'uniform'"):
            at(start="near")

    def test_trades_attacks_in_eval_mode_from_a_gaussian_start(self):
        inner = parse_recipe("trades").slots.inner
        assert (inner.reference, inner.start, inner.steps, inner.batchnorm) == (
            *("clean", "gaussian"),
            *(10, "eval"),
        )
        assert parse_recipe("trades").slots.beta == 6

    def test_clean_attacks_not_at_all(self):
        assert parse_recipe("clean").slots.inner is None
        assert not parse_recipe("clean").attacks

    def test_a_when_is_an_epoch_or_a_fraction_of_the_run(self):
        assert [epoch_of(when, 40) for when in (0, 0.25, 0.5, 1, 7, 50)] == [0, 10, 20, 1, 7, 50]

    def test_it_is_spelled_with_the_options_that_were_changed(self):
        assert parse_recipe("ccm+trades(beta=3,steps=10)+ema").spelled == "trades(beta=3.0)+ccm+ema"
        assert parse_recipe("fat").spelled == "at+fat"
