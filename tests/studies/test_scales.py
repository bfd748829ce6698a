"""Scales: what becomes of the settings of a study, and what keeps its value."""

import pytest

from classwise.recipe_text import parse_recipe
from classwise.stages import largest
from classwise.studies.papers import paper_rows
from classwise.studies.scale import Scale, scale_named
from classwise.studies.study import SCALES, AtScale, Audit
from classwise.training.presets import PRESETS

ROWS = paper_rows()


def resolve(scale, row, **options):
    given = {"data": row.data, "model": row.model, **options}
    return scale_named(scale).resolve(parse_recipe(row.recipe), row.preset, given)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.paper} {row.row} {row.variant}")
def test_paper_is_the_row_as_it_stands_and_every_row_has_every_scale(row):
    recipe, config = resolve("paper", row, seed=2)
    stated, settings = row.resolve(seed=2)
    assert (recipe.canonical, config) == (stated.canonical, settings)
    for scale in SCALES[:-1]:
        recipe, config = resolve(scale, row, eps="4/255")
        assert config.eps == 4 / 255
        assert config.epochs == scale_named(scale).settings["epochs"]
        assert [m.name for m in recipe.methods if m.name != "crop"] == [
            m.name for m in stated.methods if m.name != "crop"
        ]


def test_minutes_is_the_preset_but_for_the_images_and_the_network():
    scale, preset = scale_named("minutes"), PRESETS["minutes"]
    for name in ("epochs", "batch_size", "lr", "schedule", "valid_attack"):
        assert scale.settings[name] == preset[name]
    recipe, config = resolve("minutes", next(r for r in ROWS if r.row == "AT"))
    assert recipe.canonical["at"]["steps"] == largest(preset["steps"])  # from the first epoch on
    assert recipe.canonical["at"]["step"] == "eps/2"
    assert config.valid == "0.1"
    assert (config.data, config.model) == ("pooled(cifar10, by=2)", "resnet9(width=8)")
    assert config.subset == 10_000


@pytest.mark.parametrize("scale", ["minutes", "hours", "paper"])
def test_few_steps_and_epochs_leave_every_method_what_it_is(scale):
    for row in ROWS:
        recipe, config = resolve(scale, row)
        options, slots = recipe.canonical, recipe.slots
        if slots.steps is None:
            continue
        steps = largest(slots.steps)
        if {"at", "trades"} & set(options):  # the ball is reached from its centre
            step = next(options[base]["step"] for base in ("at", "trades") if base in options)
            reach = (
                1 / float(step.removeprefix("eps/")) if isinstance(step, str) else step / config.eps
            )
            assert steps * reach >= 1, row
        if "fat" in options:  # else nothing would ever stop, and FAT would be AT
            assert largest(options["fat"]["patience"]) < steps, row
        for average in slots.averages:  # the weights that it began with are forgotten
            if average.decay is not None:
                assert average.decay ** (config.epochs * (1 - average.start)) < 0.01, row


def test_what_a_recipe_writes_or_an_axis_says_wins_over_the_scale():
    scale = scale_named("smoke")
    recipe, config = scale.resolve(parse_recipe("at(steps=4)"), "paper", {"epochs": 3})
    assert (recipe.canonical["at"]["steps"], config.epochs) == (4, 3)
    own = AtScale(base={"steps": 2}, methods={"ccm.margin_floor": 0.7, "ema.decay": 0.5},
                  settings={"lr": 0.3}, model={"cnn": "lenet"})  # fmt: skip
    recipe, config = scale.over(own).resolve(
        parse_recipe("at+ccm"), "paper", {"model": "cnn", "data": "digits"}
    )
    assert recipe.canonical["at"]["steps"] == 2
    assert recipe.canonical["ccm"]["margin_floor"] == 0.7
    assert (config.lr, config.model) == (0.3, "lenet")
    assert config.data == "madeup(digits, size=8)"


def test_data_and_network_that_a_preset_chooses_have_their_stand_ins_too():
    _, config = scale_named("smoke").resolve(parse_recipe("at"), "paper", {})
    assert (config.data, config.model) == ("madeup(digits, size=8)", "cnn(width=1)")
    _, config = scale_named("minutes").resolve(parse_recipe("at"), "paper", {"data": "cifar10"})
    assert (config.model, config.subset) == ("resnet9(width=8)", 10_000)


def test_an_attack_that_is_not_the_bases_own_keeps_its_steps():
    recipe, _ = scale_named("minutes").resolve(parse_recipe("fast"), "paper", {})
    assert recipe.slots.steps == parse_recipe("fast").slots.steps


def test_stand_ins_also_inside_others():
    scale = scale_named("minutes")
    assert scale.data_for("longtail(cifar10, factor=10)") == (
        "longtail(pooled(cifar10, by=2), factor=10)"
    )
    assert scale.data_for("mnist") == "mnist"
    assert scale.model_for("lenet") == "lenet"
    assert scale_named("smoke").model_for("lenet") == "cnn(width=1)"


def test_expensive_attacks_have_fewer_images_and_seeds_beside_the_others():
    scale = Scale(name="x", words="", attacks={"autoattack": "suite(apgd-ce)"},
                  limits={"autoattack": 9, "square": 4}, first={"square": 1})  # fmt: skip
    asked = (Audit(attacks=("clean", "autoattack", "square", "pgd-20"), limit=7),)
    found = [(a.attacks, a.limit, a.seeds) for a in scale.audits(asked)]
    assert found == [(("clean", "suite(apgd-ce)", "pgd-20"), 7, 0), (("square",), 4, 1)]
