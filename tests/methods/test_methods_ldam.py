import pytest
import torch
from boundaries import files, interrupted_train, plain_settings, quick_train
from refusals import refused

from classwise.classes.settings import Chain, Feedback
from classwise.methods.cao2019_ldam import logit_margins
from classwise.methods.cui2019_balanced import balanced_weights
from classwise.models.classifier import CosineHead
from classwise.objective import Outer, total
from classwise.recipe_text import parse_recipe


def settings_of(text, sizes, epoch=0):
    chain = Chain(parse_recipe(text).slots.policies)
    feedback = Feedback(epoch, 200, torch.tensor(sizes))
    return chain.update(plain_settings(len(sizes)), feedback)[0]


@pytest.mark.parametrize("sizes", [[500, 3], [40, 7, 7], [5000, 1, 300, 20]])
@pytest.mark.parametrize(("largest", "scale"), [(0.5, 30.0), (0.2, 4.0)])
def test_margins_equal_a_straight_loop(sizes, largest, scale):
    found = settings_of(f"at+ldam(largest={largest}, scale={scale})", sizes).logit_margin
    raw = [n**-0.25 for n in sizes]
    expected = [scale * largest * m / max(raw) for m in raw]
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


def test_equal_sizes_give_equal_margins_and_an_empty_class_is_harmless():
    assert settings_of("at+ldam", [7, 7, 7]).logit_margin.tolist() == [15.0] * 3
    assert logit_margins(torch.tensor([0, 16, 256]), 0.5).tolist() == [0.5, 0.5, 0.25]


def test_the_loss_equals_a_straight_loop():
    rng = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 2, 1, 0, 2])
    logits = 5 * torch.randn(5, 3, generator=rng, dtype=torch.float64)
    settings = settings_of("at+ldam(scale=6)", [9, 2, 40])
    objective = parse_recipe("at+ldam(scale=6)").slots.objective
    outer = Outer({"robust": logits}, labels, settings.rows(labels))
    sizes, expected = [9, 2, 40], 0.0
    for z, y in zip(logits, labels.tolist(), strict=True):
        moved = z.clone()
        moved[y] -= 6 * 0.5 * (2 / sizes[y]) ** 0.25
        expected += -moved.log_softmax(0)[y].item() / 5
    assert total(objective.terms(outer), "mean").item() == pytest.approx(expected, rel=1e-12)


def test_a_cosine_head_stands_behind_the_margin(tmp_path, tiny):
    recipe = parse_recipe("at(steps=2)+ldam(scale=12)")
    assert (recipe.slots.head, recipe.slots.head_scale) == ("cosine", 12)
    run = quick_train(recipe, tmp_path / "run", tiny(), epochs=1)
    head = run.model().head
    assert isinstance(head, CosineHead)
    assert head.scale == 12


@pytest.mark.parametrize(("reweight", "first"), [(160, 160), (0.8, 160), (0, 0)])
def test_class_balanced_weights_come_late_where_asked_for(reweight, first):
    text, sizes = f"at+ldam(reweight={reweight})", [5, 50]
    for epoch in (0, 159, 160, 199):
        found = settings_of(text, sizes, epoch).label_weight
        balanced = balanced_weights(torch.tensor(sizes), 0.9999)
        expected = balanced if epoch >= first else torch.ones(2).double()
        assert torch.equal(found, expected)
    assert parse_recipe(text).slots.reduction == "weighted mean"


def test_without_them_the_weights_are_free_for_others():
    recipe = parse_recipe("trades+ldam+balanced(start=0.8)")
    assert recipe.owners["class label_weight"] == "balanced"
    with refused("balanced", "ldam"):
        parse_recipe("trades+ldam(reweight=0.8)+balanced")


def test_values_out_of_range_name_the_range():
    with refused("ldam(scale=0)", "greater than 0"):
        parse_recipe("at+ldam(scale=0)")
    with refused("ldam(largest=3)", "less than or equal to 2"):
        parse_recipe("at+ldam(largest=3)")


def test_a_resumed_run_is_the_straight_one(tmp_path, tiny, monkeypatch):
    text = "at(steps=2)+ldam(reweight=1)"
    straight = quick_train(text, tmp_path / "straight", tiny())
    resumed = interrupted_train(text, tmp_path / "resumed", tiny(), monkeypatch, epoch=3)
    assert files(straight) == files(resumed)
