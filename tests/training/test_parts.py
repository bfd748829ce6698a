"""Parts that stay, and parts that learn at rates of their own."""

import math

import pytest
import torch
from refusals import refused
from short_runs import moved, short_run, weights_of
from torch import nn

from classwise.models.asking import batchnorm_mode, set_training
from classwise.models.extra import named_parts, with_extra_outputs
from classwise.models.logits_of import LogitsOf
from classwise.training.parts import freeze, parameter_groups, parts_of
from classwise.training.schedule import learning_rate

RESNET = {"model": "resnet9(width=2)", "epochs": 1}


class TestFreeze:
    @pytest.mark.parametrize("mode", ["train", "batch", "eval"])
    def test_parameters_and_statistics_of_a_frozen_part_stay(self, tmp_path, tiny, mode):
        recipe = f"at(steps=2, batchnorm={mode})+awp"
        start = short_run(tmp_path / "start", recipe, tiny(), **{**RESNET, "epochs": 1})
        begin = {"begin": str(start.path), "seed": 4}
        names = set(weights_of(start))
        free = short_run(tmp_path / "free", recipe, tiny(), **RESNET, **begin)
        assert moved(weights_of(start), weights_of(free)) == names - {"mean", "deviation"}
        held = short_run(
            tmp_path / "held",
            recipe,
            tiny(),
            freeze="features.stem,features.*1*",
            **RESNET,
            **begin,
        )
        left = moved(weights_of(start), weights_of(held))
        # features.*1* is down1 and pair1, and everything with a 1 in its name elsewhere
        assert {n for n in left if n.startswith(("features.stem", "features.down1"))} == set()
        assert not {n for n in left if n.startswith("features.pair1")}
        assert {"features.down2.0.weight", "head.weight", "head.bias"} <= left

    def test_only_the_head_learns(self, tmp_path, tiny):
        start = short_run(tmp_path / "start", "clean", tiny(), **RESNET)
        run = short_run(
            tmp_path / "run",
            "at(steps=2, batchnorm=train)+ema(start=0)",
            tiny(),
            begin=str(start.path),
            freeze=["features"],
            **RESNET,
        )
        assert moved(weights_of(start), weights_of(run)) == {"head.weight", "head.bias"}
        assert moved(weights_of(start), weights_of(run, "ema-last")) == {"head.weight", "head.bias"}

    @pytest.mark.parametrize("mode", ["train", "batch", "eval"])
    def test_a_frozen_part_is_the_same_function_in_every_mode(self, net, mode):
        model = net()
        freeze(model, ["norm", "conv"])
        images = torch.rand(8, 1, 6, 6, dtype=torch.float64)
        expected = model.eval()(images)
        set_training(model, True)
        with batchnorm_mode(model, mode):
            assert torch.equal(model(images), expected)
        assert model.training
        assert not model.norm.training
        other = net()
        with batchnorm_mode(other.train(), mode):
            assert torch.equal(other(images), expected) == (mode == "eval")

    def test_batchnorm_without_parameters_goes_by_its_name(self):
        layers = [nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2, affine=False)]
        model = nn.Sequential(nn.Sequential(*layers), nn.Linear(2, 2))
        freeze(model, ["0"])
        set_training(model, True)
        assert not model[0][1].training

    def test_a_model_around_another_goes_by_the_names_inside(self, net):
        inside = net()
        model = with_extra_outputs(LogitsOf(inside), "head", 4, 2)
        assert model.head_path in parts_of(name for name, _ in model.named_parameters())
        for around in (LogitsOf(inside), model):
            freeze(around, ["norm", "conv"])
            set_training(around, True)
            assert not dict(named_parts(around))["norm"].training

    def test_half_a_batchnorm_is_not_frozen(self, net):
        model = net()
        freeze(model, ["*.weight"])
        set_training(model, True)
        assert model.norm.training
        assert not model.norm.weight.requires_grad
        assert model.norm.bias.requires_grad

    def test_a_pattern_without_match_and_a_whole_model_are_refused(self, tmp_path, tiny):
        with refused("'features.conv9'", "did you mean 'features.conv", "head"):
            short_run(tmp_path / "a", "clean", tiny(), freeze="features.conv9")
        with refused("'feat'"):  # a part of a name is no name
            short_run(tmp_path / "a", "clean", tiny(), freeze="feat,head")
        with refused("nothing to train", "head"):
            short_run(tmp_path / "a", "clean", tiny(), freeze="features,head")
        assert not (tmp_path / "a").exists()


class TestRates:
    @pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
    def test_groups_move_by_their_multiple(self, tmp_path, tiny, optimiser):
        options = {
            **{"epochs": 1, "batch_size": 1000, "weight_decay": 0.0, "lr": 1e-3},
            **{"optimiser": optimiser, "schedule": "constant"},
        }
        still = weights_of(
            short_run(tmp_path / "o", "at(steps=1)", tiny(), **{**options, "lr": 1e-30})
        )
        plain = weights_of(short_run(tmp_path / "a", "at(steps=1)", tiny(), **options))
        rates = {"head": 3, "features.conv*": 0.5}
        run = short_run(tmp_path / "b", "at(steps=1)", tiny(), rates=rates, **options)
        found = weights_of(run)
        for name, start in still.items():
            multiple = 3 if name.startswith("head") else 0.5 if ".conv" in name else 1
            expected = start + multiple * (plain[name] - start)
            torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-7)
        assert moved(still, found) >= {"head.weight", "features.conv1.weight"}

    def test_the_schedule_holds_for_every_group(self, tmp_path, tiny, steps):
        rates = {"head": 10, "features.hidden": 0.1}
        run = short_run(
            tmp_path / "a", "at(steps=1)", tiny(), rates=rates, schedule="cosine", epochs=2, lr=0.01
        )
        batches = len(steps.seen) // 2
        for number, (lrs, _, _) in enumerate(steps.seen):
            rate = learning_rate(run.config, number / batches)
            assert lrs == pytest.approx([rate, 0.1 * rate, 10 * rate])

    def test_the_order_of_writing_does_not_matter(self, net):
        one = parameter_groups(net(), {"conv": 2, "head": 3})
        other = parameter_groups(net(), {"head": 3, "conv": 2})
        assert [group["multiple"] for group in one] == [1, 2, 3]
        assert [group["multiple"] for group in other] == [1, 2, 3]

    def test_two_owners_none_and_frozen_ones_are_refused(self, tmp_path, tiny):
        def go(**options):
            short_run(tmp_path / "a", "clean", tiny(), **options)

        with refused("'features'", "'features.conv*'", "both name features.conv1.weight"):
            go(rates={"features": 0.1, "features.conv*": 2})
        with refused("'haed'", "did you mean 'head'"):
            go(rates={"haed": 2})
        with refused("'head'"):
            go(rates={"head": 2}, freeze="head")
        for bad in (0, -1, math.inf):
            with refused("rates"):
                go(rates={"head": bad})
