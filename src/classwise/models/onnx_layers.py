"""Layers of an ONNX graph that are layers of torch's, too: convolutions, poolings, norms."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from classwise.models.onnx_graph import Flow, Known, Step, Translator, Value
from classwise.models.onnx_wire import NotTranslated, Unreadable


def _sides(step: Step, name: str, otherwise: int = 1) -> tuple[int, int]:
    """Two numbers, for height and width."""
    found = step.option(name) or [otherwise] * 2
    if len(found) != 2:
        raise NotTranslated(f"{step.node.operator} with {name} {found}")
    return int(found[0]), int(found[1])


def _flat(step: Step) -> tuple[int, int]:
    """Height and width of what comes in."""
    shape = step.shape()
    if len(shape) != 4:
        raise NotTranslated(f"{step.node.operator} of {len(shape) - 2} dimensions")
    return shape[2], shape[3]


def _pads(
    step: Step, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """How much is put before and behind: (top, left), (bottom, right)."""
    how = step.option("auto_pad", "NOTSET") or "NOTSET"
    if how in ("NOTSET", "VALID"):
        given = step.option("pads") if how == "NOTSET" else None
        given = given or [0] * 4
        if len(given) != 4 or min(given) < 0:
            raise NotTranslated(f"{step.node.operator} with pads {given}")
        return (given[0], given[1]), (given[2], given[3])
    if how not in ("SAME_UPPER", "SAME_LOWER"):
        raise Unreadable(f"{step.node.operator} pads {how!r}")
    before, behind = [], []
    for side, k, s, d in zip(_flat(step), kernel, stride, dilation, strict=True):
        whole = max((-(-side // s) - 1) * s + (k - 1) * d + 1 - side, 0)
        small, large = whole // 2, whole - whole // 2
        before.append(small if how == "SAME_UPPER" else large)
        behind.append(large if how == "SAME_UPPER" else small)
    return (before[0], before[1]), (behind[0], behind[1])


def _padded(
    step: Step, before: tuple[int, int], behind: tuple[int, int], value: float = 0.0
) -> Value:
    """The first input with a border."""
    if not any(before + behind):
        return step.value()
    border = (before[1], behind[1], before[0], behind[0])
    return step.emit(F.pad, step.value(), border, "constant", value)


def _positive(*sides: int) -> None:
    if min(sides) < 1:
        raise Unreadable(f"a layer has sides or steps {sides}")


def conv(step: Step) -> Value:
    """A convolution; borders that are not the same on both sides are put on before it."""
    _flat(step)
    weight = step.constant(1)
    bias = step.constant(2) if step.has(2) else None
    stride, dilation = _sides(step, "strides"), _sides(step, "dilations")
    groups = int(step.option("group", 1))
    if weight.dim() != 4:
        raise Unreadable(f"Conv has weights of shape {tuple(weight.shape)}")
    kernel = weight.shape[2], weight.shape[3]
    _positive(*stride, *dilation, *weight.shape, groups)
    before, behind = _pads(step, kernel, stride, dilation)
    same = before == behind
    value = step.value() if same else _padded(step, before, behind)
    layer = nn.Conv2d(
        weight.shape[1] * groups,
        weight.shape[0],
        kernel,
        stride,
        before if same else 0,
        dilation,
        groups,
        bias is not None,
        device="meta",
        dtype=weight.dtype,
    )
    weights = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    return step.emit(_fits(layer, weights), value, **weights)


def _fits(layer: nn.Module, weights: dict[str, Any]) -> nn.Module:
    """The layer, if the weights are such as it takes."""
    for name, value in weights.items():
        wanted = getattr(layer, name)
        if wanted.shape != value.shape:
            raise Unreadable(
                f"{type(layer).__name__} has a {name} of shape {tuple(value.shape)}, not "
                f"{tuple(wanted.shape)}"
            )
    return layer


def _linear(step: Step, value: Value, weight: torch.Tensor, bias: torch.Tensor | None) -> Value:
    sides = weight.shape[1], weight.shape[0]
    layer = nn.Linear(*sides, bias=bias is not None, device="meta", dtype=weight.dtype)
    weights = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    return step.emit(layer, value, **weights)


def matmul(step: Step) -> Value:
    """A product of matrices; a linear layer where the second one is known."""
    first, second = step.value(0), step.value(1)
    if isinstance(first, Flow) and isinstance(second, Known) and second.values[0].dim() == 2:
        return _linear(step, first, step.constant(1).T.contiguous(), None)
    return step.emit(torch.matmul, first, second)


def gemm(step: Step) -> Value:
    """α·A·B + β·C, where A and B may be turned; a linear layer where B and C are known."""
    alpha, beta = float(step.option("alpha", 1.0)), float(step.option("beta", 1.0))
    first, second = step.value(0), step.value(1)
    if step.option("transA", 0):
        first = step.emit(torch.t, first)
    if isinstance(second, Known) and isinstance(first, Flow):
        weight = step.constant(1)
        if weight.dim() != 2:
            raise Unreadable(f"Gemm has weights of shape {tuple(weight.shape)}")
        weight = alpha * (weight if step.option("transB", 0) else weight.T).contiguous()
        rest = step.value(2) if step.has(2) else None
        if rest is None:
            return _linear(step, first, weight, None)
        if isinstance(rest, Known) and rest.values[0].numel() in (1, len(weight)):
            bias = (beta * step.constant(2).flatten()).expand(len(weight)).contiguous()
            return _linear(step, first, weight, bias)
    if step.option("transB", 0):
        second = step.emit(torch.t, second)
    product = step.emit(operator.mul, step.emit(torch.matmul, first, second), alpha)
    if not step.has(2):
        return product
    return step.emit(operator.add, product, step.emit(operator.mul, step.value(2), beta))


def batch_norm(step: Step) -> Value:
    """BatchNormalization by running statistics."""
    if step.option("training_mode", 0) or not step.option("spatial", 1):
        raise NotTranslated("BatchNormalization by the statistics of the batch")
    names = ("weight", "bias", "running_mean", "running_var")
    weights = {name: step.constant(number) for number, name in enumerate(names, 1)}
    kind = nn.BatchNorm2d if len(step.shape()) == 4 else nn.BatchNorm1d
    layer = kind(
        weights["weight"].numel(),
        eps=float(step.option("epsilon", 1e-5)),
        device="meta",
        dtype=weights["weight"].dtype,
    ).eval()
    layer.num_batches_tracked = torch.tensor(0)  # nobody counts them here
    return step.emit(_fits(layer, weights), step.value(), **weights)


def _pool_sides(step: Step) -> tuple[Any, Any, Any, Any, Any, list[int]]:
    """Kernel, stride, dilation, borders before and behind, and the sides that come out."""
    kernel, stride = _sides(step, "kernel_shape"), _sides(step, "strides")
    dilation = _sides(step, "dilations")
    _positive(*kernel, *stride, *dilation)
    before, behind = _pads(step, kernel, stride, dilation)
    up = bool(step.option("ceil_mode", 0))
    out = []
    for side, k, s, d, a, b in zip(
        _flat(step), kernel, stride, dilation, before, behind, strict=True
    ):
        room = side + a + b - (k - 1) * d - 1
        many = (-(-room // s) if up else room // s) + 1
        # a window must not begin in the border behind the image
        out.append(many - 1 if up and (many - 1) * s >= side + a else many)
    return kernel, stride, dilation, before, behind, out


def _cropped(step: Step, value: Value, sides: list[int]) -> Value:
    if list(value.values[0].shape[2:]) == sides:
        return value
    whole = (slice(None), slice(None), slice(0, sides[0]), slice(0, sides[1]))
    made = step.emit(operator.getitem, value, whole)
    if list(made.values[0].shape[2:]) != sides:
        raise NotTranslated(f"{step.node.operator} with such a border")
    return made


def max_pool(step: Step) -> Value:
    """The largest number in each window."""
    kernel, stride, dilation, before, behind, out = _pool_sides(step)
    up = bool(step.option("ceil_mode", 0))
    plain = before == behind and all(2 * a <= k for a, k in zip(before, kernel, strict=True))
    value = step.value() if plain else _padded(step, before, behind, float("-inf"))
    layer = nn.MaxPool2d(kernel, stride, before if plain else 0, dilation, ceil_mode=up)
    return _cropped(step, step.emit(layer, value), out)


def average_pool(step: Step) -> Value:
    """The mean of each window; whether the border counts is up to the file."""
    kernel, stride, dilation, before, behind, out = _pool_sides(step)
    if dilation != (1, 1):
        raise NotTranslated("AveragePool with dilations")
    up, counted = (bool(step.option(name, 0)) for name in ("ceil_mode", "count_include_pad"))
    plain = before == behind and all(2 * a <= k for a, k in zip(before, kernel, strict=True))
    if plain and not up:
        return step.emit(nn.AvgPool2d(kernel, stride, before, False, counted), step.value())
    sums = nn.AvgPool2d(kernel, stride, 0, up, divisor_override=1)
    border = (before[1], behind[1], before[0], behind[0])
    like = step.value().values[0]
    if like[0, 0].numel() > 1 << 24:
        raise NotTranslated("AveragePool of images of such a size")
    ones = F.pad(torch.ones(1, 1, *_flat(step), dtype=like.dtype), border, value=float(counted))
    count = Known.always(sums(ones)[:, :, : out[0], : out[1]].clone())
    found = _cropped(step, step.emit(sums, _padded(step, before, behind)), out)
    return step.emit(operator.truediv, found, count)


def over_all(layer: type[nn.Module]) -> Translator:
    """A pooling over the whole image."""

    def translate(step: Step) -> Value:
        _flat(step)
        return step.emit(layer(1), step.value())

    return translate


def layer_norm(step: Step) -> Value:
    """LayerNormalization over the last axes."""
    axis = step.axis(int(step.option("axis", -1)))
    if not axis:
        raise NotTranslated("LayerNormalization over the batch")
    sides, eps = list(step.shape()[axis:]), float(step.option("epsilon", 1e-5))
    scale, bias = step.constant(1), step.constant(2) if step.has(2) else None
    weights = {"weight": scale} if bias is None else {"weight": scale, "bias": bias}
    if all(list(one.shape) == sides for one in weights.values()):
        layer = nn.LayerNorm(sides, eps, bias=bias is not None, device="meta", dtype=scale.dtype)
        return step.emit(layer, step.value(), **weights)
    made = step.emit(F.layer_norm, step.value(), sides, None, None, eps)
    made = step.emit(operator.mul, made, step.value(1))
    return made if bias is None else step.emit(operator.add, made, step.value(2))


def instance_norm(step: Step) -> Value:
    """InstanceNormalization: each channel of each image by itself."""
    _flat(step)
    weights = {"weight": step.constant(1), "bias": step.constant(2)}
    layer = nn.InstanceNorm2d(
        weights["weight"].numel(),
        float(step.option("epsilon", 1e-5)),
        affine=True,
        device="meta",
        dtype=weights["weight"].dtype,
    )
    return step.emit(_fits(layer, weights), step.value(), **weights)


def group_norm(step: Step) -> Value:
    """GroupNormalization with a weight per channel, as it is since opset 21."""
    weights = {"weight": step.constant(1), "bias": step.constant(2)}
    groups, channels = int(step.option("num_groups", 1)), step.shape()[1]
    if weights["weight"].numel() != channels:
        raise NotTranslated("GroupNormalization with a weight per group")
    eps, kind = float(step.option("epsilon", 1e-5)), weights["weight"].dtype
    layer = nn.GroupNorm(groups, channels, eps, device="meta", dtype=kind)
    return step.emit(_fits(layer, weights), step.value(), **weights)


def local_response(step: Step) -> Value:
    """LRN: each number divided by what its neighbours in other channels are."""
    size = int(step.option("size", 1))
    if size % 2 == 0:
        raise NotTranslated("LRN over an even number of channels")
    numbers = (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    alpha, beta, bias = (float(step.option(name, otherwise)) for name, otherwise in numbers)
    return step.emit(nn.LocalResponseNorm(size, alpha, beta, bias), step.value())


LAYERS: dict[str, Translator] = {
    "AveragePool": average_pool,
    "BatchNormalization": batch_norm,
    "Conv": conv,
    "Gemm": gemm,
    "GlobalAveragePool": over_all(nn.AdaptiveAvgPool2d),
    "GlobalMaxPool": over_all(nn.AdaptiveMaxPool2d),
    "GroupNormalization": group_norm,
    "InstanceNormalization": instance_norm,
    "LRN": local_response,
    "LayerNormalization": layer_norm,
    "MatMul": matmul,
    "MaxPool": max_pool,
}
