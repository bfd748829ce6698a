"""TRADES' released code."""

from __future__ import annotations

from equality.comparison import Comparison, Released, over
from equality.equations import climb_from_clean, total_kl, total_surprise
from equality.laboratory import SIZES, Outcome, World, ours, trained, world

CODE = Released("yaodongyu/TRADES", "6e8e11b")
EPS, STEP, BETA = 0.031, 0.007, 6.0
RECIPE = f"trades(step={STEP})"


def step(here: World) -> Outcome:
    """Mean CE + β·mean KL; the clean batch is forwarded a second time for the KL."""
    model, count = here.fresh(), len(here.labels)
    examples = climb_from_clean(model, here, EPS, STEP)
    natural = total_surprise(model(here.images), here.labels) / count
    robust, again = model(examples), model(here.images)
    loss = natural + BETA * total_kl(again, robust) / count
    return trained(model, [here.images, examples], loss)


def case(num_classes: int) -> dict[str, float]:
    here = world(num_classes, eps=EPS, step=STEP)
    return ours(RECIPE, here).beside(step(here))


COMPARISONS = [
    Comparison(
        "TRADES",
        RECIPE,
        CODE,
        lambda: over(map(case, SIZES)),
        apart={"running statistics": "the code forwards the clean batch twice, also for the KL"},
    ),
]
