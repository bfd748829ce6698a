import itertools

import pytest
import torch
from boundaries import quick_train, same_weights, weights
from refusals import refused
from torch import nn

from classwise.recipe_text import parse_recipe
from classwise.training.average import RunningAverage


def follow(call, epochs=6):
    """Weights of the average after each epoch, and the live ones that it saw."""
    (rule,) = parse_recipe(f"at+{call}").slots.averages
    rng, model = torch.Generator().manual_seed(2), nn.Linear(2, 3).double()
    average, seen, found = RunningAverage(rule), [], []
    for epoch in range(1, epochs + 1):
        with torch.no_grad():
            model.weight.copy_(torch.randn(3, 2, generator=rng))
        seen.append(model.weight.detach().clone())
        average = average.update(model, epoch, epochs, None)
        found.append(None if average.weights is None else average.weights["weight"])
    return found, seen


def test_ema_equals_its_recursion():
    found, seen = follow("ema(decay=0.6, start=3)")
    assert found[:2] == [None, None]
    expected = seen[2]
    for average, live in zip(found[2:], [None, *seen[3:]], strict=True):
        if live is not None:
            expected = 0.6 * expected + 0.4 * live
        torch.testing.assert_close(average, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(("start", "first"), [("0", 1), ("2", 2), ("0.5", 3)])
def test_swa_is_the_mean_of_all_epochs_from_its_start(start, first):
    found, seen = follow(f"swa(start={start})")
    assert found[: first - 1] == [None] * (first - 1)
    for epoch in range(first, 7):
        mean = sum(seen[first - 1 : epoch]) / (epoch - first + 1)
        torch.testing.assert_close(found[epoch - 1], mean, rtol=1e-13, atol=1e-15)


def test_ema_without_decay_is_the_live_model_bit_for_bit(tmp_path, tiny):
    run = quick_train("at(steps=2)+ema(decay=0, start=1)", tmp_path / "run", tiny())
    assert same_weights(weights(run, "ema-last"), weights(run))
    for epoch in run.history:
        assert epoch["valid"]["ema"] == epoch["valid"]["live"]


def test_three_averages_of_one_run_are_kept_and_validated_apart(tmp_path, tiny):
    text = "at(steps=2)+ema(start=1)+swa(start=1)+fawa(threshold=0, start=1, decay=0.3)"
    run = quick_train(text, tmp_path / "run", tiny(classes=3))
    assert set(run.history[-1]["valid"]) == {"live", "ema", "swa", "fawa"}
    names = ("ema-last", "swa-last", "fawa-last", "last")
    assert set(names) <= set(run.weights)
    for one, other in itertools.pairwise(names):
        assert not same_weights(weights(run, one), weights(run, other))


def test_bad_values_name_the_range():
    with refused("swa(start=-1)", "greater than or equal to 0"):
        parse_recipe("at+swa(start=-1)")
    with refused("option of swa", "'decay'"):
        parse_recipe("at+swa(decay=0.5)")
