"""Wide 3×3 convolutions with fewer products, while an attack asks a network whose weights stay.

Winograd's minimal filtering F(4×4, 3×3): a tile of 4×4 outputs, which takes 144 products a pair of
channels, is had from 36, between the transformed 6×6 tile of the input and the transformed filter.
With d a tile, g a filter, and ⊙ summed over the input's channels,

    Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A,   and backward   ∂d = B[(G g Gᵀ)ᵀ ⊙ (A ∂Y Aᵀ)]Bᵀ.

Filters are transformed once for all steps of an attack, which is why only attacks do this: a single
pass would lose on the filters what it wins. It is exact but for rounding, a few times that of the
direct sum in single precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

# With fewer, the transforms cost about what the products that are saved do.
_CHANNELS, _TILES = 256, 32
_INPUT = torch.tensor(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
    dtype=torch.float64,
)  # Bᵀ
_FILTER = (
    torch.tensor(
        [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]],
        dtype=torch.float64,
    )
    / 24
)  # G
_OUTPUT = torch.tensor(
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    dtype=torch.float64,
)  # Aᵀ
# Both sides of a tile at once.
_INPUTS, _FILTERS, _OUTPUTS = (torch.kron(one, one) for one in (_INPUT, _FILTER, _OUTPUT))


@contextmanager
def fewer_products(model: nn.Module) -> Iterator[None]:
    """Let the wide convolutions of a network on a processor work by tiles for a while.

    Nobody must want gradients of their weights meanwhile: these get none.
    """
    wide = [part for part in model.modules() if _is_wide(part)]
    for part in wide:
        part.forward = _Tiled(part)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for part in wide:
            del part.forward


def _is_wide(part: nn.Module) -> bool:
    return (
        type(part) is nn.Conv2d
        and part.weight.device.type == "cpu"
        and part.weight.dtype in (torch.float32, torch.float64)
        and (part.kernel_size, part.stride, part.dilation) == ((3, 3), (1, 1), (1, 1))
        and (part.padding, part.padding_mode, part.groups) == ((1, 1), "zeros", 1)
        and min(part.in_channels, part.out_channels) >= _CHANNELS
        and "forward" not in vars(part)
    )


class _Tiled:
    """The forward of one convolution; its transformed filters are made anew when weights change."""

    def __init__(self, part: nn.Conv2d) -> None:
        self.part = part
        self.weight: Tensor | None = None
        self.version = -1
        self.filters = part.weight.new_empty(0)

    def __call__(self, images: Tensor) -> Tensor:
        part, weight = self.part, self.part.weight
        if not _suits(images) or images.dtype != weight.dtype:
            return conv2d(images, weight, part.bias, padding=1)
        if weight is not self.weight or weight._version != self.version:
            self.weight, self.version = weight, weight._version
            self.filters = _transformed(weight.detach())
        found: Tensor = _Products.apply(images, self.filters)  # type: ignore[no-untyped-call]
        return found if part.bias is None else found + part.bias.detach().view(-1, 1, 1)


def _suits(images: Tensor) -> bool:
    count, _, height, width = images.shape
    whole = height % 4 == 0 and width % 4 == 0
    last = images.is_contiguous(memory_format=torch.channels_last)
    return whole and last and count * (height // 4) * (width // 4) >= _TILES


def _transformed(weight: Tensor) -> Tensor:
    """G g Gᵀ of all filters: 36 matrices, a row for each channel of the output."""
    outer, inner = weight.shape[:2]
    places = weight.permute(2, 3, 0, 1).reshape(9, outer * inner)
    return (_FILTERS.to(weight) @ places).view(36, outer, inner)


class _Products(torch.autograd.Function):
    """Forward and backward by the same filters; these are constants."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, filters: Tensor) -> Tensor:
        ctx.save_for_backward(filters)
        count, _, height, width = images.shape
        down, along = height // 4, width // 4
        framed = pad(images.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
        by_image, by_row, by_place, by_channel = framed.stride()
        tiles = framed.as_strided(
            (6, 6, count, down, along, framed.shape[3]),
            (by_row, by_place, by_image, 4 * by_row, 4 * by_place, by_channel),
        )
        outer, inner = filters.shape[1:]
        seen = (_INPUTS.to(images) @ tiles.reshape(36, -1)).view(36, -1, inner)
        products = torch.bmm(seen, filters.transpose(1, 2)).view(36, -1)
        found = (_OUTPUTS.to(images) @ products).view(4, 4, count, down, along, outer)
        laid = found.permute(2, 3, 0, 4, 1, 5).contiguous()
        return laid.view(count, height, width, outer).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        (slope,), (filters,) = slopes, ctx.saved_tensors
        count, outer, height, width = slope.shape
        down, along, inner = height // 4, width // 4, filters.shape[2]
        tiles = slope.permute(0, 2, 3, 1).reshape(count, down, 4, along, 4, outer)
        spread = _OUTPUTS.T.to(slope) @ tiles.permute(2, 4, 0, 1, 3, 5).reshape(16, -1)
        products = torch.bmm(spread.view(36, -1, outer), filters).view(36, -1)
        parts = (_INPUTS.T.to(slope) @ products).view(6, 6, count, down, along, inner)
        return _overlapped(parts), None


def _overlapped(parts: Tensor) -> Tensor:
    """Add up 6×6 tiles that stand 4 apart, without the frame around the image."""
    count, down, along, inner = parts.shape[2:]
    whole = parts.new_zeros(count, down + 1, 4, along + 1, 4, inner)
    tiles = parts.permute(2, 3, 0, 4, 1, 5)  # image, down, row, along, column, channel
    whole[:, :-1, :, :-1] = tiles[:, :, :4, :, :4]
    whole[:, 1:, :2, :-1] += tiles[:, :, 4:, :, :4]
    whole[:, :-1, :, 1:, :2] += tiles[:, :, :4, :, 4:]
    whole[:, 1:, :2, 1:, :2] += tiles[:, :, 4:, :, 4:]
    flat = whole.view(count, 4 * down + 4, 4 * along + 4, inner)
    return flat[:, 1 : 4 * down + 1, 1 : 4 * along + 1].contiguous().permute(0, 3, 1, 2)
