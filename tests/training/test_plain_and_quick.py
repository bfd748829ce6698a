"""The quick ways of a step end at the weights of the plain ones, in double precision.

The plain way has nothing of what makes steps quick: the attack asks the model itself, all images
at every step, convolutions are direct sums, a ReLU makes new values, and maxima are taken of
rectified ones.
"""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from equality.laboratory import float64
from short_runs import short_run, weights_of
from torch import nn

from classwise.attacks import inner
from classwise.attacks.ball import per_image
from classwise.laws.made_up import few_digits
from classwise.models import winograd
from classwise.models.rectifier import Rectifier
from classwise.models.twin import Following
from classwise.recipe_text import parse_recipe
from classwise.studies.papers import paper_rows
from classwise.training import build, step
from classwise.training.step import Step

FACTS = {"model": "resnet9(width=8)", "batch_size": 6, "lr": 0.01, "eps": 0.1, "valid": "0.3"}
# Bases in the modes and with the rules that the tables have no row of.
MORE = [
    *("at(steps=3, batchnorm=eval)", "at(steps=3, batchnorm=eval)+fat(patience=1)"),
    *("at(steps=3, batchnorm=eval)+fat(rule=original, patience=0)", "trades(steps=3)+fat"),
    *("mart(steps=3)", "mart(steps=3)+fat(rule=original)", "trades(steps=3)+awp"),
    *("trades(steps=3)+dafa(start=1)", "trades(steps=3)+frl(start=1)", "at(steps=3)+awp"),
    *("at(steps=3, batchnorm=eval)+avmixup",),
    *("at(steps=3, batchnorm=eval)+labelaug", "fast(rescue=3)", "atta(steps=2)"),
    *("at(steps=3, batchnorm=eval)+ldam", "at(steps=3, batchnorm=eval)+fairtat"),
]


def kind_of(text):
    """What decides which quick ways a recipe goes."""
    slots = parse_recipe(text).slots
    parts = slots.stop, slots.objective, slots.mix, slots.step_rule, slots.carry
    attack = slots.reference, slots.start, slots.batchnorm, len(slots.extra_views)
    written = frozenset().union(*(policy.writes for policy in slots.policies))
    return (*attack, *map(type, parts), written & {"margin", "target_odds"})


def attacks(text):
    """Whether a recipe's attack takes steps of its own."""
    return parse_recipe(text).slots.inner is not None


ROWS = {kind_of(row.recipe): row.recipe for row in paper_rows()}


def plain_pgd(
    model, images, loss, *, radius, step, steps, start, ball, stop, jitter, alone, last_look
):
    now = before = (images if start is None else start).detach()
    for number in range(steps):
        asked = now.clone().requires_grad_()
        with torch.enable_grad():
            logits = model(asked)
            (slope,) = torch.autograd.grad(loss(logits).sum(), asked)
        moved = now + ball.uphill(slope, step)
        moved = moved if jitter is None else moved + jitter(number, None)
        moved = ball.project(moved, images, radius)
        verdict = None if stop is None else stop(logits.detach())
        if verdict is not None:
            moved = torch.where(per_image(verdict.moving), moved, now)
            if verdict.rewound is not None:
                moved = torch.where(per_image(verdict.rewound), before, moved)
        before, now = now, moved
        if verdict is not None and not alone and not verdict.moving.any():
            break  # BatchNorm counts no further forward
    assert not last_look
    return ball.project(now, images, radius)


def plain_model(real):
    """Build models in the usual order, with values of their own for everything."""

    def made(*args, **options):
        model = real(*args, **options)
        for part in model.modules():
            if isinstance(part, nn.Sequential) and isinstance(part[-1], Rectifier):
                part[-1] = nn.ReLU()
                if isinstance(part[-2], nn.MaxPool2d):
                    part[-2], part[-1] = part[-1], part[-2]
        return model

    return made


def unbalanced():
    """Some digits, of some twice as many as of others."""
    source = few_digits()
    labels = source.train.labels
    rows = ((labels < 5) | (torch.arange(len(labels)) % 2 == 0)).nonzero().squeeze(1)
    return replace(source, train=source.train.subset(rows))


@pytest.fixture
def taken(monkeypatch):
    """How many steps were taken."""
    seen, real = [], Step.__call__

    def counting(self, batch, *rest):
        seen.append(len(batch))
        return real(self, batch, *rest)

    monkeypatch.setattr(Step, "__call__", counting)
    return seen


@pytest.mark.parametrize("text", [*ROWS.values(), *MORE])
def test_ten_steps_end_at_the_same_weights(text, taken, tmp_path, monkeypatch):
    found = {}
    monkeypatch.setattr(winograd, "_CHANNELS", 1)  # else no layer of this network is wide
    monkeypatch.setattr(winograd, "_PAIRS", 1)
    monkeypatch.setattr(winograd, "_TILES", 1)
    tiled, real = [], winograd._Products.apply
    monkeypatch.setattr(winograd._Products, "apply", lambda *them: tiled.append(1) or real(*them))
    for way in ("quick", "plain"):
        if way == "plain":
            monkeypatch.setattr(step, "fewer_products", lambda _: nullcontext())
            monkeypatch.setattr(Following, "now", lambda self, *_: self.model)
            monkeypatch.setattr(inner, "pgd", plain_pgd)
            monkeypatch.setattr(build, "build_model", plain_model(build.build_model))
        with float64():
            found[way] = weights_of(short_run(tmp_path / way, text, unbalanced(), **FACTS))
        assert len(taken) >= 10
        assert bool(tiled) == (way == "quick" and attacks(text))
        taken.clear()
        tiled.clear()
    for name, value in found["plain"].items():
        assert value.dtype in (torch.float64, torch.int64)
        torch.testing.assert_close(found["quick"][name], value, rtol=1e-7, atol=1e-9, msg=name)
