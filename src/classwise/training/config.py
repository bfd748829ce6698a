"""Everything about a training run that is not a method."""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from classwise.attacks.ball import parse_norm
from classwise.attacks.named import parse_attacks
from classwise.classes.settings import Seen
from classwise.errors import ClasswiseError, unknown
from classwise.spelling import parse_eps, split_outside_brackets


def _norm(value: str | float) -> str:
    return parse_norm(value).name


def _words(value: Any) -> Any:
    return tuple(word.strip() for word in value.split(",")) if isinstance(value, str) else value


def _path(value: Any) -> Any:
    return str(value) if isinstance(value, PurePath) else value


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
    begin: Annotated[str | None, BeforeValidator(_path)] = None  # RUN, RUN@best or weights file
    freeze: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()  # parts that do not train
    norm: Annotated[str, BeforeValidator(_norm)] = "Linf"
    eps: Annotated[float, BeforeValidator(_radius)] = 8 / 255
    epochs: Annotated[int, Field(ge=0)] = 30
    batch_size: Annotated[int, Field(ge=1)] = 128
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 0.1
    rates: dict[str, Annotated[float, Field(gt=0, lt=math.inf)]] = {}  # multiples of lr by part
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = False
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    clip: Annotated[float, Field(gt=0)] | None = None  # largest norm of a step's gradient
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: mixed, for recent GPUs
    schedule: Literal["step", "cosine", "cyclic", "one-cycle", "constant"] = "step"
    drops: tuple[float, ...] = (0.5, 0.75)  # epochs or fractions at which the rate falls tenfold
    warmup: Annotated[float, Field(ge=0)] = 0  # epochs or fraction in which the rate rises
    eps_warmup: Annotated[float, Field(ge=0)] = 0  # and those in which the attack's radius does
    valid_attack: str = "pgd-10"
    watch: str = ""  # passive looks such as test:clean,test:pgd-20; not part of the identity
    watch_every: Annotated[int, Field(ge=1)] = 1  # epochs
    keep_every: Annotated[int, Field(ge=0)] = 0  # keep the weights of every Nth epoch, too
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

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Self:
        for name in ("warmup", "eps_warmup"):
            if self.epochs and getattr(self, name) >= self.epochs:
                raise ClasswiseError(
                    f"{name}={getattr(self, name):g} does not end within {self.epochs} epochs; "
                    "give fewer epochs, or a fraction below 1"
                )
        return self

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
