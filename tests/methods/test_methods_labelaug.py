from typing import ClassVar

import pytest
import torch
from asked import parse_attack, perturb
from refusals import refused
from short_runs import short_run, weights_of
from torch import nn

from classwise.attacks.ball import LINF
from classwise.attacks.inner import Moment
from classwise.classes.settings import ClassSettings
from classwise.doors.audit import audit
from classwise.methods import at
from classwise.methods.amerehi2024_labelaug import OperationLabels
from classwise.models import build_model
from classwise.models.classifier import Classifier
from classwise.objective import Attacked, Outer, label_loss
from classwise.recipe import Method, compose
from classwise.recipe_text import parse_recipe
from classwise.slots import Slots
from classwise.types import Batch

MOMENT = Moment(seed=3, epoch=2, epochs=10)
N = 300


def batch_of(num_classes, count=N):
    rng = torch.Generator().manual_seed(num_classes)
    images = torch.rand(count, 1, 2, 2, generator=rng, dtype=torch.float64)
    labels = torch.randint(num_classes, (count,), generator=rng)
    batch = Batch(images, labels, torch.arange(count) * 3 + 1)
    return batch, {"clean": images, "robust": 1 - images}


@pytest.mark.parametrize("num_classes", [2, 3, 10])
@pytest.mark.parametrize("extra", [1, 2])
@pytest.mark.parametrize(("share", "clean"), [(0.03, 0.0), (0.15, 0.4), (0.0, 0.0)])
def test_labels_and_loss_equal_a_straight_loop(num_classes, extra, share, clean):
    batch, views = batch_of(num_classes)
    width = num_classes + extra
    inputs, soft = OperationLabels(share, clean)(Attacked(batch, views, width, num_classes, MOMENT))
    coins = MOMENT.draws("mix").uniform(batch.index).tolist()
    logits = torch.randn(N, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rows = ClassSettings.uniform(num_classes, margin=0.1, step=0.1).rows(batch.labels)
    losses = label_loss(Outer({"robust": logits}, batch.labels, rows, soft), "robust")
    for b, y in enumerate(batch.labels.tolist()):
        label = [0.0] * width
        if coins[b] < clean:
            label[y] = 1.0
            assert torch.equal(inputs["robust"][b], batch.images[b])
        else:
            label[y], label[num_classes] = 1 - share, share
            assert torch.equal(inputs["robust"][b], views["robust"][b])
        assert soft["robust"][b].tolist() == pytest.approx(label)
        logs = logits[b].log_softmax(0).tolist()
        expected = -sum(q * p for q, p in zip(label, logs, strict=True))
        assert losses[b].item() == pytest.approx(expected, rel=1e-9)
    assert torch.equal(inputs["clean"], batch.images)
    if clean:
        swapped = sum(coin < clean for coin in coins)
        assert 0.25 * N < swapped < 0.55 * N


def test_only_pure_where_every_image_is_attacked():
    assert OperationLabels(0.03).pure
    assert not OperationLabels(0.03, 0.5).pure


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_draws_depend_on_the_sample_alone(batch_size):
    batch, views = batch_of(4)
    mix = OperationLabels(0.1, 0.5)
    whole, soft = mix(Attacked(batch, views, 5, 4, MOMENT))
    order = torch.randperm(N, generator=torch.Generator().manual_seed(batch_size))
    for rows in order.split(batch_size):
        some = Batch(batch.images[rows], batch.labels[rows], batch.index[rows])
        part, labels = mix(Attacked(some, {v: x[rows] for v, x in views.items()}, 5, 4, MOMENT))
        assert torch.equal(part["robust"], whole["robust"][rows])
        assert torch.equal(labels["robust"], soft["robust"][rows])


class Idle(Method):
    """An output that no label ever names."""

    name: ClassVar[str] = "idle"

    def fill(self):
        return Slots(extra_outputs=1)


def test_without_a_share_it_is_at_with_an_idle_output(tiny, tmp_path):
    found = weights_of(short_run(tmp_path / "a", "at(steps=2)+labelaug(share=0)", tiny()))
    idle = weights_of(short_run(tmp_path / "b", compose([at(steps=2), Idle()]), tiny()))
    shared = weights_of(short_run(tmp_path / "c", "at(steps=2)+labelaug(share=0.5)", tiny()))
    assert set(found) == set(idle)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, idle[name], rtol=1e-4, atol=1e-5)
    assert (shared["head.bias"] - idle["head.bias"]).abs().max() > 1e-3


def test_the_extra_rows_begin_at_zero_and_the_classes_as_without_them():
    facts = {"num_classes": 4, "channels": 1, "mean": [0.5], "deviation": [0.5]}
    plain, wide = (build_model("cnn(width=2)", **facts, extra=extra, seed=1) for extra in (0, 2))
    assert wide.head.weight.shape[0] == 6
    assert not wide.head.weight[4:].any()
    assert not wide.head.bias[4:].any()
    for name, value in plain.features.state_dict().items():
        assert torch.equal(value, wide.features.state_dict()[name])


class Pixels(nn.Module):
    def forward(self, images):
        return images.flatten(1)


def masked_model():
    """Two classes told apart by pixel 0, and an extra output that the same pixel raises."""
    model = Classifier(Pixels(), 2, 2, mean=[0.0], deviation=[1.0], extra=1).double()
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([[4.0, 0.5], [-4.0, -0.5], [8.0, 0.0]]))
        model.head.bias.copy_(torch.tensor([-2.0, 2.0, 0.0]))
    return model


class TestAttackOnAllOutputs:
    def audit(self, attack):
        images = torch.full((8, 1, 1, 2), 0.55, dtype=torch.float64)
        labels = torch.zeros(8, dtype=torch.long)
        report = audit(masked_model(), images, labels, attacks=["clean", attack], eps=0.15)
        return list(report.overall.values())

    def test_it_wastes_itself_on_the_extra_output(self):
        assert self.audit("pgd-10") == [1.0, 0.0]
        assert self.audit("pgd-10(logits=classes)") == [1.0, 0.0]
        assert self.audit("pgd-10(logits=all)") == [1.0, 1.0]

    def test_predicted_labels_may_be_those_of_the_extra_output(self):
        batch = Batch(
            torch.full((1, 1, 1, 2), 0.55, dtype=torch.float64),
            torch.tensor([1]),
            torch.arange(1),
        )
        ends = {}
        for labels in ("given", "predicted"):
            attack = parse_attack(f"pgd-5(labels={labels})")
            ends[labels] = perturb(attack, masked_model(), batch, eps=0.1, ball=LINF, seed=0)
        assert ends["given"][0, 0, 0, 0] > 0.55  # away from class 1
        assert ends["predicted"][0, 0, 0, 0] < 0.55  # away from what the model says, class 0
        attack = parse_attack("pgd-5(logits=all, labels=predicted)")
        flees = perturb(attack, masked_model(), batch, eps=0.1, ball=LINF, seed=0)
        assert flees[0, 0, 0, 0] < 0.55  # away from the extra output

    @pytest.mark.parametrize(
        "text", ["pgd-5(logits=some)", "cw-5(labels=true)", "fgsm(logits=all)"]
    )
    def test_other_words_are_refused(self, text):
        with refused("logits" if "logits" in text else "labels"):
            parse_attack(text)

    def test_the_name_tells_which_it_was(self):
        assert parse_attack("pgd-5(logits=all)").name == "pgd-5(logits=all)"


def test_training_and_audit_see_the_class_logits(tiny, tmp_path):
    run = short_run(tmp_path / "run", "at(steps=2)+labelaug+ccm", tiny(classes=3), epochs=1)
    model = run.model()
    images = torch.rand(4, 1, 8, 8)
    assert model(images).shape == (4, 3)
    assert model.outputs(images).shape == (4, 4)
    assert len(run.history[0]["train"]["robust"]["by_class"]) == 3


class TestComposition:
    def test_what_it_fills(self):
        slots = parse_recipe("at+labelaug").slots
        assert slots.extra_outputs == 1
        assert slots.mix == OperationLabels(0.03, 0.0)

    @pytest.mark.parametrize("base", ["clean", "trades", "mart"])
    def test_it_wants_attacked_images_alone(self, base):
        with refused("labelaug", base, "at"):
            parse_recipe(f"{base}+labelaug")

    def test_two_mixes_are_refused(self):
        with refused("labelaug", "avmixup", "mix"):
            parse_recipe("at+labelaug+avmixup")

    @pytest.mark.parametrize("option", ["share=1", "share=-0.1", "slots=0", "clean=1", "clean=-1"])
    def test_values_out_of_range_are_refused(self, option):
        with refused(f"labelaug({option.split('=')[0]}="):
            parse_recipe(f"at+labelaug({option})")
