"""An ONNX file as a model: translated, with gradients, or as a black box that onnxruntime runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, fx

from classwise.errors import ClasswiseError, cut, unknown
from classwise.files import file_hash, given_path
from classwise.models.blackbox import BlackBox
from classwise.models.onnx_converted import NotConverted, convert
from classwise.models.onnx_file import Node, OnnxGraph, Port, onnx_bytes, read_onnx
from classwise.models.onnx_graph import BATCHES, Builder, Flow
from classwise.models.onnx_layers import LAYERS
from classwise.models.onnx_operators import OPERATORS
from classwise.models.onnx_running import FLOATS, Entrance, Running, runtime, scores_of
from classwise.models.onnx_shapes import SHAPES
from classwise.models.onnx_wire import NotTranslated, Unreadable
from classwise.models.twin import alike
from classwise.types import Images, LogitModel

_TABLE = {**LAYERS, **OPERATORS, **SHAPES}
_OLDEST = 7  # opset: before it, tensors were stretched by rules of their own
_TYPES = {
    **{"tensor(float)": torch.float32, "tensor(float16)": torch.float16},
    **{"tensor(double)": torch.float64, "tensor(uint8)": torch.uint8},
}
_SAME = 1e-4  # difference from onnxruntime, relative to the size of the answer


@dataclass(frozen=True)
class OpenedOnnx:
    """An ONNX file, ready to be asked."""

    model: LogitModel
    known_by: str  # its content, unpacked, and that of the files beside it
    words: str  # how it is asked
    softmax_left_out: bool = False  # its answers are what stood before a softmax


@dataclass(frozen=True)
class Translation:
    """A graph as a network of torch's; its answers are a tensor, or several by their names."""

    network: fx.GraphModule
    names: tuple[str, ...]
    softmax_left_out: bool


Audited = Callable[[], Iterator[Images]]  # batches of the images that a file will be asked about


def open_onnx(
    path: Path, images: Images, output: str | int | None = None, audited: Audited | None = None
) -> OpenedOnnx:
    """Open a file for images like the given ones; `output` is the one that is asked for.

    Where onnxruntime is installed, a translation is compared with it before it is believed. A file
    with operators that are not translated needs it: onnx2torch may convert it, if that is there and
    answers alike on all images that are `audited`; otherwise it is a black box.
    """
    path = given_path(path)
    content = onnx_bytes(path)
    known = hashlib.blake2b(content, digest_size=8).hexdigest()
    try:
        graph = read_onnx(path, content)
        known = " ".join([known, *(file_hash(file) for file in graph.files)])
        entrance = entrance_of(graph, path.name, images)
        made = translated(graph, entrance, tuple(images.shape[1:]), output)
        compared = _compared(made, images[: BATCHES[0]], path, content, entrance)
    except Unreadable as reason:
        said = str(reason)
        start = f"{path} is not an ONNX model that can be read: "
        raise Unreadable(said if said.startswith(start) else start + said) from None
    except NotTranslated as reason:
        running = _running(path, content, reason, images, output)
        return _untranslated(running, reason, known, audited() if audited else iter([images]))
    words = f"{path.name} is translated from ONNX, with gradients"
    words += "" if compared else " (onnxruntime is not there to compare it with)"
    if made.softmax_left_out:
        words += ", and its logits are taken before the softmax at its end"
    return OpenedOnnx(made.network, known, words, made.softmax_left_out)


def entrance_of(graph: OnnxGraph, name: str, images: Images) -> Entrance:
    """Compare what a graph takes with what there is."""
    if len(graph.inputs) != 1:
        names = ", ".join(port.name for port in graph.inputs[:5]) or "none"
        raise ClasswiseError(
            f"{name} has {len(graph.inputs)} inputs ({names}); a classifier has one, for images"
        )
    port, shape = graph.inputs[0], tuple(images.shape[1:])
    if port.kind is not None and port.kind not in FLOATS:
        raise ClasswiseError(
            f"{name} takes {str(port.kind).removeprefix('torch.')} numbers; audits move images in "
            "[0, 1]: export it for floats"
        )
    wanted: list[int | None] = [None] * 4 if port.shape is None else port.shape
    if len(wanted) != 4:
        raise ClasswiseError(f"{name} takes inputs of {len(wanted)} axes; images have four")
    fits = _matches(wanted[1:], shape)
    last = not fits and _matches(wanted[1:], (*shape[1:], shape[0]))
    if not fits and not last:
        channels_last = wanted[3] in (1, 3) and wanted[1] not in (1, 3)
        sides = wanted[1:3] if channels_last else wanted[2:]
        said = "×".join("any" if side is None else str(side) for side in wanted[1:])
        here = "×".join(map(str, shape))
        size = "x".join(map(str, sides)) if None not in sides else "HEIGHTxWIDTH"
        raise ClasswiseError(
            f"{name} takes images of {said}, but the data are {here}; add --resize {size} (in "
            f"Python: resize='{size}'), or give data of its channels"
        )
    return Entrance(port.name, port.kind or torch.float32, wanted[0], last)


def _matches(wanted: list[int | None], shape: tuple[int, ...]) -> bool:
    return all(side in (None, there) for side, there in zip(wanted, shape, strict=True))


def translated(
    graph: OnnxGraph, entrance: Entrance, shape: tuple[int, ...], output: str | int | None = None
) -> Translation:
    """A graph as a network for images of a shape (channels, height, width)."""
    if graph.opset < _OLDEST:
        raise NotTranslated(f"opset {graph.opset}, older than {_OLDEST}")
    ports = _chosen(graph.outputs, output)
    builder = Builder(graph, _TABLE)
    builder.take(entrance.name, shape, entrance.kind, entrance.last)
    makers = {name: node for node in graph.nodes for name in node.outputs if name}
    for node in _needed(graph.nodes, {port.name for port in ports}):
        builder.run(node)
    ends = {port.name: _before_softmax(port.name, makers, builder) for port in ports}
    found: dict[str, fx.Node] = {}
    for name, end in sorted(ends.items(), key=lambda pair: pair[0] != pair[1]):
        value = builder.values.get(end)
        if value is None:
            raise Unreadable(f"no node makes its output {cut(name, 50)!r}")
        if isinstance(value, Flow) and value.node not in found.values():
            found[name] = value.node
    if not found:
        raise NotTranslated("an output that does not depend on the images")
    builder.graph.output(next(iter(found.values())) if len(found) == 1 else found)
    network = fx.GraphModule(builder.root, builder.graph, "OnnxNetwork").eval()
    network.graph.eliminate_dead_code()
    network.delete_all_unused_submodules()
    network.recompile()
    return Translation(network, tuple(found), any(name != ends[name] for name in found))


def _chosen(ports: list[Port], output: str | int | None) -> list[Port]:
    """The output that was named, or all."""
    names = [port.name for port in ports]
    if not names:
        raise Unreadable("it has no output")
    if isinstance(output, int):
        if not -len(ports) <= output < len(ports):
            raise ClasswiseError(
                f"output {output}: there are {len(ports)}, counted from 0 ({', '.join(names)})"
            )
        return [ports[output]]
    if output is not None and output not in names:
        raise unknown("output", output, names)
    return [port for port in ports if output is None or port.name == output]


def _before_softmax(name: str, makers: dict[str, Node], builder: Builder) -> str:
    """The logits behind an output that is a softmax over the classes; else the output itself."""
    node = makers.get(name)
    while node is not None and node.operator == "Identity" and node.inputs:
        node = makers.get(node.inputs[0])
    if node is None or node.operator != "Softmax":
        return name
    shape = builder.values[node.inputs[0]].values[0].shape
    axis = node.attributes.get("axis", -1 if builder.source.opset >= 13 else 1)
    over_classes = axis in (1, 1 - len(shape)) and set(shape[2:]) <= {1}
    return node.inputs[0] if len(shape) > 1 and over_classes else name


def _needed(nodes: list[Node], wanted: set[str]) -> list[Node]:
    """Nodes that lead to some values, in the order of the file."""
    wanted, found = set(wanted), []
    for node in reversed(nodes):
        if wanted & set(node.outputs):
            found.append(node)
            wanted |= set(node.inputs)
    return found[::-1]


def _compared(
    made: Translation, images: Images, path: Path, content: bytes, entrance: Entrance
) -> bool:
    """Hold a translation against onnxruntime, image by image; whether that was possible."""
    few = images.to(entrance.kind)
    with torch.no_grad():
        answer = made.network(few)
    try:
        session = runtime(path, content)
        scores = None if session is None else scores_of(session, entrance, made.names)
        theirs = [scores(one[None]) for one in few.cpu().numpy()] if scores else []
    except ClasswiseError:  # it has not all operators in every precision
        theirs = []
    for name in made.names if theirs else ():
        mine = (answer[name] if isinstance(answer, dict) else answer).double()
        its = torch.from_numpy(np.concatenate([one[name] for one in theirs]).astype(np.float64))
        if made.softmax_left_out:
            mine, its = mine.softmax(1), its.softmax(1) if _is_logits(its) else its
        near = _SAME if entrance.kind != torch.float16 else 1e-2
        if mine.shape != its.shape or not alike(its, mine, near):
            raise NotTranslated("a graph whose translation answers differently")
    return bool(theirs)


def _is_logits(values: Tensor) -> bool:
    """Whether an output that stands beside a softmax is none itself."""
    return not bool(((values.sum(1) - 1).abs() < 1e-2).all() & (values >= 0).all())


def _running(
    path: Path, content: bytes, why: NotTranslated, images: Images, output: str | int | None
) -> Running:
    """A file that is not translated, in the hands of onnxruntime."""
    session = runtime(path, content)
    if session is None:
        raise ClasswiseError(
            f"{path.name}: {why} is not translated, so that it needs onnxruntime; run: pip install "
            "'classwise[onnx]'"
        )
    ports = [
        [
            Port(
                one.name,
                _TYPES.get(one.type),
                [s if isinstance(s, int) else None for s in one.shape],
            )
            for one in some
        ]
        for some in (session.get_inputs(), session.get_outputs())
    ]
    entrance = entrance_of(OnnxGraph(inputs=ports[0]), path.name, images)
    names = tuple(port.name for port in _chosen(ports[1], output))
    scores = scores_of(session, entrance, names)
    return Running(path, content, entrance, tuple(p.name for p in ports[1]), names, scores)


def _untranslated(
    running: Running, why: NotTranslated, known: str, audited: Iterator[Images]
) -> OpenedOnnx:
    """A file as onnx2torch converts it, if it is there and right; else as a black box."""
    name, said = running.path.name, f"not translated: {why}"
    try:
        network, count = convert(running, audited)
    except NotConverted as reason:
        said += f"; {reason}" if str(reason) else ""
        words = f"{name} is run by onnxruntime, without gradients ({said})"
        return OpenedOnnx(_boxed(running), known, words)
    words = (
        f"{name} is converted by onnx2torch, with gradients, and answers as onnxruntime does on "
        f"{count} images ({said})"
    )
    return OpenedOnnx(network, known, words)


def _boxed(running: Running) -> BlackBox:
    """A file as a black box."""
    scores, names = running.scores, running.names
    if len(names) > 1:
        return BlackBox(scores, running.path.name)
    return BlackBox(lambda images: scores(images)[names[0]], running.path.name)
