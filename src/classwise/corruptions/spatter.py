"""Spatter on the lens: drops of water with bright and dark rims, or opaque mud.

The rims of water come from an edge detector and the distance to its edges, whole levels at every
step; these are the steps of OpenCV that the corruption's script calls, for whole batches.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from classwise.corruptions.chance import Chance
from classwise.corruptions.filters import beyond, gaussian
from classwise.corruptions.severities import Spatter
from classwise.corruptions.weather import grey

WATER, MUD = (175 / 255, 238 / 255, 238 / 255), (63 / 255, 42 / 255, 20 / 255)
_WEAK, _STRONG = 50, 150  # gradients that may be, and that are, an edge
_FARTHEST = 20.0  # distances beyond are alike
_STRAIGHT, _DIAGONAL, _KNIGHT = 1.0, 1.4, 2.1969  # lengths of the moves that distances are made of
_LIGHT = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))  # from below right
_TAN = 13573 / 32768  # of 22.5 degrees, in as many bits as the detector has


def spatter(images: Tensor, level: Spatter, chance: Chance) -> Tensor:
    """Drops where smooth noise is high."""
    drawn = chance.normal("drops", (1, *images.shape[-2:]))
    liquid = gaussian(drawn * level.deviation + level.mean, level.blur)
    if level.mud:
        cover = gaussian((liquid > level.threshold).float(), level.last)
        cover = cover.masked_fill(cover < 0.8, 0)
        return images * (1 - cover) + _coloured(cover, MUD, images)
    liquid = liquid.masked_fill(liquid < level.threshold, 0)
    levels = (255 * liquid).floor_() % 256  # a byte, which wraps where noise is above 1
    wet = levels * _rims(levels)
    most = wet.amax((2, 3), keepdim=True)
    share = torch.where(most > 0, wet / most, 0.0) * level.last  # without a drop nothing is wet
    return images + _coloured(share, WATER, images)


def _coloured(share: Tensor, colour: tuple[float, float, float], images: Tensor) -> Tensor:
    full = share * images.new_tensor(colour).view(1, 3, 1, 1)
    return grey(full) if images.shape[1] == 1 else full


def _rims(levels: Tensor) -> Tensor:
    """How bright water is, by its distance from the edges of drops and the light."""
    away = distances(edges(levels)).clamp_(max=_FARTHEST)
    smooth = _mean9(away).floor_()
    even = _equalised(smooth)
    light = levels.new_tensor(_LIGHT)[None, None]
    lit = F.conv2d(_mirrored(even, 1), light).round_().clamp_(0, 255)
    return _mean9(lit).round_()


def edges(levels: Tensor) -> Tensor:
    """Canny's edges of byte images, as a mask."""
    wide = _clamped(levels, 1)
    smooth = levels.new_tensor([1.0, 2.0, 1.0])
    slope = levels.new_tensor([-1.0, 0.0, 1.0])
    right = F.conv2d(wide, (smooth[:, None] * slope)[None, None])
    down = F.conv2d(wide, (slope[:, None] * smooth)[None, None])
    size = right.abs() + down.abs()
    around = F.pad(size, (1, 1, 1, 1))
    height, width = size.shape[-2:]

    def near(rows: int, columns: int) -> Tensor:
        return around[..., 1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    x, y = right.abs(), down.abs()
    flat = y < _TAN * x
    steep = y > (_TAN + 2) * x  # the tangent of 67.5 degrees is that of 22.5 and 2
    falling = (right < 0) ^ (down < 0)
    ridge = torch.where(
        flat,
        (size > near(0, -1)) & (size >= near(0, 1)),
        torch.where(
            steep,
            (size > near(-1, 0)) & (size >= near(1, 0)),
            torch.where(
                falling,
                (size > near(-1, 1)) & (size > near(1, -1)),
                (size > near(-1, -1)) & (size > near(1, 1)),
            ),
        ),
    )
    weak = ridge & (size > _WEAK)
    return _grown(weak & (size > _STRONG), weak)


def _grown(sure: Tensor, allowed: Tensor) -> Tensor:
    """Weak edges that hang together with strong ones."""
    found, open_ = sure.float(), allowed.float()
    while True:
        more = F.max_pool2d(found, 3, 1, 1) * open_
        if bool((more == found).all()):
            return found > 0
        found = more


def distances(marked: Tensor) -> Tensor:
    """Distance to the nearest marked pixel in straight, diagonal and knight's moves.

    One pass down and one up, row after row for all images at once; along a row distances spread by
    a running minimum.
    """
    count, _, height, width = marked.shape
    infinite = float(2 * (height + width))  # where nothing is marked
    found = torch.where(marked[:, 0], 0.0, infinite)
    ramp = torch.arange(width, device=marked.device) * _STRAIGHT
    for _ in range(2):
        edge = found.new_full((count, width + 4), 2 * infinite)
        before, above = edge, edge.clone()
        rows = []
        for row in found.unbind(1):
            best = torch.minimum(row, above[:, 2:-2] + _STRAIGHT)
            for shift, cost in ((1, _DIAGONAL), (2, _KNIGHT)):
                sides = torch.minimum(
                    above[:, 2 - shift : 2 - shift + width], above[:, 2 + shift : 2 + shift + width]
                )
                best = torch.minimum(best, sides + cost)
            leap = torch.minimum(before[:, 1 : 1 + width], before[:, 3 : 3 + width])
            best = torch.minimum(best, leap + _KNIGHT)
            best = torch.minimum(best, (best - ramp).cummin(1).values + ramp)
            rows.append(best)
            before, above = above, F.pad(best, (2, 2), value=2 * infinite)
        found = torch.stack(rows, 1).flip(1, 2)  # and then from the other end
    return found[:, None]


def _equalised(levels: Tensor) -> Tensor:
    """Byte images whose levels are spread evenly from 0 to 255."""
    flat = levels.flatten(1).long()
    counts = torch.zeros(len(flat), 256, device=levels.device)
    counts.scatter_add_(1, flat, torch.ones_like(flat, dtype=counts.dtype))
    first = (counts > 0).float().argmax(1, keepdim=True)
    least = counts.gather(1, first)
    rest = flat.shape[1] - least
    table = ((counts.cumsum(1) - least) * (255 / rest.clamp_min(1))).round_().clamp_(0, 255)
    alone = rest == 0  # an image of one level keeps it
    spread = torch.where(alone, levels.flatten(1), table.gather(1, flat))
    return spread.view_as(levels)


def _mean9(levels: Tensor) -> Tensor:
    return F.avg_pool2d(_mirrored(levels, 1), 3, 1)


def _mirrored(levels: Tensor, reach: int) -> Tensor:
    height, width = (
        beyond(torch.arange(-reach, size + reach, device=levels.device), size, "mirror")
        for size in levels.shape[-2:]
    )
    return levels[..., height, :][..., width]


def _clamped(levels: Tensor, reach: int) -> Tensor:
    return F.pad(levels, (reach,) * 4, mode="replicate")
