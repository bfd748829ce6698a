import math
from dataclasses import replace

import pytest
import torch

from classwise.attacks.losses import divergence
from classwise.classes.settings import ClassSettings
from classwise.objective import Outer, Term, label_loss, total
from classwise.recipe_text import parse_recipe

N = 11


def world(num_classes=4, seed=0):
    """Logits of two views, labels, and settings that differ from class to class."""
    rng = torch.Generator().manual_seed(seed)

    def rand(*shape):
        return torch.rand(*shape, generator=rng, dtype=torch.float64)

    outputs = {
        view: (6 * rand(N, num_classes) - 3).requires_grad_()
        for view in ("clean", "robust", "lastclean")
    }
    labels = torch.randint(num_classes, (N,), generator=rng)
    base = ClassSettings.uniform(num_classes, margin=0.1, step=0.1)._each(torch.Tensor.double)
    settings = replace(
        base,
        beta=5 * rand(num_classes) + 0.5,
        label_weight=rand(num_classes) + 0.1,
        robust_weight=rand(num_classes) + 0.1,
    )
    return outputs, labels, settings


def softmax(row):
    powers = [math.exp(z) for z in row]
    return [power / sum(powers) for power in powers]


def cross_entropy(row, label):
    return -math.log(softmax(row)[label])


def kl(first, second):
    return sum(p * math.log(p / q) for p, q in zip(softmax(first), softmax(second), strict=True))


def loss_of(text, outputs, labels, settings, reduction="mean"):
    outer = Outer(outputs, labels, settings.rows(labels))
    return total(parse_recipe(text).slots.objective.terms(outer), reduction)


@pytest.mark.parametrize("num_classes", [2, 3, 10, 100])
class TestGolden:
    @pytest.mark.parametrize(("recipe", "view"), [("clean", "clean"), ("at", "robust")])
    def test_label_losses(self, recipe, view, num_classes):
        outputs, labels, settings = world(num_classes)
        rows = outputs[view].tolist()
        parts = [
            settings.label_weight[y].item() * cross_entropy(rows[b], y)
            for b, y in enumerate(labels.tolist())
        ]
        found = loss_of(recipe, outputs, labels, settings)
        assert found.item() == pytest.approx(sum(parts) / N, rel=1e-12)
        weights = [settings.label_weight[y].item() for y in labels.tolist()]
        found = loss_of(recipe, outputs, labels, settings, "weighted mean")
        assert found.item() == pytest.approx(sum(parts) / sum(weights), rel=1e-12)

    @pytest.mark.parametrize("normalised", [False, True])
    @pytest.mark.parametrize("reduction", ["mean", "weighted mean", "common mean"])
    def test_trades(self, normalised, reduction, num_classes):
        outputs, labels, settings = world(num_classes)
        clean, robust = outputs["clean"].tolist(), outputs["robust"].tolist()
        natural = boundary = label_weights = robust_weights = 0.0
        for b, y in enumerate(labels.tolist()):
            beta = settings.beta[y].item()
            share = 1 / (1 + beta) if normalised else 1
            natural += settings.label_weight[y].item() * share * cross_entropy(clean[b], y)
            boundary += settings.robust_weight[y].item() * beta * share * kl(clean[b], robust[b])
            label_weights += settings.label_weight[y].item()
            robust_weights += settings.robust_weight[y].item()
        if reduction == "mean":
            label_weights = robust_weights = N
        if reduction == "common mean":
            label_weights = robust_weights = label_weights + robust_weights
        expected = natural / label_weights + boundary / robust_weights
        word = "true" if normalised else "false"
        found = loss_of(f"trades(normalised={word})", outputs, labels, settings, reduction)
        assert found.item() == pytest.approx(expected, rel=1e-12)


class TestGradients:
    def test_trades_flows_through_both_predictions(self):
        outputs, labels, settings = world()
        loss_of("trades", outputs, labels, settings).backward()
        detached = {"clean": outputs["clean"].detach(), "robust": outputs["robust"]}
        robust_only = torch.autograd.grad(
            loss_of("trades", detached, labels, settings), outputs["robust"]
        )[0]
        torch.testing.assert_close(outputs["robust"].grad, robust_only)
        ce = label_loss(Outer(outputs, labels, settings.rows(labels)), "clean")
        weight = settings.label_weight[labels]
        (ce_only,) = torch.autograd.grad((weight * ce).mean(), outputs["clean"])
        assert (outputs["clean"].grad - ce_only).abs().max() > 1e-3

    def test_the_divergence_agrees_with_finite_differences(self):
        outputs, _, _ = world()
        assert torch.autograd.gradcheck(divergence, (outputs["clean"], outputs["robust"]))

    @pytest.mark.parametrize("text", ["clean", "at", "trades", "trades(normalised=true)"])
    def test_every_loss_agrees_with_finite_differences(self, text):
        outputs, labels, settings = world()
        views = parse_recipe(text).slots.objective.views

        def loss(*logits):
            return loss_of(text, dict(zip(views, logits, strict=True)), labels, settings)

        assert torch.autograd.gradcheck(loss, [outputs[view] for view in views])


def test_a_weighted_mean_of_equal_weights_is_the_mean():
    values = torch.arange(5.0)
    for weight in (0.2, 1.0, 3.0):
        term = Term("ce", values, torch.full((5,), weight), scale=2.0)
        assert total([term], "weighted mean").item() == pytest.approx(4.0)
        assert total([term], "mean").item() == pytest.approx(4.0 * weight)


def test_terms_add_up():
    one = Term("a", torch.tensor([1.0, 2.0]), torch.ones(2))
    two = Term("b", torch.tensor([3.0, 5.0]), torch.ones(2), torch.tensor([2.0, 4.0]))
    assert total([one, two], "mean").item() == 1.5 + (6 + 20) / 2


@pytest.mark.parametrize("num_classes", [2, 10])
def test_a_logit_margin_comes_off_the_true_logit(num_classes):
    outputs, labels, settings = world(num_classes)
    margin = torch.linspace(0.1, 2, num_classes, dtype=torch.float64)
    settings = ClassSettings(**{
        **{name: getattr(settings, name) for name in ClassSettings.__dataclass_fields__},
        "logit_margin": margin,
    })  # fmt: skip
    found = label_loss(Outer(outputs, labels, settings.rows(labels)), "clean")
    for b, y in enumerate(labels.tolist()):
        row = outputs["clean"][b].tolist()
        row[y] -= margin[y].item()
        assert found[b].item() == pytest.approx(cross_entropy(row, y), rel=1e-12)
