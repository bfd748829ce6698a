"""What an audit of a model says, and that order, batches and precision do not matter."""

import numpy as np
import pytest
import torch
from asked import evaluate
from digit_names import NAMES
from torch import nn

import classwise
from classwise.attacks.losses import LogitGap
from classwise.data.batches import Batches
from classwise.doors.audit import audit


def test_the_package_shows_audit_at_its_top():
    assert classwise.audit is audit


def test_a_module_is_audited_class_by_class(digits):
    model, images, labels = digits
    report = audit(model, images, labels, eps=0.1, class_names=NAMES)
    assert list(report) == ["clean", "pgd-20"]
    predicted = model(images).argmax(1)
    for k, name in enumerate(NAMES):
        expected = (predicted[labels == k] == k).double().mean().item()
        assert report.by_class["clean"][name] == pytest.approx(expected)
    assert report.overall["clean"] > 0.9
    assert report.overall["pgd-20"] < report.overall["clean"] - 0.2
    assert report.about["eps"] == 0.1


def test_worst_classes_are_named_beside_their_numbers(digits):
    report = audit(*digits, eps=0.1, class_names=NAMES)
    text = repr(report)
    for condition in report:
        assert report.worst_class[condition] in text
        assert report.tail()[condition].classes[0] == report.worst_class[condition]
        assert report.worst[condition] == min(report.by_class[condition].values())


def test_a_plain_function_is_audited_as_its_module_is(digits):
    model, images, labels = digits
    weight, bias = model[1].weight.detach(), model[1].bias.detach()
    function = audit(lambda x: x.flatten(1) @ weight.T + bias, images, labels, eps=0.1)
    module = audit(model, images, labels, eps=0.1)
    for condition in module:
        assert np.array_equal(function.confusion[condition], module.confusion[condition])


def test_uint8_images_numpy_and_lists_are_the_same_data(digits):
    model, images, labels = digits
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    whole = (images * 255).round().to(torch.uint8)
    expected = audit(model, images.float(), labels, eps=0.1).confusion["pgd-20"]
    assert np.array_equal(audit(model, whole, labels, eps=0.1).confusion["pgd-20"], expected)
    given = audit(model, whole.numpy(), labels.tolist(), eps="1/10").confusion["pgd-20"]
    assert np.array_equal(given, expected)


def test_images_are_taken_in_the_precision_of_the_model(digits):
    model, images, labels = digits
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    found = audit(plain, images.numpy(), labels.numpy(), eps=0.1)  # float64, as numpy makes them
    expected = audit(plain, images.float(), labels, eps=0.1)
    assert np.array_equal(found.confusion["pgd-20"], expected.confusion["pgd-20"])
    whole = (images * 255).round().to(torch.uint8)
    assert audit(model, whole, labels, eps=0.1).overall["clean"] > 0.9


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
def test_the_batch_size_does_not_matter(digits, batch_size):
    model, images, labels = digits
    whole, parts = (
        evaluate(
            model,
            Batches(images, labels, torch.arange(len(labels)), size),
            num_classes=10,
            attacks="clean,fgsm,pgd-5",
            eps=0.1,
        )
        for size in (200, batch_size)
    )
    for one, other in zip(whole, parts, strict=True):
        assert np.array_equal(one.sample, other.sample)
        assert np.array_equal(one.predicted, other.predicted)
        assert one.logit_gap == pytest.approx(other.logit_gap, abs=1e-5)


def test_the_order_of_samples_does_not_matter_to_their_verdicts(digits):
    model, images, labels = digits
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    facts = {"num_classes": 10, "attacks": "pgd-5", "eps": 0.1}
    batches = Batches(images, labels, torch.arange(200), 64)
    (straight,) = evaluate(model, batches, **facts)
    (shuffled,) = evaluate(model, Batches(images[order], labels[order], order, 64), **facts)
    assert np.array_equal(shuffled.predicted, straight.predicted[order.numpy()])


def test_another_seed_is_another_start_and_the_same_seed_the_same(digits):
    model, images, labels = digits

    def gaps(seed):
        batches = Batches(images, labels, torch.arange(200), 64)
        return evaluate(model, batches, num_classes=10, attacks="pgd-1", eps=0.1, seed=seed)[0]

    assert np.array_equal(gaps(0).logit_gap, gaps(0).logit_gap)
    assert not np.array_equal(gaps(0).logit_gap, gaps(1).logit_gap)


def test_no_radius_is_no_attack(digits):
    report = audit(*digits, attacks="clean,fgsm,pgd-5", eps=0)
    assert np.array_equal(report.confusion["pgd-5"], report.confusion["clean"])
    assert np.array_equal(report.confusion["fgsm"], report.confusion["clean"])


def test_more_radius_is_never_kinder_to_a_linear_model(digits):
    found = [audit(*digits, attacks="pgd-10", eps=eps).overall["pgd-10"] for eps in (0, 0.05, 0.2)]
    assert found[0] > found[1] > found[2]


@pytest.mark.usefixtures("untouched_random_state")
def test_an_audit_leaves_the_model_as_it_was(net):
    model = net(10).train()
    model.head.eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    images = torch.full((6, 1, 8, 8), 0.5, dtype=torch.float64)
    audit(model, images, torch.arange(6), attacks="clean,pgd-2")
    assert model.training
    assert model.conv.training
    assert not model.head.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all((p.grad == 1).all() and p.requires_grad for p in model.parameters())


def test_it_judges_in_eval_mode(net):
    model = net(10).train()
    images = torch.rand(
        30, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    labels = torch.arange(30) % 10
    found = audit(model, images, labels, attacks="clean").confusion["clean"]
    expected = net(10).eval()(images).argmax(1)
    for a in range(10):
        for b in range(10):
            assert found[a, b] == int(((labels == a) & (expected == b)).sum())


def test_the_stored_gap_is_positive_where_the_model_is_right(digits):
    model, images, labels = digits
    batches = Batches(images, labels, torch.arange(200), 64)
    (found,) = evaluate(model, batches, num_classes=10, attacks="pgd-2", eps=0.1)
    assert 0 < found.correct.sum() < 200
    assert np.array_equal(found.logit_gap > 0, found.correct)


def test_a_logit_gap_is_the_best_other_logit_minus_the_true_one():
    logits = torch.randn(50, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(50) % 5
    found = LogitGap(labels)(logits)
    for n in range(50):
        row, y = logits[n].tolist(), labels[n].item()
        expected = max(z for k, z in enumerate(row) if k != y) - row[y]
        assert found[n].item() == pytest.approx(expected)
        assert (found[n] < 0).item() == (logits[n].argmax() == y).item()


def test_superclasses_are_reported_by_name(digits):
    groups, words = [0] * 5 + [1] * 5, ["small", "large"]
    report = audit(
        *digits, attacks="clean", class_names=NAMES, superclass_of=groups, superclass_names=words
    )
    rates = list(report.by_class["clean"].values())
    assert report.by_superclass["clean"] == pytest.approx(
        {"small": sum(rates[:5]) / 5, "large": sum(rates[5:]) / 5}
    )
    assert audit(*digits, attacks="clean").by_superclass["clean"] is None


def test_the_radius_is_reported_whatever_the_order_of_attacks(digits):
    for attacks in ("clean,pgd-2", "pgd-2,clean"):
        assert audit(*digits, attacks=attacks, eps=0.1).about["eps"] == 0.1


def test_class_names_may_be_an_array(digits):
    report = audit(*digits, attacks="clean", class_names=np.array(NAMES))
    assert list(report.by_class["clean"]) == list(NAMES)


def test_a_class_without_samples_is_none_and_enters_no_mean(digits):
    model, images, labels = digits
    keep = labels != 4
    report = audit(model, images[keep], labels[keep], eps=0.1, class_names=NAMES)
    for condition in report:
        rates = report.by_class[condition]
        assert rates["four"] is None
        seen = [rate for name, rate in rates.items() if name != "four"]
        assert report.worst[condition] == min(seen)
        assert report.spread[condition] == pytest.approx(np.std(seen))
        assert report.intervals[condition]["four"] is None
        assert "four" not in report.tail(1.0)[condition].classes
    assert "no samples: four" in repr(report)
