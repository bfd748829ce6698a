"""The released code of randomised smoothing: training under Gaussian noise."""

from __future__ import annotations

from equality.comparison import Comparison, Released, over
from equality.equations import total_surprise
from equality.laboratory import SIZES, Outcome, World, ours, trained, world

CODE = Released("locuslab/smoothing", "78a4d94")
SIGMA = 0.25
RECIPE = f"clean+noise(sigma={SIGMA})"


def step(here: World) -> Outcome:
    """Noise on the inputs, which nothing clips, and the mean cross-entropy."""
    model = here.fresh()
    noise = here.moment.draws("noise").noise(here.index, here.images.shape[1:]).to(here.images)
    inputs = here.images + SIGMA * noise.double()
    return trained(model, [inputs], total_surprise(model(inputs), here.labels) / len(here.labels))


def step_case(num_classes: int) -> dict[str, float]:
    here = world(num_classes)
    return ours(RECIPE, here).beside(step(here))


COMPARISONS = [
    Comparison(
        "Gaussian noise",
        RECIPE,
        CODE,
        lambda: over(map(step_case, SIZES)),
        "with our draws in place of the code's, which is given pixels of [0, 1] as ours is",
    )
]
