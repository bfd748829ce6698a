"""What an ONNX file holds: nodes, weights, inputs and outputs."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from classwise.errors import ClasswiseError
from classwise.files import given_path
from classwise.limits import MOST_ONNX_BYTES, MOST_ONNX_PARTS
from classwise.models.onnx_wire import (
    KINDS,
    Beside,
    NotTranslated,
    Unreadable,
    fields,
    floats,
    integers,
    tensor,
    words,
)

Attribute: TypeAlias = int | float | str | Tensor | list[Any]
_EMPTY: dict[int, Attribute] = {1: 0.0, 2: 0, 3: ""}  # what protobuf leaves out, by its kind
_PIECE = 1 << 20  # bytes read at a time
_LISTS = (6, 7)  # kinds of attributes: numbers, whole numbers


@dataclass(frozen=True)
class Node:
    """One operator: where its values come from, what they are called afterwards, and how."""

    operator: str  # with its domain, if that is not ONNX's own
    inputs: list[str]  # an empty name: left out
    outputs: list[str]
    attributes: dict[str, Attribute]


@dataclass(frozen=True)
class Port:
    """An input or output of a graph; a free side is None."""

    name: str
    kind: torch.dtype | None
    shape: list[int | None] | None


@dataclass
class OnnxGraph:
    """A graph as its file has it."""

    opset: int = 1
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)  # beside it, that its weights are in


def is_onnx(path: str | Path) -> bool:
    """Whether a file calls itself an ONNX model, packed or not.

    >>> is_onnx("net.onnx.gz"), is_onnx("net.pth")
    (True, False)
    """
    return str(path).lower().endswith((".onnx", ".onnx.gz"))


def onnx_bytes(path: Path) -> bytes:
    """The content of an ONNX file, unpacked if it is packed."""
    path = given_path(path)
    if not path.is_file():
        raise ClasswiseError(f"{path} is no file; give the path of an ONNX model")
    packed, held = path.suffix.lower() == ".gz", io.BytesIO()
    try:
        with gzip.open(path) if packed else path.open("rb") as stream:
            # in pieces: asked for all that is allowed, a stream takes that much memory first
            while held.tell() <= MOST_ONNX_BYTES and (piece := stream.read(_PIECE)):
                held.write(piece)
    except (OSError, EOFError, zlib.error) as reason:
        raise ClasswiseError(
            f"cannot read {path}: {reason}; restore it from a copy, or export it again"
        ) from None
    if held.tell() > MOST_ONNX_BYTES:
        raise ClasswiseError(
            f"{path} holds more than {MOST_ONNX_BYTES} bytes, more than an ONNX file may; keep its "
            "weights in a file beside it (external data)"
        )
    return held.getvalue()


def read_onnx(path: Path, content: bytes) -> OnnxGraph:
    """Read a graph with its weights, those in files beside it included."""
    beside = Beside(path.parent)
    try:
        graph = _graph(memoryview(content), beside)
    except Unreadable as reason:
        raise Unreadable(f"{path} is not an ONNX model that can be read: {reason}") from None
    except (IndexError, TypeError, ValueError, struct.error, OverflowError, RuntimeError):
        raise Unreadable(
            f"{path} is not an ONNX model that can be read: its bytes end, or make no sense; "
            "restore it from a copy, or export it again"
        ) from None
    graph.files = sorted(beside.taken)
    return graph


def _graph(view: memoryview, beside: Beside) -> OnnxGraph:
    graph, body = OnnxGraph(), None
    for number, value in fields(view):
        if number == 7:
            body = value
        elif number == 8:
            one = dict(fields(value))
            if not bytes(one.get(1, b"")):  # ONNX's own operators
                graph.opset = int(one.get(2, 1))
    if body is None:
        raise Unreadable("it has no graph")
    for number, value in fields(body):
        if max(len(graph.nodes), len(graph.tensors), len(graph.inputs)) > MOST_ONNX_PARTS:
            raise Unreadable(f"it has more than {MOST_ONNX_PARTS} nodes or tensors")
        if number == 1:
            graph.nodes.append(_node(value, beside))
        elif number == 5:
            name, values = tensor(value, beside)
            if name in graph.tensors:
                raise Unreadable(f"tensor {name!r} is there twice")
            graph.tensors[name] = values
        elif number == 11:
            graph.inputs.append(_port(value))
        elif number == 12:
            graph.outputs.append(_port(value))
        elif number == 15:
            raise NotTranslated("sparse weights")
    # files of before 2019 list their weights among the inputs
    graph.inputs = [port for port in graph.inputs if port.name not in graph.tensors]
    return graph


def _node(view: Any, beside: Beside) -> Node:
    found: dict[int, list[Any]] = {}
    for number, one in fields(view):
        found.setdefault(number, []).append(one)
    domain, operator = ("".join(map(words, found.get(number, []))) for number in (7, 4))
    return Node(
        operator if domain in ("", "ai.onnx") else f"{domain}.{operator}",
        [words(one) for one in found.get(1, [])],
        [words(one) for one in found.get(2, [])],
        dict(_attribute(one, beside) for one in found.get(5, [])),
    )


def _attribute(view: Any, beside: Beside) -> tuple[str, Attribute]:
    name, kind, many = "", 0, []
    plain: Attribute | None = None
    for number, one in fields(view):
        match number:
            case 1:
                name = words(one)
            case 2:
                plain = struct.unpack("<f", one)[0]
            case 3:
                plain = integers(one)[0]
            case 4:
                plain = bytes(one).decode(errors="replace")
            case 5:
                plain = tensor(one, beside)[1]
            case 7:
                many += floats(one)
            case 8:
                many += integers(one)
            case 20:
                kind = one
    if kind in _LISTS or many:
        return name, many
    return name, _EMPTY.get(kind, 0) if plain is None else plain


def _port(view: Any) -> Port:
    name, kind, shape = "", None, None
    for number, one in fields(view):
        if number == 1:
            name = words(one)
        elif number == 2:
            for which, content in fields(one):
                for part, value in fields(content) if which == 1 else ():
                    if part == 1:
                        kind = KINDS.get(value)
                    elif part == 2:
                        shape = [_side(side) for _, side in fields(value)]
    return Port(name, kind, shape)


def _side(view: Any) -> int | None:
    """A fixed side; None where it is free, or has a name."""
    size = dict(fields(view)).get(1)
    return size if isinstance(size, int) and 0 < size < 1 << 31 else None
