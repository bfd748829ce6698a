"""Options for GPUs, as far as a processor can tell: float16 with loss scaling, torch.compile."""

import pytest
import torch
from refusals import refused
from short_runs import QUICK, same_weights, short_run, weights_of
from torch import nn

from classwise.attacks.losses import Amplified, CrossEntropy
from classwise.recipe_text import parse_recipe
from classwise.record.tensors import read_tensors
from classwise.training import compiling
from classwise.training.compiling import Compiler, check_compile
from classwise.training.config import TrainConfig
from classwise.training.loop import Trainer, train
from classwise.training.scaling import FIRST, PATIENCE, SCALE, LossScale, first_scale

HALF = {"precision": "float16", "model": "cnn(width=2)"}


class TestHalf:
    def test_it_learns_about_the_same_and_repeats(self, tiny, tmp_path):
        half, again, full = (
            short_run(tmp_path / name, "at(steps=2)", tiny(), **facts)
            for name, facts in (("half", HALF), ("again", HALF), ("full", {}))
        )
        assert same_weights(half, again)
        assert not same_weights(half, full)
        for name, value in weights_of(full).items():
            torch.testing.assert_close(weights_of(half)[name], value, rtol=0.1, atol=0.02)

    def test_the_factor_is_resumed(self, tiny, tmp_path, monkeypatch):
        """Every step overflows at first: the factor is halved, and a resume knows."""
        factors, real = [], LossScale.unscale

        def noting(self, weights):
            factors.append(float(self.memory["factor"]))
            weights = list(weights)
            if len(factors) in (1, 2):
                weights[0].grad[:] = float("inf")
            return real(self, weights)

        monkeypatch.setattr(LossScale, "unscale", noting)
        straight = short_run(tmp_path / "straight", "at(steps=1)", tiny(), **HALF)
        assert factors[:4] == [FIRST, FIRST / 2, FIRST / 4, FIRST / 4]
        count, run_epoch = len(factors), Trainer.run_epoch
        factors.clear()

        def cut(self, state, progress):
            if state.epoch == 1 and len(factors) == count // 2:
                raise KeyboardInterrupt
            return run_epoch(self, state, progress)

        monkeypatch.setattr(Trainer, "run_epoch", cut)
        with pytest.raises(KeyboardInterrupt):
            short_run(tmp_path / "broken", "at(steps=1)", tiny(), **HALF)
        monkeypatch.setattr(Trainer, "run_epoch", run_epoch)
        config = TrainConfig(**{**QUICK, **HALF})
        resumed = train("at(steps=1)", config, out=tmp_path / "broken", source=tiny(), resume=True,
                        quiet=True)  # fmt: skip
        assert same_weights(resumed, straight)
        assert factors[count // 2] == FIRST / 4

    def test_gradients_lose_the_factor_and_overflows_the_step(self):
        weight = nn.Parameter(torch.tensor([3.0]))
        scale = LossScale(first_scale())
        scale.scaled(weight.square().sum()).backward()
        assert weight.grad.item() == 6 * FIRST
        assert scale.unscale([weight])
        assert weight.grad.item() == 6
        assert scale.memory["good"] == 1
        weight.grad[:] = float("nan")
        assert not scale.unscale([weight])
        assert (scale.memory["factor"], scale.memory["good"]) == (FIRST / 2, 0)

    def test_many_good_steps_double_the_factor(self):
        scale = LossScale({"factor": torch.tensor(8.0), "good": torch.tensor(PATIENCE - 1)})
        weight = nn.Parameter(torch.ones(1))
        weight.grad = torch.ones(1)
        assert scale.unscale([weight])
        assert (scale.memory["factor"], scale.memory["good"]) == (16, 0)
        assert LossScale(None).scaled(weight) is weight

    def test_small_slopes_survive_in_the_attack(self):
        """A slope of 1e-8 is nothing in float16, unless it is amplified."""
        logits = torch.tensor([[17.0, 0.0]], dtype=torch.float16, requires_grad=True)
        plain = CrossEntropy(torch.tensor([0]))
        found = [
            torch.autograd.grad(loss(logits.float()).sum(), logits)[0].abs().max().item()
            for loss in (plain, Amplified(plain, 256.0).rows(torch.tensor([True])))
        ]
        assert found[0] < 1e-7
        assert found[1] > 5e-6

    @pytest.mark.parametrize("recipe", ["at+awp", "free"])
    def test_recipes_with_gradients_of_their_own_are_refused(self, recipe, tiny, tmp_path):
        with refused("float16", "bfloat16"):
            short_run(tmp_path / "run", recipe, tiny(), **HALF)


class TestCompiled:
    @pytest.fixture
    def traced(self, monkeypatch):
        """What torch traced, run as it is: its own compiler takes a minute."""
        seen, real = [], torch.compile

        def compile_(function, mode=None):
            seen.append((function.__name__, mode))
            return real(function, backend="eager")

        monkeypatch.setattr(compiling.torch, "compile", compile_)
        yield seen
        torch._dynamo.reset()

    # torch warns of what it does itself when it traces a gradient written by hand
    @pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
    @pytest.mark.parametrize("recipe", ["at(steps=1)", "trades(steps=1)"])
    def test_a_compiled_run_is_the_same_run(self, recipe, traced, tiny, tmp_path):
        facts = {"model": "resnet9(width=1)", "epochs": 1, "batch_size": 32}
        plain = short_run(tmp_path / "plain", recipe, tiny(), **facts)
        assert not traced
        found = short_run(tmp_path / "compiled", recipe, tiny(), **facts, compile="on")
        assert sorted(traced) == [("_logits", None), ("all_outputs", None)]
        assert same_weights(plain, found)
        assert plain.about["identity"] == found.about["identity"]

    def test_graphs_are_for_gpus_and_whole_batches(self):
        at, fat = (parse_recipe(text).slots for text in ("at", "fat"))
        with refused("compile=graphs", "cpu"):
            check_compile("graphs", at, torch.device("cpu"))
        with refused("compile=graphs", "leave the attack early"):
            check_compile("graphs", fat, torch.device("cuda"))
        check_compile("graphs", at, torch.device("cuda"))
        check_compile("on", fat, torch.device("cpu"))

    def test_what_torch_cannot_compile_is_told(self, monkeypatch):
        def failing(*_, **__):
            def ask(*_):
                raise torch._dynamo.exc.InternalTorchDynamoError("no compiler here")

            return ask

        monkeypatch.setattr(compiling.torch, "compile", failing)
        with refused("no compiler here", "leave compile out"):
            Compiler("on").model(nn.Flatten())(torch.ones(1, 1))


def test_the_factor_is_remembered_only_where_it_is_needed(tiny, tmp_path):
    for name, facts in (("half", HALF), ("full", {})):
        run = short_run(tmp_path / name, "clean", tiny(), **facts, epochs=1)
        tensors = read_tensors(run.path / "state.safetensors")[0]
        assert any(SCALE in key for key in tensors) == (name == "half")
