"""Attacks as objects people know: `attack = PGD(model, eps=8/255); adversarial = attack(x, y)`."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from classwise.attacks.ball import parse_norm, radii
from classwise.attacks.fixed import Condition, NamedAttack
from classwise.attacks.named import parse_attack
from classwise.attacks.pgd import batchnorm_mode
from classwise.data.dataset import check_labels, check_pixels
from classwise.errors import ClasswiseError
from classwise.spelling import parse_eps, spell_eps
from classwise.types import Batch, Images, Labels, LogitModel


class Attack:
    """A model, an attack and a radius; called with images in [0, 1] and labels.

    `eps` is one radius, or one for each of the images it will be called with.

    The model is attacked in eval mode and left as it was. Random numbers depend on the seed and on
    how many images this object has seen, so cutting the images into other batches changes nothing;
    `index` numbers the images instead, where they have numbers of their own.
    """

    def __init__(
        self,
        model: LogitModel,
        condition: Condition | str,
        eps: Any,
        norm: str | float = "Linf",
        seed: int = 0,
    ) -> None:
        self.model = model
        self.condition = parse_attack(condition) if isinstance(condition, str) else condition
        if self.condition.eps is not None:
            own = spell_eps(eps) if isinstance(eps, float) else repr(eps)
            raise ClasswiseError(f"{self.condition.name} states its eps; leave it to eps={own}")
        self.ball = parse_norm(norm)
        one = isinstance(eps, str) or np.ndim(eps) == 0
        self.eps = parse_eps(eps, self.ball.too_wide) if one else eps
        self.seed = seed
        self.seen = 0

    def __call__(self, images: Images, labels: Labels, index: Labels | None = None) -> Images:
        """Adversarial images within eps of the given ones and in [0, 1]."""
        check_pixels(images)
        if not images.is_floating_point():
            raise ClasswiseError(f"images are {images.dtype}; attacks take floats in [0, 1]")
        check_labels(labels, len(images), 1 << 31)
        if index is None:
            index = torch.arange(self.seen, self.seen + len(images), device=labels.device)
            self.seen += len(images)
        batch = Batch(images.detach(), labels.long(), index)
        module = isinstance(self.model, nn.Module)
        with batchnorm_mode(self.model, "eval") if module else nullcontext():  # type: ignore[arg-type]
            return self.condition.perturb(
                self.model,
                batch,
                eps=radii(self.eps, self.ball, len(images)),
                ball=self.ball,
                seed=self.seed,
            )

    def __repr__(self) -> str:
        kind = type(self).__name__
        eps = spell_eps(self.eps) if isinstance(self.eps, float) else "one per image"
        return f"{kind}({self.condition.name}, eps={eps}, norm={self.ball.name!r})"


class FGSM(Attack):
    """One step of the whole radius."""

    def __init__(self, model: LogitModel, eps: Any = 8 / 255, **facts: Any) -> None:
        super().__init__(model, "fgsm", eps, **facts)


class PGD(Attack):
    """Projected gradient ascent on the cross-entropy; returns the final iterate."""

    def __init__(
        self,
        model: LogitModel,
        eps: Any = 8 / 255,
        alpha: float | str = 2 / 255,
        steps: int = 10,
        random_start: bool = True,
        norm: str | float = "Linf",
        seed: int = 0,
    ) -> None:
        plain = parse_attack(f"pgd-{steps}")
        assert isinstance(plain, NamedAttack)
        start = plain if random_start else replace(plain, start="none")
        self.alpha = parse_eps(alpha, parse_norm(norm).too_wide)
        super().__init__(model, replace(start, step=self.alpha), eps, norm, seed)
        self.steps, self.random_start = steps, random_start


class APGD(Attack):
    """Auto-PGD on `ce` or `dlr`; returns adversarial images where it found them."""

    def __init__(
        self,
        model: LogitModel,
        eps: Any = 8 / 255,
        steps: int = 100,
        loss: str = "ce",
        n_restarts: int = 1,
        **facts: Any,
    ) -> None:
        name = f"apgd-{loss}(steps={steps},restarts={n_restarts})"
        super().__init__(model, name, eps, **facts)


class APGDT(Attack):
    """Auto-PGD on the targeted DLR loss, a round per target."""

    def __init__(
        self,
        model: LogitModel,
        eps: Any = 8 / 255,
        steps: int = 100,
        targets: int = 9,
        **facts: Any,
    ) -> None:
        super().__init__(model, f"apgd-t(steps={steps},targets={targets})", eps, **facts)


class FAB(Attack):
    """Targeted FAB, a round per target."""

    def __init__(
        self,
        model: LogitModel,
        eps: Any = 8 / 255,
        steps: int = 100,
        targets: int = 9,
        **facts: Any,
    ) -> None:
        super().__init__(model, f"fab-t(steps={steps},targets={targets})", eps, **facts)


class Square(Attack):
    """Random squares; needs no gradients."""

    def __init__(
        self, model: LogitModel, eps: Any = 8 / 255, n_queries: int = 5000, **facts: Any
    ) -> None:
        super().__init__(model, f"square(queries={n_queries})", eps, **facts)


class DeepFool(Attack):
    """Across the nearest linearised boundary, as far as that lies within eps."""

    def __init__(
        self, model: LogitModel, eps: Any = 8 / 255, steps: int = 50, **facts: Any
    ) -> None:
        super().__init__(model, f"deepfool(steps={steps})", eps, **facts)
