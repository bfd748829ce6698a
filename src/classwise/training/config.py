"""Everything about a training run that is not a method."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
)
from torch import nn

from classwise.attacks.ball import parse_norm
from classwise.attacks.named import parse_attacks
from classwise.classes.settings import Seen
from classwise.errors import ClasswiseError, unknown
from classwise.spelling import parse_eps, split_outside_brackets


def _norm(value: str | float) -> str:
    return parse_norm(value).name


def _radius(value: float | str, info: ValidationInfo) -> float:
    return parse_eps(value, info.data.get("norm", "Linf"))


class TrainConfig(BaseModel):
    """Data, model, threat and optimisation of one run; all of it enters the run's identity."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    data: str = "digits"
    valid: Annotated[str, BeforeValidator(str)] = "0.02"  # split rule: fraction, first:N, last:N
    subset: Annotated[int, Field(ge=0)] = 0  # train on so many images, balanced; 0 is all
    model: str = "cnn"
    teacher_model: str = ""  # module:callable of a teacher that was made with one
    norm: Annotated[str, BeforeValidator(_norm)] = "Linf"
    eps: Annotated[float, BeforeValidator(_radius)] = 8 / 255
    epochs: Annotated[int, Field(ge=1)] = 30
    batch_size: Annotated[int, Field(ge=1)] = 128
    optimiser: Literal["sgd", "adamw"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = False
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    clip: Annotated[float, Field(gt=0)] | None = None  # largest norm of a step's gradient
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: mixed, for recent GPUs
    schedule: Literal["step", "cosine", "cyclic", "one-cycle", "constant"] = "step"
    drops: tuple[float, ...] = (0.5, 0.75)  # epochs or fractions at which the rate falls tenfold
    valid_attack: str = "pgd-10"
    watch: str = ""  # passive looks such as test:clean,test:pgd-20; not part of the identity
    watch_every: Annotated[int, Field(ge=1)] = 1  # epochs
    seed: Annotated[int, Field(ge=0)] = 0

    def __init__(self, **options: Any) -> None:
        for option in options:
            if option not in type(self).model_fields:
                raise unknown("training option", option, type(self).model_fields)
        try:
            super().__init__(**options)
        except ValidationError as reason:
            first = reason.errors()[0]
            own = first.get("ctx", {}).get("error")
            if isinstance(own, ClasswiseError):
                raise own from None
            where = ".".join(str(part) for part in first["loc"])
            raise ClasswiseError(f"{where}={first['input']!r}: {first['msg'].lower()}") from None

    @property
    def watched(self) -> list[Seen]:
        """Splits and attacks to look at, passively."""
        found = []
        for piece in split_outside_brackets(self.watch, ",") if self.watch else []:
            split, colon, attack = piece.strip().partition(":")
            if not colon or split not in ("train", "test"):
                raise ClasswiseError(
                    f"watch {piece!r}: write SPLIT:ATTACK with train or test, as in test:pgd-20"
                )
            found += [Seen(split, one.name) for one in parse_attacks([attack])]
        return found


def learning_rate(config: TrainConfig, epoch: float) -> float:
    """Rate at a (fractional) epoch.

    >>> config = TrainConfig(epochs=200)
    >>> [round(learning_rate(config, e), 4) for e in (0, 99.9, 100, 150)]
    [0.1, 0.1, 0.01, 0.001]
    """
    if config.schedule == "constant":
        return config.lr
    share = epoch / max(1, config.epochs)
    if config.schedule == "cosine":
        return config.lr * (1 + math.cos(math.pi * share)) / 2
    if config.schedule == "cyclic":  # straight up for two fifths of the run, straight down to 0
        return config.lr * (share / 0.4 if share < 0.4 else (1 - share) / 0.6)
    if config.schedule == "one-cycle":  # half a cosine up from lr / 25, half a cosine down to 0
        if share < 0.3:
            return config.lr * (1 - 0.96 * (1 + math.cos(math.pi * share / 0.3)) / 2)
        return config.lr * (1 + math.cos(math.pi * (share - 0.3) / 0.7)) / 2
    # Not rounded to whole epochs: a run of one epoch must not begin with a rate already dropped.
    passed = sum(epoch >= (drop * config.epochs if drop < 1 else drop) for drop in config.drops)
    return config.lr * 0.1**passed


def make_optimiser(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Weight decay on all parameters, as the papers' code does."""
    if config.optimiser == "adamw":
        return torch.optim.AdamW(model.parameters(), config.lr, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        model.parameters(),
        config.lr,
        config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov,
    )


def choose_device(name: str) -> torch.device:
    """Take the device asked for, or the best there is."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as reason:
        words = str(reason).splitlines()[0]
        raise ClasswiseError(f"device {name!r} cannot be used ({words}); try auto or cpu") from None
    return device
