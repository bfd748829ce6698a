"""An ONNX graph as a network of torch's, with gradients.

The graph is walked once, as two batches of different sizes would run through it, in shapes alone.
What comes out the same for both does not depend on the batch and is computed now; what differs only
by the number of images is written so that it holds for any. Nothing is allocated before its shape
is known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx, nn

from classwise.errors import cut
from classwise.limits import MOST_ACTIVATION
from classwise.models.onnx_file import Node, OnnxGraph
from classwise.models.onnx_wire import NotTranslated, Unreadable

BATCHES = (2, 3)  # images in the two batches


@dataclass(frozen=True)
class Known:
    """A value that is known without images: one tensor for each of the two batches."""

    values: tuple[Tensor, Tensor]

    @classmethod
    def always(cls, value: Tensor) -> Known:
        """One that the batch does not matter to."""
        return cls((value, value))

    @property
    def fixed(self) -> bool:
        """Whether the batch does not matter to it."""
        one, other = self.values
        return one is other or (one.shape == other.shape and bool((one == other).all()))


@dataclass(frozen=True)
class Flow:
    """A value that is computed from the images: where, and its shapes for the two batches."""

    node: fx.Node
    values: tuple[Tensor, Tensor]  # without memory


@dataclass(frozen=True)
class Pair:
    """Plain numbers, for each of the two batches."""

    of: tuple[list[int], list[int]]


Value: TypeAlias = Known | Flow


@dataclass(frozen=True)
class Step:
    """A node that is being translated, with the values that reach it."""

    node: Node
    opset: int
    inputs: list[Value | None]
    build: Builder

    def option(self, name: str, otherwise: Any = None) -> Any:
        """An attribute."""
        return self.node.attributes.get(name, otherwise)

    def has(self, number: int) -> bool:
        """Whether an input is given."""
        return number < len(self.inputs) and self.inputs[number] is not None

    def value(self, number: int = 0) -> Value:
        """An input that must be there."""
        found = self.inputs[number] if number < len(self.inputs) else None
        if found is None:
            raise Unreadable(f"{self.node.operator} lacks its input number {number + 1}")
        return found

    def shape(self, number: int = 0) -> tuple[int, ...]:
        """The shape of an input, for the first batch."""
        return tuple(self.value(number).values[0].shape)

    def axis(self, number: int, more: int = 0) -> int:
        """An axis of the first input, counted from the front."""
        rank = len(self.shape()) + more
        if not -rank <= number < max(rank, 1):
            raise Unreadable(f"{self.node.operator} has no axis {number}")
        return number % max(rank, 1)

    def constant(self, number: int) -> Tensor:
        """An input that does not depend on the images."""
        found = self.value(number)
        if isinstance(found, Flow) or not found.fixed:
            raise NotTranslated(f"{self.node.operator} with a computed input {number + 1}")
        return found.values[0]

    def numbers(self, name: str, number: int) -> list[int] | None:
        """Whole numbers: an attribute in older files, an input in newer ones; None: neither."""
        if name in self.node.attributes:
            return [int(one) for one in self.option(name)]
        return [int(one) for one in self.constant(number).flatten()] if self.has(number) else None

    def emit(self, what: Callable[..., Any] | nn.Module, *args: Any, **weights: Tensor) -> Value:
        """Compute something: now, if it needs no images, else whenever the network is asked."""
        return self.build.emit(self.node, what, args, weights)[0]

    def emit_many(self, what: Callable[..., Any], *args: Any) -> list[Value]:
        """The same where several things come out."""
        return self.build.emit(self.node, what, args, {})


Translator: TypeAlias = Callable[[Step], "Value | list[Value]"]


class Builder:
    """A network while it is being put together."""

    def __init__(self, graph: OnnxGraph, table: Mapping[str, Translator]) -> None:
        self.source, self.table = graph, table
        shape = graph.inputs[0].shape if graph.inputs else None
        self.made_for = shape[0] if shape else None  # images, where the file fixes them
        self.root, self.graph = nn.Module(), fx.Graph()
        self.values: dict[str, Value] = {
            name: Known.always(one) for name, one in graph.tensors.items()
        }
        self.kept: dict[int, fx.Node] = {}  # constants that are part of the network
        self.images: fx.Node | None = None

    def take(self, name: str, shape: Sequence[int], kind: torch.dtype, last: bool) -> None:
        """Begin with images (n, channels, height, width), turned if the graph has channels last."""
        self.images = self.graph.placeholder("images")
        batches = [torch.empty(n, *shape, dtype=kind, device="meta") for n in BATCHES]
        found = Flow(self.images, (batches[0], batches[1]))
        order = (0, 2, 3, 1)
        self.values[name] = self.emit(None, torch.permute, (found, order), {})[0] if last else found

    def run(self, node: Node) -> None:
        """Translate one node."""
        inputs: list[Value | None] = []
        for name in node.inputs:
            if name and name not in self.values:
                raise Unreadable(
                    f"{node.operator} wants {cut(name, 50)!r}, which no node before it makes: it "
                    "is missing, or the graph goes round in a circle"
                )
            inputs.append(self.values[name] if name else None)
        if node.operator not in self.table:
            raise NotTranslated(f"the operator {cut(node.operator, 60)}")
        step = Step(node, self.source.opset, inputs, self)
        try:
            made = self.table[node.operator](step)
        except (NotTranslated, Unreadable):
            raise
        except Exception as reason:  # torch's own words on shapes that do not fit
            words = cut(" ".join(str(reason).split()), 150)
            raise NotTranslated(f"{node.operator} of these shapes ({words})") from None
        many = made if isinstance(made, list) else [made]
        for number, name in enumerate(node.outputs):
            if name and number >= len(many):
                raise NotTranslated(f"output {number + 1} of {node.operator}")
            if name:
                self.values[name] = many[number]

    def emit(
        self,
        node: Node | None,
        what: Callable[..., Any] | nn.Module,
        args: tuple[Any, ...],
        weights: Mapping[str, Tensor],
    ) -> list[Value]:
        """Add a call; first without memory, to see what shape comes of it."""
        empty = [what(*_each(args, _bare, k)) for k in (0, 1)]
        many = isinstance(empty[0], tuple | list)
        pairs = list(zip(*empty, strict=True)) if many else [(empty[0], empty[1])]
        largest = max(part.numel() for part, _ in pairs)
        if largest > BATCHES[0] * MOST_ACTIVATION:
            raise Unreadable(f"{node.operator if node else 'it'} makes {largest} numbers")
        if not any(isinstance(one, Flow) for one in _values(args)):
            if isinstance(what, nn.Module):
                raise NotTranslated("a layer that sees no image")
            made = [what(*_each(args, _whole, k)) for k in (0, 1)]
            return [Known(pair) for pair in (zip(*made, strict=True) if many else [tuple(made)])]
        given = _each(args, self._node)
        if isinstance(what, nn.Module):
            name = f"{node.operator.lower() if node else 'part'}_{len(self.graph.nodes)}"
            self.root.add_module(name, _filled(what, weights))
            call = self.graph.call_module(name, given)
        else:
            call = self.graph.call_function(what, given)
        if not many:
            return [Flow(call, pairs[0])]
        return [
            Flow(self.graph.call_function(operator.getitem, (call, number)), pair)
            for number, pair in enumerate(pairs)
        ]

    def count(self) -> fx.Node:
        """How many images there are, whenever the network is asked."""
        assert self.images is not None
        return self.graph.call_method("size", (self.images, 0))

    def _node(self, value: Value) -> fx.Node:
        """Where a value is to be had when the network runs."""
        if isinstance(value, Flow):
            return value.node
        one, other = value.values
        if value.fixed:
            return self._constant(one)
        sides = zip(one.shape, other.shape, strict=False)
        axis = [at for at, (here, there) in enumerate(sides) if here != there]
        if one.dim() == other.dim() and len(axis) == 1 and one.shape[axis[0]] == BATCHES[0]:
            row = one.narrow(axis[0], 0, 1)
            if bool((one == row).all()) and bool((other == row).all()):  # the same for every image
                shape = [self.count() if at == axis[0] else -1 for at in range(one.dim())]
                return self.graph.call_method("expand", (self._constant(row), *shape))
        raise NotTranslated("numbers that depend on how many images there are")

    def _constant(self, value: Tensor) -> fx.Node:
        if id(value) not in self.kept:
            name = f"constant_{len(self.graph.nodes)}"
            self.root.register_buffer(name, value)
            self.kept[id(value)] = self.graph.get_attr(name)
        return self.kept[id(value)]


def _each(given: Any, turn: Callable[..., Any], *more: Any) -> Any:
    """Arguments with each value in them turned into something else."""
    if isinstance(given, Known | Flow):
        return turn(given, *more)
    if isinstance(given, Pair):
        return given.of[more[0]] if more else given
    if isinstance(given, tuple | list):
        return type(given)(_each(one, turn, *more) for one in given)
    return given


def _values(given: Any) -> list[Value]:
    if isinstance(given, Known | Flow):
        return [given]
    return [v for one in given for v in _values(one)] if isinstance(given, tuple | list) else []


def _whole(value: Value, batch: int) -> Tensor:
    return value.values[batch]


def _bare(value: Value, batch: int) -> Tensor:
    """The same tensor without its memory."""
    return torch.empty_like(value.values[batch], device="meta")


def _filled(part: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """A part that was made without memory, with its weights."""
    for name, value in weights.items():
        if name in part._parameters:
            part._parameters[name] = nn.Parameter(value)
        else:
            part._buffers[name] = value
    return part
