"""How far a small change of an image reaches in a network, and what to redo for it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.functional import conv2d, relu

from classwise.models.twin import part_of, same_layout
from classwise.types import Images, Labels

_LARGEST = 0.5  # share of a map beyond which a window is not worth the trouble
_WORTH = 0.6  # share of a network's multiplications that must remain at most
_POINTWISE = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.BatchNorm2d, nn.Identity)
_POINTWISE_FUNCTIONS = (relu, torch.relu, same_layout)
_ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv)

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to answer for windows of one size."""

    near: tuple[fx.Node, ...]  # what is redone in windows, in order
    windows: dict[fx.Node, Window]  # which of these slide over their input
    rims: dict[fx.Node, int]  # maps of the known images to keep, and how many zeros around
    ends: tuple[fx.Node, ...]  # where windows are put back into whole maps
    maps: fx.GraphModule  # from images to the maps to keep
    rest: fx.GraphModule  # from whole maps at the ends to logits


@dataclass(frozen=True, slots=True)
class Window:
    """A convolution or pooling: what it sees, and how to apply it without its rim."""

    kernel: Shape  # as spread out by dilation
    stride: Shape
    rim: Shape
    apply: Callable[[Tensor], Tensor]

    def needs(self, outputs: int, axis: int) -> int:
        """How many inputs so many outputs see."""
        return (outputs - 1) * self.stride[axis] + self.kernel[axis]

    def reached(self, changed: int, axis: int, extent: int) -> int:
        """How many outputs, at most, see any of so many changed inputs."""
        return min(extent, (changed + self.kernel[axis] - 2) // self.stride[axis] + 1)

    def first(self, begin: Labels, axis: int) -> Labels:
        """The first output that sees the input at `begin`."""
        ahead = begin + self.rim[axis] - self.kernel[axis] + 1
        return -torch.div(-ahead, self.stride[axis], rounding_mode="floor")


def window_of(network: fx.GraphModule, node: fx.Node) -> Window | None:
    """How a node slides over its input, if it does."""
    part = part_of(network, node)
    if isinstance(part, nn.Conv2d) and part.padding_mode == "zeros":
        weight, bias, rim = part.weight, part.bias, part.padding
        stride, spread, groups = part.stride, part.dilation, part.groups
        kernel = tuple(d * (k - 1) + 1 for k, d in zip(part.kernel_size, spread, strict=True))
        if isinstance(rim, str):
            return None
        return Window(
            kernel, stride, rim, lambda x: conv2d(x, weight, bias, stride, 0, spread, groups)
        )
    if isinstance(part, nn.MaxPool2d | nn.AvgPool2d):
        kernel, stride, rim = (_pair(v) for v in (part.kernel_size, part.stride, part.padding))
        plain = rim == (0, 0) and _pair(getattr(part, "dilation", 1)) == (1, 1)
        return Window(kernel, stride, rim, part) if plain else None
    return None


def make_plan(network: fx.GraphModule, shapes: dict[fx.Node, Shape], size: int) -> Plan | None:
    """Follow a window from the images on, as far as it stays small; None if that is not far."""
    sizes: dict[fx.Node, Shape] = {}
    spared = total = 0.0
    for node in network.graph.nodes:
        work, reach = _multiplications(network, node, shapes), _reach(network, node, shapes, sizes)
        total += work
        if node.op == "placeholder" and len(shapes[node]) == 4:  # others are options of the model
            reach = (size, size)
        if reach is not None:
            share = reach[0] * reach[1] / (shapes[node][2] * shapes[node][3])
            if share <= _LARGEST:
                sizes[node] = reach
                spared += work * (1 - share)
    if not total or total - spared > _WORTH * total:
        return None
    ends = tuple(node for node in sizes if any(user not in sizes for user in node.users))
    rims = dict.fromkeys(ends, 0)
    windows = {node: one for node in sizes if (one := window_of(network, node)) is not None}
    for node, window in windows.items():
        source = node.all_input_nodes[0]
        rims[source] = max(rims.get(source, 0), *window.rim)
    maps, rest = _first(network, sizes, rims), _last(network, sizes, ends)
    return Plan(tuple(sizes), windows, rims, ends, maps, rest)


def _reach(
    network: fx.GraphModule,
    node: fx.Node,
    shapes: dict[fx.Node, Shape],
    sizes: dict[fx.Node, Shape],
) -> Shape | None:
    """The window of a node's answer that a change reaches; None: it may be anywhere."""
    near = [one for one in node.all_input_nodes if one in sizes]
    if len(near) != 1 or len(shapes[node]) != 4:
        return None
    window, before, after = window_of(network, node), shapes[near[0]], shapes[node]
    if window is None:
        return sizes[near[0]] if _is_pointwise(network, node, near[0], shapes) else None
    # with `ceil_mode` the last window of a pooling may hang over the rim
    if any(window.needs(after[2 + a], a) > before[2 + a] + 2 * window.rim[a] for a in (0, 1)):
        return None
    return tuple(window.reached(sizes[near[0]][axis], axis, after[2 + axis]) for axis in (0, 1))


def _is_pointwise(
    network: fx.GraphModule, node: fx.Node, source: fx.Node, shapes: dict[fx.Node, Shape]
) -> bool:
    """Whether every pixel of the answer follows from the same pixel of the source."""
    if node.op == "call_module":
        return isinstance(part_of(network, node), _POINTWISE)
    others = (one for one in node.all_input_nodes if one is not source)
    constant = all(one.op == "get_attr" and shapes[one][-2:] in ((), (1, 1)) for one in others)
    functions = (*_POINTWISE_FUNCTIONS, *_ARITHMETIC)
    return shapes[node] == shapes[source] and constant and node.target in functions


def _multiplications(network: fx.GraphModule, node: fx.Node, shapes: dict[fx.Node, Shape]) -> float:
    part = part_of(network, node)
    if isinstance(part, nn.Conv2d):
        return float(part.weight.numel() * shapes[node][2] * shapes[node][3])
    return float(part.weight.numel()) if isinstance(part, nn.Linear) else 0.0


def shapes_of(network: fx.GraphModule, images: Images) -> dict[fx.Node, Shape]:
    """The shape of every node's answer; () for what is not a tensor."""
    shapes: dict[fx.Node, Shape] = {}

    class Noting(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            found = super().run_node(n)
            shapes[n] = tuple(found.shape) if isinstance(found, Tensor) else ()
            return found

    with torch.no_grad():
        Noting(network).run(images)
    return shapes


def _first(
    network: fx.GraphModule, near: dict[fx.Node, Shape], wanted: dict[fx.Node, int]
) -> fx.GraphModule:
    """The network from the images to some maps."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in network.graph.nodes:
        if node in near or node.op == "get_attr":
            copies[node] = graph.node_copy(node, lambda one: copies[one])
    graph.output(tuple(copies[node] for node in wanted))
    return fx.GraphModule(network, graph)


def _last(
    network: fx.GraphModule, near: dict[fx.Node, Shape], ends: tuple[fx.Node, ...]
) -> fx.GraphModule:
    """The network from whole maps to the logits."""
    graph = fx.Graph()
    copies = {node: graph.placeholder(node.name) for node in ends}
    for node in network.graph.nodes:
        if node not in near:
            copies[node] = graph.node_copy(node, lambda one: copies[one])
    return fx.GraphModule(network, graph)


def _pair(value: Any) -> Shape:
    return (value, value) if isinstance(value, int) else tuple(value)
