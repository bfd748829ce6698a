"""How a recipe is written and read."""

import itertools

import pytest
from cases import CASES, RECIPES
from refusals import refused

from classwise.methods import METHODS, ccm, ema, trades
from classwise.recipe import compose
from classwise.recipe_text import load_recipe, parse_recipe, read_recipe


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
            ("compose = ", "is not TOML"),
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
