"""How both bounds of a smoothed classifier are spelled, what is refused, and what is kept."""

import numpy as np
import pytest
import torch
from half_spaces import HalfSpace, at_distances, judged
from torch import nn

import classwise
from classwise.attacks import smoothing
from classwise.attacks.names import named_condition, parse_condition
from classwise.attacks.noise import noisy_counts
from classwise.attacks.smoothing import SMOOTHED_PGD, SMOOTHING
from classwise.attacks.threat import Threat
from classwise.auditing.plan import Plan
from classwise.auditing.run import run_audit
from classwise.data.view import View
from classwise.errors import ClasswiseError
from classwise.models.blackbox import BlackBox
from classwise.models.subject import Subject
from classwise.record.record import Record


class TestRefusals:
    @pytest.mark.parametrize("attack", ["smoothing", "smoothed-pgd-5"])
    def test_linf_with_the_reason(self, attack):
        with pytest.raises(ClasswiseError, match=r"Gaussian noise.* L2 balls and not Linf .*L2"):
            parse_condition(attack, Threat.of(0.1, "Linf"))
        with pytest.raises(ClasswiseError, match="L2 balls and not Linf"):
            classwise.audit(nn.Flatten(), torch.rand(2, 1, 1, 2), [0, 1], attacks=attack, eps=0.1)

    def test_a_radius_that_no_answers_could_certify(self):
        with pytest.raises(ClasswiseError, match=r"no radius above 0.6158.* eps is 0.7; raise"):
            parse_condition("smoothing", Threat.of(0.7, "L2"))
        few = torch.tensor([0.1, 0.7]), "L2", torch.arange(2)
        assert parse_condition("smoothing", Threat.of(*few)).name == "smoothing"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("smoothing(sigma=0)", "sigma of smoothing is 0; give a number between 0 and inf"),
            ("smoothing(alpha=1)", "alpha of smoothing is 1; give a number between 0 and 1"),
            ("smoothing(n=0)", "give a whole number from 1 to 10000000"),
            ("smoothing(m=2)", "option of smoothing"),
            ("smoothed-pgd-2(m=5000)", "give a whole number from 1 to 4096"),
            ("smoothed-pgd-200000", "100000 steps are the most"),
            ("smoothed-pgd", "unknown attack"),
            (
                "suite(smoothing,square)",
                "smoothing is no search on the model itself and cannot stand",
            ),
        ],
    )
    def test_what_makes_no_sense(self, text, words):
        with pytest.raises(ClasswiseError, match=words):
            parse_condition(text, Threat.of(0.1, "L2"))

    def test_gradients_of_a_black_box(self):
        def scores(images):
            return images.reshape(len(images), -1)[:, :2]

        given = BlackBox(scores), torch.rand(3, 1, 2, 2), [0, 1, 1]
        with pytest.raises(ClasswiseError, match="smoothed-pgd-2 needs gradients"):
            classwise.audit(*given, attacks="smoothed-pgd-2", eps=0.1, norm="L2", name="x")
        report = classwise.audit(*given, attacks="smoothing(n=50)", eps=0.1, norm="L2", name="x")
        assert report["smoothing(n=50)"].kind == "certificate"


class TestNames:
    def test_one_spelling(self):
        name, eps = named_condition("smoothing( n0=100, alpha=1/500,sigma = 1.0, eps=0.5)")
        assert (name, eps) == ("smoothing(eps=0.5,sigma=1,alpha=0.002)", 0.5)
        assert named_condition("smoothing(sigma=0.25,n=1000,alpha=0.001)")[0] == "smoothing"
        assert named_condition("smoothing(sigma=0.2)")[0] == "smoothing(sigma=0.2)"

    def test_every_option_counts(self):
        other = {"eps": 0.07, "sigma": 0.3, "n": 70, "alpha": 0.1, "n0": 7, "m": 3, "step": "eps/3"}
        for attack, table in (("smoothing", SMOOTHING), ("smoothed-pgd-3", SMOOTHED_PGD)):
            names = [attack, *(f"{attack}({option}={other[option]})" for option in table)]
            keys = {parse_condition(name, Threat.of(0.1, "L2")).key for name in names}
            assert len(keys) == len(names)


def test_a_kept_certificate_is_read_at_any_radius_without_the_model(tmp_path, monkeypatch):
    model = HalfSpace()
    images = at_distances(model, np.linspace(0.05, 0.6, 40))
    data = View.given(images, torch.ones(40, dtype=torch.int64), 2, ("a", "b"))
    asked = []

    def spy(*given):
        asked.append(given)
        return noisy_counts(*given)

    monkeypatch.setattr(smoothing, "noisy_counts", spy)

    def audit(name, eps, seed=0):
        condition = parse_condition(name, Threat.of(eps, "L2"), seed)
        plan = Plan(Subject(model, 2, 512), data, (condition,))
        record = Record.of(tmp_path, plan.subject, data, recipe="r", weights="w", split="test")
        asked.clear()
        return run_audit(plan, record)[0]

    wide = audit("smoothing(n=200)", 0.37)
    assert asked
    near = audit("smoothing(n=200)", 0.1)
    stated = audit("smoothing(eps=0.2,n=200)", 0.37)
    assert not asked
    assert near.correct.sum() > stated.correct.sum() > wide.correct.sum() > 0
    assert (stated.radius == 0.2).all()
    straight = judged(model, images, torch.ones(40, dtype=torch.int64), "smoothing(n=200)", 0.1)
    for column in ("predicted", "radius", "broken_by", "certified_radius", "iterations"):
        assert (getattr(near, column) == getattr(straight, column)).all(), column
    again = audit("smoothing(n=200)", 0.1)
    assert not asked
    assert (again.predicted == near.predicted).all()
    for other in ("smoothing(n=201)", "smoothing(n=200,sigma=0.3)"):
        audit(other, 0.1)
        assert asked
    audit("smoothing(n=200)", 0.1, seed=1)
    assert asked
