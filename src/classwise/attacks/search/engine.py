"""The loop under every attack whose verdict is `any`: samples leave as they fall, others move up.

A search keeps one row of state per sample. Each row has its own clock, so a row that is done can
be replaced by a waiting sample at any moment and the working batch stays full. The first restart
or target is tried alone; who survives it faces the others, eight at a time, as a team of rows in
step, so that a few survivors fill the batch, too. Neither order nor batch size changes what a team
finds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from classwise.attacks.ball import Ball, Room
from classwise.attacks.losses import LogitGap
from classwise.attacks.quick.patches import Patches
from classwise.attacks.search.state import Bounded, Rows, State, each, join, pick, take
from classwise.draws import Draws
from classwise.errors import ClasswiseError
from classwise.types import Images, Labels, LogitModel, Logits, PerSample

_TEAM = 8  # restarts or targets tried at once after the first; the standard suite has nine in all
_REFILL = 0.25  # share of the working batch that must be free before waiting samples move up

_ROUNDING = 16  # units in the last place of the larger logit


@dataclass(frozen=True, slots=True)
class Scene:
    """What all samples of an attack share."""

    model: LogitModel
    ball: Ball
    seed: int
    num_classes: int
    width: int = 64  # images in one pass; a whole team at the least
    patches: Patches | None = None  # the same model for images with small changes
    careful: bool = False  # a fall that a second look does not confirm lets the search go on

    def draws(self, attack: str, purpose: str = "attack") -> Draws:
        """Random numbers of one attack, the same whatever its options."""
        return Draws(self.seed, f"{purpose} {attack.partition('(')[0]}")


S = TypeVar("S", bound=State)


class Search(Protocol[S]):
    """An attack as evaluations of one point per sample."""

    @property
    def name(self) -> str:
        """The name it is recorded under."""

    @property
    def evaluations(self) -> int:
        """How many points a round looks at."""

    def rounds(self, num_classes: int) -> int:
        """How many restarts or targets there are."""

    def begin(self, scene: Scene, rows: Rows) -> S:
        """Make fresh state, without asking the model."""

    def evaluate(self, scene: Scene, state: S) -> tuple[Logits, Tensor | None]:
        """Logits at the points, and which points count (None: all are inside the ball).

        Moves the clock on, by as many evaluations as each row took.
        """

    def advance(self, scene: Scene, state: S) -> None:
        """Choose the next points, in place."""


@dataclass(slots=True)
class Found:
    """What one attack did to each sample."""

    fallen: Tensor
    images: Images  # adversarial where fallen
    spent: Tensor  # evaluations
    gap: PerSample  # the smallest true-minus-best-other logit seen; at the fall, where one fell
    called: Labels  # the class a fallen sample was taken for


def run_search(scene: Scene, search: Search[Any], rows: Rows) -> Found:
    """Attack every row with the first restart or target, and what stands with the others."""
    count, home = len(rows.labels), rows.labels.device
    found = Found(
        torch.zeros(count, dtype=torch.bool, device=home),
        rows.images.clone(),
        torch.zeros(count, dtype=torch.int32, device=home),
        torch.full((count,), float("inf"), dtype=rows.radius.dtype, device=home),
        rows.labels.clone(),
    )
    rounds = range(search.rounds(scene.num_classes))
    teams = [rounds[:1], *(rounds[first : first + _TEAM] for first in rounds[1::_TEAM])]
    for team in teams:
        if team:
            _run_teams(scene, search, take(rows, ~found.fallen), found, team)
    return found


def _run_teams(scene: Scene, search: Search[Any], rows: Rows, found: Found, rounds: range) -> None:
    """Attack every row in all these rounds at once; one round that breaks it ends the others."""
    count, team = len(rows.labels), len(rounds)
    state: Any = None
    served = 0
    while True:
        busy = 0 if state is None else len(state.clock)
        room = max((scene.width - busy) // team, 0 if busy else 1)
        if served < count and room and (not busy or scene.width - busy >= _REFILL * scene.width):
            fresh = search.begin(scene, _teams(rows, served, served + room, rounds))
            state = fresh if state is None else join(state, fresh)
            served = min(count, served + room)
        if state is None or not len(state.clock):
            return
        before, place, labels = state.clock, state.rows.place, state.rows.labels
        logits, counts = search.evaluate(scene, state)
        found.spent.index_add_(0, place, (state.clock - before).to(found.spent.dtype))
        called = logits.argmax(1)
        wrong = called != labels
        gap = -LogitGap(labels)(logits).to(found.gap.dtype)
        if counts is not None:
            wrong &= counts
            gap = gap.where(counts, float("inf"))
        if scene.careful and bool(wrong.any()):
            called, gap, wrong = _look_again(scene, state, wrong, called, gap, only_asks(search))
        found.gap.scatter_reduce_(0, place, gap, "amin")
        over = state.clock >= search.evaluations
        if not bool((wrong | over).any()):
            search.advance(scene, state)
            continue
        broken = _first_ofeach(place, wrong.nonzero().squeeze(1))
        found.fallen[place[broken]] = True
        found.images[place[broken]] = state.point[broken]
        found.called[place[broken]], found.gap[place[broken]] = called[broken], gap[broken]
        state = take(state, ~(over | found.fallen[place]))
        if len(state.clock):
            search.advance(scene, state)


def _look_again(
    scene: Scene, state: State, wrong: Tensor, called: Labels, gap: PerSample, ties: bool
) -> tuple[Labels, PerSample, Tensor]:
    """Classes, gaps and who is wrong, with the fallen asked about once more."""
    rows = wrong.nonzero().squeeze(1)
    labels = state.rows.labels[rows]
    with torch.no_grad():
        logits = scene.model(pick(state.point, rows))
    gaps = -LogitGap(labels)(logits).to(gap.dtype)
    return (
        called.index_copy(0, rows, logits.argmax(1)),
        gap.index_copy(0, rows, gaps),
        wrong.index_copy(0, rows, surely_wrong(logits, labels, ties)),
    )


def only_asks(search: Search[Any]) -> bool:
    """Whether a search needs no gradients, as for models whose scores are steps."""
    return not getattr(search, "needs_gradient", True)


def surely_wrong(logits: Logits, labels: Labels, ties: bool) -> Tensor:
    """Which answers are wrong beyond rounding, which may go the other way in another batch.

    A search along gradients may end on a boundary, where a tie is mere rounding, too. Scores that
    are steps tie for good: with `ties` the class that then comes first counts.

    >>> logits = torch.tensor([[8.0, 9.0], [8.0, 8.000001], [8.0, 8.0]])
    >>> surely_wrong(logits, torch.tensor([0, 0, 1]), ties=False)
    tensor([ True, False, False])
    """
    gap = LogitGap(labels)(logits)
    true = logits.gather(1, labels[:, None]).squeeze(1)
    size = torch.maximum(true.abs(), (true + gap).abs())  # not of a class masked with −10⁹
    rounding = _ROUNDING * torch.finfo(logits.dtype).eps * size
    tied = (gap == 0) & (logits.argmax(1) != labels)
    return (gap > rounding) | (tied & ties)


def _first_ofeach(place: Labels, rows: Labels) -> Labels:
    """Of a team, whose rows follow each other, the first in `rows`.

    >>> _first_ofeach(torch.tensor([7, 7, 7, 3, 3]), torch.tensor([1, 2, 4])).tolist()
    [1, 4]
    """
    whose = place[rows]
    first = torch.ones_like(rows, dtype=torch.bool)
    first[1:] = whose[1:] != whose[:-1]
    return rows[first]


def slope_at(
    model: LogitModel,
    points: Images,
    height: Callable[[Logits], PerSample],
    repeats: int = 1,
    *,
    last: bool = False,
) -> tuple[Logits, PerSample, Tensor]:
    """Logits, heights and the gradient of the heights at some points.

    ∇ₓ Σₙ h(f(xₙ)), only with respect to x; with `repeats` the mean over as many passes, for
    models that answer differently each time. Who looks for the `last` time goes nowhere from there
    and gets no gradient, but zeros.

    >>> slope_at(lambda x: x.flatten(1), torch.ones(1, 1, 1, 2), lambda z: z[:, 0])[2].flatten()
    tensor([1., 0.])
    """
    if last and repeats == 1:
        with torch.no_grad():
            logits = model(points)
            return logits, height(logits), torch.zeros_like(points)
    passes = [_one_pass(model, points, height) for _ in range(repeats)]
    if repeats == 1:
        return passes[0]
    logits, heights, slopes = (torch.stack(part).mean(0) for part in zip(*passes, strict=True))
    return logits, heights, slopes


def into_ball(scene: Scene, state: Bounded, moved: Images) -> Images:
    """Return the nearest point that a sample may reach; `moved` is used up."""
    rows = state.rows
    return scene.ball.into(moved, Room(state.low, state.high, rows.images, rows.radius))


def _one_pass(
    model: LogitModel, points: Images, height: Callable[[Logits], PerSample]
) -> tuple[Logits, PerSample, Tensor]:
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        logits = model(points)
        if not isinstance(logits, Tensor) or not logits.requires_grad:
            raise ClasswiseError(
                "the model gives no gradient with respect to the image; if it is a black box, "
                "audit it with the attacks clean,square"
            )
        heights = height(logits)
        (slope,) = torch.autograd.grad(heights.sum(), points, allow_unused=True)
    if slope is None:
        slope = torch.zeros_like(points)
    return logits.detach(), heights.detach(), slope


def _teams(rows: Rows, begin: int, end: int, rounds: range) -> Rows:
    """Some samples, each with one row for every round."""
    some: Rows = each(rows, lambda tensor: tensor[begin:end])
    if len(rounds) > 1:
        copies = torch.arange(len(some.labels), device=some.labels.device)
        copies = copies.repeat_interleave(len(rounds))
        some = each(some, lambda tensor: pick(tensor, copies))
    which = torch.tensor(rounds, device=some.labels.device)
    some.round = which.repeat(len(some.labels) // len(rounds))
    return some
