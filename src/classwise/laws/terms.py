"""Laws of the loss: named terms per sample, the same for classes of any name and number."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from classwise.attacks.ball import LINF
from classwise.attacks.inner import Moment
from classwise.classes.settings import ClassSettings
from classwise.laws.made_up import CLASS_NUMBERS, Subject, must, objective_of, uneven_settings
from classwise.models import build_model
from classwise.objective import Outer, total
from classwise.types import Batch

SAMPLES = 11


def _world(subject: Subject, num_classes: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Logits of every view that the loss asks for, labels, and a teacher's logits."""
    rng = torch.Generator().manual_seed(num_classes)

    def logits() -> Tensor:
        draws = torch.rand(SAMPLES, num_classes, generator=rng, dtype=torch.float64)
        return (6 * draws - 3).requires_grad_()

    labels = torch.randint(num_classes, (SAMPLES,), generator=rng)
    views = {view: logits() for view in objective_of(subject.recipe).views}
    return views, labels, logits().detach()


def renaming_classes_leaves_the_loss(subject: Subject, folder: Path) -> None:  # noqa: ARG001
    """Terms do not depend on what the classes are called, for any number of them."""
    for num_classes in CLASS_NUMBERS:
        outputs, labels, teacher = _world(subject, num_classes)
        settings, objective = uneven_settings(num_classes), objective_of(subject.recipe)
        names = torch.randperm(num_classes, generator=torch.Generator().manual_seed(1))
        back = names.argsort()
        plain = objective.terms(Outer(outputs, labels, settings.rows(labels), teacher=teacher))
        moved = {view: logits[:, back] for view, logits in outputs.items()}
        called = _renamed(settings, back).rows(names[labels])
        other = objective.terms(Outer(moved, names[labels], called, teacher=teacher[:, back]))
        for one, two in zip(plain, other, strict=True):
            must(one.name == two.name, f"the term {one.name} becomes {two.name}")
            torch.testing.assert_close(one.values, two.values, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(one.weight, two.weight)
            scales = torch.as_tensor(one.scale), torch.as_tensor(two.scale)
            torch.testing.assert_close(*scales, rtol=1e-12, atol=0)


def _renamed(settings: ClassSettings, back: Tensor) -> ClassSettings:
    return settings.rows(back)  # a table looked up at the old numbers, in the new order


def terms_are_sound(subject: Subject, folder: Path) -> None:  # noqa: ARG001
    """Terms are per sample, named once, and finite also for bold logits."""
    for num_classes in CLASS_NUMBERS:
        outputs, labels, teacher = _world(subject, num_classes)
        rows, objective = uneven_settings(num_classes).rows(labels), objective_of(subject.recipe)
        for scale in (1, 1000):
            bold = {view: scale * logits for view, logits in outputs.items()}
            terms = objective.terms(Outer(bold, labels, rows, teacher=scale * teacher))
            must(len({term.name for term in terms}) == len(terms), "two terms have one name")
            for term in terms:
                must(term.values.shape == (SAMPLES,), f"{term.name} is not one value per sample")
                must(torch.isfinite(term.values).all(), f"{term.name} is not finite")
            if scale == 1:
                must(torch.isfinite(total(terms, "mean")), "the loss is not finite")


def attacks_stay_inside_their_balls(subject: Subject, folder: Path) -> None:  # noqa: ARG001
    """Each attacked image stays in its own ball and in the range of images."""
    inner = subject.recipe.slots.inner
    if inner is None:
        return
    for num_classes in CLASS_NUMBERS:
        rng = torch.Generator().manual_seed(num_classes)
        images = torch.rand(9, 1, 8, 8, generator=rng, dtype=torch.float64)
        images = (images * 1.4 - 0.2).clamp(0, 1)  # with pixels at both ends
        labels = torch.randint(num_classes, (9,), generator=rng)
        batch = Batch(images, labels, torch.arange(9) + 100)
        about = {"num_classes": num_classes, "channels": 1, "mean": [0.5], "deviation": [0.3]}
        model = build_model("cnn(width=2)", **about).double()  # type: ignore[arg-type]
        radius = torch.tensor([0, 0.01, 0.3], dtype=torch.float64).repeat(3)
        step = torch.full_like(radius, 0.05)
        teacher = None if inner.reference != "teacher" else 1 - model(images).detach()
        moment = Moment(seed=0, epoch=1, epochs=10)
        views = inner.perturb(
            model, batch, moment, radius=radius, step=step, ball=LINF, teacher=teacher
        )
        for name, found in views.items():
            must(found.shape == images.shape, f"the view {name} has another shape")
            must(not found.requires_grad, f"the view {name} is not detached")
            must(torch.isfinite(found).all(), f"the view {name} is not finite")
            must(((found >= 0) & (found <= 1)).all(), f"the view {name} leaves [0, 1]")
            far = (found - images).abs().flatten(1).amax(1)
            must((far <= radius + 1e-12).all(), f"the view {name} leaves its ball")
            still = radius == 0
            must(torch.equal(found[still], images[still]), f"{name} moves where eps is 0")
