"""Presets: the protocol that the papers share, and the scripts that methods were released with."""

import csv
from fractions import Fraction
from itertools import groupby

import pytest
from places import ROOT, TESTS

from classwise.errors import ClasswiseError
from classwise.methods import METHODS
from classwise.recipe import compose
from classwise.recipe_text import parse_recipe
from classwise.spelling import Share
from classwise.training.config import TrainConfig
from classwise.training.presets import PRESETS, apply_preset, preset_names, scripts_of
from classwise.training.schedule import learning_rate

# Epochs are counted from 1, as the scripts do: `first` to `last` run at (begin with) this rate.
RATES = [
    (key, list(lines))
    for key, lines in groupby(
        csv.DictReader((TESTS / "preset_rates.csv").read_text().splitlines()),
        key=lambda line: (line["preset"], line["recipe"]),
    )
]
NAMES = {"wat", "bat", "frl", "dafa", "mart", "trades", "fat", "avmixup", "labelaug", "absld"}


@pytest.mark.parametrize(("key", "lines"), RATES, ids=[" ".join(key) for key, _ in RATES])
def test_the_rate_of_every_epoch_is_the_scripts(key, lines):
    preset, recipe = key
    _, config = apply_preset(preset, parse_recipe(recipe), {})
    expected = [
        float(line["rate"])
        for line in lines
        for _ in range(int(line["first"]), int(line["last"]) + 1)
    ]
    assert [int(line["first"]) for line in lines[1:]] == [int(x["last"]) + 1 for x in lines[:-1]]
    assert config.epochs == len(expected) == int(lines[-1]["last"])
    found = [learning_rate(config, number - 1) for number in range(1, config.epochs + 1)]
    assert found == pytest.approx(expected, rel=1e-6)
    whole = all(
        float(drop if isinstance(drop, float) else drop[0]).is_integer() for drop in config.drops
    )
    if config.schedule == "step" and whole:  # then the rate stays the same within an epoch
        late = [learning_rate(config, number - 0.001) for number in range(1, config.epochs + 1)]
        assert late == found


def step_of(recipe, config):
    """The attack's step in image units."""
    step = recipe.slots.step
    return config.eps / step.parts if isinstance(step, Share) else step


@pytest.mark.parametrize("preset", ["paper", "paper:trades"])
def test_a_step_in_pixels_is_for_balls_that_it_reaches(preset):
    recipe = parse_recipe("trades")
    pixels = 2 / 255 if preset == "paper" else 0.007
    for options, step in (
        ({}, pixels),
        ({"eps": 16 / 255}, pixels),
        ({"eps": 0.2}, Share(4)),
        ({"eps": 0.5, "norm": "L2"}, Share(4)),
        ({"eps": 0.02, "norm": "L2"}, Share(4)),
    ):
        chosen, _ = apply_preset(preset, recipe, options)
        assert chosen.slots.step == step
    own, _ = apply_preset(preset, parse_recipe("trades(step=0.01)"), {"eps": 0.2})
    assert own.slots.step == 0.01


def test_drops_keep_their_share_of_a_run_of_another_length():
    _, script = apply_preset("paper:fat", parse_recipe("at+fat"), {})
    _, short = apply_preset("paper:fat", parse_recipe("at+fat"), {"epochs": 12})
    for epoch in range(12):
        assert learning_rate(short, epoch) == pytest.approx(learning_rate(script, 10 * epoch))
    recipe, tuned = apply_preset("paper:frl", parse_recipe("trades+frl"), {"epochs": 24})
    start = recipe.slots.policies[0].start * tuned.epochs
    assert learning_rate(tuned, start) == pytest.approx(0.001)
    _, named = apply_preset("paper:wat", parse_recipe("trades+wat"), {"epochs": 9, "drops": (3,)})
    assert named.drops == (3,)


def test_a_base_that_has_no_name_to_import_keeps_its_class():
    class Local(METHODS["at"]):
        """A base of somebody's own."""

    recipe, _ = apply_preset("minutes", compose([Local()]), {})
    steps = PRESETS["minutes"]["steps"]
    assert (type(recipe.methods[0]), recipe.slots.steps) == (Local, steps)


def test_every_preset_has_its_rates_in_the_table():
    assert {preset for (preset, _), _ in RATES} == set(preset_names())


@pytest.mark.parametrize(
    ("preset", "recipe", "training"),
    [
        ("wat", "trades+wat", ("resnet18", 100, 2e-4, 0.031, "last:0.06")),
        ("bat", "bat", ("resnet18", 200, 2e-4, 0.031, "0")),
        ("dafa", "trades+dafa", ("resnet18", 110, 5e-4, 0.031, "0")),
        ("mart", "mart", ("resnet18", 120, 3.5e-3, 0.031, "0")),
        ("trades", "trades", ("wrn-34-10", 76, 2e-4, 0.031, "0")),
        ("fat", "fat", ("wrn-34-10", 120, 2e-4, 0.031, "0")),
        ("fat", "trades+fat", ("wrn-34-10", 85, 2e-4, 0.031, "0")),
        ("fat", "mart+fat", ("wrn-34-10", 90, 2e-4, 0.031, "0")),
        ("avmixup", "at+avmixup", ("wrn-34-10", 205, 2e-4, 8 / 255, "0")),
        ("frl", "trades+frl(begin='a')", ("preactresnet18", 40, 5e-4, 8 / 255, "last:0.06")),
        ("labelaug", "at+labelaug", ("resnet50", 10, 5e-4, 0.03, "0.02")),
        ("labelaug", "at", ("resnet50", 10, 5e-4, 0.03, "0.02")),
        ("labelaug", "clean", ("resnet50", 10, 5e-4, 0.03, "0.02")),
        ("absld", "absld", ("resnet18", 300, 2e-4, 8 / 255, "0")),
    ],
)
def test_the_settings_of_the_scripts(preset, recipe, training):
    chosen, config = apply_preset(f"paper:{preset}", parse_recipe(recipe), {})
    found = (config.model, config.epochs, config.weight_decay, config.eps, config.valid)
    assert found == training
    assert config.momentum == 0.9
    assert config.batch_size == (64 if preset == "labelaug" else 128)
    assert config.nesterov == (preset == "dafa")
    if chosen.attacks:
        step = step_of(chosen, config)
        small = config.eps == 0.031
        assert step == pytest.approx(0.007 if small else config.eps / 4)
        assert chosen.slots.steps == 10
    if preset != "labelaug":
        assert chosen.slots.augment.padding == "zero"
        assert chosen.slots.augment.pad == (2 if preset == "avmixup" else None)


class TestMethodOptions:
    def test_fat_takes_its_own_rule_patience_noise_and_batchnorm(self):
        recipe, config = apply_preset("paper:fat", parse_recipe("fat"), {})
        assert (recipe.slots.batchnorm, recipe.slots.jitter) == ("eval", 0.001)
        taus = [recipe.slots.stop.patience_at(n - 1, config.epochs) for n in range(1, 121)]
        assert taus == [0] * 50 + [1] * 40 + [2] * 30

    def test_fat_on_trades_and_mart(self):
        recipe, config = apply_preset("paper:fat", parse_recipe("trades+fat"), {})
        taus = [recipe.slots.stop.patience_at(n - 1, config.epochs) for n in range(1, 86)]
        assert taus == [0] * 30 + [1] * 20 + [2] * 20 + [3] * 15
        recipe, config = apply_preset("paper:fat", parse_recipe("mart+fat"), {})
        taus = [recipe.slots.stop.patience_at(n - 1, config.epochs) for n in range(1, 91)]
        assert taus == [0] * 20 + [1] * 20 + [2] * 20 + [3] * 20 + [4] * 10
        assert (recipe.slots.beta, recipe.slots.jitter) == (6, None)

    @pytest.mark.parametrize("base", ["at", "trades"])
    def test_dafa_attacks_in_eval_mode_and_acts_after_epoch_70(self, base):
        recipe, config = apply_preset("paper:dafa", parse_recipe(f"{base}+dafa"), {})
        assert recipe.slots.batchnorm == "eval"
        assert round(recipe.slots.policies[0].start * config.epochs) == 70

    @pytest.mark.parametrize(("variant", "tuning"), [("both", 40), ("remargin", 120)])
    def test_frl_without_a_model_trains_200_epochs_before_it_tunes(self, variant, tuning):
        text = f"trades+frl(variant={variant})"
        recipe, config = apply_preset("paper:frl", parse_recipe(text), {})
        starts = {round(policy.start * config.epochs) for policy in recipe.slots.policies}
        assert starts == {200}
        assert config.epochs - 200 == tuning

    def test_what_the_recipe_says_wins(self):
        text = "at(step=0.01, batchnorm=train)+fat(rule=counter)+crop(pad=3)"
        recipe, _ = apply_preset("paper:fat", parse_recipe(text), {})
        assert (recipe.slots.step, recipe.slots.batchnorm) == (0.01, "train")
        assert recipe.slots.stop.rule == "counter"
        assert (recipe.slots.augment.pad, recipe.slots.augment.padding) == (3, "zero")

    def test_another_augmentation_of_the_recipe_stays(self):
        recipe, _ = apply_preset("paper:trades", parse_recipe("trades+idbh"), {})
        assert recipe.owners["augment"] == "idbh"

    @pytest.mark.parametrize("name", sorted(NAMES))
    def test_every_script_names_options_that_exist(self, name):
        recipe = next(
            parse_recipe(text) for (preset, text), _ in RATES if preset == f"paper:{name}"
        )
        script = scripts_of(recipe)[name]
        assert set(script.training) <= set(TrainConfig.model_fields)
        assert set(script.own) <= set(METHODS[name].model_fields)
        assert set(script.crop) <= set(METHODS["crop"].model_fields)
        assert set(script.base) | {"step"} <= set(type(recipe.methods[0]).model_fields)


class TestNames:
    def test_there_is_one_for_every_released_script(self):
        assert set(preset_names()) == {*PRESETS, *(f"paper:{name}" for name in NAMES)}

    @pytest.mark.parametrize("name", preset_names())
    def test_the_shared_protocol_is_the_same_for_every_recipe(self, name):
        recipes = [recipe for (preset, recipe), _ in RATES if preset == name]
        plain = apply_preset("paper", parse_recipe("at"), {})[1]
        for recipe in recipes:
            assert apply_preset("paper", parse_recipe(recipe), {})[1] == plain

    @pytest.mark.parametrize("preset", ["paper:wat", "paper:fat", "paper:frl"])
    def test_a_script_of_a_method_that_is_not_there_is_refused(self, preset):
        with pytest.raises(ClasswiseError, match=r"allowed here: .*paper:trades") as refusal:
            apply_preset(preset, parse_recipe("trades+ccm"), {})
        assert "paper:wat," not in str(refusal.value)

    @pytest.mark.parametrize("recipe", ["trades", "at+ccm", "fat"])
    def test_label_augmentations_script_trains_its_own_baselines_only(self, recipe):
        with pytest.raises(ClasswiseError, match="labelaug"):
            apply_preset("paper:labelaug", parse_recipe(recipe), {})

    @pytest.mark.parametrize("name", ["paper:wta", "paper:", "paper:ccm", "wat", "hours:wat"])
    def test_an_unknown_one_is_refused_with_all_there_are(self, name):
        with pytest.raises(ClasswiseError) as refusal:
            apply_preset(name, parse_recipe("trades+wat"), {})
        assert all(known in str(refusal.value) for known in preset_names())


class TestTheConfiguration:
    def test_drops_may_have_a_factor_each(self):
        config = TrainConfig(epochs=10, lr=1.0, drops=(2, (0.5, 0.5), (8, 0.2)))
        found = [learning_rate(config, epoch) for epoch in range(10)]
        assert found == pytest.approx([1] * 2 + [0.1] * 3 + [0.05] * 3 + [0.01] * 2)

    def test_drops_survive_the_record(self):
        config = TrainConfig(drops=[59, [109, 0.5]])
        assert TrainConfig(**config.model_dump(mode="json")) == config
        assert config.drops == (59.0, (109.0, 0.5))

    @pytest.mark.parametrize("drops", [(-1,), ((5, 0),), ((5, -0.1),), ((-2, 0.1),)])
    def test_senseless_drops_are_refused(self, drops):
        with pytest.raises(ClasswiseError, match="factor"):
            TrainConfig(drops=drops)

    def test_a_cosine_may_end_above_nothing(self):
        config = TrainConfig(epochs=4, lr=0.1, schedule="cosine", final_lr=0.02)
        found = [learning_rate(config, epoch) for epoch in (0, 2, 4)]
        assert found == pytest.approx([0.1, 0.06, 0.02])

    @pytest.mark.parametrize("more", [{}, {"schedule": "step"}, {"schedule": "cosine", "lr": 0.01}])
    def test_an_end_that_is_not_used_or_not_below_is_refused(self, more):
        with pytest.raises(ClasswiseError, match="final_lr"):
            TrainConfig(final_lr=0.02, **more)


DOCUMENTED = [
    [cell.strip().strip("`") for cell in line.strip("| ").split(" | ")]
    for line in (ROOT / "docs" / "presets.md").read_text().splitlines()
    if line.startswith("| `paper:")
]


class TestTheDocumentation:
    def test_it_has_every_script(self):
        assert {line[0] for line in DOCUMENTED} == {f"paper:{name}" for name in NAMES}

    @pytest.mark.parametrize("line", DOCUMENTED, ids=lambda line: f"{line[0]} {line[1]}")
    def test_a_line_says_what_the_preset_does(self, line):
        preset, text, model, epochs, rate, falls, decay, radius, valid, _ = line
        recipe, config = apply_preset(preset, parse_recipe(text), {})
        rates = [learning_rate(config, number - 1) for number in range(1, config.epochs + 1)]
        found = [n for n in range(2, config.epochs + 1) if rates[n - 1] < rates[n - 2]]
        if falls == "with every step":
            assert config.schedule == "cosine"
        else:
            assert found == ([] if falls == "never" else [int(n) for n in falls.split(", ")])
        assert (config.model, config.epochs) == (model, int(epochs))
        assert (config.lr, config.weight_decay) == (float(rate.split(",")[0]), float(decay))
        eps, step = (float(Fraction(number)) for number in radius.split(", "))
        taken = step_of(recipe, config)
        assert (config.eps, taken) == pytest.approx((eps, step))
        assert config.valid == {"none": "0"}.get(valid, valid)
