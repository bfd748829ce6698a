"""Attacks of torchattacks, foolbox and ART, and plain functions, as conditions of an audit."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from classwise.attacks.borrowed import borrowed_generators
from classwise.attacks.condition import Traits
from classwise.attacks.judged import STANDING, Judged, Tell
from classwise.attacks.losses import LogitGap
from classwise.attacks.threat import Threat
from classwise.errors import ClasswiseError
from classwise.models.averaged import Averaged
from classwise.models.subject import Subject
from classwise.spelling import is_plain, spell_eps
from classwise.types import Batch, Images, LogitModel, PerSample

_OTHER = Traits("other")
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
    traits: Traits = _OTHER
    verdict: str = "last"
    needs_gradient: bool = True
    by_batch: bool = True

    @property
    def identity(self) -> str:
        """Its name with all its settings, also those that are no numbers."""
        own = getattr(self.attack, "__dict__", {})
        plain = {key: value for key, value in own.items() if is_plain(value)}
        if not plain:
            raise ClasswiseError(
                f"a ledger must know an attack again, and {self.name} shows no settings; "
                "audit without a folder, or make it an object with its settings as attributes"
            )
        return f"{self.name}{sorted(plain.items())!r}"

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
        self, subject: Subject, batch: Batch, threat: Threat, seed: int, tell: Tell
    ) -> Judged:
        """Judge the images it returns, `subject.width` at a time."""
        parts = []
        for rows in torch.split(
            torch.arange(len(batch), device=batch.labels.device), subject.width
        ):
            part = Batch(batch.images[rows], batch.labels[rows], batch.index[rows])
            parts.append(self._moved(subject.logits, part, threat, seed))
        images = torch.cat(parts)
        logits = subject.ask(images)
        standing = logits.argmax(1) == batch.labels
        tell(self.name, standing)
        return Judged(
            logits.argmax(1),
            -LogitGap(batch.labels)(logits),
            torch.full_like(batch.labels, _steps(self.attack), dtype=torch.int32),
            torch.where(standing, STANDING, 0),
            (self.name,),
            images,
        )

    def _moved(self, model: LogitModel, batch: Batch, threat: Threat, seed: int) -> Images:
        """The images it finds inside the ball, and the original ones elsewhere."""
        radius, ball = threat.like(batch.images, batch.index), threat.ball
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
    try:
        for weight in weights:
            weight.grad = None
        with borrowed_generators(seed):
            yield
    finally:
        for weight, grad in zip(weights, kept, strict=True):
            weight.grad = grad
        for module, training in modes:
            module.training = training


def _steps(attack: Any) -> int:
    for name in ("steps", "max_iter"):
        if isinstance(getattr(attack, name, None), int):
            return int(getattr(attack, name))
    return 1
