"""How much work a run is, counted in network passes of one image, never by the clock.

A forward is one pass, a backward to the image another, a backward to the weights a third. Training
is counted without what may come on top (weights perturbed besides, a teacher, steps that a policy
adds), and an attack as if nobody fell early. A search whose falls are doubted and made again, and
an attack of training that stops early, are the exceptions to that.
"""

from __future__ import annotations

from typing import Any

from classwise.attacks.condition import Condition
from classwise.attacks.fixed_steps import FixedSteps
from classwise.attacks.inner import InnerAttack
from classwise.attacks.search.apgd import Apgd
from classwise.attacks.search.deepfool import DeepFool
from classwise.attacks.search.engine import Search, only_asks
from classwise.attacks.search.fab import Fab
from classwise.attacks.search.suite import Suite
from classwise.attacks.smoothing import SmoothedPgd, Smoothing
from classwise.errors import ClasswiseError
from classwise.slots import Slots
from classwise.stages import value_at

LEARNING = 3  # passes of a step of the weights: forward, and backward to inputs and to weights
ATTACKING = 2  # passes of a step of an attack


def passes_of_training(slots: Slots, epochs: int) -> int:
    """Passes of one training image in a whole run.

    >>> from classwise.recipe_text import parse_recipe
    >>> [passes_of_training(parse_recipe(text).slots, 1) for text in ("clean", "at", "trades")]
    [3, 23, 27]
    """
    assert slots.objective is not None
    replays = 1 if slots.carry is None else slots.carry.replays
    learning, inner = LEARNING * len(slots.objective.views), slots.inner
    if inner is None:
        return epochs * replays * learning
    aimed = any("target_odds" in policy.writes for policy in slots.policies)
    steps = (value_at(inner.steps, epoch, epochs) for epoch in range(epochs))
    return sum(replays * (learning + _of_attack(inner, each, aimed)) for each in steps)


def passes_of_look(condition: Condition, num_classes: int) -> int:
    """Passes of one image that is judged under a condition, at most."""
    attack = condition.attack
    if attack is None:
        return 1
    if isinstance(attack, FixedSteps):
        asked = 1 + (attack.target is not None) + (attack.labels == "predicted")
        return attack.restarts * (ATTACKING * attack.steps + asked)
    if isinstance(attack, Suite):
        return 1 + sum(_of_search(search, num_classes) for search in attack.searches)
    if isinstance(attack, Smoothing):
        return attack.chosen_on + attack.draws
    if isinstance(attack, SmoothedPgd):
        return ATTACKING * attack.steps * attack.at_a_step + attack.draws
    raise ClasswiseError(
        f"nobody knows how many network passes {attack.name} takes, so that how often to watch it "
        "cannot be worked out from watch_share; set watch_every"
    )


def _of_attack(inner: InnerAttack, steps: int, aimed: bool) -> int:
    """The attack on a training batch; without a step nobody asks for its reference."""
    if not steps:
        return 0
    reference = inner.reference == "clean" and not aimed
    return reference + len(inner.views) * (ATTACKING * steps + inner.last_look)


def _of_search(search: Search[Any], num_classes: int) -> int:
    """All restarts and targets to their ends, and the model's own word on what came of it."""
    each = 1 if only_asks(search) else ATTACKING
    if isinstance(search, Apgd):
        each *= search.eot
    elif isinstance(search, Fab):
        each += 1  # it looks at one point, and climbs from another
    elif isinstance(search, DeepFool):
        each = 1 + ATTACKING * min(search.targets, num_classes - 1)
    return search.rounds(num_classes) * search.evaluations * each + 1
