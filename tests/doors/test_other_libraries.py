"""Attacks of other libraries in the list of an audit."""

import sys
import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from asked import attacked
from linear_models import Linear
from refusals import refused

import classwise
from classwise.attacks.ball import LINF
from classwise.types import Batch


def stand_in(library, name, members):
    """An object whose class claims to come from another library."""
    return type(name, (), {"__module__": f"{library}.attacks", **members})()


def step_up(model, images, labels, eps):
    x = images.clone().requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(model(x), labels), x)
    noise = torch.rand(1) * 1e-3  # from the global generator, as theirs do
    return (images + (eps - noise) * slope.sign()).clamp(0, 1).detach()


@pytest.mark.usefixtures("untouched_random_state")
class TestAdapters:
    def attack(self, model, library, eps=0.03):
        def torchattacks_call(self, images, labels):
            model.zero_grad()
            return step_up(model, images, labels, self.eps)

        def foolbox_call(_, theirs, images, labels, *, epsilons):
            assert theirs.bounds == (0, 1)
            moved = step_up(theirs.model, images, labels, epsilons)
            return moved + 99, moved, moved

        def art_generate(self, x, y):
            assert isinstance(x, np.ndarray)
            return step_up(model, torch.tensor(x), torch.tensor(y), self.eps).numpy()

        members = {
            "torchattacks": {"__call__": torchattacks_call, "model": model, "steps": 7, "eps": eps},
            "foolbox": {"__call__": foolbox_call},
            "art": {"generate": art_generate, "eps": eps, "max_iter": 7},
        }
        return stand_in(library, "Stepping", members[library])

    @pytest.fixture(autouse=True)
    def foolbox(self, monkeypatch):
        def wrapped(model, bounds):
            return types.SimpleNamespace(model=model, bounds=bounds)

        fake = types.SimpleNamespace(PyTorchModel=wrapped)
        monkeypatch.setitem(sys.modules, "foolbox", fake)

    @pytest.mark.parametrize("library", ["torchattacks", "foolbox", "art"])
    def test_an_object_stands_in_the_list(self, model, data, library):
        images, labels = data
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        attack = self.attack(model, library)
        report = classwise.audit(model, images, labels, attacks=["clean", attack, "fgsm"], eps=0.03)
        assert list(report) == ["clean", f"{library}:Stepping", "fgsm"]
        assert report.overall[f"{library}:Stepping"] < report.overall["clean"]
        again = classwise.audit(model, images, labels, attacks=[attack], eps=0.03)
        same = again.confusion[f"{library}:Stepping"], report.confusion[f"{library}:Stepping"]
        assert np.array_equal(*same)
        assert all((p.grad == 1).all() for p in model.parameters())

    def test_a_function_stands_in_the_list(self, model, data):
        def nudge(images, labels):
            return step_up(model, images, labels, 0.03)

        report = classwise.audit(model, *data, attacks=[nudge], eps=0.03)
        assert report.overall["nudge"] < 0.9

    def test_another_eps_is_refused(self, model, data):
        attack = self.attack(model, "torchattacks", eps=0.3)
        with refused("0.3", "0.03", "same"):
            classwise.audit(model, *data, attacks=[attack], eps=0.03)

    def test_another_model_is_refused(self, model, data):
        with refused("another model"):
            classwise.audit(Linear(), *data, attacks=[self.attack(model, "torchattacks")], eps=0.03)

    def test_leaving_the_ball_it_states_is_refused(self, model, data):
        attack = self.attack(model, "torchattacks")
        with refused("L2", "norm"):
            classwise.audit(
                model,
                *data,
                attacks=[self.attack(model, "torchattacks")],
                eps=attack.eps,
                norm="L2",
            )

    def test_what_a_nearest_image_attack_finds_outside_does_not_count(self, model, data):
        def far(images, labels):
            moved = step_up(model, images, labels, 0.5)
            moved[::2] = step_up(model, images, labels, 0.03)[::2]
            return moved

        images, labels = data
        batch = Batch(images, labels, torch.arange(40))
        from classwise.attacks.other_libraries import Foreign

        found = attacked(model, batch, Foreign.of(far), num_classes=4, radius=0.03, ball=LINF)
        assert torch.equal(found.images[1::2], images[1::2])
        assert not torch.equal(found.images[::2], images[::2])

    def test_no_attack_at_all(self, model, data):
        with refused("no attack", "pgd-20"):
            classwise.audit(model, *data, attacks=["clean", 3], eps=0.03)

    @pytest.mark.parametrize("library", ["torchattacks", "foolbox"])
    def test_the_real_thing(self, model, data, library, monkeypatch):
        monkeypatch.delitem(sys.modules, "foolbox")
        real = pytest.importorskip(library)
        if library == "torchattacks":
            attack = real.PGD(model, eps=0.03, alpha=0.01, steps=5)
        else:
            attack = real.attacks.LinfPGD(abs_stepsize=0.01, steps=5)
        report = classwise.audit(model, *data, attacks=[attack, "pgd-5(step=0.01)"], eps=0.03)
        theirs, ours = report.overall.values()
        assert theirs == pytest.approx(ours, abs=0.06)
