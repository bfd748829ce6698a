"""CFA's released code: AT, TRADES and FAT with class-wise margins and β, EMA and FAWA."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import TRAIN_ROBUST
from classwise.recipe_text import parse_recipe
from classwise.training.average import RunningAverage
from equality.class_statistics import counts, table
from equality.comparison import Comparison, Released, largest, over
from equality.equations import climb_from_clean, kl, surprise, total_surprise
from equality.laboratory import SIZES, Outcome, World, float64, ours, settings_along, trained, world

CODE = Released("PKU-ML/CFA", "071f333")
FLOOR, BETA, STEPS = 0.5, 6.0, 10  # λ₁ and λ₂ of its script, β, T
LOG = "the code then forwards the clean batch once more in train mode, for its log"


def train_accuracy(confusion: Tensor) -> list[float]:
    """t_k as the code has it: K · right / N."""
    classes, total = len(confusion), int(confusion.sum())
    return [classes * int(confusion[k, k]) / total for k in range(classes)]


def random_start(here: World, eps: Tensor) -> Tensor:
    """δ between −ε_y and ε_y, cut so that the image stays in [0, 1]."""
    delta = (here.uniform() - 0.5) * 2 * eps
    return torch.max(torch.min(delta, 1 - here.images), 0 - here.images)


def moved(delta: Tensor, slope: Tensor, here: World, eps: Tensor) -> Tensor:
    delta = torch.max(torch.min(delta + here.step * slope.sign(), eps), -eps)
    return torch.max(torch.min(delta, 1 - here.images), 0 - here.images)


def attacked(model: nn.Module, here: World, margins: list[float]) -> Tensor:
    """δ of AT with a margin per class; the model stays in the mode it is in."""
    eps = here.for_each(margins)
    delta = random_start(here, eps)
    for _ in range(STEPS):
        delta = delta.detach().requires_grad_(True)
        loss = total_surprise(model(here.images + delta), here.labels) / len(here.labels)
        (slope,) = torch.autograd.grad(loss, delta)
        delta = moved(delta.detach(), slope, here, eps)
    return delta


def at_step(here: World, margins: list[float]) -> Outcome:
    """AT; BatchNorm is in train mode during the attack too."""
    model = here.fresh()
    return finish_at(model, here, attacked(model, here, margins))


def finish_at(model: nn.Module, here: World, delta: Tensor) -> Outcome:
    examples = here.images + delta
    loss = total_surprise(model(examples), here.labels) / len(here.labels)
    return trained(model, [examples], loss, after=lambda: model(here.images))


def fat_step(here: World, margins: list[float], patience: int) -> Outcome:
    """FAT: a sample moves while it has lives left, and every error takes one."""
    model, eps = here.fresh(), here.for_each(margins)
    lives = [patience] * len(here.labels)
    delta = random_start(here, eps).requires_grad_(True)
    logits = model(here.images + delta)
    for _ in range(STEPS):
        moving = []
        for sample, label in enumerate(here.labels.tolist()):
            if lives[sample] > 0:
                moving.append(sample)
                if int(logits[sample].argmax()) != label:
                    lives[sample] -= 1
        if not moving:
            break
        loss = total_surprise(logits, here.labels) / len(here.labels)
        (slope,) = torch.autograd.grad(loss, delta)
        after = delta.detach().clone()
        stepped = moved(after, slope, here, eps)
        for sample in moving:
            after[sample] = stepped[sample]
        delta = after.requires_grad_(True)
        logits = model(here.images + delta)
    return finish_at(model, here, delta.detach())


def trades_step(here: World, margins: list[float], betas: list[float]) -> Outcome:
    """TRADES, each sample's loss divided by 1 + β_y; the clean batch is forwarded twice."""
    model = here.fresh()
    examples = climb_from_clean(model, here, here.for_each(margins), here.step)
    clean, robust, again = model(here.images), model(examples), model(here.images)
    parts = []
    for sample, label in enumerate(here.labels.tolist()):
        share = betas[label] / (1 + betas[label])
        natural = surprise(clean[sample], label)
        parts.append((1 - share) * natural + share * kl(again[sample], robust[sample]))
    loss = torch.stack(parts).sum() / len(parts)
    return trained(model, [here.images, examples], loss, after=lambda: model(here.images))


def step_case(num_classes: int, recipe: str, kind: str, classwise: bool, patience: int = 0):
    """Our step beside the transcription, without and with class-wise settings."""
    here = world(num_classes)
    boundaries = [{}]
    margins, betas = [here.eps] * num_classes, [BETA] * num_classes
    if classwise:
        confusion = table(num_classes, seed=5)
        boundaries.append({TRAIN_ROBUST: ClassCounts(confusion)})
        here = replace(here, epoch=1)
        accuracy = train_accuracy(confusion)
        margins = [(FLOOR + t) * here.eps for t in accuracy]
        betas = [(FLOOR + t) * BETA for t in accuracy]
    if kind == "at":
        theirs = at_step(here, margins)
    elif kind == "fat":
        theirs = fat_step(here, margins, patience)
    else:
        theirs = trades_step(here, margins, betas)
    return ours(recipe, here, boundaries).beside(theirs)


def row(method: str, recipe: str, *case, why: str = LOG) -> Comparison:
    def measure():
        return over(step_case(size, recipe, *case) for size in SIZES)

    return Comparison(method, recipe, CODE, measure, apart={"running statistics": why})


def policy_case(num_classes: int, begin: int) -> dict[str, float]:
    """Margins and β of 14 epochs; the code stores β_k / (1 + β_k)."""
    here, epochs = world(num_classes), 14
    tables = [table(num_classes, seed=epoch) for epoch in range(epochs)]
    boundaries = [{}] + [{TRAIN_ROBUST: ClassCounts(confusion)} for confusion in tables[:-1]]
    text = f"trades+ccm(margin_floor={FLOOR}, start={begin})+ccr(start={begin})"
    found = settings_along(text, here, boundaries)
    pairs = []
    for epoch, settings in enumerate(found):
        margins, shares = [here.eps] * num_classes, [BETA / (1 + BETA)] * num_classes
        if epoch >= begin:
            accuracy = train_accuracy(tables[epoch - 1])
            margins = [(FLOOR + t) * here.eps for t in accuracy]
            shares = [(FLOOR + t) * BETA / (1 + (FLOOR + t) * BETA) for t in accuracy]
        wide = torch.tensor([margins, shares], dtype=torch.float64)
        pairs.append((settings.margin, wide[0]))
        pairs.append((settings.beta / (1 + settings.beta), wide[1]))
    return {"margins and β over 14 epochs": largest(pairs)}


def average_case(name: str) -> dict[str, float]:
    """EMA, or FAWA behind its gate, over the weights of 8 epochs, with all buffers."""
    decay, threshold, classes = 0.88, 0.24, 4
    options = f"decay={decay}, start=0" + (f", threshold={threshold}" if name == "fawa" else "")
    (rule,) = parse_recipe(f"at+{name}({options})").slots.averages
    average, live, kept = RunningAverage(rule), world(classes).network, None
    rng = torch.Generator().manual_seed(2)
    pairs, opened = [], []
    for epoch in range(1, 9):
        live = copy.deepcopy(live)
        with torch.no_grad(), float64():
            for value in live.state_dict().values():
                if value.is_floating_point():
                    value += 0.1 * torch.randn(value.shape, generator=rng)
        valid = counts(classes, seed=epoch)
        average = average.update(live, epoch, 8, valid)
        opened.append(name == "ema" or min(train_accuracy(valid.confusion)) >= threshold)
        state = {k: v.clone() for k, v in live.state_dict().items() if v.is_floating_point()}
        if opened[-1] and kept is None:
            kept = state
        elif opened[-1]:
            kept = {k: decay * kept[k] + (1 - decay) * state[k] for k in state}
        if kept is not None:
            pairs += [(average.weights[k], kept[k]) for k in kept]
    assert all(opened) == (name == "ema")
    assert sum(opened) > 2
    return {"weights over 8 epochs": largest(pairs)}


NO_LOOK = (
    "the code forwards the last iterates and then the clean batch once more in train mode; "
    "the first of these is `last_look=true`"
)
THIRD = "the code forwards the clean batch a second time for the KL, and once more for its log"

COMPARISONS = [
    row("AT", "at", "at", False),
    row("AT + CCM", f"at+ccm(margin_floor={FLOOR})", "at", True),
    row("TRADES, normalised", "trades(normalised=true)", "trades", False, why=THIRD),
    row(
        "TRADES + CCM + CCR",
        f"trades+ccm(margin_floor={FLOOR})+ccr",
        "trades",
        True,
        why=THIRD,
    ),
    *(
        row(f"FAT, τ = {tau}", f"fat(patience={tau}, last_look=true)", "fat", False, tau)
        for tau in (0, 1, 3)
    ),
    row("FAT, as it is by default", "fat", "fat", False, 3, why=NO_LOOK),
    row("FAT + CCM", f"fat(last_look=true)+ccm(margin_floor={FLOOR})", "fat", True, 3),
    Comparison(
        "CCM and CCR",
        "ccm(start=1 and 10)+ccr(start=1 and 10)",
        CODE,
        lambda: over(policy_case(size, begin) for size in SIZES for begin in (1, 10)),
        "for classes of equal size; the code has K·right/N in place of right/n_k",
    ),
    Comparison("EMA", "ema(decay=0.88, start=0)", CODE, lambda: average_case("ema")),
    Comparison(
        "FAWA",
        "fawa(threshold=0.24, decay=0.88, start=0)",
        CODE,
        lambda: average_case("fawa"),
        "before it first opens we have no weights, the code has random ones",
    ),
]
