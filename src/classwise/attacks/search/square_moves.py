"""What Square tries: stripes and squares of one colour under Linf, bumps under L2."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from classwise.attacks.ball import L2, Ball, Linf, per_image
from classwise.attacks.search.state import Bounded, Rows
from classwise.draws import Draws
from classwise.errors import ClasswiseError
from classwise.types import Images, Labels, PerSample

_TILES = 5  # along each side, at the start of the L2 attack


class Squares(NamedTuple):
    """Where proposals differ from the best points."""

    top: Labels
    left: Labels
    side: Labels


class Query(NamedTuple):
    """The random choices of the next queries, `depth` of them for every sample."""

    depth: int
    first: Tensor  # whether it is the very first query, which asks about the start
    side: Labels
    signs: Tensor  # ±1 for each channel
    numbers: Tensor  # uniform numbers: where the square is, and whatever else the moves need


class Moves(Protocol):
    """How a ball is searched by squares."""

    @property
    def least(self) -> int:
        """The smallest side of a square."""

    @property
    def numbers(self) -> int:
        """Uniform numbers that a query needs beside its signs."""

    def start(self, draws: Draws, rows: Rows) -> Tensor:
        """Offset of the first point."""

    def propose(self, best: Images, state: Bounded, query: Query) -> tuple[Images, Squares | None]:
        """Changes of the best points, and the squares they differ in, if it is one each."""


class Stripes:
    """Linf: the start is vertical stripes of ±ε; a square is set to x ± ε, a sign per channel."""

    least, numbers = 1, 2

    def start(self, draws: Draws, rows: Rows) -> Tensor:
        """Stripes of a random sign."""
        channels, _, width = rows.images.shape[1:]
        noise = draws.uniform(rows.keys(), (channels, 1, width), rows.images.dtype)
        return signs_of(noise) * per_image(rows.radius)

    def propose(self, best: Images, state: Bounded, query: Query) -> tuple[Images, Squares | None]:
        """Paint one square."""
        channels, height, width = best.shape[1:]
        top, left = _corners(query, height, width)
        inside = _square(top, left, query.side, height, width)
        up = query.signs.view(-1, query.depth, channels, 1, 1) > 0
        change = inside.view(-1, query.depth, 1, height, width)
        colour = torch.where(up, state.high[:, None], state.low[:, None])
        points = torch.where(change, colour, best[:, None]).flatten(0, 1)
        return points, Squares(top, left, query.side)


class Bumps:
    """L2: a grid of bumps; a square takes the budget of another and what is unused, as a bump."""

    least, numbers = 3, 5

    def start(self, draws: Draws, rows: Rows) -> Tensor:
        """A grid of bumps of random signs, of the radius's length."""
        channels, height, width = rows.images.shape[1:]
        tiles = min(_TILES, height, width)
        noise = draws.uniform(rows.keys(), (channels, tiles, tiles), rows.images.dtype)
        offset = _grid_of_bumps(signs_of(noise), height, width)
        return offset * per_image(rows.radius / _lengths(offset))

    def propose(self, best: Images, state: Bounded, query: Query) -> tuple[Images, Squares | None]:
        """Move the budget of one square into another."""
        rows, (_, height, width) = state.rows, best.shape[1:]
        side, numbers, home = query.side, query.numbers, best.device
        top, left = _corners(query, height, width)
        inside = _square(top, left, side, height, width)
        # numbers 2 and 3 place the square that gives its budget away, number 4 turns the bump
        there = _corner(numbers[:, 2], side, height), _corner(numbers[:, 3], side, width)
        other = _square(*there, side, height, width)
        table = _bumps(height, width, home)
        bump = _placed(table, side, top, left, numbers[:, 4] < 0.5, height, width)
        at, images, radius = (
            one.repeat_interleave(query.depth, 0) for one in (best, rows.images, rows.radius)
        )
        offset = _shifted(at - images, radius, inside, other, query.signs * bump)
        moved = L2().project(images + offset, images, radius)
        return torch.where(per_image(query.first), at, moved), None


_MOVES: dict[type, Moves] = {Linf: Stripes(), L2: Bumps()}


def moves_in(ball: Ball) -> Moves:
    """The moves for a kind of ball."""
    if type(ball) not in _MOVES:
        raise ClasswiseError(f"square has no moves for {ball.name}; use another attack there")
    return _MOVES[type(ball)]


def signs_of(numbers: Tensor) -> Tensor:
    """Uniform numbers to ±1."""
    return torch.where(numbers < 0.5, -1.0, 1.0).to(numbers.dtype)


def _corner(number: PerSample, side: Labels, extent: int) -> Labels:
    """Return a first row or column such that the square fits."""
    return (number * (extent - side + 1)).long().clamp_(max=extent - 1)


def _square(top: Labels, left: Labels, side: Labels, height: int, width: int) -> Tensor:
    """Which pixels lie in each sample's square, n×1×h×w."""
    rows, columns = _window(top, side, height), _window(left, side, width)
    return rows[:, None, :, None] & columns[:, None, None, :]


def _window(begin: Labels, side: Labels, extent: int) -> Tensor:
    places = torch.arange(extent, device=begin.device)
    return (places >= begin[:, None]) & (places < (begin + side)[:, None])


def _lengths(offset: Tensor) -> PerSample:
    return offset.square().sum((1, 2, 3)).sqrt().clamp(min=1e-12)


def _corners(query: Query, height: int, width: int) -> tuple[Labels, Labels]:
    """First row and column of each square."""
    side, numbers = query.side, query.numbers
    return _corner(numbers[:, 0], side, height), _corner(numbers[:, 1], side, width)


def bump(height: int, width: int) -> Tensor:
    """A hill of h1×h2 pixels whose rings fall off like a sum of inverse squares.

    η[r, s] = Σ_{k=0}^{M(r, s)} 1 / (n + 1 − k)², n = ⌊h1/2⌋,
    M(r, s) = n − max(|r − ⌊h1/2⌋ − 1|, |s − ⌊h2/2⌋ − 1|), r and s counted from 1

    >>> bump(3, 3)[1].tolist()
    [0.25, 1.25, 0.25]
    """
    n = height // 2
    down = (torch.arange(1, height + 1) - height // 2 - 1).abs()
    across = (torch.arange(1, width + 1) - width // 2 - 1).abs()
    rings = n - torch.maximum(down[:, None], across[None, :])
    sums = torch.tensor([1.0 / (n + 1 - k) ** 2 for k in range(n + 1)]).cumsum(0)
    return torch.where(rings >= 0, sums[rings.clamp(min=0)], 0.0)


def two_sided_bump(side: int) -> Tensor:
    """A hill beside a hollow in one square, of Euclidean length 1."""
    half = side // 2
    whole = torch.cat((bump(side, half), -bump(side, side - half)), dim=1)
    return whole / whole.square().sum().sqrt()


@lru_cache(maxsize=32)
def _bumps(height: int, width: int, home: torch.device) -> Tensor:
    """All sides' bumps, each in the upper left corner of a large enough square."""
    largest = min(height, width)
    table = torch.zeros(largest + 1, largest, largest)
    for side in range(1, largest + 1):
        table[side, :side, :side] = two_sided_bump(side)
    return table.to(home)


def _placed(
    table: Tensor, side: Labels, top: Labels, left: Labels, turned: Tensor, height: int, width: int
) -> Tensor:
    """The bump of each sample's side at its place, n×1×h×w; zero outside."""
    most = table.shape[1] - 1
    rows = torch.arange(height, device=side.device)[None, :, None] - top[:, None, None]
    columns = torch.arange(width, device=side.device)[None, None, :] - left[:, None, None]
    inside = (rows >= 0) & (rows <= most) & (columns >= 0) & (columns <= most)
    rows, columns = rows.clamp(0, most), columns.clamp(0, most)
    turned = turned[:, None, None]
    first, second = torch.where(turned, columns, rows), torch.where(turned, rows, columns)
    return (table[side[:, None, None], first, second] * inside)[:, None]


def _grid_of_bumps(signs: Tensor, height: int, width: int) -> Tensor:
    """A grid of bumps, as many along each side as there are signs; the rim stays flat."""
    tiles = signs.shape[-1]
    side = min(height, width) // tiles
    tile = two_sided_bump(side).to(signs)
    block = torch.kron(signs.flatten(0, 1), tile).view(*signs.shape[:2], tiles * side, tiles * side)
    above, before = (height - tiles * side) // 2, (width - tiles * side) // 2
    rest = (width - tiles * side - before, height - tiles * side - above)
    return torch.nn.functional.pad(block, (before, rest[0], above, rest[1]))


def _shifted(
    offset: Tensor, radius: PerSample, inside: Tensor, other: Tensor, bump: Tensor
) -> Tensor:
    """Move the budget of one square, and what is unused, into another.

    ν_temp = ρη* + ν_W1/‖ν_W1‖, ε_avail² = ‖ν_{W1∪W2}‖² + (ε² − ‖ν‖²)/c per channel,
    ν_W2 = 0, ν_W1 = ε_avail·ν_temp/‖ν_temp‖
    """
    channels = offset.shape[1]
    squares = offset.square()
    unused = (radius.square() - squares.sum((1, 2, 3))).clamp(min=0) / channels
    own = (offset * inside) / _per_channel(squares * inside).sqrt().clamp(min=1e-12)
    shape = own + bump
    budget = _per_channel(squares * (inside | other)) + per_image(unused)
    shape *= budget.sqrt() / _per_channel(shape.square()).sqrt().clamp(min=1e-12)
    return torch.where(inside, shape, offset.masked_fill(other, 0))


def _per_channel(values: Tensor) -> Tensor:
    return values.sum((2, 3), keepdim=True)
