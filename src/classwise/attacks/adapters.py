"""Attacks of torchattacks, foolbox and ART, and plain functions, as conditions of an audit."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from classwise.attacks.averaged import Averaged
from classwise.attacks.ball import Ball
from classwise.attacks.losses import LogitGap
from classwise.attacks.suite import STANDING, Judged, ask, per_sample
from classwise.errors import ClasswiseError
from classwise.spelling import spell_eps
from classwise.types import Batch, Images, LogitModel, PerSample

_SLACK = 1e-6  # other libraries clip in their own order


@dataclass(frozen=True, slots=True)
class Foreign:
    """Someone else's attack, judged at the images it returns.

    Its images are checked against the audit's own ball. An attack that states its eps must state
    the audit's and keep to it; one that looks for the nearest adversarial image has none, and what
    it finds outside the ball does not count. It draws from the global generators: they are seeded
    for it and restored behind it, so its draws, unlike ours, depend on the batch.
    """

    name: str
    attack: Any
    verdict: str = "last"
    needs_gradient: bool = True
    eps: float | None = None  # takes the audit's; what it states itself must be the same

    @classmethod
    def of(cls, attack: Any) -> Foreign:
        """Recognise an attack by what it can do."""
        if not callable(attack) and not hasattr(attack, "generate"):
            raise ClasswiseError(
                f"{attack!r} is no attack; give a name such as pgd-20, an attack object of "
                "torchattacks, foolbox or ART, or a function (images, labels) -> images"
            )
        library = type(attack).__module__.partition(".")[0]
        if library in ("builtins", "functools", "__main__") or hasattr(attack, "__name__"):
            return cls(getattr(attack, "__name__", "function"), attack)
        numbers = {k: v for k, v in vars(attack).items() if isinstance(v, bool | int | float)}
        said = ",".join(f"{k}={v:.6g}" for k, v in sorted(numbers.items()) if k[0] != "_")
        return cls(f"{library}:{type(attack).__name__}" + (f"({said})" if said else ""), attack)

    def judge(
        self,
        model: LogitModel,
        batch: Batch,
        *,
        num_classes: int,
        radius: PerSample,
        ball: Ball,
        seed: int,
        width: int,
        after: Callable[[str, Tensor], None] | None = None,
    ) -> Judged:
        """Judge the images it returns, `width` at a time."""
        parts = []
        for rows in torch.split(torch.arange(len(batch), device=batch.labels.device), width):
            part = Batch(batch.images[rows], batch.labels[rows], batch.index[rows])
            parts.append(self._moved(model, part, radius[rows], ball, seed))
        images = torch.cat(parts)
        logits = ask(model, images, width, num_classes)
        standing = logits.argmax(1) == batch.labels
        if after is not None:
            after(self.name, standing)
        return Judged(
            logits.argmax(1),
            -LogitGap(batch.labels)(logits),
            torch.full_like(batch.labels, _steps(self.attack), dtype=torch.int32),
            torch.where(standing, STANDING, 0),
            (self.name,),
            images,
        )

    def perturb(
        self, model: LogitModel, batch: Batch, *, eps: float | PerSample, ball: Ball, seed: int
    ) -> Images:
        """Return the images it finds inside the ball, and the original ones elsewhere."""
        return self._moved(model, batch, per_sample(eps, batch), ball, seed)

    def _moved(
        self, model: LogitModel, batch: Batch, radius: PerSample, ball: Ball, seed: int
    ) -> Images:
        self._check_model(model)
        said = getattr(self.attack, "eps", None)
        said = float(said) if isinstance(said, int | float) else None
        if said is not None and float((radius - said).abs().max()) > _SLACK:
            raise ClasswiseError(
                f"{self.name} was made with eps {spell_eps(said)}, but the audit's is "
                f"{spell_eps(float(radius.max()))}; make both the same"
            )
        with _borrowed(model, seed):
            moved = self._call(model, batch, radius)
        moved = moved.detach().to(batch.images)
        if moved.shape != batch.images.shape:
            raise ClasswiseError(
                f"{self.name} returned {tuple(moved.shape)} for images of shape "
                f"{tuple(batch.images.shape)}; it must return as many images as it was given"
            )
        away = ball.distance(moved - batch.images)
        outside = ~(away <= radius + _SLACK) | ~(
            (moved >= -_SLACK) & (moved <= 1 + _SLACK)
        ).flatten(1).all(1)
        if said is not None and bool(outside.any()):
            raise ClasswiseError(
                f"{self.name} moved an image by {float(away.max()):.4g} in {ball.name}, out of its "
                f"ball of {said:.4g} or of [0, 1]; is it made for another norm?"
            )
        return torch.where(outside.view(-1, 1, 1, 1), batch.images, moved.clamp(0, 1))

    def _check_model(self, model: LogitModel) -> None:
        theirs = getattr(self.attack, "model", None)
        if isinstance(model, Averaged) and theirs is model.model:
            return  # it attacks single passes, and the mean of several is judged
        if isinstance(theirs, nn.Module) and isinstance(model, nn.Module) and theirs is not model:
            raise ClasswiseError(f"{self.name} was made for another model than the audited one")

    def _call(self, model: LogitModel, batch: Batch, radius: PerSample) -> Tensor:
        images = batch.images.contiguous()
        if hasattr(self.attack, "generate"):  # ART works on arrays
            found = self.attack.generate(x=images.cpu().numpy(), y=batch.labels.cpu().numpy())
            return torch.from_numpy(np.asarray(found))
        if type(self.attack).__module__.partition(".")[0] == "foolbox":
            if float(radius.min()) != float(radius.max()):
                raise ClasswiseError(f"{self.name} takes one eps for all samples; give one")
            theirs = importlib.import_module("foolbox").PyTorchModel(model, bounds=(0, 1))
            clipped = self.attack(theirs, images, batch.labels, epsilons=float(radius[0]))[1]
            return torch.as_tensor(clipped)
        return torch.as_tensor(self.attack(images, batch.labels))


@contextmanager
def _borrowed(model: LogitModel, seed: int) -> Iterator[None]:
    """Seed the global generators, hide parameter gradients, and put everything back."""
    weights = list(model.parameters()) if isinstance(model, nn.Module) else []
    kept = [weight.grad for weight in weights]
    modes = [(m, m.training) for m in model.modules()] if isinstance(model, nn.Module) else []
    numpy_state = np.random.get_state()  # noqa: NPY002
    try:
        for weight in weights:
            weight.grad = None
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        for weight, grad in zip(weights, kept, strict=True):
            weight.grad = grad
        for module, training in modes:
            module.training = training


def _steps(attack: Any) -> int:
    for name in ("steps", "max_iter"):
        if isinstance(getattr(attack, name, None), int):
            return int(getattr(attack, name))
    return 1
