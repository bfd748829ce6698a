import itertools
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from cases import CASES, RECIPES
from refusals import refused

from classwise.classes.settings import ClassPolicy, ClassSettings, Feedback
from classwise.methods import METHODS, at, ccm, clean, ema, trades
from classwise.recipe import Method, compose, epoch_of
from classwise.recipe_text import load_recipe, parse_recipe, read_recipe
from classwise.slots import Average, Slots


def names(methods) -> str:
    return "|".join(method.name for method in methods)


def test_every_method_has_a_row_of_its_own_in_the_cases():
    assert sorted(case.name for case in CASES) == sorted(METHODS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_case_uses_no_option_at_its_default(case):
    fields = METHODS[case.name].model_fields
    assert all(fields[option].default != value for option, value in case.options.items())


def test_the_three_spellings_of_the_readme_are_one(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text('compose = "trades + ccm + ema"\n[trades]\nbeta = 4\n[ccm]\nmargin_floor = 0.4')
    python = trades(beta=4) | ccm(margin_floor=0.4) | ema()
    assert python == parse_recipe("trades(beta=4)+ccm(margin_floor=0.4)+ema") == read_recipe(file)
    assert python == parse_recipe(
        "trades + ccm+ema", {"trades.beta": "4", "ccm.margin_floor": "2/5"}
    )
    assert python.name == "trades+ccm+ema"
    assert python != trades(beta=5) | ccm(margin_floor=0.4) | ema()


@pytest.mark.parametrize("case", [case for case in CASES if case.options], ids=str)
def test_another_option_is_another_recipe(case):
    assert parse_recipe("+".join(filter(None, [case.needs, case.name]))) != case.recipe


@pytest.mark.parametrize("text", RECIPES)
def test_a_recipe_survives_a_second_composition(text):
    recipe = parse_recipe(text)
    assert load_recipe(recipe) == compose(recipe.methods) == recipe
    assert load_recipe(recipe).slots == recipe.slots


@pytest.mark.parametrize("text", RECIPES)
def test_strings_compose_in_any_order(text):
    expected = parse_recipe(text)
    for parts in itertools.permutations(text.split("+")):
        found = parse_recipe("+".join(parts))
        assert found == expected
        assert found.slots == expected.slots
        assert found.explain() == expected.explain()
        assert found.name == expected.name


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
            assert recipe.slots.policies[0].floor == 0.4

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


class TestBadInput:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("tradse", ("unknown method 'tradse'", "did you mean 'trades'", "ccm, ccr, cfa")),
            ("trades+cmm", ("unknown method 'cmm'", "did you mean 'ccm'")),
            ("trades(bata=6)", ("option of trades", "'bata'", "did you mean 'beta'", "steps")),
            ("clean(beta=6)", ("option of clean", "'beta'")),
            ("ccm", ("ccm", "no training loss", "trades")),
            ("ccm+ema", ("ccm+ema", "no training loss")),
            ("", ("cannot read",)),
            ("at+", ("cannot read",)),
            ("at ccm", ("cannot read",)),
            ("at(steps=3", ("cannot read",)),
            ("at(steps==3)", ("cannot read",)),
            ("at(3)", ("name the options",)),
            ("at(**{})", ("cannot read",)),
            ("trades(beta=6, beta=2)", ("beta",)),
            ("trades(beta=6)(beta=2)", ("trades",)),
        ],
    )
    def test_what_cannot_be_read_is_refused(self, text, words):
        with refused(*words):
            parse_recipe(text)

    @pytest.mark.parametrize(
        "call",
        [
            *("trades(beta=-1)", "trades(beta=six)", "trades(beta=true)", "trades(steps=2.5)"),
            *("trades(normalised=3)", "at(steps=-1)", "at(step=0)", "at(step=2)"),
            *("at(batchnorm=frozen)", "at+ccm(margin_floor=0)", "at+ccm(margin_floor=1.5)"),
            *("at+ccm(start=-1)", "at+ema(decay=1)", "at+ema(decay=-0.1)", "at+ema(decay=[1])"),
        ],
    )
    def test_values_out_of_range_name_the_option(self, call):
        name, _, option = call.split("+")[-1].partition("(")
        with refused(f"{name}({option.split('=')[0]}="):
            parse_recipe(call)

    @pytest.mark.parametrize("key", ["beta", "ccm.start", "trades", ".beta"])
    def test_a_setting_for_no_method_of_the_recipe_is_refused(self, key):
        with refused(key, "METHOD.OPTION"):
            parse_recipe("trades", {key: "3"})

    def test_a_setting_for_an_unknown_option_is_refused(self):
        with refused("'bta'", "did you mean 'beta'"):
            parse_recipe("trades", {"trades.bta": "3"})

    @pytest.mark.parametrize(
        ("content", "word"),
        [
            ("", "compose"),
            ("compose = 3", "compose"),
            ('compose = "at"\nat = 3', "not a table"),
            ('compose = "at"\n[trades]\nbeta = 3', "trades.beta"),
            ('compose = "at"\n[at]\nstep = "fast"', "at(step="),
            ("compose = ", "cannot read"),
        ],
    )
    def test_a_file_that_makes_no_sense_is_refused(self, tmp_path, content, word):
        file = tmp_path / "recipe.toml"
        file.write_text(content)
        with refused(word):
            read_recipe(file)

    def test_a_file_that_is_not_there_is_refused(self, tmp_path):
        with refused("cannot read", "nowhere.toml"):
            load_recipe(str(tmp_path / "nowhere.toml"))

    def test_settings_beside_a_file_are_not_dropped(self, tmp_path):
        file = tmp_path / "recipe.toml"
        file.write_text('compose = "trades"\n[trades]\nbeta = 4\n')
        assert load_recipe(str(file), {"trades.beta": "5"}) == parse_recipe("trades(beta=5)")
