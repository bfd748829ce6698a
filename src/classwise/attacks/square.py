"""Square: random search with squares that shrink (Andriushchenko et al., 2020).

It only asks the model for logits, so it also works where gradients lie or are not to be had.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from classwise.attacks.ball import per_image
from classwise.attacks.losses import LogitGap
from classwise.attacks.search import Bounded, Rows, Scene, bounds, draw_keys
from classwise.types import Images, Labels, Logits, PerSample

# The square's area halves after each of these queries.
_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
_TILES = 5  # along each side, at the start of the L2 attack
_DEEPEST = 8  # queries asked at once
_PATIENCE = 0.3  # changes expected to be kept among the queries asked at once
_MEMORY = 0.05  # weight of the latest query in the share of kept changes


@dataclass(slots=True)
class Hunt(Bounded):
    """A sample and the best point met so far."""

    best: Images
    gap: PerSample  # true logit minus best other at the best point
    luck: PerSample  # share of the latest queries whose change was kept


class Squares(NamedTuple):
    """Where proposals differ from the best points."""

    top: Labels
    left: Labels
    side: Labels


@dataclass(frozen=True, slots=True)
class Square:
    """Change one random square at a time and keep the change if the logit gap shrinks.

    Linf: the start is vertical stripes of ±ε; a square is set to x ± ε, a sign per channel.
    L2: the start is a grid of bumps; a square takes the budget of another square and what is
    unused, in the shape of a two-sided bump. The area is p·h·w, halved along a fixed schedule.

    Late in the search hardly a change is kept, so several queries are asked at once, all of them
    changes of the best point; those after the first that is kept are asked again. The answers are
    the same as one by one, in fuller batches.
    """

    name: str = "square"
    queries: int = 5000
    p: float = 0.8
    restarts: int = 1
    needs_gradient: bool = False

    @property
    def evaluations(self) -> int:
        """Every query."""
        return self.queries

    def rounds(self, num_classes: int) -> int:  # noqa: ARG002
        """One per restart."""
        return self.restarts

    def begin(self, scene: Scene, rows: Rows) -> Hunt:
        """Start from stripes or bumps."""
        draws, (channels, height, width) = scene.draws(self.name), rows.images.shape[1:]
        if scene.ball.name == "Linf":
            signs = _signs(draws.uniform(rows.keys(), (channels, 1, width), rows.images.dtype))
            offset = signs * per_image(rows.radius)
        else:
            tiles = min(_TILES, height, width)
            signs = draws.uniform(rows.keys(), (channels, tiles, tiles), rows.images.dtype)
            offset = _grid_of_bumps(_signs(signs), height, width)
            offset *= per_image(rows.radius / _lengths(offset))
        start = _as(rows.images, (rows.images + offset).clamp_(0, 1))
        endless = torch.full_like(rows.radius, float("inf"))
        none, lucky = torch.zeros_like(rows.labels), torch.ones_like(rows.radius)
        return Hunt(rows, start, none, *bounds(rows, scene.ball), start, endless, lucky)

    def evaluate(self, scene: Scene, state: Hunt) -> tuple[Logits, None]:
        """Ask until a change is kept, and keep it."""
        count, depth = len(state.clock), self._depth(scene, state)
        points, squares = self.proposals(scene, state, depth)
        logits = _ask(scene, state, points, squares)
        labels = state.rows.labels.repeat_interleave(depth)
        gaps = -LogitGap(labels)(logits).to(state.gap.dtype).view(count, depth)
        # the start is no change: nothing was asked before it, and its gap is below infinity
        better = gaps < state.gap[:, None]
        # with scores that tie, a query may fool the model without a smaller gap
        ends = better | (logits.argmax(1) != labels).view(count, depth)
        left = (self.queries - state.clock).clamp_(max=depth)
        taken = torch.where(ends.any(1), ends.int().argmax(1) + 1, left).minimum(left)
        chosen = torch.arange(count, device=labels.device) * depth + taken - 1
        kept = better.view(-1)[chosen]
        state.point = points[chosen] if depth > 1 else points
        state.best = torch.where(per_image(kept), state.point, state.best)
        state.gap = torch.where(kept, gaps.view(-1)[chosen], state.gap)
        state.luck = state.luck * (1 - _MEMORY * taken) + _MEMORY * kept
        state.clock = state.clock + taken
        if scene.patches is not None:
            rows = kept.nonzero().squeeze(1)
            scene.patches.learn(rows, chosen[rows])
        return logits[chosen], None

    def advance(self, scene: Scene, state: Hunt) -> None:
        """Nothing is left to do: the next queries follow from the best point."""

    def _depth(self, scene: Scene, state: Hunt) -> int:
        """How many queries to ask at once: few enough that most will count."""
        room = min(_DEEPEST, scene.width // len(state.clock))
        if room <= 1 or self.restarts > 2:  # a team of restarts must keep one clock
            return 1
        return max(1, min(room, int(_PATIENCE / max(float(state.luck.mean()), 1e-6))))

    def proposals(self, scene: Scene, state: Hunt, depth: int = 1) -> tuple[Images, Squares | None]:
        """The next `depth` queries of every sample, all of them changes of its best point.

        Query 0 changes nothing: it asks about the start. With the squares they differ in, if it
        is one square each.
        """
        rows, (channels, height, width) = state.rows, state.best.shape[1:]
        linf = scene.ball.name == "Linf"
        clock = state.clock[:, None] + torch.arange(depth, device=state.clock.device)
        sides = _sides(self.queries, self.p, height, width, 1 if linf else 3, clock.device)
        side = sides[clock.clamp(max=self.queries).flatten()]
        keys = draw_keys(rows.index[:, None], rows.round[:, None], clock).flatten()
        shape = (channels + 2,) if linf else (channels + 5,)
        numbers = scene.draws(self.name).uniform(keys, shape, rows.images.dtype)
        signs = _signs(numbers[:, :channels]).view(-1, channels, 1, 1)
        corners = numbers[:, channels:]
        top, left = _corner(corners[:, 0], side, height), _corner(corners[:, 1], side, width)
        inside = _square(top, left, side, height, width)
        if linf:
            up = signs.view(-1, depth, channels, 1, 1) > 0
            change = inside.view(-1, depth, 1, height, width)
            colour = torch.where(up, state.high[:, None], state.low[:, None])
            points = torch.where(change, colour, state.best[:, None]).flatten(0, 1)
            return _as(state.best, points), Squares(top, left, side)
        # numbers 2 and 3 place the square that gives its budget away, number 4 turns the bump
        there = _corner(corners[:, 2], side, height), _corner(corners[:, 3], side, width)
        other = _square(*there, side, height, width)
        bump = _placed(
            _bumps(height, width, clock.device), side, top, left, corners[:, 4] < 0.5, height, width
        )
        best, images, radius = (
            one.repeat_interleave(depth, 0) for one in (state.best, rows.images, rows.radius)
        )
        offset = _shifted(best - images, radius, inside, other, signs * bump)
        moved = scene.ball.project(images + offset, images, radius)
        start = per_image(clock.flatten() == 0)
        return _as(state.best, torch.where(start, best, moved)), None


def _ask(scene: Scene, state: Hunt, points: Images, squares: Squares | None) -> Logits:
    """Logits of the proposals; where squares are small, little has to be redone for them."""
    if scene.patches is not None:
        if squares is not None and bool((state.clock > 0).all()):
            size, count = int(squares.side.max()), len(state.clock)
            if scene.patches.remember(size, state.rows.keys(), state.best):
                owner = torch.arange(count, device=points.device)
                owner = owner.repeat_interleave(len(points) // count)
                return scene.patches.ask(owner, points, squares.top, squares.left, size)
        scene.patches.forget()
    with torch.no_grad():
        return scene.model(points)


def side_of_square(query: int, p: float, height: int, width: int) -> int:
    """Side of the square at a query: its area is p·h·w, halved by the schedule.

    >>> side_of_square(0, 0.8, 32, 32), side_of_square(4999, 0.8, 32, 32)
    (29, 3)
    """
    share = p / 2 ** sum(query > limit for limit in _HALVINGS)
    return min(max(round(sqrt(share * height * width)), 1), height, width)


@lru_cache(maxsize=32)
def _sides(
    queries: int, p: float, height: int, width: int, least: int, home: torch.device
) -> Tensor:
    sides = [side_of_square(query, p, height, width) for query in range(queries + 1)]
    least = min(least, height, width)
    return torch.tensor([0, *(max(side, least) for side in sides[1:])], device=home)


def _signs(numbers: Tensor) -> Tensor:
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


def _as(pattern: Images, images: Images) -> Images:
    """Lay images out in memory as the pattern is."""
    last = pattern.is_contiguous(memory_format=torch.channels_last)
    return images.contiguous(memory_format=torch.channels_last) if last else images


def _lengths(offset: Tensor) -> PerSample:
    return offset.square().sum((1, 2, 3)).sqrt().clamp(min=1e-12)


# The L2 attack -----------------------------------------------------------------------------


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
