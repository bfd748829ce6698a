"""Images that carry only some of the features of others (after Ilyas et al., 2019).

`robust` and `nonrobust`: from an unrelated image, walk to where the penultimate features are those
of the wanted image; what else was in that image is not brought along. With an adversarially trained
model these are robust features, with a plainly trained one any that help. `random` and
`deterministic`: a little of another class is added to an image, which then has that class's label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from classwise.attacks.ball import L2_BALL, per_image
from classwise.attacks.losses import CrossEntropy
from classwise.attacks.pgd import pgd
from classwise.draws import Draws
from classwise.errors import ClasswiseError, unknown
from classwise.types import Batch, Images, Labels, LogitModel

RESTORED, TARGETED = ("robust", "nonrobust"), ("random", "deterministic")
KINDS = (*RESTORED, *TARGETED)


@dataclass(frozen=True)
class FeatureSettings:
    """How feature images are made; lengths are those of L2."""

    kind: str
    steps: int
    step: float
    eps: float | None  # None: nothing but [0, 1] holds the images
    seed: int = 0

    @classmethod
    def of(
        cls,
        kind: str,
        *,
        steps: int | None = None,
        step: float = 0.1,
        eps: float | None = None,
        seed: int = 0,
    ) -> FeatureSettings:
        """What the paper used, unless something else is said.

        1000 steps of 0.1 without a ball, or 100 steps of 0.1 in a ball of 0.5.

        >>> FeatureSettings.of("robust").steps, FeatureSettings.of("random").eps
        (1000, 0.5)
        """
        if kind not in KINDS:
            raise unknown("kind of features", kind, KINDS)
        if kind in RESTORED and eps is not None:
            raise ClasswiseError(
                f"eps={eps} has no effect on {kind} features, which no ball holds; leave it out"
            )
        held = None if kind in RESTORED else 0.5 if eps is None else eps
        many = (1000 if kind in RESTORED else 100) if steps is None else steps
        if many < 1 or not 0 < step < float("inf"):
            raise ClasswiseError(f"{many} steps of {step}: give at least one, of a length above 0")
        if held is not None and not 0 < held < float("inf"):
            raise ClasswiseError(f"eps is {held}; give a length above 0, such as 0.5")
        return cls(kind, many, float(step), held, seed)


def feature_targets(settings: FeatureSettings, batch: Batch, num_classes: int) -> Labels:
    """The label of each feature image, by the sample's number and nothing else.

    A random target is any class, the image's own among them: else robust features would say what
    the label is not.
    """
    if settings.kind == "random":
        drawn = Draws(settings.seed, "feature targets").integers(batch.index, num_classes)
        return drawn.to(batch.labels.device)
    if settings.kind == "deterministic":
        return (batch.labels + 1) % num_classes
    return batch.labels


def unrelated(settings: FeatureSettings, index: Tensor, count: int) -> Tensor:
    """The number of another image for each, to begin from; never its own."""
    if count < 2:
        raise ClasswiseError("restored features begin from another image; give at least two")
    return (index + 1 + Draws(settings.seed, "feature starts").integers(index, count - 1)) % count


def towards_class(
    model: LogitModel, batch: Batch, targets: Labels, settings: FeatureSettings
) -> Images:
    """PGD towards the targets inside the ball, from the image itself."""
    length = torch.ones(len(batch), device=batch.images.device, dtype=batch.images.dtype)
    return pgd(
        model,
        batch.images,
        CrossEntropy(targets, targeted=True),
        radius=length * (settings.eps or 0),
        step=length * settings.step,
        steps=settings.steps,
        ball=L2_BALL,
    )


def towards_features(
    features: Callable[[Images], Tensor], images: Images, start: Images, settings: FeatureSettings
) -> Images:
    """Descend ‖g(x_r) − g(x)‖₂ from `start` by steps of one length, inside [0, 1].

    x_r ← clip(x_r − η·∇/‖∇‖₂); of all these images the one nearest to the wanted features is kept.
    """
    with torch.no_grad():
        wanted = features(images)
    length = torch.full((len(images),), settings.step, device=images.device, dtype=images.dtype)
    current, best = start.detach(), start.detach().clone()
    least = torch.full_like(length, float("inf"))
    for number in range(settings.steps + 1):
        current.requires_grad_(number < settings.steps)
        with torch.set_grad_enabled(number < settings.steps):
            # the square has the same direction, and a gradient at zero, too
            away = (features(current) - wanted).square().sum(1)
        nearer = away.detach() < least
        best = torch.where(per_image(nearer), current.detach(), best)
        least = torch.where(nearer, away.detach().to(least.dtype), least)
        if number < settings.steps:
            (slope,) = torch.autograd.grad(away.sum(), current)
            current = (current.detach() - L2_BALL.uphill(slope, length)).clamp_(0, 1)
    return best
