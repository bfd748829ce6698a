"""Wide 3×3 convolutions with fewer products, while an attack asks a network whose weights stay.

Winograd's minimal filtering F(4×4, 3×3): a tile of 4×4 outputs, which takes 144 products a pair of
channels, is had from 36, between the transformed 6×6 tile of the input and the transformed filter.
With d a tile, g a filter, and ⊙ summed over the input's channels,

    Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A.

Slopes go back by the same rule, as the convolution with every filter turned round. Filters are
transformed once for all steps of an attack, which is why only attacks do this: a single pass would
lose on the filters what it wins. It is exact but for rounding, a few times that of the direct sum
in single precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d, pad

# With fewer, the transforms and their beginnings cost about what the products that are saved do:
# channels of either side, tiles of all images, and pairs of channels times tiles.
_CHANNELS, _TILES, _PAIRS = 256, 32, 6_000_000
_POINTS = 36  # of a transformed tile or filter
_FEW = 4  # tiles are few if there are so many times more channels
_ROUND = 16  # as many numbers as the widest registers hold
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
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
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
        self.made: dict[tuple[bool, bool], Tensor] = {}

    def __call__(self, images: Tensor) -> Tensor:
        part, weight = self.part, self.part.weight
        if not _suits(images, weight) or images.dtype != weight.dtype:
            return conv2d(images, weight, part.bias, padding=1)
        if weight is not self.weight or weight._version != self.version:
            self.weight, self.version, self.made = weight, weight._version, {}
        found: Tensor = _Products.apply(images, self)  # type: ignore[no-untyped-call]
        return found if part.bias is None else found + part.bias.detach().view(-1, 1, 1)

    def convolved(self, images: Tensor, back: bool) -> Tensor:
        """The convolution of images, or of slopes with every filter turned round."""
        count, inner, height, width = images.shape
        shape = (count, height // 4, width // 4)
        tiles = count * shape[1] * shape[2]
        few = _FEW * tiles <= inner
        if (back, few) not in self.made:
            weight = self.part.weight.detach()
            turned = weight.flip(2, 3).transpose(0, 1) if back else weight
            self.made[back, few] = _transformed(turned, few)
        seen = _INPUTS.to(images) @ _cut(images)
        products = (_of_few if few else _of_many)(seen, self.made[back, few])
        found = _OUTPUTS.to(images) @ products
        return _laid(found.permute(2, 1, 0)[:tiles] if few else found, shape)


def _suits(images: Tensor, weight: Tensor) -> bool:
    count, _, height, width = images.shape
    whole = height % 4 == 0 and width % 4 == 0
    last = images.is_contiguous(memory_format=torch.channels_last)
    tiles, pairs = count * (height // 4) * (width // 4), weight.shape[0] * weight.shape[1]
    return whole and last and tiles >= _TILES and tiles * pairs >= _PAIRS


class _Products(torch.autograd.Function):
    """A convolution whose filters are constants."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, tiled: _Tiled) -> Tensor:
        ctx.tiled = tiled
        return tiled.convolved(images, back=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        (slope,) = slopes
        last = slope.contiguous(memory_format=torch.channels_last)
        return ctx.tiled.convolved(last, back=True), None


def _transformed(weight: Tensor, few: bool) -> Tensor:
    """G g Gᵀ of all filters, in the layout that the products want."""
    outer, inner = weight.shape[:2]
    places = weight.permute(0, 2, 3, 1).reshape(outer, 9, inner)
    if few:  # outputs, places, channels
        return _FILTERS.to(weight) @ places
    places = places.transpose(0, 1).reshape(9, -1)
    return (_FILTERS.to(weight) @ places).view(_POINTS * outer, inner, 1, 1)


def _cut(images: Tensor) -> Tensor:
    """The 6×6 tiles of images, which overlap by two, with zeros around: tile, place, channel."""
    count, inner, height, width = images.shape
    framed = pad(images.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
    image, row, place, channel = framed.stride()
    tiles = framed.as_strided(
        (count, height // 4, width // 4, 6, 6, inner),
        (image, 4 * row, 4 * place, row, place, channel),
    )
    return tiles.reshape(-1, _POINTS, inner)


# Products of all 36 places at once are a 1×1 convolution in 36 groups: several times as fast as
# products of matrices where these have no code for the widest registers. It lays out its filters
# anew in every call. So filters are what there is less of: of few tiles the tiles themselves.
def _of_many(seen: Tensor, filters: Tensor) -> Tensor:
    found = conv2d(_as_images(seen), filters, groups=_POINTS)
    return found.permute(0, 2, 3, 1).reshape(len(seen), _POINTS, -1)


def _of_few(seen: Tensor, filters: Tensor) -> Tensor:
    """The same, the other way round: output, place, tile; of some tiles more, which are zeros."""
    tiles, _, inner = seen.shape
    outer, more = len(filters), -tiles % _ROUND
    turned = pad(seen.transpose(0, 1), (0, 0, 0, more)).reshape(-1, inner, 1, 1)
    found = conv2d(_as_images(filters), turned, groups=_POINTS)
    return found.permute(0, 2, 3, 1).reshape(outer, _POINTS, tiles + more)


def _as_images(rows: Tensor) -> Tensor:
    """Rows as places of images: of sixteen, if they are not too small, as one thread likes it."""
    count, width = rows.shape[0], rows.shape[1] * rows.shape[2]
    many = 16 if count % 16 == 0 and count >= 512 else 1  # batches of fewer it leaves to others
    return rows.view(many, 1, count // many, width).permute(0, 3, 1, 2)


def _laid(found: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Images of 4×4 tiles that stand side by side."""
    count, down, along = shape
    tiles = found.reshape(count, down, along, 4, 4, -1).permute(0, 1, 3, 2, 4, 5)
    return tiles.reshape(count, 4 * down, 4 * along, -1).contiguous().permute(0, 3, 1, 2)
