"""Attacks as objects that are called with images and labels."""

import pytest
import torch
import torch.nn.functional as F
from refusals import refused

import classwise
from classwise.attacks import PGD


class TestObjects:
    def test_pgd_is_the_straight_loop(self, model, data):
        images, labels = data
        moved = PGD(model, eps=0.05, alpha=0.02, steps=3, random_start=False)(images, labels)
        x = images.clone()
        for _ in range(3):
            x.requires_grad_()
            (slope,) = torch.autograd.grad(F.cross_entropy(model(x), labels), x)
            x = (x + 0.02 * slope.sign()).detach()
            x = (images + (x - images).clamp(-0.05, 0.05)).clamp(0, 1)
        torch.testing.assert_close(moved, x)

    @pytest.mark.usefixtures("untouched_random_state")
    def test_other_batches_give_the_same_images(self, model, data):
        images, labels = data
        whole = PGD(model, eps=0.05)(images, labels)
        attack = PGD(model, eps=0.05)
        parts = [attack(images[a:b], labels[a:b]) for a, b in ((0, 7), (7, 30), (30, 40))]
        torch.testing.assert_close(torch.cat(parts), whole)
        own = PGD(model, eps=0.05)(images[20:], labels[20:], index=torch.arange(20, 40))
        torch.testing.assert_close(own, whole[20:])

    def test_a_second_call_starts_elsewhere(self, model, data):
        attack = PGD(model, eps=0.05, steps=1)
        assert not torch.equal(attack(*data), attack(*data))

    def test_the_mode_comes_back(self, model, data):
        model.train()
        PGD(model)(*data)
        assert model.training
        assert int(model.norm.num_batches_tracked) == 0

    @pytest.mark.parametrize("name", ["FGSM", "APGD", "APGDT", "FAB", "DeepFool", "Square"])
    @pytest.mark.parametrize("norm", ["Linf", "L2"])
    def test_every_object_fools_within_its_ball(self, model, data, name, norm):
        images, labels = data
        kind = getattr(classwise.attacks, name)
        eps = {"Linf": 0.1, "L2": 0.7}[norm]
        options = {"n_queries": 60} if name == "Square" else {}
        moved = kind(model, eps=eps, norm=norm, **options)(images, labels)
        offset = (moved - images).flatten(1)
        length = offset.abs().amax(1) if norm == "Linf" else offset.norm(dim=1)
        assert length.max() <= eps + 1e-6
        assert moved.min() >= 0
        assert moved.max() <= 1
        assert (model(moved).argmax(1) == labels).double().mean() < 0.6

    def test_it_says_what_it_is(self, model):
        text = repr(PGD(model, eps=8 / 255, steps=7))
        assert text == "PGD(pgd-7(step=2/255), eps=8/255, norm='Linf')"

    def test_refusals(self, model, data):
        with refused("eps", "8/255"):
            PGD(model, eps=8)
        with refused("uint8"):
            PGD(model)((255 * data[0]).to(torch.uint8), data[1])

    def test_an_unknown_name_is_an_attribute_error(self):
        with pytest.raises(AttributeError, match="Nonsense"):
            _ = classwise.attacks.Nonsense
