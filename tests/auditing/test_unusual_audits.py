"""What only some audits have: a radius per image, random models, extra outputs, few bits."""

from copy import deepcopy
from unittest.mock import patch

import numpy as np
import pytest
import torch
from conditions import CONDITIONS, COUNT, EPS, Row, Scene, same_verdicts
from torch import nn

import classwise
from classwise.attacks.inner import Moment
from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.auditing import health, run
from classwise.auditing.plan import Plan
from classwise.auditing.run import run_audit
from classwise.classes.settings import Seen
from classwise.data.batches import Batches
from classwise.errors import ClasswiseError
from classwise.models.blackbox import BlackBox
from classwise.models.classifier import Classifier
from classwise.models.subject import Subject
from classwise.recipe_text import parse_recipe
from classwise.record.rows import concatenate, select
from classwise.training import validate
from classwise.training.validate import Checker

THREATENING = [row for row in CONDITIONS if row.threatens and not row.own_eps and not row.by_batch]


@pytest.mark.parametrize("norm", EPS)
@pytest.mark.parametrize("row", THREATENING, ids=str)
def test_a_radius_per_image_is_the_audit_at_that_radius(row, norm):
    if row.only_l2 and norm != "L2":
        return
    scene = row.scene(norm)
    radii = torch.tensor([0.5, 1.0, 1.5]).double()[torch.arange(COUNT) % 3] * scene.eps

    def found(threat):
        conditions = parse_conditions([row.given(scene)], threat)
        return run_audit(Plan(scene.subject(5), scene.data, conditions))[0]

    mixed = found(Threat.of(radii, scene.norm, torch.arange(COUNT)))
    single = [found(Threat.of(float(eps), scene.norm)) for eps in radii[:3]]
    parts = [select(one, np.arange(k, COUNT, 3)) for k, one in enumerate(single)]
    joined = concatenate(parts)
    same_verdicts(mixed, select(joined, np.argsort(joined.sample)))


class Noisy(nn.Module):
    """Draws anew with every answer."""

    def __init__(self, model, size):
        super().__init__()
        self.model, self.size = model, size

    def forward(self, images):
        return self.model(images + self.size * torch.randn_like(images))


class TestRandomModels:
    """`repeat` audits the mean of some passes."""

    def audit(self, repeat, attacks="clean,pgd-3,apgd-ce(steps=3)", **facts):
        scene = Scene()
        facts = {"eps": scene.eps, "class_names": scene.class_names, "repeat": repeat, **facts}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return classwise.audit(
                Noisy(scene.model, 0.05), scene.pixels, scene.labels, attacks=attacks, **facts
            )

    def test_many_passes_come_near_the_model_without_noise(self):
        scene = Scene()
        steady = classwise.audit(
            scene.model, scene.pixels, scene.labels, attacks="clean,pgd-3", eps=scene.eps
        )
        averaged = self.audit(64)
        for name in steady:
            assert averaged.overall[name] == pytest.approx(steady.overall[name], abs=3 / COUNT)
        assert any("random" in flag for flag in self.audit(1).about["flags"])

    def test_a_ledger_takes_another_number_of_passes_for_another_model(self, tmp_path):
        for repeat in (1, 2, 2):
            self.audit(repeat, "clean", out=tmp_path)
        models = {one.weights for one in classwise.read_ledger(tmp_path)}
        assert len(models) == 2


class Pixels(nn.Module):
    def forward(self, images):
        return images.flatten(1)


def masked_model():
    """Two classes told apart by pixel 0, and an extra output that the same pixel raises."""
    model = Classifier(Pixels(), 2, 2, mean=[0.0], deviation=[1.0], extra=1)
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([[4.0, 0.5], [-4.0, -0.5], [8.0, 0.0]]))
        model.head.bias.copy_(torch.tensor([-2.0, 2.0, 0.0]))
    return model


@pytest.mark.parametrize("repeat", [1, 3])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_forty_steps_on_all_outputs_waste_themselves_in_any_precision(kind, repeat):
    images = torch.full((8, 1, 1, 2), 0.55)
    names = ["clean", "pgd-40", "pgd-40(logits=all)"]
    facts = {"attacks": names, "eps": 0.15, "class_names": ["a", "b"], "repeat": repeat}
    report = classwise.audit(masked_model().to(kind), images, torch.zeros(8).long(), **facts)
    assert [report.overall[name] for name in names] == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_gives_nearly_the_verdicts_of_single(kind):
    scene = Scene(dtype=torch.float32)
    # not deepfool and fab-t: they end at the boundary, where half a model's digits are a tie
    names = ("clean", "fgsm", "pgd-3", "apgd-ce(steps=3)", "square(queries=8)")
    conditions = parse_conditions(list(names), scene.threat())
    few = Subject(deepcopy(scene.model).to(kind), 4)
    half = run_audit(Plan(few, scene.data, conditions))
    for name, found in zip(names, half, strict=True):
        single = scene.found(Row(name))
        assert (found.correct == single.correct).mean() >= 1 - 3 / COUNT, name


class TestOneAudit:
    """However many radii or losses somebody needs, they are one plan for `run_audit`."""

    def test_three_radii_of_a_health_probe(self):
        scene, plans = Scene(), []

        def heard(plan, *more):
            plans.append(plan)
            return run_audit(plan, *more)

        with patch.object(health, "run_audit", heard):
            classwise.check_health(
                scene.model, scene.pixels, scene.labels, eps=scene.eps, steps=2, queries=4
            )
        (plan,) = plans
        radii = [one.threat.radius for one in plan.conditions]
        assert radii[:4] == pytest.approx([scene.eps] * 3 + [2 * scene.eps])
        assert len(set(radii)) == 3
        assert radii[4] > 0.4  # from where every image can be made grey

    @pytest.mark.parametrize("text", ["trades(steps=2)+wat", "at(steps=2)+wat"])
    def test_the_losses_of_validation(self, text):
        scene, plans = Scene(), []

        def heard(plan, *more):
            plans.append(plan)
            found = run_audit(plan, *more)
            plans.append(found)
            return found

        slots = parse_recipe(text).slots
        base = slots.alike(4, scene.eps)._each(torch.Tensor.double)
        batches = Batches(scene.pixels, scene.labels, torch.arange(COUNT), 5)
        checker = Checker({"valid": batches}, 4, scene.threat(), 0, slots, base)
        wanted = frozenset([Seen("valid", "robust"), Seen("valid", "clean")])
        with patch.object(validate, "run_audit", heard):
            counts = checker.look(scene.model, wanted, Moment(0, 1, 3))
        plan, found = plans
        assert {one.name for one in plan.conditions} == {"clean", "robust"}
        (robust,) = [one for one in found if one.condition == "robust"]
        sums = [robust.losses["total"][robust.label == k].sum() for k in range(4)]
        assert counts[Seen("valid", "robust")].losses["total"].tolist() == pytest.approx(sums)
        assert (robust.losses["total"] > 0).all()
        # the loss of the recipe, written out, on the clean part of it
        if text.startswith("trades"):
            with torch.no_grad():
                logits = scene.model.eval()(scene.images.double())
            clean = nn.functional.cross_entropy(logits, scene.labels, reduction="none").numpy()
            assert (robust.losses["total"] >= clean - 1e-6).all()


def test_a_black_box_has_its_own_default_and_no_gradient_is_asked_for():
    scene = Scene(dtype=torch.float32)

    def answers(images):
        return scene.model.eval()(torch.from_numpy(images)).detach().numpy()

    facts = {"eps": scene.eps, "class_names": scene.class_names}
    with patch("classwise.doors.audit.BLACK_BOX_ATTACKS", ("clean", "square(queries=8)")):
        report = classwise.audit(BlackBox(answers), scene.pixels, scene.labels, **facts)
    found = Scene(dtype=torch.float32).found(Row("square(queries=8)"))
    assert list(report) == ["clean", "square(queries=8)"]
    assert report.overall["square(queries=8)"] == pytest.approx(found.correct.mean())
    with pytest.raises(ClasswiseError, match="black box"):
        Plan(
            Subject(BlackBox(answers), 4),
            scene.data,
            parse_conditions("clean,fgsm", Threat.of(0.1)),
        )
    assert run.LOST == 60  # seconds: what the documents say a kill may cost
