"""Samples whose attack has ended leave the batch: the same images for fewer passes."""

import pytest
import torch
from inner_attacks import batch_of

from classwise.attacks.ball import L2_BALL, LINF
from classwise.attacks.inner import Moment, View, _Jitter
from classwise.attacks.losses import CrossEntropy, Divergence
from classwise.attacks.pgd import pgd
from classwise.attacks.stops import (
    CountingWatch,
    LastCorrectWatch,
    LimitedWatch,
    PatientWatch,
    Verdict,
)
from classwise.recipe_text import parse_recipe

COUNT, STEPS = 24, 8
WATCHES = {
    "counting": lambda labels: CountingWatch(labels, 2),
    "patient": lambda labels: PatientWatch(labels, 1),
    "last correct": LastCorrectWatch,
    "limited": lambda labels: LimitedWatch(labels + 1, None),
    "limited, patient": lambda labels: LimitedWatch(labels + 3, PatientWatch(labels, 0)),
}


class Counted:
    """A model that says how many images it was asked about."""

    def __init__(self, model):
        self.model, self.seen = model, []

    def __call__(self, images):
        self.seen.append(len(images))
        return self.model(images)


@pytest.fixture
def scene(net):
    """A model, images of which it knows about three in four, and their radii."""
    model, batch = net().eval(), batch_of(COUNT)
    with torch.no_grad():
        known = model(batch.images).argmax(1)
    labels = torch.where(batch.index % 4 > 0, known, batch.labels)
    radius = torch.linspace(0.05, 0.3, COUNT, dtype=torch.float64)
    return Counted(model), batch.images, labels, radius, batch.index


@pytest.mark.parametrize("ball", [LINF, L2_BALL], ids=str)
@pytest.mark.parametrize("loss", ["labels", "prediction"])
@pytest.mark.parametrize("kind", WATCHES)
def test_whoever_leaves_ends_where_he_would_have_stood_still(kind, loss, ball, scene):
    model, images, labels, radius, index = scene
    jitter = _Jitter(0.01, batch_of(COUNT), Moment(0, 0, 1), View("robust"))
    assert torch.equal(jitter.batch.index, index)
    with torch.no_grad():
        clean = model.model(images) + torch.linspace(0, 1, 4, dtype=torch.float64)
    height = CrossEntropy(labels) if loss == "labels" else Divergence(clean)
    found, passes = {}, {}
    for alone in (False, True):
        model.seen.clear()
        found[alone] = pgd(
            *(model, images, height),
            radius=radius * (10 if ball is L2_BALL else 1),
            step=radius / 3 * (10 if ball is L2_BALL else 1),
            steps=STEPS,
            ball=ball,
            stop=WATCHES[kind](labels),
            jitter=jitter,
            alone=alone,
        )
        passes[alone] = list(model.seen)
    torch.testing.assert_close(found[True], found[False], rtol=0, atol=1e-12)
    assert passes[True][0] == COUNT
    assert sorted(passes[True], reverse=True) == passes[True]
    assert sum(passes[True]) < 0.8 * sum(passes[False])


@pytest.mark.parametrize(
    ("kind", "alone", "forwards"),
    # a counter knows with its last error that it is done; frozen ones are looked at once more
    [("counting", True, 2), ("counting", False, 3), ("patient", True, 2), ("patient", False, 2)],
)
def test_nobody_is_asked_when_all_have_stopped(kind, alone, forwards, scene):
    model, images, _, radius, _ = scene
    wrong = (model(images).argmax(1) + 1) % 4
    model.seen.clear()
    facts = {"radius": radius, "step": 0 * radius, "steps": STEPS, "alone": alone}
    pgd(model, images, CrossEntropy(wrong), **facts, stop=WATCHES[kind](wrong))
    assert model.seen == [COUNT] * forwards


def test_a_rule_that_does_not_say_who_ended_keeps_everybody(scene):
    model, images, labels, radius, _ = scene
    asked = iter([False, True, False])  # it rests and goes on

    def restless(logits):
        return Verdict(torch.full((len(logits),), next(asked)))

    facts = {"radius": radius, "step": radius / 4, "steps": 3, "alone": True}
    found = pgd(model, images, CrossEntropy(labels), **facts, stop=restless)
    assert model.seen == [COUNT] * 3
    once = pgd(model, images, CrossEntropy(labels), **{**facts, "steps": 1})
    assert torch.equal(found, once)


@pytest.mark.parametrize("mode", ["train", "batch", "eval"])
def test_only_in_eval_mode_the_batch_shrinks(mode, net, scene):
    *_, radius, index = scene
    model, batch = Counting(net), batch_of(COUNT)
    assert torch.equal(batch.index, index)
    inner = parse_recipe(f"at(batchnorm={mode})+fat(rule=original, patience=1)").slots.inner
    inner.perturb(model, batch, Moment(0, 0, 1), radius=radius, step=radius / 4, ball=LINF)
    whole = set(model.seen) == {COUNT}
    assert whole == (mode != "eval")


class Counting(torch.nn.Module):
    """The same as a module."""

    def __init__(self, net):
        super().__init__()
        self.inside, self.seen = net(), []

    def forward(self, images):
        """Note how many."""
        self.seen.append(len(images))
        return self.inside(images)
