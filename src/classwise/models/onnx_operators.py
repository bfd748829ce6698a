"""Operators of an ONNX graph that work number by number, or over an axis."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.models.onnx_graph import Flow, Known, Step, Translator, Value
from classwise.models.onnx_wire import KINDS, NotTranslated, Unreadable


def one_by_one(function: Callable[..., Tensor]) -> Translator:
    """Each number by itself, or with the one in the same place of another tensor."""

    def translate(step: Step) -> Value:
        given = [step.value(number) for number in range(len(step.inputs))]
        return step.emit(function, *given)

    return translate


def folded(function: Callable[..., Any], mean: bool = False) -> Translator:
    """Any number of tensors, one after the other."""

    def translate(step: Step) -> Value:
        given = [step.value(number) for number in range(len(step.inputs))]
        found = reduce(lambda one, other: step.emit(function, one, other), given)
        return step.emit(operator.truediv, found, len(given)) if mean else found

    return translate


def divide(step: Step) -> Value:
    """Whole numbers are divided without a rest."""
    whole = not step.value(0).values[0].is_floating_point()
    return step.emit(_whole_division if whole else operator.truediv, step.value(0), step.value(1))


def _whole_division(one: Tensor, other: Tensor) -> Tensor:
    return torch.div(one, other, rounding_mode="trunc")


def clip(step: Step) -> Value:
    """Numbers within limits; 0 and 6 are ReLU6."""
    low, high = (_limit(step, name, number) for number, name in enumerate(("min", "max"), 1))
    if (low, high) == (0.0, 6.0) and isinstance(step.value(), Flow):
        return step.emit(nn.ReLU6(), step.value())
    if low is None and high is None:
        return step.value()
    return step.emit(torch.clamp, step.value(), low, high)


def _limit(step: Step, name: str, number: int) -> float | int | None:
    if step.has(number):
        found: float | int = step.constant(number).item()
        return found
    given = step.option(name)
    return None if given is None else float(given)


def leaky(step: Step) -> Value:
    """LeakyRelu."""
    return step.emit(F.leaky_relu, step.value(), float(step.option("alpha", 0.01)))


def elu(step: Step) -> Value:
    """Elu."""
    return step.emit(F.elu, step.value(), float(step.option("alpha", 1.0)))


def hard_sigmoid(step: Step) -> Value:
    """max(0, min(1, α·x + β))."""
    alpha, beta = float(step.option("alpha", 0.2)), float(step.option("beta", 0.5))
    line = step.emit(operator.add, step.emit(operator.mul, step.value(), alpha), beta)
    return step.emit(torch.clamp, line, 0.0, 1.0)


def gelu(step: Step) -> Value:
    """Gelu, exactly or by tanh."""
    kind = step.option("approximate", "none")
    if kind not in ("none", "tanh"):
        raise Unreadable(f"Gelu by {kind!r}")
    return step.emit(nn.GELU(kind), step.value())


def _prelu(values: Tensor, slope: Tensor) -> Tensor:
    return torch.where(values > 0, values, slope * values)


def softmax(function: Callable[..., Tensor]) -> Translator:
    """Over one axis; before opset 13 over all axes from there on."""

    def translate(step: Step) -> Value:
        shape, new = step.shape(), step.opset >= 13
        axis = step.axis(int(step.option("axis", -1 if new else 1)))
        if new or axis == len(shape) - 1:
            return step.emit(function, step.value(), axis)
        flat = step.emit(torch.flatten, step.value(), axis)
        return step.emit(torch.unflatten, step.emit(function, flat, -1), axis, shape[axis:])

    return translate


def over_axes(function: Callable[..., Tensor]) -> Translator:
    """A sum, mean, … over some axes, or over all."""

    def translate(step: Step) -> Value:
        axes = step.numbers("axes", 1)
        if not axes and step.option("noop_with_empty_axes", 0):
            return step.value()
        every = list(range(len(step.shape())))
        axes = sorted(step.axis(one) for one in axes) if axes else every
        return step.emit(function, step.value(), axes, bool(step.option("keepdims", 1)))

    return translate


def _norm(values: Tensor, axes: list[int], keep: bool) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(values, 2, axes, keep)
    return norm


def _product(values: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        values = torch.prod(values, axis, keep)
    return values


def cast(step: Step) -> Value:
    """Another kind of numbers, by its name."""
    kind = KINDS.get(int(step.option("to", 0)))
    if kind is None:
        raise NotTranslated(f"Cast to numbers of kind {step.option('to')}")
    return _of_kind(step, kind)


def cast_like(step: Step) -> Value:
    """The kind of numbers that another tensor has."""
    return _of_kind(step, step.value(1).values[0].dtype)


def _of_kind(step: Step, kind: torch.dtype) -> Value:
    """Another kind of numbers; images stay fractions, or their slope would be gone."""
    if isinstance(step.value(), Flow) and not kind.is_floating_point:
        raise NotTranslated(f"{step.node.operator} to {kind}")
    if step.value().values[0].dtype == kind:
        return step.value()
    return step.emit(Tensor.to, step.value(), kind)


def dropout(step: Step) -> Value:
    """Nothing: a network is audited as it is used."""
    if step.has(2) and bool(step.constant(2).any()):
        raise NotTranslated("Dropout in training mode")
    return step.value()


def identity(step: Step) -> Value:
    """The same value."""
    return step.value()


def constant(step: Step) -> Value:
    """A tensor, or plain numbers."""
    kinds = {"value_float": torch.float32, "value_int": torch.int64}
    kinds |= {"value_floats": torch.float32, "value_ints": torch.int64}
    for name, kind in kinds.items():
        if name in step.node.attributes:
            return Known.always(torch.tensor(step.option(name), dtype=kind))
    value = step.option("value")
    if not isinstance(value, Tensor):
        raise NotTranslated(f"Constant by {', '.join(step.node.attributes)}")
    return Known.always(value)


def einsum(step: Step) -> Value:
    """A sum of products by its letters."""
    given = [step.value(number) for number in range(len(step.inputs))]
    return step.emit(torch.einsum, str(step.option("equation", "")), given)


def _resized_to(step: Step) -> list[int]:
    """Height and width that come out, if they are an exact multiple of what comes in."""
    shape = step.shape()
    if len(shape) != 4 or step.option("antialias", 0) or step.option("axes") is not None:
        raise NotTranslated(f"{step.node.operator} of this kind")
    if step.has(3):
        sizes = step.value(3)
        both = [[int(side) for side in value.flatten()[1:]] for value in sizes.values]
        if isinstance(sizes, Flow) or both[0] != both[1] or both[0][0] != shape[1]:
            raise NotTranslated("Resize to computed sizes")
        return both[0][1:]
    given = step.option("scales")
    scales = step.constant(len(step.inputs) - 1).flatten().tolist() if given is None else given
    found = [side * by for side, by in zip(shape, scales, strict=True)]
    if list(scales[:2]) != [1.0, 1.0] or any(side != int(side) for side in found):
        raise NotTranslated(f"{step.node.operator} by {scales}")
    return [int(side) for side in found[2:]]


def resize(step: Step) -> Value:
    """Larger or smaller images, in the ways that torch has, too."""
    mode, old = step.option("mode", "nearest"), step.node.operator == "Upsample"
    usual = "asymmetric" if old or step.opset < 11 else "half_pixel"
    how = step.option("coordinate_transformation_mode", usual)
    rounded = step.option("nearest_mode", "floor" if usual == "asymmetric" else "")
    sides = _resized_to(step)
    if mode == "nearest" and (how == "half_pixel" or (how, rounded) == ("asymmetric", "floor")):
        if any(n % side for n, side in zip(sides, step.shape()[2:], strict=True)):
            raise NotTranslated("Resize to no whole multiple")
        return step.emit(nn.Upsample(tuple(sides), mode="nearest"), step.value())
    if mode == "linear" and how in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        corners = how == "align_corners"
        layer = nn.Upsample(tuple(sides), mode="bilinear", align_corners=corners)
        return step.emit(layer, step.value())
    raise NotTranslated(f"{step.node.operator} by {mode}, {how}")


OPERATORS: dict[str, Translator] = {
    **{"Abs": one_by_one(torch.abs), "Add": one_by_one(operator.add)},
    **{"And": one_by_one(torch.logical_and), "Ceil": one_by_one(torch.ceil)},
    **{"Cos": one_by_one(torch.cos), "Equal": one_by_one(torch.eq)},
    **{"Erf": one_by_one(torch.erf), "Exp": one_by_one(torch.exp)},
    **{"Floor": one_by_one(torch.floor), "Greater": one_by_one(torch.gt)},
    **{"GreaterOrEqual": one_by_one(torch.ge), "HardSwish": one_by_one(F.hardswish)},
    **{"Less": one_by_one(torch.lt), "LessOrEqual": one_by_one(torch.le)},
    **{"Log": one_by_one(torch.log), "Mish": one_by_one(F.mish)},
    **{"Mul": one_by_one(operator.mul), "Neg": one_by_one(torch.neg)},
    **{"Not": one_by_one(torch.logical_not), "Or": one_by_one(torch.logical_or)},
    **{"PRelu": one_by_one(_prelu), "Pow": one_by_one(torch.pow)},
    **{"Reciprocal": one_by_one(torch.reciprocal), "Relu": one_by_one(torch.relu)},
    **{"Round": one_by_one(torch.round), "Sigmoid": one_by_one(torch.sigmoid)},
    **{"Sign": one_by_one(torch.sign), "Sin": one_by_one(torch.sin)},
    **{"Softplus": one_by_one(F.softplus), "Softsign": one_by_one(F.softsign)},
    **{"Sqrt": one_by_one(torch.sqrt), "Sub": one_by_one(operator.sub)},
    **{"Tanh": one_by_one(torch.tanh), "Where": one_by_one(torch.where)},
    **{"Max": folded(torch.maximum), "Min": folded(torch.minimum)},
    **{"Sum": folded(operator.add), "Mean": folded(operator.add, mean=True)},
    **{"LogSoftmax": softmax(torch.log_softmax), "Softmax": softmax(torch.softmax)},
    **{"ReduceL2": over_axes(_norm), "ReduceMax": over_axes(torch.amax)},
    **{"ReduceMean": over_axes(torch.mean), "ReduceMin": over_axes(torch.amin)},
    **{"ReduceProd": over_axes(_product), "ReduceSum": over_axes(torch.sum)},
    **{"Cast": cast, "CastLike": cast_like, "Clip": clip, "Constant": constant},
    **{"Div": divide, "Dropout": dropout},
    **{"Einsum": einsum, "Elu": elu, "Gelu": gelu, "HardSigmoid": hard_sigmoid},
    **{"Identity": identity, "LeakyRelu": leaky, "Resize": resize, "Upsample": resize},
}
