"""Warm-ups, Adam, and weights kept on the way."""

import math
from dataclasses import replace

import pytest
import torch
from refusals import refused
from short_runs import QUICK, moved, run_cli, short_run, weights_of
from torch import nn

from classwise.classes.settings import ClassSettings
from classwise.training.config import TrainConfig
from classwise.training.schedule import Pace, make_optimiser
from classwise.training.validate import Checker


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
