"""Where FRL begins, and the company it keeps."""

import pytest
import torch
from boundaries import (
    files,
    interrupted_train,
    plain_settings,
    quick_train,
    same_weights,
    weights,
)
from equality.frl import SCRIPTS
from frl_worlds import SIZES, play
from refusals import refused

from classwise.recipe_text import parse_recipe
from classwise.training.loop import Trainer
from classwise.training.presets import apply_preset
from classwise.training.run import Run
from classwise.training.schedule import learning_rate


class TestWarmStart:
    @pytest.mark.parametrize("variant", SCRIPTS)
    def test_the_same_run_trains_plain_trades_until_the_start(self, variant, tmp_path, tiny):
        text = f"trades(steps=2)+frl(variant={variant}, start=3)"
        one = quick_train(text, tmp_path / "frl", tiny())
        other = quick_train("trades(steps=2)", tmp_path / "trades", tiny())  # β = 6
        assert same_weights(weights(one), weights(other))
        assert "pgd-20" not in one.history[1]["valid"]["live"]
        assert "pgd-20" in one.history[2]["valid"]["live"]

    @pytest.mark.parametrize("variant", SCRIPTS)
    @pytest.mark.parametrize("num_classes", SIZES)
    def test_beta_is_six_before_the_start_and_the_bases_from_then_on(self, variant, num_classes):
        text = f"trades+frl(variant={variant}, start=0.5, warmup_beta=%s)"
        for warmup in (6.0, 4.5):
            found, _ = play(text % warmup, num_classes, epochs=6, of=6)
            betas = [settings.beta.tolist() for settings in found]
            assert betas == [[warmup] * num_classes] * 3 + [[3.0] * num_classes] * 3

    def test_the_warm_ups_beta_is_that_of_trades_unless_somebody_names_one(self):
        def named(text):
            recipe = parse_recipe(text)
            return recipe.canonical["frl"]["warmup_beta"], recipe.slots.beta

        assert named("trades+frl") == (6.0, 1.5)
        assert named("trades+frl(variant=remargin)") == (6.0, 1.0)
        assert named("trades+frl(warmup_beta=2)") == (2.0, 1.5)
        assert named("trades(beta=4)+frl") == (None, 4.0)  # the same β throughout
        assert named("trades(beta=4)+frl(warmup_beta=5)") == (5.0, 4.0)
        assert named("mart+frl") == (None, 5.0)
        assert named("bat+frl") == (6.0, 1.5)
        assert named("trades+frl(begin='a.safetensors')") == (None, 1.5)
        assert named("trades+frl(begin='a.safetensors', start=2)") == (6.0, 1.5)

    @pytest.mark.parametrize("when", ["start=0", "begin='a.safetensors'"])
    def test_a_beta_for_no_warm_up_is_refused(self, when):
        with refused("frl(warmup_beta=6)", "no warm-up", "leave warmup_beta out"):
            parse_recipe(f"trades+frl({when}, warmup_beta=6)")

    def test_the_first_epochs_are_recorded_with_the_beta_they_had(self, tmp_path, tiny):
        run = quick_train("trades(steps=2)+frl(start=2)", tmp_path / "run", tiny())
        assert [line["settings"]["beta"] for line in run.history] == [
            [beta] * 10 for beta in (6.0, 6.0, 1.5)
        ]

    @pytest.mark.parametrize(
        ("start", "epochs", "first"), [(0, 8, 0), (0.75, 8, 6), (0.01, 8, 1), (5, 8, 5)]
    )
    def test_start_is_an_epoch_or_a_fraction(self, start, epochs, first):
        found, _ = play(f"trades+frl(start={start})", 3, epochs=epochs, of=epochs)
        base = plain_settings(3, margin=8 / 255)
        moved = [not torch.equal(settings.margin, base.margin) for settings in found]
        assert moved == [epoch >= first for epoch in range(epochs)]

    def test_three_quarters_of_the_run_unless_a_model_is_given(self):
        assert parse_recipe("trades+frl").canonical["frl"]["start"] == 0.75
        given = parse_recipe("trades+frl(begin='a.safetensors')")
        assert given.canonical["frl"]["start"] == 0
        assert given.slots.begin == "a.safetensors"
        late = parse_recipe("trades+frl(begin='a.safetensors', start=2)")
        assert late.canonical["frl"]["start"] == 2

    def test_it_begins_from_the_weights_of_a_file(self, tmp_path, tiny):
        first = quick_train("trades(steps=2)", tmp_path / "first", tiny())
        file = first.weights_path("last")
        text = f"trades(steps=2)+frl(begin='{file}')"
        run = Run(tmp_path / "second")
        trainer = Trainer(run, parse_recipe(text), first.config, tiny(), torch.device("cpu"))
        begun = trainer.model.state_dict()
        assert same_weights(weights(first), begun)


class TestCompany:
    def test_the_beta_of_trades_follows_the_variant(self):
        betas = {
            text: parse_recipe(text).slots.beta
            for text in (
                *("trades", "trades+frl", "trades+frl(variant=reweight)"),
                *("trades+frl(variant=remargin)", "trades(beta=4)+frl"),
            )
        }
        assert list(betas.values()) == [6.0, 1.5, 1.5, 1.0, 4.0]

    def test_reweighting_alone_leaves_the_margin_to_others(self):
        recipe = parse_recipe("trades+frl(variant=reweight)+ccm")
        assert recipe.owners["class margin"] == "ccm"
        assert recipe.owners["class label_weight"] == "frl"

    def test_a_named_beta_leaves_the_class_setting_to_others(self):
        with refused("frl", "ccr", "beta"):
            parse_recipe("trades+frl(variant=reweight)+ccr")
        recipe = parse_recipe("trades(beta=1.5)+frl(variant=reweight)+ccr")
        assert recipe.owners["class beta"] == "ccr"

    @pytest.mark.parametrize("base", ["at", "clean"])
    def test_a_base_with_one_term_is_refused(self, base):
        with refused("frl", base, "trades"):
            parse_recipe(f"{base}+frl")

    def test_without_validation_data_it_says_what_to_do(self, tmp_path, tiny):
        with refused("frl", "validation", "valid="):
            quick_train("trades(steps=2)+frl(start=0)", tmp_path / "run", tiny(), valid="0")

    @pytest.mark.parametrize(
        ("option", "allowed"),
        [
            ("bound=1", "less than 1"),
            ("rate=-1", "greater than or equal to 0"),
            ("slack=2", "less than or equal to 1"),
            ("widest=0.5", "greater than or equal to 1"),
            ("narrowest=0", "greater than 0"),
            ("halve_every=0", "greater than or equal to 1"),
            ("variant=rw", "'both', 'reweight' or 'remargin'"),
        ],
    )
    def test_values_out_of_range_name_the_range(self, option, allowed):
        with refused(f"frl({option.split('=')[0]}", allowed):
            parse_recipe(f"trades+frl({option})")


def test_a_resumed_run_is_the_straight_one(tmp_path, tiny, monkeypatch):
    text = "trades(steps=2)+frl(start=1, halve_every=2)"
    straight = quick_train(text, tmp_path / "straight", tiny())
    for epoch in (1, 3):
        resumed = interrupted_train(text, tmp_path / str(epoch), tiny(), monkeypatch, epoch)
        assert files(straight) == files(resumed)


def test_its_own_preset_fine_tunes_a_given_model_gently():
    given = parse_recipe("trades+frl(begin='a.safetensors')")
    recipe, config = apply_preset("paper:frl", given, {})
    assert (config.lr, config.epochs, config.drops, config.valid) == (0.001, 40, (), "last:0.06")
    assert {policy.start for policy in recipe.slots.policies} == {0}


def test_beside_the_shared_protocol_its_rate_is_reached_where_the_warm_up_ends():
    recipe, config = apply_preset("paper", parse_recipe("trades+frl"), {})
    (start,) = {policy.start for policy in recipe.slots.policies}
    assert learning_rate(config, start * config.epochs) == pytest.approx(0.001)
