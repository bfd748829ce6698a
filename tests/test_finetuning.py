"""Parts that stay or learn at rates of their own, warm-ups, Adam, and weights kept on the way."""

import json
import math
from dataclasses import replace

import pytest
import torch
from refusals import refused
from short_runs import QUICK, short_run, weights_of
from torch import nn
from typer.testing import CliRunner

from classwise import cli
from classwise.classes.settings import ClassSettings
from classwise.models.asking import batchnorm_mode, set_training
from classwise.training.config import TrainConfig
from classwise.training.loop import train
from classwise.training.parts import freeze, parameter_groups
from classwise.training.schedule import Pace, learning_rate, make_optimiser
from classwise.training.step import Step
from classwise.training.validate import Checker

RESNET = {"model": "resnet9(width=2)", "epochs": 1}


def moved(one, other):
    return {name for name in one if not torch.equal(one[name], other[name])}


@pytest.fixture
def steps(monkeypatch):
    """What every step of a run was given: learning rates by group, radius, step; may interrupt."""
    seen, real = [], Step.__call__
    seen_at = {"fatal": None}

    def recording(self, batch, settings, *rest):
        if len(seen) == seen_at["fatal"]:
            raise KeyboardInterrupt
        lrs = [group["lr"] for group in self.optimiser.param_groups]
        seen.append((lrs, settings.margin.tolist(), settings.step.tolist()))
        return real(self, batch, settings, *rest)

    monkeypatch.setattr(Step, "__call__", recording)
    recording.seen, recording.control = seen, seen_at
    return recording


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


def test_adam_decays_through_the_gradient():
    """θ ← θ − η·m̂/(√v̂ + ε) with g + λθ for a gradient, in plain loops."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2, bias=False).double()
    config = TrainConfig(optimiser="adam", lr=0.05, weight_decay=0.3)
    optimiser = make_optimiser(config, model)
    expected = [row[:] for row in model.weight.tolist()]
    m = [[0.0] * 3 for _ in range(2)]
    v = [[0.0] * 3 for _ in range(2)]
    for t in range(1, 5):
        slope = [[math.sin(t + i + 2 * j) for j in range(3)] for i in range(2)]
        model.weight.grad = torch.tensor(slope, dtype=torch.float64)
        optimiser.step()
        for i in range(2):
            for j in range(3):
                g = slope[i][j] + 0.3 * expected[i][j]
                m[i][j] = 0.9 * m[i][j] + 0.1 * g
                v[i][j] = 0.999 * v[i][j] + 0.001 * g * g
                up, down = m[i][j] / (1 - 0.9**t), v[i][j] / (1 - 0.999**t)
                expected[i][j] -= 0.05 * up / (math.sqrt(down) + 1e-8)
    assert model.weight.flatten().tolist() == pytest.approx([*expected[0], *expected[1]], rel=1e-12)


class TestWarmUps:
    @pytest.mark.parametrize(
        ("options", "table"),
        [
            # two epochs of four batches
            ({"warmup": 2, "schedule": "constant"}, [n / 8 for n in range(1, 9)] + [1] * 8),
            ({"warmup": 0.5, "schedule": "constant"}, [n / 8 for n in range(1, 9)] + [1] * 8),
            ({"warmup": 0, "schedule": "constant"}, [1] * 16),
            # half an epoch, then the drop after the first
            ({"warmup": 0.125, "drops": (1,)}, [0.5, 1, 1, 1] + [0.1] * 12),
            # up to where the cosine is after one epoch, and on along it
            (
                {"warmup": 1, "schedule": "cosine"},
                [n / 4 * (1 + math.cos(math.pi / 4)) / 2 for n in range(1, 5)]
                + [(1 + math.cos(math.pi * n / 16)) / 2 for n in range(4, 16)],
            ),
            # one and a half batches: 2/3, and there
            ({"warmup": 1.5 / 16, "schedule": "constant"}, [2 / 3] + [1] * 15),
        ],
    )
    def test_the_rate_against_a_table(self, options, table):
        pace = Pace(TrainConfig(epochs=4, lr=0.2, **options), 4)
        found = [pace.rate(epoch, number) for epoch in range(4) for number in range(4)]
        assert found == pytest.approx([0.2 * share for share in table], rel=1e-12)

    def test_the_radius_against_a_table(self):
        pace = Pace(TrainConfig(epochs=4, eps_warmup=2), 4)
        found = [pace.eps_share(epoch, number) for epoch in range(4) for number in range(4)]
        assert found == [n / 8 for n in range(1, 9)] + [1] * 8
        assert Pace(TrainConfig(), 4).eps_share(0) == 1

    def test_radius_and_step_shrink_and_nothing_else(self):
        settings = ClassSettings.uniform(3, margin=0.4, step=0.1, beta=6.0)
        shrunk = settings.shrunk(0.5)
        assert shrunk.margin.tolist() == pytest.approx([0.2] * 3)
        assert shrunk.step.tolist() == pytest.approx([0.05] * 3)
        assert settings.shrunk(1.0) is settings
        back = replace(shrunk, margin=settings.margin, step=settings.step)
        assert all(
            torch.equal(getattr(back, n), getattr(settings, n)) for n in ("beta", "label_weight")
        )

    def test_training_follows_both_and_validation_neither(self, tmp_path, tiny, steps, monkeypatch):
        radii, real = [], Checker.look
        monkeypatch.setattr(
            Checker, "look", lambda self, *a: radii.append(self.threat.radius) or real(self, *a)
        )
        options = {"warmup": 1, "eps_warmup": 2, "epochs": 3, "schedule": "constant", "lr": 0.01}
        run = short_run(tmp_path / "run", "at(steps=2)+ccm", tiny(), **options)
        batches = len(steps.seen) // 3
        table = run.history[-1]["settings"]["margin"]  # ccm's, of the last epoch
        for number, (lrs, margin, step) in enumerate(steps.seen):
            assert lrs == pytest.approx([0.01 * min(1, (number + 1) / batches)])
            share = min(1, (number + 1) / (2 * batches))
            assert step == pytest.approx([share * QUICK["eps"] / 4] * 10)
            if number < batches:  # ccm has not spoken yet
                assert margin == pytest.approx([share * QUICK["eps"]] * 10)
            if number >= 2 * batches:
                assert margin == pytest.approx(table)
        assert set(radii) == {QUICK["eps"]}
        assert [line["lr"] for line in run.history] == pytest.approx([0.01 / batches, 0.01, 0.01])
        shares = [1 / (2 * batches), 0.5 + 1 / (2 * batches), 1]
        assert [line["eps_share"] for line in run.history] == pytest.approx(shares)

    def test_a_warm_up_that_never_ends_and_one_without_attack_are_refused(self, tmp_path, tiny):
        for name in ("warmup", "eps_warmup"):
            with refused(f"{name}=3", "3 epochs"):
                TrainConfig(epochs=3, **{name: 3})
        with refused("eps_warmup", "clean"):
            short_run(tmp_path / "a", "clean", tiny(), eps_warmup=1)


def run_cli(*words):
    return CliRunner().invoke(cli.app, list(words))


class TestKeepEvery:
    def test_weights_on_the_way_are_those_of_a_shorter_run(self, tmp_path, tiny):
        options = {"schedule": "constant", "keep_every": 2}
        run = short_run(tmp_path / "a", "at(steps=1)+ema(start=1)", tiny(), epochs=5, **options)
        kept = ["ema-epoch-0002", "ema-epoch-0004", "epoch-0002", "epoch-0004"]
        assert [name for name in run.weights if "epoch" in name] == kept
        short = short_run(tmp_path / "b", "at(steps=1)+ema(start=1)", tiny(), epochs=2, **options)
        assert not moved(weights_of(run, "epoch-0002"), weights_of(short))
        assert not moved(weights_of(run, "ema-epoch-0002"), weights_of(short, "ema-last"))
        assert moved(weights_of(run, "epoch-0002"), weights_of(run))
        assert run.model("epoch-0004")(torch.rand(1, 1, 8, 8)).shape == (1, 10)

    def test_it_decides_nothing(self, tmp_path, tiny):
        with_, without = (
            short_run(tmp_path / str(n), "at(steps=1)", tiny(), keep_every=n) for n in (1, 0)
        )
        assert with_.about["identity"] == without.about["identity"]
        assert not moved(weights_of(with_), weights_of(without))
        assert "epoch-0001" in with_.weights
        assert "epoch-0001" not in without.weights

    def test_they_are_audited_by_name(self, tmp_path):
        words = ["--subset", "60", "--epochs", "2", "--valid", "0.1", "--model", "cnn(width=2)"]
        words += ["--set", "keep_every=1", "--out", str(tmp_path / "run"), "--quiet"]
        assert run_cli("train", "clean", *words).exit_code == 0
        chosen = ["--weights", "epoch-0001", "--limit", "20", "--attacks", "clean", "--quiet"]
        told = run_cli("audit", str(tmp_path / "run"), *chosen)
        assert told.exit_code == 0, told.output
        assert "clean (epoch-0001)" in told.output
        told = run_cli("audit", str(tmp_path / "run"), "--limit", "20", "--quiet")
        assert "epoch" not in told.output  # by default only the last ones
        assert "clean (live)" not in told.output


OWN = """
import torch
from torch import nn

class Backbone(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.hidden = nn.Linear(64, 8)
        self.fc = nn.Linear(8, num_classes)
    def forward(self, images):
        return self.fc(torch.relu(self.hidden(self.norm(images.flatten(1)))))

class Mine(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.backbone = Backbone(num_classes)
    def forward(self, images):
        return self.backbone(images)

class Two(Mine):
    def __init__(self, num_classes):
        super().__init__(num_classes)
        self.other = nn.Linear(8, num_classes)

def headless(num_classes):
    return nn.Sequential(nn.Conv2d(1, num_classes, 8), nn.Flatten())

ONE = Mine(10)

def always_the_same():
    return ONE
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    name = f"nets_{abs(hash(tmp_path.name))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return name


class TestOwnModels:
    def test_everything_at_once_goes_on_bit_for_bit(self, tmp_path, tiny, own, steps):
        first = short_run(tmp_path / "first", "clean", tiny(), model=f"{own}:Mine", seed=2)
        options = {
            **{"model": f"{own}:Mine", "begin": str(first.path), "freeze": "backbone.norm"},
            **{"rates": {"backbone.fc": 5}, "optimiser": "adam", "lr": 0.01, "keep_every": 2},
            **{"warmup": 1, "eps_warmup": 0.5, "epochs": 4},
        }
        recipe = "at(steps=1, batchnorm=train)+labelaug(share=0.3)"

        def go(folder, resume=False):
            config = TrainConfig(**{**QUICK, **options})
            return train(
                recipe, config, out=tmp_path / folder, source=tiny(), quiet=True, resume=resume
            )

        steps.seen.clear()
        straight = go("straight")
        total = len(steps.seen)
        steps.seen.clear()
        steps.control["fatal"] = 5 * total // 8
        with pytest.raises(KeyboardInterrupt):
            go("broken")
        steps.control["fatal"] = None
        resumed = go("broken", resume=True)
        assert resumed.weights == straight.weights
        for name in straight.weights:
            assert not moved(weights_of(resumed, name), weights_of(straight, name))
        state = "state.safetensors"
        assert (resumed.path / state).read_bytes() == (straight.path / state).read_bytes()
        history = "history.jsonl"
        assert (resumed.path / history).read_text() == (straight.path / history).read_text()
        found = weights_of(straight)
        assert set(found) == set(weights_of(first))  # names stay
        assert found["backbone.fc.weight"].shape == (11, 8)
        assert found["backbone.fc.weight"][10].any()  # the attack's slot has learnt
        for name in found:
            assert torch.equal(found[name], weights_of(first)[name]) == ("norm" in name), name
        model = straight.model()
        images = torch.rand(3, 1, 8, 8)
        assert model(images).shape == (3, 10)
        assert torch.equal(model.outputs(images)[:, :10], model(images))

    def test_the_first_k_rows_begin_as_they_were(self, tmp_path, tiny, own):
        first = short_run(tmp_path / "first", "clean", tiny(), model=f"{own}:Mine", seed=2)
        run = short_run(
            tmp_path / "wide",
            "at(steps=1)+labelaug(head='backbone.fc')",
            tiny(),
            **{"model": f"{own}:Mine", "begin": str(first.path), "epochs": 1, "lr": 1e-30},
        )
        found, before = weights_of(run), weights_of(first)
        assert torch.equal(found["backbone.fc.weight"][:10], before["backbone.fc.weight"])
        assert torch.equal(found["backbone.fc.bias"][:10], before["backbone.fc.bias"])
        for name in ("backbone.fc.weight", "backbone.fc.bias"):
            assert found[name][10:].abs().max() < 1e-20  # idle at first
        assert run.about["begin"]["grown"].keys() == {"backbone.fc.weight", "backbone.fc.bias"}
        assert run.about["network"]["head_path"] == "backbone.fc"
        images = torch.rand(2, 1, 8, 8)
        assert run.model()(images).shape == (2, 10)
        narrow = short_run(
            tmp_path / "narrow",
            "clean",
            tiny(),
            **{"model": f"{own}:Mine", "begin": str(run.path), "epochs": 1, "lr": 1e-30},
        )
        assert torch.equal(weights_of(narrow)["backbone.fc.weight"], before["backbone.fc.weight"])

    def test_trained_and_audited_through_the_command_line(self, tmp_path, own):
        words = ["--model", f"{own}:Mine", "--subset", "60", "--epochs", "1", "--valid", "0.1"]
        out = ["--out", str(tmp_path / "run"), "--quiet"]
        told = run_cli("train", "at(steps=1)+labelaug", *words, *out)
        assert told.exit_code == 0, told.output
        attacks = ["--attacks", "clean,pgd-2,pgd-2(logits=all)", "--limit", "30", "--quiet"]
        told = run_cli("audit", str(tmp_path / "run"), "--model", f"{own}:Mine", *attacks)
        assert told.exit_code == 0, told.output
        card = json.loads((tmp_path / "run" / "run.json").read_text())
        assert card["network"]["extra"] == 1

    def test_heads_that_cannot_be_found_are_refused_by_name(self, tmp_path, tiny, own):
        def go(model, recipe="at(steps=1)+labelaug"):
            return short_run(tmp_path / "a", recipe, tiny(), model=f"{own}:{model}")

        with refused("backbone.fc", "other", "labelaug(head="):
            go("Two")
        with refused("other", "is not its head"):
            go("Two", "at(steps=1)+labelaug(head=other)")
        with refused("no torch.nn.Linear with 10 outputs", "none"):
            go("headless")
        with refused("'backbone.hidden'", "backbone.fc (10 outputs)"):
            go("Mine", "at(steps=1)+labelaug(head='backbone.hidden')")
        with refused("'nowhere'", "backbone.fc"):
            go("Mine", "at(steps=1)+labelaug(head=nowhere)")
        with refused("cnn", "knows its head"):
            short_run(tmp_path / "a", "at(steps=1)+labelaug(head=head)", tiny())
        with refused("another head"):
            go("Mine", "at(steps=1)+ldam")
        assert not (tmp_path / "a").exists()
        assert go("Two", "at(steps=1)+labelaug(head='backbone.fc')").finished_epochs == 2

    def test_a_function_that_returns_the_same_model_every_time(self, tmp_path, tiny, own):
        options = {"model": f"{own}:always_the_same", "epochs": 1}
        run = short_run(tmp_path / "a", "at(steps=1)+labelaug", tiny(), **options)
        assert run.model()(torch.rand(1, 1, 8, 8)).shape == (1, 10)
