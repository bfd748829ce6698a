"""How many images go through a network at a time."""

import pytest
import torch
from asked import judge
from torch import nn

from classwise.attacks.ball import LINF
from classwise.attacks.search.suite import _working_width
from classwise.models import at_once
from classwise.models.at_once import FEW, LEAST, images_at_once
from classwise.models.subject import Subject
from classwise.types import Batch

SIDE = 8


class Counting(nn.Module):
    """A network that keeps `maps` maps of every image, and remembers how many images it saw."""

    def __init__(self, maps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1000, 1000))  # is kept, too, but not per image
        self.maps, self.seen = maps, []

    def forward(self, x):
        self.seen.append(len(x))
        for _ in range(self.maps):
            x = x.sigmoid()  # keeps its output
        return x.flatten(1)[:, :2] @ self.weight[:2, :2]


def images(count):
    return torch.rand(count, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("maps", [1, 4, 16])
def test_as_many_as_fit_by_what_autograd_keeps(maps, monkeypatch):
    each = 4 * SIDE * SIDE * maps
    monkeypatch.setattr(at_once, "_KEPT", 20 * each)
    found = images_at_once(Counting(maps), images(300), 256)
    assert 10 <= found <= 20  # a small copy of two pixels is kept as well, and maybe the input


def test_no_layer_of_a_pass_is_larger_than_what_is_kept(monkeypatch):
    """Whatever the sum: one block that goes back to the system is fetched anew in every pass."""
    monkeypatch.setattr(at_once, "_LAYER", 12 * 4 * SIDE * SIDE)
    assert images_at_once(Counting(1), images(300), 256) == 12
    subject = Subject(Counting(1).eval(), 2, width=256)
    taken = subject.take(images(16))
    assert _working_width(subject, taken, 16) == 12  # a third more had no room
    assert subject.at_once(images(FEW)) == 12  # known without another look
    assert at_once.LARGEST_KEPT == 32 << 20  # the most that glibc allows


def test_two_tensors_at_once_are_seen_too():
    with at_once.largest_layer(nn.Identity()) as seen:
        nn.functional.max_pool2d(torch.zeros(2, 1, SIDE, SIDE), 1, return_indices=True)
    assert seen.bytes == 8 * 2 * SIDE * SIDE  # the indices, in int64


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_layers_inside_torchscript_are_seen():
    model = nn.Sequential(nn.Conv2d(1, 6, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    for one in (model, torch.jit.trace(model, images(2))):
        with at_once.largest_layer(one) as seen, torch.no_grad():
            one(images(2))
        assert seen.bytes == 2 * 6 * 4 * SIDE * SIDE


def test_never_fewer_than_a_few_nor_more_than_asked_for(monkeypatch):
    assert images_at_once(Counting(1), images(300), 50) == 50
    monkeypatch.setattr(at_once, "_KEPT", 1)
    assert images_at_once(Counting(1), images(300), 50) == LEAST


def test_it_is_found_once_and_not_for_a_few_images():
    model = Counting(2).eval()
    subject = Subject(model, 2, width=32)
    assert subject.at_once(images(FEW)) == 32
    assert model.seen == []
    assert subject.at_once(images(20)) == subject.at_once(images(30)) == 32
    assert model.seen.count(2) <= 1 + 1  # maybe once more to build the twin


@pytest.mark.parametrize("attack", ["pgd-3", "apgd-ce(steps=4)"])
def test_attacks_keep_to_it_and_the_verdicts_stay(attack, monkeypatch):
    model = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 3)).double().eval()
    batch = Batch(images(40).double(), torch.arange(40) % 3, torch.arange(40))
    facts = {"num_classes": 3, "radius": 0.05, "ball": LINF}
    whole = judge(model, batch, attack, **facts)
    monkeypatch.setattr(at_once, "_KEPT", 1)
    parts = judge(model, batch, attack, **facts)
    assert whole.predicted.tolist() == parts.predicted.tolist()
    assert whole.logit_gap == pytest.approx(parts.logit_gap)


@pytest.mark.parametrize(("layer", "most"), [(1, LEAST), (4 * SIDE * SIDE * 12, 12), (1 << 30, 32)])
def test_passes_without_gradients_keep_to_the_largest_layer(layer, most, monkeypatch):
    monkeypatch.setattr(at_once, "_LAYER", layer)
    model = Counting(2).eval()
    subject = Subject(model, 2, width=32)
    taken = subject.take(images(40))
    model.seen.clear()
    answers = subject.ask(taken)
    assert max(model.seen) == most
    assert torch.equal(answers, model(taken).detach())
