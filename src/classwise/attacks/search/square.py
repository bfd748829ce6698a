"""Square: random search with squares that shrink (Andriushchenko et al., 2020).

It only asks the model for logits, so it also works where gradients lie or are not to be had.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import torch
from torch import Tensor

from classwise.attacks.ball import per_image
from classwise.attacks.losses import LogitGap
from classwise.attacks.search.engine import Scene
from classwise.attacks.search.square_moves import Query, Squares, moves_in, signs_of
from classwise.attacks.search.state import Bounded, Rows, draw_keys
from classwise.types import Images, Logits, PerSample

# The square's area halves after each of these queries.
_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
_DEEPEST = 8  # queries asked at once
_PATIENCE = 0.3  # changes expected to be kept among the queries asked at once
_MEMORY = 0.05  # weight of the latest query in the share of kept changes


@dataclass(slots=True)
class Hunt(Bounded):
    """A sample and the best point met so far."""

    best: Images
    gap: PerSample  # true logit minus best other at the best point
    luck: PerSample  # share of the latest queries whose change was kept


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
        offset = moves_in(scene.ball).start(scene.draws(self.name), rows)
        start = _as(rows.images, (rows.images + offset).clamp_(0, 1))
        endless = torch.full_like(rows.radius, float("inf"))
        none, lucky = torch.zeros_like(rows.labels), torch.ones_like(rows.radius)
        low, high = scene.ball.bounds(rows.images, rows.radius)
        return Hunt(rows, start, none, low, high, start, endless, lucky)

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
        moves = moves_in(scene.ball)
        clock = state.clock[:, None] + torch.arange(depth, device=state.clock.device)
        sides = _sides(self.queries, self.p, height, width, moves.least, clock.device)
        keys = draw_keys(rows.index[:, None], rows.round[:, None], clock).flatten()
        shape = (channels + moves.numbers,)
        numbers = scene.draws(self.name).uniform(keys, shape, rows.images.dtype)
        query = Query(
            depth,
            clock.flatten() == 0,
            sides[clock.clamp(max=self.queries).flatten()],
            signs_of(numbers[:, :channels]).view(-1, channels, 1, 1),
            numbers[:, channels:],
        )
        points, squares = moves.propose(state.best, state, query)
        return _as(state.best, points), squares


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


def _as(pattern: Images, images: Images) -> Images:
    """Lay images out in memory as the pattern is."""
    last = pattern.is_contiguous(memory_format=torch.channels_last)
    return images.contiguous(memory_format=torch.channels_last) if last else images
