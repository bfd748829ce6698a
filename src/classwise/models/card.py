"""What a file may say of its model, and the model that it then gets: nothing is run or believed.

Weights files and run folders come from strangers. They may name this package's own architectures,
with small whole numbers as options, or those of timm and torchvision by name, and no more; `hf:…`
and `module:callable` are for the person at the keyboard. The model is first built without memory
and compared with the tensors that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor, nn

from classwise.errors import ClasswiseError, unknown
from classwise.limits import LARGEST_OPTION, MOST_CLASSES
from classwise.models import MODELS, build_model, names_own_model
from classwise.models.misfits import Misfits
from classwise.models.zoo import with_weights, zoo_of
from classwise.spelling import parse_call


class NetworkCard(BaseModel):
    """The description of a network in a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    spec: Annotated[str, Field(max_length=200)]
    num_classes: Annotated[int, Field(ge=1, le=MOST_CLASSES)]
    channels: Annotated[int, Field(ge=1, le=LARGEST_OPTION)]
    mean: list[float]
    deviation: list[Annotated[float, Field(gt=0)]]
    extra: Annotated[int, Field(ge=0, le=LARGEST_OPTION)] = 0
    head: Literal["linear", "cosine"] = "linear"
    head_scale: float = 1.0
    head_path: Annotated[str, Field(max_length=200)] | None = None  # of a user's own model

    @model_validator(mode="after")
    def _one_number_per_channel(self) -> NetworkCard:
        if not len(self.mean) == len(self.deviation) == self.channels:
            raise ValueError("mean and deviation need one number per channel")
        return self


def read_card(found: Any, where: str) -> NetworkCard:
    """Check a file's words about its network."""
    try:
        return NetworkCard.model_validate(found)
    except ValidationError as reason:
        first = reason.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "network"
        raise ClasswiseError(
            f"{where} does not describe a network of ours: {field}: {first['msg'].lower()}"
        ) from None


def model_of_card(
    card: NetworkCard, tensors: Mapping[str, Tensor], where: str, named: str | None = None
) -> nn.Module:
    """Build the model of a file with its tensors; `named` is the spec that the user gave, if any.

    A file whose model is `module:callable` is opened only if the user names that again.
    """
    if names_own_model(card.spec):
        if named is None or not names_own_model(named):
            raise ClasswiseError(
                f"{where} says its model is {card.spec!r}, and a file may not import anything, nor "
                "fetch it; if you know that code, name it yourself: --model MODULE:CALLABLE "
                "(in Python: spec='MODULE:CALLABLE')"
            )
        return _filled(_built(card, named), tensors, where)
    if named is not None and named != card.spec:
        raise ClasswiseError(
            f"{where} was made with {card.spec}, not {named}; leave out --model {named}"
        )
    if not zoo_of(card.spec):
        _check_options(card.spec, where)
    spec = with_weights(card.spec, False) if zoo_of(card.spec) else card.spec  # nothing is fetched
    # Without memory first: a description may ask for more than there is, its tensors do not.
    try:
        with torch.device("meta"):
            empty = _built(card, spec)
    except ClasswiseError as reason:
        raise ClasswiseError(f"{where} describes a model that is not built: {reason}") from None
    _compare(empty.state_dict(), tensors, where)
    return _filled(_built(card, spec), tensors, where)


def _built(card: NetworkCard, spec: str) -> nn.Module:
    return build_model(**{**card.model_dump(), "spec": spec})


def _check_options(spec: str, where: str) -> None:
    call = parse_call(spec)
    if call.name not in MODELS:
        raise unknown(f"model in {where}", call.name, MODELS)
    for name, value in call.options.items():
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or not 1 <= value <= LARGEST_OPTION
        ):
            raise ClasswiseError(
                f"{where} asks for {call.name}({name}={value!r}); a file may give whole numbers "
                f"from 1 to {LARGEST_OPTION}"
            )


def _compare(wanted: Mapping[str, Tensor], there: Mapping[str, Tensor], where: str) -> None:
    """Refuse tensors that are not those of the model: missing, left over or of another shape."""
    misfits = Misfits.of(wanted, there)
    if misfits:
        raise ClasswiseError(f"{where} does not fit its own model: {misfits.words}")


def _filled(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> nn.Module:
    _compare(model.state_dict(), tensors, where)
    model.load_state_dict(tensors)
    return model.eval()
