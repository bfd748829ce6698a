"""Images in [0, 1] to logits; normalisation lives inside the model."""

from __future__ import annotations

import copy
import importlib
import inspect
import operator
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from classwise.errors import ClasswiseError, OwnCodeError, unknown
from classwise.limits import LARGEST_OPTION, MOST_WEIGHTS
from classwise.models.attention import vit_s_32, vit_s_224, xcit_s12_32, xcit_s12_224
from classwise.models.classifier import Classifier
from classwise.models.densenet import (
    densenet121_32,
    densenet121_224,
    densenet169_32,
    densenet169_224,
)
from classwise.models.extra import with_extra_outputs
from classwise.models.inception import (
    googlenet_32,
    googlenet_224,
    inception_v3_32,
    inception_v3_299,
)
from classwise.models.plain import lenet, vgg16_32, vgg16_224, vgg19_32, vgg19_224
from classwise.models.resnet import (
    preactresnet18,
    preactresnet18_nobn,
    preactresnet18_raw,
    resnet18,
    resnet18_224,
    resnet34_32,
    resnet34_224,
    resnet50,
    resnet50_32,
)
from classwise.models.small import cnn, resnet9
from classwise.models.wideresnet import wrn, wrn_28_10, wrn_34_10, wrn_silu
from classwise.models.zoo import file_may_name, zoo_model, zoo_of
from classwise.spelling import Call, parse_call

MODELS: dict[str, Callable[..., tuple[nn.Module, int]]] = {
    "cnn": cnn,
    "lenet": lenet,
    "resnet9": resnet9,
    "resnet18": resnet18,
    "resnet18-224": resnet18_224,
    "resnet34-32": resnet34_32,
    "resnet34-224": resnet34_224,
    "resnet50": resnet50,
    "resnet50-32": resnet50_32,
    "preactresnet18": preactresnet18,
    "preactresnet18-nobn": preactresnet18_nobn,
    "preactresnet18-raw": preactresnet18_raw,
    "wrn": wrn,
    "wrn-28-10": wrn_28_10,
    "wrn-34-10": wrn_34_10,
    "wrn-silu": wrn_silu,
    "vgg16-32": vgg16_32,
    "vgg16-224": vgg16_224,
    "vgg19-32": vgg19_32,
    "vgg19-224": vgg19_224,
    "densenet121-32": densenet121_32,
    "densenet121-224": densenet121_224,
    "densenet169-32": densenet169_32,
    "densenet169-224": densenet169_224,
    "googlenet-32": googlenet_32,
    "googlenet-224": googlenet_224,
    "inception-v3-32": inception_v3_32,
    "inception-v3-299": inception_v3_299,
    "vit-s-32": vit_s_32,
    "vit-s-224": vit_s_224,
    "xcit-s12-32": xcit_s12_32,
    "xcit-s12-224": xcit_s12_224,
}


def build_model(
    spec: str,
    *,
    num_classes: int,
    channels: int,
    mean: Sequence[float],
    deviation: Sequence[float],
    extra: int = 0,
    head: str = "linear",
    head_scale: float = 1.0,
    head_path: str | None = None,
    seed: int = 0,
) -> nn.Module:
    """Build `cnn`, `resnet18(width=16)`, `timm:NAME` or a user's `module:callable`, seeded.

    `head_path` names the layer of a model of the user's own that grows by `extra` outputs. The
    global random state is left as it was.
    """
    call = parse_call(spec)
    with torch.random.fork_rng(devices=[]):
        zoo = bool(zoo_of(call.name))
        if call.options and ":" not in call.name:
            _check_weights(_built_in(call, spec), call, channels, spec)
        torch.default_generator.manual_seed(seed)  # the CPU stream alone; fork_rng restores it
        if ":" in call.name:
            if call.args:
                raise ClasswiseError(f"{spec}: name the options, as in {call.name}(option=value)")
            if head != "linear":
                raise ClasswiseError(
                    f"{spec}: only built-in models take another head; use one of "
                    f"{', '.join(MODELS)}"
                )
            if zoo:
                own = zoo_model(call, num_classes, channels)
            else:
                own = _own_model(call.name, call.options, num_classes, channels)
            return with_extra_outputs(own, head_path, num_classes, extra) if extra else own
        if head_path is not None:
            raise ClasswiseError(
                f"head={head_path!r}: {call.name} knows its head; leave it out, it is for a model "
                "of your own"
            )
        features, width = _built_in(call, spec)(channels, **call.options)
        return Classifier(
            features,
            width,
            num_classes,
            mean=mean,
            deviation=deviation,
            extra=extra,
            head=head,
            head_scale=head_scale,
        )


def _built_in(call: Call, spec: str) -> Callable[..., tuple[nn.Module, int]]:
    """The maker of a built-in model, which takes the options that were given."""
    if call.name not in MODELS:
        others = ("module:callable", "timm:NAME", "torchvision:NAME", "hf:FOLDER")
        raise unknown("model", call.name, [*MODELS, *others])
    maker = MODELS[call.name]
    known = [name for name in inspect.signature(maker).parameters if name != "channels"]
    if not known and (call.args or call.options):
        raise ClasswiseError(f"{spec}: {call.name} has no options; write just {call.name}")
    for name, value in call.options.items():
        if name not in known:
            raise unknown(f"option of {call.name}", name, known)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 1 <= value <= LARGEST_OPTION:
            raise ClasswiseError(
                f"{call.name}({name}={value!r}): give a whole number from 1 to {LARGEST_OPTION}"
            )
    if call.args:
        raise ClasswiseError(f"{spec}: name the options, as in {call.name}({known[0]}=16)")
    return maker


def _check_weights(
    maker: Callable[..., tuple[nn.Module, int]], call: Call, channels: int, spec: str
) -> None:
    """Refuse a model that is too large to be built, by building it without memory."""
    with torch.device("meta"):
        features, _ = maker(channels, **call.options)
    count = sum(weight.numel() for weight in features.parameters())
    if count > MOST_WEIGHTS:
        raise ClasswiseError(
            f"{spec} has {count} weights; at most {MOST_WEIGHTS} are built, make it smaller"
        )


def names_own_model(spec: str) -> bool:
    """Whether only the user may name it, and no file: `module:callable`, `hf:…`, odd options.

    >>> names_own_model("mine:make(width=2)"), names_own_model("cnn(width=2)")
    (True, False)
    >>> names_own_model("timm:resnet18"), names_own_model("timm:resnet18(checkpoint_path='x')")
    (False, True)
    """
    return ":" in spec.partition("(")[0] and not file_may_name(spec)


def names_built_in(spec: str) -> bool:
    """Whether a spec names an architecture of this package, which normalises by itself."""
    return parse_call(spec).name in MODELS


def import_object(spec: str) -> Any:
    """Import `module:name`, looking in the current folder too."""
    module_name, _, name = spec.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as reason:  # whatever a module of the user's may raise
        missing = reason.name if isinstance(reason, ModuleNotFoundError) else None
        if missing and f"{module_name}.".startswith(f"{missing}."):  # not one that it imports
            raise ClasswiseError(f"{spec}: {reason}; run in the folder that holds it") from None
        raise OwnCodeError.of(f"{spec}: {module_name} cannot be imported", reason) from reason
    try:
        return operator.attrgetter(name)(module)
    except AttributeError:
        known = [n for n in dir(module) if n[0] != "_"]
        raise unknown(f"name in {module_name}", name, known) from None


def _own_model(
    spec: str, options: dict[str, Any], num_classes: int | None, channels: int
) -> nn.Module:
    """Call the user's function with those of our arguments that it names."""
    found = import_object(spec)
    if isinstance(found, nn.Module):
        return copy.deepcopy(found)  # training must not change the object it was given
    if not callable(found):
        raise ClasswiseError(
            f"{spec} is {type(found).__name__}; it must be a model or a function returning one"
        )
    offered = {"num_classes": num_classes, "channels": channels}
    try:
        wanted = inspect.signature(found).parameters
    except ValueError:
        wanted = {}  # type: ignore[assignment]
    chosen = {k: v for k, v in offered.items() if k in wanted} | options
    loose = any(parameter.kind == parameter.VAR_KEYWORD for parameter in wanted.values())
    if loose and num_classes is not None and "num_classes" not in wanted:  # it is handed on
        chosen = {"num_classes": num_classes} | chosen
    for option in chosen:
        if wanted and option not in wanted and not loose:
            raise unknown(f"option of {spec}", option, wanted)
    try:
        model = found(**chosen)
    except Exception as reason:  # whatever a function of the user's may raise
        unwanted = isinstance(reason, TypeError) and "'num_classes'" in str(reason)
        if loose and unwanted and "num_classes" not in {**wanted, **options}:
            return _own_model(spec, options, None, channels)  # nobody behind it takes that one
        raise OwnCodeError.of(f"{spec} failed", reason) from reason
    if not isinstance(model, nn.Module):
        raise ClasswiseError(
            f"{spec} returned {type(model).__name__}; it must return a torch.nn.Module, or be a "
            "function from images to logits, with one parameter that has no default"
        )
    return model
