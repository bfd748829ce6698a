"""Answers about images that differ from known ones in a small window: only what changed is redone.

A 3×3 convolution of an image with a 4×4 change differs in 6×6 pixels, the next one in 8×8. The
first layers of a network, which have the largest maps, are redone in such windows only, between
the maps of the known image; once a window covers half of a map, the rest runs as usual.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn.functional import pad

from classwise.attacks.quick.reach import Plan, Shape, Window, make_plan, shapes_of
from classwise.models.twin import CLOSE, alike, part_of
from classwise.types import Images, Labels, Logits


@dataclass(frozen=True, slots=True)
class Patch:
    """A window of each map, n×c×h×w, and where it begins."""

    values: Tensor
    top: Labels
    left: Labels


class Patches:
    """A traced network that remembers the maps of some images."""

    def __init__(self, network: fx.GraphModule, images: Images) -> None:
        self.network, self.image = network, images[:1]
        self.plans: dict[int, Plan | None] = {}
        self.forget()

    @cached_property
    def shapes(self) -> dict[fx.Node, Shape]:
        """The shape of every node's answer, found when first needed."""
        return shapes_of(self.network, self.image)

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
            window, before = plan.windows.get(node), patches[source]
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
