"""Every row of every table of the papers is a recipe that trains."""

import math

import pytest
from cases import CASES

from classwise.recipe_text import parse_recipe
from classwise.studies.papers import paper_rows
from classwise.training.loop import train

RECIPES = sorted({row.recipe for row in paper_rows()})
QUICK = {"model": "resnet9(width=2)", "eps": 0.1, "epochs": 2, "batch_size": 16, "valid": "0.2"}


def test_the_table_is_whole():
    rows = [row for row in paper_rows() if not row.variant]
    assert len(rows) == 82
    assert {row.paper for row in rows} == {"ahn", "wei", "benz", "medi", "amerehi"}


@pytest.mark.parametrize("text", RECIPES)
def test_each_row_explains_itself_and_trains_a_few_steps(text, tiny, tmp_path):
    recipe = parse_recipe(text)
    slots = {slot for slot, _, owner in recipe.explain() if owner != "-"}
    assert "objective" in slots
    assert set(recipe.owners.values()) == {method.name for method in recipe.methods}
    run = train(recipe, out=tmp_path / "run", source=tiny(), lr=0.01, quiet=True, **QUICK)
    assert run.finished_epochs == 2
    assert all(math.isfinite(loss) for loss in run.history[-1]["loss"].values())
    assert {"last", "best"} <= set(run.weights)


@pytest.mark.parametrize(
    ("text", "both"),
    [
        ("trades+cfa+frl", ["cfa", "frl"]),
        ("trades+cfa+ccm", ["cfa", "ccm"]),
        ("trades+cfa+ccr", ["cfa", "ccr"]),
        ("at+cfa+fawa", ["cfa", "fawa"]),
        ("at+ccr", ["ccr", "at"]),
        ("at+labelaug+avmixup", ["labelaug", "avmixup"]),
        ("clean+fairtat", ["fairtat", "clean"]),
        ("clean+fat", ["fat", "clean"]),
        ("at+fairtat+target", ["fairtat", "target"]),
        ("trades+labelaug", ["labelaug", "trades"]),
        ("at+mart", ["at", "mart"]),
        ("at+idbh+crop", ["idbh", "crop"]),
        ("mart+ccr", ["ccr", "mart", "1 + β_y", "use trades"]),
        ("mart+cfa", ["cfa", "mart", "1 + β_y", "ccm+fawa"]),
        ("mart+cfa(beta_floor=0.5)", ["cfa", "mart", "ccm+fawa"]),
        ("mart+fat+cfa", ["cfa", "mart", "ccm+fawa"]),
        ("trades+bat+ccr", ["ccr", "bat", "1 + β_y", "leave ccr out"]),
        ("bat+cfa", ["cfa", "bat", "ccm+fawa"]),
        ("trades(normalised=true)+bat", ["trades", "bat", "1 + β", "leave normalised out"]),
        ("clean+fawa", ["fawa", "clean", "clean accuracy", "use ema"]),
        ("at+labelaug(slots=2)", ["labelaug", "at", "1 would stay idle", "leave slots out"]),
        ("labelaug(slots=3)+fat", ["labelaug", "at", "2 would stay idle"]),
        ("at+fairtat(odds=uniform, every=3)", ["fairtat", "no statistics", "leave every out"]),
    ],
)
def test_what_makes_no_sense_is_refused_with_both_owners(text, both):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        parse_recipe(text)
    assert all(name in str(refusal.value) for name in both), refusal.value
    assert "; " in str(refusal.value)  # and the way out


@pytest.mark.parametrize(
    "text",
    [
        *("mart+ccm+fawa", "bat+ccm+fawa", "trades+cfa", "trades(normalised=false)+ccr"),
        *("trades(normalised=false)+bat", "clean+ema", "at+fawa", "at+cfa", "at+labelaug(slots=1)"),
    ],
)
def test_the_ways_out_are_open(text):
    assert parse_recipe(text).slots.objective is not None


def test_every_method_has_a_row_among_the_cases():
    from classwise.methods import METHODS

    assert set(METHODS) == {case.name for case in CASES}
