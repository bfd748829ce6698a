"""What changes from epoch to epoch by chance, and what a seed decides."""

import pytest
import torch
from short_runs import same_weights, short_run

from classwise.attacks.inner import Moment
from classwise.training.step import Step


@pytest.fixture
def told(monkeypatch):
    """The first number that the global generator would give to each batch, and its moment."""
    seen, real = [], Step.__call__

    def recording(self, batch, settings, kept, moment, *rest):
        before = torch.get_rng_state()
        seen.append((moment, torch.rand(1).item(), batch.index.tolist()))
        torch.set_rng_state(before)
        return real(self, batch, settings, kept, moment, *rest)

    monkeypatch.setattr(Step, "__call__", recording)
    return seen


def first_of_each_epoch(told):
    found = {}
    for moment, number, index in told:
        found.setdefault(moment.epoch, (number, index))
    return found


def test_every_epoch_has_a_generator_an_order_and_a_moment_of_its_own(told, tiny, tmp_path):
    short_run(tmp_path / "run", "at(steps=1)", tiny(), epochs=3, seed=4)
    epochs = first_of_each_epoch(told)
    assert list(epochs) == [0, 1, 2]
    assert {moment.epochs for moment, *_ in told} == {3}
    assert {moment.seed for moment, *_ in told} == {4}
    for epoch, (number, _) in epochs.items():
        generator = torch.Generator().manual_seed(4 * 1_000_003 + epoch)
        assert number == torch.rand(1, generator=generator).item()
    orders = [index for _, index in epochs.values()]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_seeds_and_epochs_never_meet(told, tiny, tmp_path):
    for seed in (0, 1, 2):
        short_run(tmp_path / str(seed), "clean", tiny(), epochs=2, seed=seed)
    firsts = {(m.seed, m.epoch): number for m, number, _ in reversed(told)}
    assert len(firsts) == 6
    assert len(set(firsts.values())) == 6


def test_a_run_leaves_the_global_generator_alone(tiny, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one = short_run(tmp_path / "one", "clean", tiny(), epochs=1)
    assert torch.equal(torch.rand(1), expected)
    assert same_weights(one, short_run(tmp_path / "two", "clean", tiny(), epochs=1))


def test_a_moment_draws_anew_in_every_epoch_for_every_purpose_and_seed():
    keys = [(0, 1, "start"), (0, 2, "start"), (1, 1, "start"), (0, 1, "jitter")]
    drawn = {
        tuple(Moment(seed, epoch, 9).draws(what).uniform(torch.arange(3)).tolist())
        for seed, epoch, what in keys
    }
    assert len(drawn) == len(keys)
