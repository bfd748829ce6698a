"""A quicker twin of a model to search on: the same function with less work and less memory."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd.function import BackwardCFunction
from torch.nn.functional import relu, relu6
from torch.nn.utils.fusion import fuse_conv_bn_weights

from classwise.types import Images, Logits

# Largest difference, relative to the size, that counts as the same. Slopes jump where a ReLU is at
# its kink, so they are only checked to be there and to point the same way.
CLOSE, _CLOSE_SLOPE = 1e-4, 1e-2
_POOLS = (nn.AvgPool2d, nn.MaxPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
# Their gradients need the input alone.
_NO_USE_FOR_OUTPUT = (nn.Conv2d, nn.Linear, nn.BatchNorm2d, *_POOLS)
_SUMS = (operator.add, torch.add)


class Following:
    """A twin that follows its model: traced once, it takes over the weights whenever it is asked.

    BatchNorm is folded into the convolution before it: y = γ(Wx + b − μ)/√(σ² + ε) + β is one
    convolution with weights γW/√(σ² + ε). So is a division by constants into the one after it, as
    in (x − μ)/σ. ReLUs work in place, weights and the gradients that reach poolings have the layout
    of the images, and weights take no gradients. A model that cannot be traced, is not in eval
    mode, has hooks or gradients written by hand, or answers or slopes differently on the images is
    its own twin. What a search finds on the twin is confirmed on the model itself.

    Whether it is the same as the model is looked at again in every `epoch`; inside one only weights
    and statistics may change, not what is done with them.

    >>> plain = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten()).eval()
    >>> [type(part).__name__ for part in Following(plain).now(torch.rand(2, 1, 3, 3)).children()]
    ['Conv2d', 'Flatten']
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.twin: fx.GraphModule | None = None
        self.folds: list[Fold] = []
        self.epoch, self.same = -1, False

    def now(self, images: Images, epoch: int = 0) -> nn.Module:
        """The twin with the weights of now; the model, where it is not the same on these images."""
        if epoch != self.epoch:
            self.epoch, self.same = epoch, self._looks_alike(images)
        elif self.same:
            self.refold()
        return self.twin if self.same and self.twin is not None else self.model

    def refold(self) -> None:
        """Take over weights and statistics as they are now, in place."""
        assert self.twin is not None
        folded = {fold.convolution for fold in self.folds}
        with torch.no_grad():
            for name, values in (*self.twin.named_parameters(), *self.twin.named_buffers()):
                if name.rpartition(".")[0] not in folded and not _made_by_tracing(name):
                    values.copy_(_tensor_at(self.model, name))
            for fold in self.folds:
                fold.renew(self.model, self.twin)

    def _looks_alike(self, images: Images) -> bool:
        """Whether there is a twin, and it answers and slopes as the model does."""
        if not _settled(self.model):
            return False
        try:
            if self.twin is None:
                self.twin, self.folds = _rewritten(self.model)
                if images.is_contiguous(memory_format=torch.channels_last):
                    self.twin.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            logits, slope = _answers(self.model, images)
            if _has_own_gradients(logits):
                return False
            self.refold()
            its_logits, its_slope = _answers(self.twin, images)
        except Exception:  # tracing runs the model's own code on stand-ins: anything may go wrong
            return False
        return alike(logits, its_logits, CLOSE) and alike(slope, its_slope, _CLOSE_SLOPE)


@dataclass(frozen=True, slots=True)
class Fold:
    """A convolution of a twin that does the work of its neighbours, too."""

    convolution: str
    norm: str | None = None  # the BatchNorm after it
    scale: str | None = None  # the constants that its input was divided by

    def renew(self, model: nn.Module, twin: nn.Module) -> None:
        """Work out its weights from those of the model."""
        plain, own = model.get_submodule(self.convolution), twin.get_submodule(self.convolution)
        assert isinstance(plain, nn.Conv2d)
        assert isinstance(own, nn.Conv2d)
        weight, bias = plain.weight.detach(), plain.bias
        if self.norm is not None:
            norm = model.get_submodule(self.norm)
            assert isinstance(norm, nn.BatchNorm2d)
            assert norm.running_mean is not None
            assert norm.running_var is not None
            weight, bias = fuse_conv_bn_weights(
                *(weight, bias, norm.running_mean, norm.running_var),
                *(norm.eps, norm.weight, norm.bias),
            )
        if self.scale is not None:
            home = twin if _made_by_tracing(self.scale) else model
            weight = weight / _tensor_at(home, self.scale).view(1, -1, 1, 1)
        own.weight.copy_(weight)
        if own.bias is not None and bias is not None:
            own.bias.copy_(bias)


def _made_by_tracing(name: str) -> bool:
    """Whether a tensor of a twin is a number that stood in its model's code."""
    return name.startswith("_tensor_constant")


def _tensor_at(model: nn.Module, name: str) -> Tensor:
    """A parameter or buffer by its name."""
    home, _, leaf = name.rpartition(".")
    found = getattr(model.get_submodule(home), leaf)
    assert isinstance(found, Tensor)
    return found


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


def _rewritten(model: nn.Module) -> tuple[fx.GraphModule, list[Fold]]:
    """Trace a copy and replace its parts by quicker ones; which of them must be folded."""
    twin = fx.symbolic_trace(deepcopy(model))
    called = Counter(node.target for node in twin.graph.nodes)
    folds: dict[str, Fold] = {}
    for node in list(twin.graph.nodes):
        before = node.args[0] if node.args else None
        if not isinstance(before, fx.Node):
            continue
        if isinstance(part_of(twin, node), _POOLS) and not _is_rectified(twin, node):
            _keep_layout(twin.graph, node)
        alone = len(before.users) == 1
        if alone and isinstance(part_of(twin, node), nn.BatchNorm2d):
            if called[before.target] == 1:  # else another norm needs it as it is
                _fold_norm(twin, before, node, folds)
        elif alone and before.target is operator.truediv:
            if called[node.target] == 1:
                _fold_scale(twin, before, node, folds)
        elif alone and (cutting := _cutting(twin, node)) and _forgets_output(twin, before):
            with twin.graph.inserting_after(node):
                quick = twin.graph.call_function(cutting, (before,), {"inplace": True})
            node.replace_all_uses_with(quick)
            twin.graph.erase_node(node)
    twin.delete_all_unused_submodules()
    twin.recompile()
    twin.requires_grad_(False)
    return twin, list(folds.values())


def part_of(twin: fx.GraphModule, node: fx.Node) -> Any:
    """The module a node calls, or None."""
    return twin.get_submodule(str(node.target)) if node.op == "call_module" else None


def _fold_norm(
    twin: fx.GraphModule, before: fx.Node, norm: fx.Node, folds: dict[str, Fold]
) -> None:
    """Merge a BatchNorm into the convolution before it, which nobody else listens to."""
    convolution, name = part_of(twin, before), str(before.target)
    if isinstance(convolution, nn.Conv2d):
        if convolution.bias is None:
            convolution.bias = nn.Parameter(convolution.weight.new_zeros(convolution.out_channels))
        folds[name] = replace(folds.get(name, Fold(name)), norm=str(norm.target))
        norm.replace_all_uses_with(before)
        twin.graph.erase_node(norm)


def _fold_scale(
    twin: fx.GraphModule, division: fx.Node, node: fx.Node, folds: dict[str, Fold]
) -> None:
    """Merge a division by one constant per channel into the convolution after it."""
    convolution, (values, scale) = part_of(twin, node), division.args
    if (
        isinstance(convolution, nn.Conv2d)
        and convolution.groups == 1
        and isinstance(values, fx.Node)
        and isinstance(scale, fx.Node)
        and scale.op == "get_attr"
        and str(scale.target) in dict(twin.named_buffers())  # not one that is learned
    ):
        folds[str(node.target)] = Fold(str(node.target), scale=str(scale.target))
        node.replace_input_with(division, values)
        twin.graph.erase_node(division)


def _cutting(twin: fx.GraphModule, node: fx.Node) -> Callable[..., Tensor] | None:
    """The function of a ReLU or ReLU6, whose gradients need the output alone; None for others."""
    part = part_of(twin, node)
    if isinstance(part, nn.ReLU) or node.target in (relu, torch.relu):
        return relu
    return relu6 if isinstance(part, nn.ReLU6) or node.target is relu6 else None


def _is_rectified(twin: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a ReLU alone listens to a node; its gradient has the layout of its output."""
    return [_cutting(twin, user) is not None for user in node.users] == [True]


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
