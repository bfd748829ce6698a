"""Everything about a training run that is not a method."""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from classwise.attacks.ball import parse_norm
from classwise.attacks.names import parse_condition
from classwise.attacks.threat import Threat
from classwise.data.dataset import DataSource
from classwise.data.from_python import GIVEN
from classwise.errors import ClasswiseError, cut, unknown
from classwise.limits import LARGEST_NUMBER
from classwise.models.preparation import Normalisation
from classwise.script import Drop
from classwise.spelling import parse_eps, said_value, split_outside_brackets
from classwise.training.compiling import Compile
from classwise.training.watched import Watched, parse_watched

Numbers = tuple[tuple[float, ...], tuple[float, ...]]  # means and deviations by channel


def _norm(value: str | float) -> str:
    return parse_norm(value).name


def _data(value: Any) -> Any:
    # Of data that are given in Python a run can only say that they were.
    return value.name if isinstance(value, DataSource) else value if type(value) is str else GIVEN


def _words(value: Any) -> Any:
    return tuple(word.strip() for word in value.split(",")) if isinstance(value, str) else value


def _path(value: Any) -> Any:
    return str(value) if isinstance(value, PurePath) else value


def _radius(value: float | str, info: ValidationInfo) -> float:
    return parse_eps(value, parse_norm(info.data.get("norm", "Linf")).too_wide)


def _radius_or_none(value: float | str | None, info: ValidationInfo) -> float | None:
    return None if value is None else _radius(value, info)


def _drops(value: tuple[Drop, ...]) -> tuple[Drop, ...]:
    for drop in value:
        when, factor = drop if isinstance(drop, tuple) else (drop, 0.1)
        if when < 0 or factor <= 0:
            raise ClasswiseError(
                f"drops holds {drop}; give an epoch or a fraction of the run, or a pair "
                "(when, factor) with a factor above 0"
            )
    return value


def _normalising(value: Any) -> Any:
    """A name, or numbers as tuples."""
    if isinstance(value, str):
        return value
    found = Normalisation.of(value)
    return found.mean, found.deviation


def _final(value: float, info: ValidationInfo) -> float:
    schedule, lr = info.data.get("schedule", "cosine"), info.data.get("lr", math.inf)
    if value and schedule != "cosine":
        raise ClasswiseError(
            f"final_lr={value} is where a cosine ends, but the schedule is {schedule}; "
            "set schedule=cosine or leave final_lr out"
        )
    if value > lr:
        raise ClasswiseError(f"final_lr={value} lies above lr={lr}; a cosine falls")
    return value


class TrainConfig(BaseModel):
    """Data, model, threat and optimisation of one run; all of it enters the run's identity."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    data: Annotated[str, BeforeValidator(_data)] = "digits"
    valid: Annotated[str, BeforeValidator(str)] = "0.02"  # split rule: fraction, first:N, last:N
    subset: Annotated[int, Field(ge=0)] = 0  # train on so many images, balanced; 0 is all
    model: str = "cnn"
    teacher_model: str = ""  # architecture of a teacher whose file does not say it, or may not
    # cifar10, imagenet, none or means and deviations, where its file does not say that
    teacher_normalise: Annotated[str | Numbers, BeforeValidator(_normalising)] = ""
    begin: Annotated[str | None, BeforeValidator(_path)] = None  # RUN, RUN@best or weights file
    freeze: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()  # parts that do not train
    norm: Annotated[str, BeforeValidator(_norm)] = "Linf"
    eps: Annotated[float, BeforeValidator(_radius)] = 8 / 255
    # Where validation looks, and so best weights, gates and policies; None is the training eps.
    judge_eps: Annotated[float | None, BeforeValidator(_radius_or_none)] = None
    epochs: Annotated[int, Field(ge=1)] = 30
    batch_size: Annotated[int, Field(ge=1)] = 128
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 0.1
    rates: dict[str, Annotated[float, Field(gt=0, lt=math.inf)]] = {}  # multiples of lr by part
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = False
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    clip: Annotated[float, Field(gt=0)] | None = None  # largest norm of a step's gradient
    # bfloat16: mixed, for recent GPUs; float16: mixed with loss scaling, for older ones
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    compile: Compile = (
        "off"  # by torch; graphs: as CUDA graphs. Like the device not in the identity
    )
    schedule: Literal["step", "cosine", "cyclic", "one-cycle", "constant"] = "step"
    # Epochs counted from 0, or fractions, at which the rate falls: tenfold, or (when, factor).
    drops: Annotated[tuple[Drop, ...], AfterValidator(_drops)] = (0.5, 0.75)
    final_lr: Annotated[float, Field(ge=0), AfterValidator(_final)] = 0.0  # where a cosine ends
    warmup: Annotated[float, Field(ge=0)] = 0  # epochs or fraction in which the rate rises
    eps_warmup: Annotated[float, Field(ge=0)] = 0  # and those in which the attack's radius does
    valid_attack: str = "pgd-10"
    watch: str = ""  # passive looks such as test:clean,test:pgd-20@ema; not part of the identity
    watch_every: Annotated[int, Field(ge=1)] | None = None  # epochs; None: as watch_share allows
    watch_share: Annotated[float, Field(gt=0, le=1)] = 0.1  # of the network passes of training
    keep_every: Annotated[int, Field(ge=0)] = 0  # keep the weights of every Nth epoch, too
    seed: Annotated[int, Field(ge=0)] = 0

    def __init__(self, **options: Any) -> None:
        for option in options:
            if option not in type(self).model_fields:
                raise unknown("training option", option, type(self).model_fields)
            value = options[option]
            if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
                raise ClasswiseError(
                    f"{option} is {said_value(value)}; give at most {LARGEST_NUMBER}"
                )
        try:
            super().__init__(**options)
        except ValidationError as reason:
            first = reason.errors()[0]
            own = first.get("ctx", {}).get("error")
            if isinstance(own, ClasswiseError):
                raise own from None
            where = ".".join(str(part) for part in first["loc"])
            got = cut(repr(first["input"]))
            raise ClasswiseError(f"{where}={got}: {first['msg'].lower()}") from None

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Self:
        for name in ("warmup", "eps_warmup"):
            if getattr(self, name) >= self.epochs:
                raise ClasswiseError(
                    f"{name}={getattr(self, name):g} does not end within {self.epochs} epochs; "
                    "give fewer epochs, or a fraction below 1"
                )
        return self

    @model_validator(mode="after")
    def _nothing_is_given_and_not_used(self) -> Self:
        plain, watching = type(self).model_fields, "watch=SPLIT:ATTACK"
        for name, needed, unused in (
            ("momentum", "optimiser=sgd", self.optimiser != "sgd"),
            ("nesterov", "optimiser=sgd", self.optimiser != "sgd"),
            ("drops", "schedule=step", self.schedule != "step"),
            ("watch_every", watching, not self.watch),
            ("watch_share", f"{watching} without watch_every", self.watch_every or not self.watch),
            ("keep_every", f"at most {self.epochs} epochs", self.keep_every > self.epochs),
        ):
            if unused and getattr(self, name) not in (plain[name].default, ()):
                raise ClasswiseError(
                    f"{name}={getattr(self, name)} has no effect here; it needs {needed}, or "
                    "leave it out"
                )
        return self

    @property
    def eps_of_judge(self) -> float:
        """The one radius, for every class, at which the model is judged."""
        return self.eps if self.judge_eps is None else self.judge_eps

    @property
    def watched(self) -> list[Watched]:
        """What to look at, passively; an attack without a radius of its own has the judge's."""
        pieces = split_outside_brackets(self.watch, ",") if self.watch else []
        found = [parse_watched(piece) for piece in pieces]
        threat = Threat.of(self.eps_of_judge, self.norm)
        for one in found:
            parse_condition(one.seen.attack, threat)  # a radius too wide for the norm is refused
        return found


def configured(config: TrainConfig | None, options: dict[str, Any]) -> TrainConfig:
    """A configuration with some options changed, or one made of options alone."""
    return TrainConfig(**{**({} if config is None else config.model_dump()), **options})


def choose_device(name: str) -> torch.device:
    """Take the device asked for, or the best there is."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:  # torch lists twenty kinds, most of which nobody has
        raise ClasswiseError(
            f"device {cut(name)!r} is not known; write auto, cpu, cuda, cuda:1 or mps"
        ) from None
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as reason:
        words = str(reason).splitlines()[0]
        raise ClasswiseError(f"device {name!r} cannot be used ({words}); try auto or cpu") from None
    return device
