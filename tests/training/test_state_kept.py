"""All that changes from epoch to epoch is in the checkpoint, also what a regulariser remembers."""

from dataclasses import replace

import torch
from training_records import assert_same_record

from classwise.classes.settings import Chain
from classwise.recipe_text import parse_recipe
from classwise.training.state import Progression, load_state, save_state
from classwise.training.step import Step

RECIPE = "at(steps=1)+cosine(strength=0.5)"


def test_what_a_regulariser_remembers_comes_back_bit_for_bit(net, tmp_path):
    slots, model = parse_recipe(RECIPE).slots, net(3)
    optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    base = slots.alike(3, 0.1)
    start = Progression.beginning(slots, Chain(slots.policies), base, torch.arange(3))
    rng = torch.Generator().manual_seed(0)
    kept = {"cosine": {"means": torch.randn(3, 3, generator=rng),
                       "seen": torch.tensor([True, False, True])}}  # fmt: skip
    path = tmp_path / "state.safetensors"
    save_state(path, "me", model, optimiser, replace(start, epoch=2, regularisers=kept), {})
    found, _ = load_state(path, "me", model, optimiser, start, torch.device("cpu"))
    assert set(found.regularisers) == {"cosine"}
    assert set(found.regularisers["cosine"]) == {"means", "seen"}
    for name, value in kept["cosine"].items():
        assert torch.equal(found.regularisers["cosine"][name], value)
        assert found.regularisers["cosine"][name].dtype == value.dtype


def test_it_goes_on_from_what_it_remembered(go, monkeypatch):
    """A run that stopped after an epoch, and one that did not, are the same bit for bit."""
    seen, real = [], Step.__call__

    def fragile(self, *rest):
        seen.append(rest[2]["cosine"]["means"].clone())
        if len(seen) == fatal:
            raise KeyboardInterrupt
        return real(self, *rest)

    monkeypatch.setattr(Step, "__call__", fragile)
    fatal = None
    straight = go("straight", RECIPE, epochs=2)
    half, whole = len(seen) // 2, list(seen)
    assert whole[half].abs().sum() > 0
    seen.clear()
    fatal = half + 1
    try:
        go("broken", RECIPE, epochs=2)
    except KeyboardInterrupt:
        fatal = None
    seen.clear()
    assert_same_record(go("broken", RECIPE, epochs=2, resume=True), straight)
    assert len(seen) == len(whole) - half
    assert all(torch.equal(one, other) for one, other in zip(seen, whole[half:], strict=True))
