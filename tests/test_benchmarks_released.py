"""The transcription that training is measured against is no straw man: its passes and examples."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from equality.cfa import FLOOR, train_accuracy
from equality.class_statistics import table
from equality.comparison import largest
from equality.fairtat import odds_of
from equality.laboratory import DECAY, RATE, float64, ours, world
from torch import nn

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import TRAIN_ROBUST
from classwise.models import build_model

FOLDER = Path(__file__).parents[1] / "benchmarks"
MIDDLE = (0.5, 0.5, 0.5)
CLASSES = 10


@pytest.fixture
def released(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import released

    return released


class Keyed:
    """The package's own draws in the place of the script's."""

    def __init__(self, here):
        self.here = here

    def uniform(self, images):  # noqa: ARG002
        return self.here.uniform()

    def normal(self, images, purpose):  # noqa: ARG002
        return self.here.normal(purpose)

    def chances(self, labels):  # noqa: ARG002
        return self.here.uniform("targets", (1,)).squeeze(1)


def pupil_of(released, model):
    return released.Pupil(model, torch.optim.SGD(model.parameters(), RATE, weight_decay=DECAY))


def class_wise(released, here, **more):
    """Radii, shares and odds after one epoch with a made-up table of errors."""
    confusion = table(CLASSES, seed=5)
    calibrated = [FLOOR + t for t in train_accuracy(confusion)]
    eps = torch.tensor([c * here.eps for c in calibrated], dtype=torch.float64)
    share = torch.tensor([6 * c / (1 + 6 * c) for c in calibrated], dtype=torch.float64)
    odds = torch.tensor(odds_of(confusion), dtype=torch.float64)
    return confusion, released.Script(eps, share, odds, step=here.step, **more)


def alike(released, here, **more):
    with float64():
        return replace(
            released.Script.alike(CLASSES, step=here.step, **more),
            eps=torch.full((CLASSES,), here.eps, dtype=torch.float64),
            share=torch.full((CLASSES,), 6 / 7, dtype=torch.float64),
        )


def compare(released, name, recipe, here, script, boundaries=({},)):
    """Largest differences of the images trained on, and of the weights after the step."""
    mine = ours(recipe, here, boundaries)
    model = here.fresh()
    views = released.STEPS[name](
        pupil_of(released, model), here.images, here.labels, script, Keyed(here)
    )
    assert largest(zip(mine.examples, views, strict=True)) < 1e-12
    weights = [weight.detach() for weight in model.parameters()]
    assert largest(zip(mine.weights, weights, strict=True)) < 1e-10


@pytest.mark.parametrize(
    ("name", "recipe", "more"),
    [
        ("at", "at", {}),
        ("at", "at(batchnorm=eval)", {"train_mode": False}),
        ("trades", "trades(normalised=true)", {}),
        ("fat", "fat(patience=3)", {"patience": 3}),
        ("fat", "at(batchnorm=eval)+fat(patience=3)", {"patience": 3, "train_mode": False}),
    ],
)
def test_its_examples_and_weights_are_ours(released, name, recipe, more):
    here = world(CLASSES)
    compare(released, name, recipe, here, alike(released, here, **more))


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("at", f"at+ccm(margin_floor={FLOOR})"),
        ("trades", f"trades+ccm(margin_floor={FLOOR})+ccr"),
        ("fairtat", f"at+ccm(margin_floor={FLOOR})+fairtat(odds=softmax)"),
    ],
)
def test_class_wise_ones_too(released, name, recipe):
    here = replace(world(CLASSES), epoch=1)
    confusion, script = class_wise(released, here)
    compare(released, name, recipe, here, script, [{}, {TRAIN_ROBUST: ClassCounts(confusion)}])


def test_those_whose_batch_shrinks(released):
    here = world(CLASSES, eps=0.031, step=0.007)
    compare(released, "bat", "trades(step=0.007)+bat", here, alike(released, here))
    recipe = "at(step=0.007, batchnorm=eval)+fat(rule=original, patience=1)"
    compare(released, "friendly", recipe, here, alike(released, here, patience=1))


def forward_units(released, name, model, **more):
    """Work of one step in forward passes of the batch."""
    import counting

    images, labels = torch.rand(4, 3, 16, 16), torch.tensor([0, 1, 2, 3])
    with counting.Work() as once, torch.no_grad():
        model(images)
    script = released.Script.alike(CLASSES, **more)
    with counting.Work() as whole:
        released.STEPS[name](pupil_of(released, model), images, labels, script, released.Thrown())
    return whole.flops / once.flops


@pytest.mark.parametrize(
    ("name", "more", "units"),
    [
        ("at", {}, 34),  # 10·(1 + 2) in the attack, 1 + 2 to learn, 1 for the log
        ("at", {"train_mode": False}, 34),
        ("trades", {}, 40),  # 10·(1 + 1 + 1) in the attack, 3·(1 + 2) to learn, 1 for the log
        ("fairtat", {}, 35),  # as AT, and a clean forward in the loss
        ("fat", {"patience": 99}, 35),  # as AT, and the last iterate once more
    ],
)
def test_its_passes_are_those_of_the_released_code(released, name, more, units):
    torch.manual_seed(0)
    model = build_model(
        "resnet9(width=8)", num_classes=CLASSES, channels=3, mean=MIDDLE, deviation=MIDDLE
    )
    assert isinstance(model, nn.Module)
    found = forward_units(released, name, model, **more)
    # outside the attack nobody needs the slope of an image: a stem's pass or three less
    assert units - 0.2 < found <= units
