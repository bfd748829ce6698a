"""Answers about images that differ from known ones in a small window: only what changed is redone.

A 3×3 convolution of an image with a 4×4 change differs in 6×6 pixels, the next one in 8×8. The
first layers of a network, which have the largest maps, are redone in such windows only, between
the maps of the known image; once a window covers half of a map, the rest runs as usual.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.functional import conv2d, pad, relu

from classwise.attacks.twin import CLOSE, alike, part_of, same_layout
from classwise.types import Images, Labels, Logits

_LARGEST = 0.5  # share of a map beyond which a window is not worth the trouble
_WORTH = 0.6  # share of a network's multiplications that must remain at most
_POINTWISE = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.BatchNorm2d, nn.Identity)
_POINTWISE_FUNCTIONS = (relu, torch.relu, same_layout)
_ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv)

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Patch:
    """A window of each map, n×c×h×w, and where it begins."""

    values: Tensor
    top: Labels
    left: Labels


@dataclass(frozen=True, slots=True)
class Plan:
    """How to answer for windows of one size."""

    near: tuple[fx.Node, ...]  # what is redone in windows, in order
    rims: dict[fx.Node, int]  # maps of the known images to keep, and how many zeros around
    ends: tuple[fx.Node, ...]  # where windows are put back into whole maps
    maps: fx.GraphModule  # from images to the maps to keep
    rest: fx.GraphModule  # from whole maps at the ends to logits


class Patches:
    """A traced network that remembers the maps of some images."""

    def __init__(self, network: fx.GraphModule, images: Images) -> None:
        self.network, self.image = network, images[:1]
        self.plans: dict[int, Plan | None] = {}
        self.forget()

    @cached_property
    def shapes(self) -> dict[fx.Node, Shape]:
        """The shape of every node's answer, found when first needed."""
        return _shapes(self.network, self.image)

    def forget(self) -> None:
        """Know no images."""
        self.plan: Plan | None = None
        self.keys = torch.empty(0)
        self.known: dict[fx.Node, Tensor] = {}
        self.asked: dict[fx.Node, Patch] = {}

    def remember(self, size: int, keys: Labels, images: Images) -> bool:
        """Know these images; `keys` tell whether they are those of last time.

        Returns whether windows of this size are worth it: if not, ask the network itself.
        """
        if size not in self.plans:
            plan = make_plan(self.network, self.shapes, size)
            self.plans[size] = plan if plan and self._agrees(plan, images[:2], size) else None
        plan = self.plans[size]
        if plan is None:
            self.forget()
        elif plan is not self.plan or not torch.equal(keys, self.keys):
            self.plan, self.keys, self.known = plan, keys, _maps(plan, images)
        return plan is not None

    def learn(self, rows: Labels, asked: Labels) -> None:
        """Some known images, `rows`, are now what was `asked` about, by number, just before."""
        if self.plan is None or not len(rows):
            return
        for node, rim in self.plan.rims.items():
            patch, known = self.asked[node], self.known[node]
            top, left = patch.top[asked] + rim, patch.left[asked] + rim
            values = patch.values[asked].permute(0, 2, 3, 1)
            index = _pixels(rows, top, left, values.shape[1:3], known.shape[1:3])
            values = values.flatten(0, 2)
            known.view(-1, known.shape[3]).index_copy_(0, index, values)

    def ask(self, owner: Labels, images: Images, top: Labels, left: Labels, size: int) -> Logits:
        """Logits of images, each unlike the known one `owner` in a window of `size` at most."""
        plan = self.plan
        assert plan is not None, "remember images first"
        height, width = images.shape[2:]
        top, left = top.clamp(max=height - size), left.clamp(max=width - size)
        every = torch.arange(len(owner), device=owner.device)
        values = _cut(images.permute(0, 2, 3, 1).contiguous(), every, top, left, (size, size))
        self.asked = patches = {plan.near[0]: Patch(values, top, left)}
        for node in plan.near[1:]:
            source = next(one for one in node.all_input_nodes if one in patches)
            window, before = window_of(self.network, node), patches[source]
            if window is None:
                changed = _call(self.network, node, source, before.values)
                patches[node] = Patch(changed, before.top, before.left)
            else:
                known, rim = self.known[source], plan.rims[source]
                patches[node] = _slide(window, before, known, rim, owner, self.shapes[node][2:])
        whole = [self._put_back(patches[node], node, owner) for node in plan.ends]
        with torch.no_grad():
            logits: Logits = plan.rest(*whole)
        return logits

    def _agrees(self, plan: Plan, images: Images, size: int) -> bool:
        """Whether windows give the network's own answers, tried once in two corners."""
        self.plan, self.known = plan, _maps(plan, images)
        changed, last = images.clone(), [extent - size for extent in images.shape[2:]]
        changed[:1, :, :size, :size] += 0.1
        changed[1:, :, last[0] :, last[1] :] += 0.1
        owner = torch.arange(len(images), device=images.device)
        top, left = owner * last[0], owner * last[1]
        with torch.no_grad():
            same = alike(self.network(changed), self.ask(owner, changed, top, left, size), CLOSE)
        self.forget()
        return same

    def _put_back(self, patch: Patch, node: fx.Node, owner: Labels) -> Tensor:
        """Whole maps with the changed windows in them."""
        assert self.plan is not None
        rim, (height, width) = self.plan.rims[node], self.shapes[node][2:]
        full = self.known[node][:, rim : rim + height, rim : rim + width].index_select(0, owner)
        every = torch.arange(len(owner), device=owner.device)
        index = _pixels(every, patch.top, patch.left, patch.values.shape[2:], (height, width))
        pixels = patch.values.permute(0, 2, 3, 1).reshape(len(index), -1)
        full.view(-1, full.shape[3]).index_copy_(0, index, pixels)
        return full.permute(0, 3, 1, 2)


def _maps(plan: Plan, images: Images) -> dict[fx.Node, Tensor]:
    """The maps to keep as n×h×w×c, with zeros around."""
    with torch.no_grad():
        found = plan.maps(images)
    return {
        node: pad(values, (rim, rim, rim, rim)).permute(0, 2, 3, 1).contiguous()
        for (node, rim), values in zip(plan.rims.items(), found, strict=True)
    }


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


def _slide(
    window: Window, before: Patch, known: Tensor, rim: int, owner: Labels, extents: Shape
) -> Patch:
    """Convolve or pool the surroundings of a changed window."""
    tall, wide = (
        window.reached(before.values.shape[2 + axis], axis, extents[axis]) for axis in (0, 1)
    )
    top = window.first(before.top, 0).clamp(0, extents[0] - tall)
    left = window.first(before.left, 1).clamp(0, extents[1] - wide)
    up, west = top * window.stride[0] - window.rim[0], left * window.stride[1] - window.rim[1]
    size = (window.needs(tall, 0), window.needs(wide, 1))
    around = _cut(known, owner, up + rim, west + rim, size)
    # the same places in the changed window, where it has them
    down, inside_down = _within(up - before.top, size[0], before.values.shape[2])
    across, inside_across = _within(west - before.left, size[1], before.values.shape[3])
    values = before.values.permute(0, 2, 3, 1)
    every = torch.arange(len(values), device=owner.device)[:, None, None]
    index = (every * values.shape[1] + down[:, :, None]) * values.shape[2] + across[:, None, :]
    changed = values.reshape(-1, values.shape[3]).index_select(0, index.flatten())
    inside = (inside_down[:, :, None] & inside_across[:, None, :])[:, None]
    changed = changed.view(*index.shape, -1).permute(0, 3, 1, 2)
    return Patch(window.apply(torch.where(inside, changed, around)), top, left)


def _cut(maps: Tensor, row: Labels, top: Labels, left: Labels, size: Shape) -> Tensor:
    """Windows of maps n×h×w×c, as n×c×h×w."""
    index = _pixels(row, top, left, size, maps.shape[1:3])
    pixels = maps.view(-1, maps.shape[3]).index_select(0, index)
    return pixels.view(len(row), *size, -1).permute(0, 3, 1, 2)


def _pixels(row: Labels, top: Labels, left: Labels, size: Shape, extents: Shape) -> Labels:
    """Numbers of the pixels of windows, in maps that lie one behind the other."""
    down = top[:, None] + torch.arange(size[0], device=row.device)
    across = left[:, None] + torch.arange(size[1], device=row.device)
    lines = (row[:, None] * extents[0] + down) * extents[1]
    return (lines[:, :, None] + across[:, None, :]).flatten()


def _within(offset: Labels, size: int, limit: int) -> tuple[Labels, Tensor]:
    """Places offset, offset + 1, …, held inside [0, limit), and which of them were inside."""
    places = offset[:, None] + torch.arange(size, device=offset.device)
    return places.clamp(0, limit - 1), (places >= 0) & (places < limit)


def _call(network: fx.GraphModule, node: fx.Node, source: fx.Node, values: Tensor) -> Tensor:
    """Do to a patch what a node does to every pixel."""

    def fill(one: fx.Node) -> Any:
        return values if one is source else operator.attrgetter(str(one.target))(network)

    function: Any = part_of(network, node) or node.target
    changed: Tensor = function(*fx.map_arg(node.args, fill), **fx.map_arg(node.kwargs, fill))
    return changed


# Making plans ------------------------------------------------------------------------------


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
    for node in sizes:
        if (window := window_of(network, node)) is not None:
            source = node.all_input_nodes[0]
            rims[source] = max(rims.get(source, 0), *window.rim)
    return Plan(tuple(sizes), rims, ends, _first(network, sizes, rims), _last(network, sizes, ends))


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


def _shapes(network: fx.GraphModule, images: Images) -> dict[fx.Node, Shape]:
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
