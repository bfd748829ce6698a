"""Operators of an ONNX graph that move numbers without changing them."""

from __future__ import annotations

import operator
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from classwise.models.onnx_graph import BATCHES, Flow, Known, Pair, Step, Translator, Value
from classwise.models.onnx_wire import NotTranslated, Unreadable


def reshaped(step: Step, wanted: tuple[list[int], list[int]]) -> Value:
    """A value in another shape, which may depend on how many images there are."""
    value = step.value()
    if isinstance(value, Known):
        return step.emit(torch.reshape, value, Pair(wanted))
    moving = [at for at, sides in enumerate(zip(*wanted, strict=True)) if len(set(sides)) > 1]
    if len(moving) != 1:
        raise NotTranslated(f"{step.node.operator} to a shape that has a batch in it: {wanted[0]}")
    sides = [-1 if at == moving[0] else side for at, side in enumerate(wanted[0])]
    return step.emit(torch.reshape, value, tuple(sides))


def reshape(step: Step) -> Value:
    """The shape is an input: numbers, 0 for as before, -1 for the rest."""
    shape = step.value(1)
    if isinstance(shape, Flow):
        raise NotTranslated("Reshape to a computed shape")
    copied = not step.option("allowzero", 0)
    wanted = []
    for values, there, n in zip(shape.values, step.value().values, BATCHES, strict=True):
        sides = [int(one) for one in values.flatten()]
        for at, side in enumerate(sides):
            if side == 0 and copied:
                sides[at] = there.shape[at]
        if _made_for_a_batch(sides, there, step.build.made_for, n):
            sides[0] = n  # the file was made for so many images; it may be any number
        wanted.append(_without_rest(sides, there.numel()))
    return reshaped(step, (wanted[0], wanted[1]))


def _made_for_a_batch(sides: list[int], there: Tensor, made_for: int | None, n: int) -> bool:
    """Whether the first side is the size of the batch that the file was made with.

    A file that says nothing of its batch may have been made with one image.
    """
    if len(sides) < 2 or there.device.type != "meta" or there.shape[:1] != (n,):
        return False
    if made_for is not None:
        return sides[0] == made_for
    return sides[0] == 1 and prod(sides) * n == there.numel()


def _without_rest(sides: list[int], count: int) -> list[int]:
    """Sides where -1 is what is left."""
    rest = prod(side for side in sides if side != -1)
    if sides.count(-1) > 1 or min(sides, default=0) < -1:
        raise Unreadable(f"Reshape to {sides}")
    found = [count // rest if side == -1 and rest else side for side in sides]
    if prod(found) != count:
        raise NotTranslated(f"Reshape of {count} numbers to {sides}")
    return found


def flatten(step: Step) -> Value:
    """Two axes: all before one, and all from there on."""
    axis = int(step.option("axis", 1))
    axis = axis + len(step.shape()) if axis < 0 else axis
    if axis == 1:
        return step.emit(torch.flatten, step.value(), 1)
    one, other = ([prod(v.shape[:axis]), prod(v.shape[axis:])] for v in step.value().values)
    return reshaped(step, (one, other))


def transpose(step: Step) -> Value:
    """Axes in another order, by default backwards."""
    order = step.option("perm") or list(range(len(step.shape())))[::-1]
    return step.emit(torch.permute, step.value(), tuple(order))


def squeeze(step: Step) -> Value:
    """Axes of one taken away."""
    one, other = (value.shape for value in step.value().values)
    axes = step.numbers("axes", 1)
    if axes is None:
        axes = [at for at in range(len(one)) if one[at] == other[at] == 1]
    axes = sorted({step.axis(at) for at in axes}, reverse=True)
    if any(one[at] != 1 or other[at] != 1 for at in axes):
        raise NotTranslated("Squeeze of an axis that is not of size 1")
    value = step.value()
    for at in axes:
        value = step.emit(torch.squeeze, value, at)
    return value


def unsqueeze(step: Step) -> Value:
    """Axes of one put in."""
    axes = step.numbers("axes", 1) or []
    value = step.value()
    for at in sorted(step.axis(at, more=len(axes)) for at in axes):
        value = step.emit(torch.unsqueeze, value, at)
    return value


def concat(step: Step) -> Value:
    """Tensors one behind the other."""
    given = [step.value(number) for number in range(len(step.inputs))]
    return step.emit(torch.cat, given, int(step.option("axis", 0)))


def split(step: Step) -> list[Value]:
    """A tensor cut into pieces along an axis."""
    axis = step.axis(int(step.option("axis", 0)))
    side, many = step.shape()[axis], len(step.node.outputs)
    sizes = step.numbers("split", 1)
    if sizes is None:
        each = -(-side // many)
        sizes = [each] * (many - 1) + [side - each * (many - 1)]
    if axis == 0 and isinstance(step.value(), Flow):
        raise NotTranslated("Split of the batch")
    return step.emit_many(torch.split, step.value(), sizes, axis)


def cut_out(step: Step) -> Value:
    """Slice: from, to, along which axes, in which steps."""
    starts, ends = step.numbers("starts", 1), step.numbers("ends", 2)
    axes = step.numbers("axes", 3)
    steps = step.numbers("steps", 4) or [1] * len(starts or [])
    if starts is None or ends is None:
        raise Unreadable("Slice does not say from where to where")
    value, shape = step.value(), step.shape()
    for begin, end, at, by in zip(starts, ends, axes or range(len(starts)), steps, strict=True):
        axis = step.axis(at)
        if not by or (axis == 0 and isinstance(value, Flow)):
            raise NotTranslated("Slice of the batch, or in steps of 0")
        if by > 0:
            whole = (*[slice(None)] * axis, slice(begin, end, by))
            value = step.emit(operator.getitem, value, whole)
        else:  # backwards: torch has no such slices
            least = max(end, -shape[axis] - 1)
            chosen = range(shape[axis])[begin : None if least < -shape[axis] else least : by]
            places = Known.always(torch.tensor(list(chosen), dtype=torch.int64))
            value = step.emit(torch.index_select, value, axis, places)
    return value


def gather(step: Step) -> Value:
    """Entries along an axis by their numbers."""
    axis = step.axis(int(step.option("axis", 0)))
    places = step.constant(1)
    side = step.shape()[axis]
    if places.numel() and not (-side <= int(places.min()) and int(places.max()) < side):
        raise Unreadable(f"Gather asks for entries that are not there, of {side}")
    places = torch.where(places < 0, places + side, places).to(torch.int64)
    if places.dim() == 0:
        return step.emit(torch.select, step.value(), axis, int(places))
    found = step.emit(
        torch.index_select, step.value(), axis, Known.always(places.flatten().contiguous())
    )
    if places.dim() == 1:
        return found
    return step.emit(torch.unflatten, found, axis, tuple(places.shape))


def shape_of(step: Step) -> Value:
    """Shape: known without images, but for how many there are."""
    begin, end = int(step.option("start", 0)), step.option("end")
    sides = [torch.tensor(list(v.shape)[begin:end]) for v in step.value().values]
    return Known((sides[0].to(torch.int64), sides[1].to(torch.int64)))


def size_of(step: Step) -> Value:
    """How many numbers a tensor has."""
    counts = [torch.tensor(value.numel()) for value in step.value().values]
    return Known((counts[0], counts[1]))


def _sides(step: Step, number: int) -> Pair:
    """Sides that an input says, for both batches."""
    shape = step.value(number)
    if isinstance(shape, Flow):
        raise NotTranslated(f"{step.node.operator} to a computed shape")
    one, other = ([int(side) for side in value.flatten()] for value in shape.values)
    return Pair((one, other))


def constant_of_shape(step: Step) -> Value:
    """A tensor full of one number."""
    number = step.option("value", torch.zeros(1))
    if not isinstance(number, Tensor) or number.numel() != 1:
        raise Unreadable("ConstantOfShape does not say of which number")
    return step.emit(torch.broadcast_to, Known.always(number.reshape(())), _sides(step, 0))


def expand(step: Step) -> Value:
    """The same numbers over and over, along axes of one."""
    wanted = _sides(step, 1)
    one, other = (
        list(torch.broadcast_shapes(v.shape, s))  # type: ignore[no-untyped-call]
        for v, s in zip(step.value().values, wanted.of, strict=True)
    )
    if isinstance(step.value(), Known):
        return step.emit(torch.broadcast_to, step.value(), Pair((one, other)))
    if one == list(step.shape()):
        return step.value()
    kept = [-1 if two != n else n for n, two in zip(one, other, strict=True)]
    return step.emit(Tensor.expand, step.value(), tuple(kept))


def tile(step: Step) -> Value:
    """A tensor so many times along each axis."""
    return step.emit(Tensor.repeat, step.value(), tuple(step.constant(1).tolist()))


def number_range(step: Step) -> Value:
    """Numbers from, to, in steps."""
    begin, end, by = (step.constant(number) for number in range(3))
    count = (float(end) - float(begin)) / float(by) if float(by) else 0
    if count > 1 << 24:
        raise Unreadable(f"Range of {count:.0f} numbers")
    return Known.always(torch.arange(begin.item(), end.item(), by.item(), dtype=begin.dtype))


def pad(step: Step) -> Value:
    """A border around a tensor."""
    sides = step.numbers("pads", 1)
    value = float(step.constant(2)) if step.has(2) else float(step.option("value", 0.0))
    rank = len(step.shape())
    axes = [step.axis(at) for at in (step.numbers("axes", 3) or range(rank))]
    if sides is None or len(sides) != 2 * len(axes):
        raise Unreadable("Pad does not say how much")
    before, behind = sides[: len(axes)], sides[len(axes) :]
    borders = {at: (a, b) for at, a, b in zip(axes, before, behind, strict=True) if a or b}
    if not borders:
        return step.value()
    first = min(borders)
    flat = [side for at in range(rank - 1, first - 1, -1) for side in borders.get(at, (0, 0))]
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}.get(
        str(step.option("mode", "constant"))
    )
    if mode is None or first == 0 or (mode != "constant" and first < 2):
        raise NotTranslated("Pad of this kind")
    more = (value,) if mode == "constant" else ()
    return step.emit(F.pad, step.value(), tuple(flat), mode, *more)


SHAPES: dict[str, Translator] = {
    **{"Concat": concat, "ConstantOfShape": constant_of_shape, "Expand": expand},
    **{"Flatten": flatten, "Gather": gather, "Pad": pad, "Range": number_range},
    **{"Reshape": reshape, "Shape": shape_of, "Size": size_of, "Slice": cut_out},
    **{"Split": split, "Squeeze": squeeze, "Tile": tile, "Transpose": transpose},
    **{"Unsqueeze": unsqueeze},
}
