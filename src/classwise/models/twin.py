"""A quicker twin of a model to search on: the same function with less work and less memory."""

from __future__ import annotations

import operator
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd.function import BackwardCFunction
from torch.nn.functional import relu, relu6
from torch.nn.utils.fusion import fuse_conv_bn_eval

from classwise.types import Images, LogitModel, Logits

# Largest difference, relative to the size, that counts as the same. Slopes jump where a ReLU is at
# its kink, so they are only checked to be there and to point the same way.
CLOSE, _CLOSE_SLOPE = 1e-4, 1e-2
_NO_USE_FOR_OUTPUT = (nn.Conv2d, nn.Linear, nn.BatchNorm2d)  # their gradients need the input alone
_SUMS = (operator.add, torch.add)
_POOLS = (nn.AvgPool2d, nn.MaxPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)


def quick_twin(model: LogitModel, images: Images) -> LogitModel:
    """A copy of a model in eval mode that answers the same and quicker, or the model itself.

    BatchNorm is folded into the convolution before it: y = γ(Wx + b − μ)/√(σ² + ε) + β is one
    convolution with weights γW/√(σ² + ε). So is a division by constants into the one after it, as
    in (x − μ)/σ. ReLUs work in place, weights and the gradients that reach poolings have the layout
    of the images, and weights take no gradients. A model that cannot be traced, is not in eval
    mode, has hooks or gradients written by hand, or answers or slopes differently on `images` is
    returned as it is. What a search finds on the twin is confirmed on the model itself.

    >>> plain = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten()).eval()
    >>> [type(part).__name__ for part in quick_twin(plain, torch.rand(2, 1, 3, 3)).children()]
    ['Conv2d', 'Flatten']
    """
    if not isinstance(model, nn.Module) or not _settled(model):
        return model
    try:
        twin = _rewritten(model)
        if images.is_contiguous(memory_format=torch.channels_last):
            twin.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        logits, slope = _answers(model, images)
        if _has_own_gradients(logits):
            return model
        its_logits, its_slope = _answers(twin, images)
        same = alike(logits, its_logits, CLOSE) and alike(slope, its_slope, _CLOSE_SLOPE)
    except Exception:  # tracing runs the model's own code on stand-ins: anything may go wrong
        return model
    return twin if same else model


def _settled(model: nn.Module) -> bool:
    """Whether a model is in eval mode throughout and calls nobody's hooks."""
    parts = list(model.modules())
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooked = any(getattr(part, kind) for part in parts for kind in kinds)
    return not hooked and not any(part.training for part in parts)


def _answers(model: nn.Module, images: Images) -> tuple[Tensor, Tensor]:
    """Logits, and the slope of their squares' sum."""
    points = images.detach().clone().requires_grad_()
    with torch.enable_grad():
        logits = model(points)
        (slope,) = torch.autograd.grad(logits.square().sum(), points)
    return logits, slope


def _has_own_gradients(logits: Logits) -> bool:
    """Whether a gradient somebody wrote by hand leads to the logits; tracing does not see it."""
    waiting, seen = [logits.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, BackwardCFunction):
            return True
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(before for before, _ in node.next_functions)
    return False


def alike(one: Tensor, other: Tensor, near: float) -> bool:
    """Whether two tensors are the same up to a share of their length."""
    apart = torch.linalg.vector_norm((one - other).detach().double())
    return bool(apart <= near * torch.linalg.vector_norm(one.detach().double()))


def _rewritten(model: nn.Module) -> nn.Module:
    """Trace a copy and replace its parts by quicker ones."""
    twin = fx.symbolic_trace(deepcopy(model))
    for node in list(twin.graph.nodes):
        before = node.args[0] if node.args else None
        if not isinstance(before, fx.Node):
            continue
        if isinstance(part_of(twin, node), _POOLS):
            _keep_layout(twin.graph, node)
        alone = len(before.users) == 1
        if alone and isinstance(part_of(twin, node), nn.BatchNorm2d):
            _fold_norm(twin, before, node)
        elif alone and before.target is operator.truediv:
            _fold_scale(twin, before, node)
        elif alone and (cutting := _cutting(twin, node)) and _forgets_output(twin, before):
            with twin.graph.inserting_after(node):
                quick = twin.graph.call_function(cutting, (before,), {"inplace": True})
            node.replace_all_uses_with(quick)
            twin.graph.erase_node(node)
    twin.delete_all_unused_submodules()
    twin.recompile()
    return twin.requires_grad_(False)


def part_of(twin: fx.GraphModule, node: fx.Node) -> Any:
    """The module a node calls, or None."""
    return twin.get_submodule(str(node.target)) if node.op == "call_module" else None


def _fold_norm(twin: fx.GraphModule, before: fx.Node, norm: fx.Node) -> None:
    """Merge a BatchNorm into the convolution before it, which nobody else listens to."""
    convolution = part_of(twin, before)
    if isinstance(convolution, nn.Conv2d):
        twin.set_submodule(str(before.target), fuse_conv_bn_eval(convolution, part_of(twin, norm)))
        norm.replace_all_uses_with(before)
        twin.graph.erase_node(norm)


def _fold_scale(twin: fx.GraphModule, division: fx.Node, node: fx.Node) -> None:
    """Merge a division by one constant per channel into the convolution after it."""
    convolution, (values, scale) = part_of(twin, node), division.args
    if (
        isinstance(convolution, nn.Conv2d)
        and convolution.groups == 1
        and isinstance(values, fx.Node)
        and isinstance(scale, fx.Node)
        and scale.op == "get_attr"
    ):
        constant = twin.get_buffer(str(scale.target))
        convolution.weight.data /= constant.view(1, -1, 1, 1)
        node.replace_input_with(division, values)
        twin.graph.erase_node(division)


def _cutting(twin: fx.GraphModule, node: fx.Node) -> Callable[..., Tensor] | None:
    """The function of a ReLU or ReLU6, whose gradients need the output alone; None for others."""
    part = part_of(twin, node)
    if isinstance(part, nn.ReLU) or node.target in (relu, torch.relu):
        return relu
    return relu6 if isinstance(part, nn.ReLU6) or node.target is relu6 else None


def _forgets_output(twin: fx.GraphModule, node: fx.Node) -> bool:
    """Whether what a node computed may be overwritten: its own gradient does not need it."""
    return isinstance(part_of(twin, node), _NO_USE_FOR_OUTPUT) or node.target in _SUMS


class _Layout(torch.autograd.Function):
    """Nothing forward; backward, the gradient is laid out in memory as the values were.

    A pooling whose gradient comes in another layout than its input, as it does from a flattening,
    takes ten times as long to pass it on.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.last = values.is_contiguous(memory_format=torch.channels_last)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return slope.contiguous(memory_format=torch.channels_last) if ctx.last else slope


def same_layout(values: Tensor) -> Tensor:
    """The same values, whose gradient will be laid out as they are."""
    return _Layout.apply(values)  # type: ignore[no-any-return, no-untyped-call]


def _keep_layout(graph: fx.Graph, pool: fx.Node) -> None:
    with graph.inserting_after(pool):
        kept = graph.call_function(same_layout, (pool,))
    pool.replace_all_uses_with(kept, delete_user_cb=lambda user: user is not kept)
