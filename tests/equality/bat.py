"""BAT's released code."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from equality.comparison import Comparison, Released, over
from equality.equations import chances, total_kl, total_surprise
from equality.fat import friendly
from equality.laboratory import SIZES, Outcome, World, ours, trained, world

CODE = Released(
    "silvercherry/Improving-Robust-Fairness-via-Balance-Adversarial-Training", "9bcee67"
)
EPS, STEP, BETA = 0.031, 0.007, 6.0
RECIPE = f"trades(step={STEP})+bat"


def last_clean(model: nn.Module, here: World, clean: Tensor) -> tuple[Tensor, int]:
    """One sample at a time: at the first error the iterate before it; and how many erred."""
    model.eval()
    found, wrong = [], 0
    start = (here.images + 0.001 * here.normal("start lastclean")).clamp(0.0, 1.0)
    for b, label in enumerate(here.labels.tolist()):
        image, now = here.images[b : b + 1], start[b : b + 1]
        before = emitted = now
        for _ in range(10):
            now = now.detach().requires_grad_(True)
            logits = model(now)
            if int(logits[0].argmax()) != label:
                emitted, wrong = before, wrong + 1
                break
            (slope,) = torch.autograd.grad(total_kl(clean[b : b + 1], logits), now)
            before = now.detach()
            now = before + STEP * slope.sign()
            now = torch.min(torch.max(now, image - EPS), image + EPS).clamp(0.0, 1.0)
            emitted = now
        found.append(emitted.detach()[0])
    model.train()
    return torch.stack(found), wrong


def pull(logits: Tensor) -> Tensor:
    """KL to the uniform prediction, summed over the batch."""
    whole = torch.zeros((), dtype=torch.float64)
    for row in logits:
        p = chances(row)
        whole = whole + (p * (p.log() + math.log(len(p)))).sum()
    return whole


def step(here: World) -> tuple[Outcome, int]:
    model, count = here.fresh(), len(here.labels)
    with torch.no_grad():
        clean = model.eval()(here.images)
    last, wrong = last_clean(model, here, clean)
    begin = (here.images + 0.001 * here.normal()).clamp(0.0, 1.0)
    first = friendly(model, here, begin, lambda z, going: total_kl(clean[going], z), 1)
    # The code shuffles this view; its own order serves as well.
    one, other = model(last), model(first.images)
    natural = model(here.images[first.samples])
    loss = total_surprise(one, here.labels) / count + BETA * total_kl(natural, other) / count
    loss = loss + (pull(one) + pull(other)) / count
    return trained(model, [last, first.in_batch_order(), here.images], loss), wrong


def case(num_classes: int) -> dict[str, float]:
    here = world(num_classes, eps=EPS, step=STEP)
    theirs, wrong = step(here)
    assert 0 < wrong < len(here.labels)
    return ours(RECIPE, here).beside(theirs)


COMPARISONS = [Comparison("BAT", RECIPE, CODE, lambda: over(map(case, SIZES)))]
