"""A step on a GPU is only told what to do: nobody waits for a number before the next one."""

import math

import pytest
import torch
from plain_steps import images_of, memory_of, settings_of, step_of
from torch.utils._python_dispatch import TorchDispatchMode

from classwise.attacks.inner import Moment
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import TRAIN_ROBUST
from classwise.training.tally import Tally

WAITING = ("_local_scalar_dense", "nonzero", "bincount", "equal", "unique", "masked_select")


class Calls(TorchDispatchMode):
    """Notes what torch is asked to do."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "recipe",
    ["clean", "at", "trades", "mart", "at+awp", "at+avmixup", "at+cosine", "free(replays=2)"],
)
def test_a_step_reads_nothing_back(recipe, net):
    step, batch, moment = step_of(recipe, net()), images_of(8), Moment(0, 1, 4)
    kept = {rule.name: rule.begin(4) for rule in step.slots.regularisers}
    if step.slots.carry is not None:
        kept |= memory_of(step, batch.index)
    settings = settings_of([0.1] * 4, [0.05] * 4)
    step(batch, settings, kept, moment, frozenset(), True)  # the first has a look at the twin
    with Calls() as calls:
        counts, losses = step(batch, settings, kept, moment, frozenset(), True)
        tally = Tally(torch.device("cuda"), Named)
        tally.add(counts, losses, 8)
    assert len(calls.names) > 20
    assert not [name for name in calls.names if name in WAITING]
    assert {type(value) for value in losses.values()} == {torch.Tensor}


def test_what_would_wait_is_seen():
    with Calls() as calls:
        float(torch.ones(3).sum())
        torch.ones(3).nonzero()
    assert {name for name in calls.names if name in WAITING} == {"_local_scalar_dense", "nonzero"}


class Named(Exception):
    """The batch that diverged, and its loss."""


def told(tally, losses):
    counts = {TRAIN_ROBUST: ClassCounts(torch.tensor([[1, 2], [0, 4]]))}
    for number, loss in enumerate(losses):
        tally.add(counts, {"total": torch.tensor(loss), "ce": torch.tensor(2 * loss)}, 3 + number)


def test_means_are_those_over_the_images():
    tally = Tally(torch.device("cpu"), Named)
    told(tally, [1.0, 0.5, 0.1])
    third = torch.tensor(0.1).item()  # as float32 has it
    assert tally.means() == {
        "total": (1.0 * 3 + 0.5 * 4 + third * 5) / 12,
        "ce": (2.0 * 3 + 1.0 * 4 + 2 * third * 5) / 12,
    }
    assert tally.counts[TRAIN_ROBUST].confusion.tolist() == [[3, 6], [0, 12]]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("looks", [(1, 2, 4), (4,), (2, 4)])
def test_the_first_batch_that_diverged_is_named_whenever_somebody_looks(looks, bad):
    tally, losses = Tally(torch.device("cuda"), Named), [1.0, 0.5, bad, math.nan]
    for begin, end in zip((0, *looks[:-1]), looks, strict=True):
        told(tally, losses[begin:end])
        if end <= 2:
            tally.check()
    with pytest.raises(Named) as found:
        tally.check()
    assert str(found.value) == f"(3, {bad})"


def test_a_gpu_is_asked_once_a_second_and_the_processor_always():
    now = [0.0]
    slow, quick = (Tally(torch.device(kind), Named, lambda: now[0]) for kind in ("cuda", "cpu"))
    for time, due in ((0.5, False), (1.25, True), (1.5, False), (2.5, True)):
        now[0] = time
        assert (slow.due, quick.due) == (due, True)
        if due:
            slow.check()
