"""A quick look at a model before its verdicts are believed: is it asked as it was trained?

Every audit takes it, on a few of its images; it costs a pass over them, and, where the model is
wrong about enough of them for a flag, three more over those.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from scipy import stats
from torch import Tensor

from classwise.attacks.borrowed import borrowed_generators
from classwise.auditing.flags import FEW, Flag, tolerance
from classwise.data.splits import balanced_subset
from classwise.data.view import View
from classwise.models.subject import Subject
from classwise.types import Batch, Images, Labels, LogitModel, Logits

LOOKED_AT = 100  # images
_SURE = 1e-3  # chance of a false flag


def first_look(subject: Subject, data: View) -> list[Flag]:
    """Flags that a few images raise; nothing where the model is asked as it was trained."""
    truth = torch.from_numpy(data.truth)
    rows = balanced_subset(truth, min(LOOKED_AT, len(truth)), seed=0)
    given, home = data.batch(rows), subject.device
    batch = Batch(subject.take(given.images), given.labels.to(home), given.index.to(home))
    with subject.asked(), borrowed_generators(0):  # nobody else's draws are used up
        logits = subject.ask(batch.images)
        again = subject.ask(batch.images[:FEW])
        if bool(((again - logits[:FEW]).abs().amax(1) > tolerance(logits[:FEW])).any()):
            return []  # answers that change by themselves say nothing of the set-up
        found = set_up_flags(subject.logits, batch, logits, subject.asked_at_once)
        return found + _other_normalisation(subject, batch, logits)


def set_up_flags(model: LogitModel, batch: Batch, logits: Logits, width: int) -> list[Flag]:
    """Softmax outputs, a missing or doubled normalisation, grey levels, labels counted from 1."""
    flags, sums = [], logits.sum(1)
    shares = ((logits >= 0) & (logits <= 1)).all() & ((sums - 1).abs() < 1e-3).all()
    if len(logits) and bool(shares):
        flags.append(
            Flag(
                "probabilities",
                "the outputs are probabilities, not logits: a second softmax flattens the "
                "gradients; say --output probabilities (in Python: output='probabilities'), or "
                "audit the model without its softmax",
            )
        )
    if bool((batch.labels == batch.labels[:1]).all()):
        words = "all images are of one class: worst class and spread say nothing; audit several"
        return [*flags, Flag("one-class", words)]
    return flags + _scale_flags(model, batch, logits, width) + _label_flags(batch.labels, logits)


def _scale_flags(model: LogitModel, batch: Batch, logits: Logits, width: int) -> list[Flag]:
    """Feed the images as other pipelines would, and see whether the model likes that better."""
    x, right = batch.images, logits.argmax(1) == batch.labels
    if not _better(int((~right).sum()), 0, len(right)):
        return []  # even if it were right about all of these
    mean = x.mean((0, 2, 3), keepdim=True)
    deviation = x.std((0, 2, 3), keepdim=True).clamp(min=1e-3)
    probes: dict[str, tuple[Callable[[Images], Images], str]] = {
        "double-normalisation": (
            lambda few: few * deviation + mean,
            "images with one normalisation undone are classified better: is it applied twice?",
        ),
        "missing-normalisation": (
            lambda few: (few - mean) / deviation,
            "normalised images are classified better: the model lacks its normalisation; give it "
            "with --normalise cifar10 or imagenet, or --mean and --std (in Python: normalise=)",
        ),
        "grey-levels": (
            lambda few: few * 255,
            "images in 0 … 255 are classified better than in [0, 1]; say so with --mean 0 --std "
            f"{1 / 255:.8f} (in Python: normalise=(0, {1 / 255:.8f}))",
        ),
    }
    flags = []
    for name, (probe, words) in probes.items():

        def now_right(few: Tensor, probe: Callable[[Images], Images] = probe) -> int:
            parts = torch.split(probe(x[few]), width)
            with torch.no_grad():
                called = [model(part).argmax(1) for part in parts if len(part)]
            return int((torch.cat(called) == batch.labels[few]).sum()) if called else 0

        try:
            won, lost = now_right(~right), 0
            if _better(won, lost, len(right)):  # else the others cannot change that
                lost = int(right.sum()) - now_right(right)
        except Exception:  # a model that refuses such images does not like them better
            continue
        if _better(won, lost, len(right)):
            flags.append(Flag(name, f"{words} ({won} more right, {lost} fewer)"))
    return flags


def _other_normalisation(subject: Subject, batch: Batch, logits: Logits) -> list[Flag]:
    """Whether a usual normalisation suits the model better than the one that was put before it.

    The differences are small, so that it must be right more often and likelier on most images.
    """
    given, found = subject.normalisation, []
    if given is None:
        return []
    right, count = logits.argmax(1) == batch.labels, len(logits)
    for name, other in given.others(batch.images.shape[1]).items():
        mean, spread, m, s = (
            batch.images.new_tensor(numbers).view(1, -1, 1, 1)
            for numbers in (given.mean, given.deviation, other.mean, other.deviation)
        )
        # what the given normalisation makes of these is what the other makes of the images
        probe, then = (batch.images - m) / s * spread + mean, logits.clone()
        then[~right] = subject.ask(probe[~right])
        won = int((then.argmax(1) == batch.labels).sum() - right.sum())
        if won < max(0.04 * count, 2):  # the others cannot change that
            continue
        then[right] = subject.ask(probe[right])
        lost = int((right & (then.argmax(1) != batch.labels)).sum())
        likelier = int((_likelihood(then, batch) > _likelihood(logits, batch)).sum())
        enough = won - lost >= max(0.04 * count, 2) and _beyond_chance(won, lost, 0.05)
        if enough and _beyond_chance(likelier, count - likelier):
            words = (
                f"with --normalise {name} in the place of {given}, {won} more of {count} are right "
                f"and {lost} fewer, and {likelier} labels are likelier: is yours the model's own?"
            )
            found.append((won - lost, Flag("wrong-normalisation", words)))
    return [max(found, key=lambda one: one[0])[1]] if found else []


def _likelihood(logits: Logits, batch: Batch) -> Tensor:
    """Log p of the true class."""
    return logits.log_softmax(1).gather(1, batch.labels[:, None])[:, 0]


def _better(won: int, lost: int, count: int) -> bool:
    """Whether a tenth more is right, and that by no chance."""
    return won - lost >= max(0.1 * count, 1) and _beyond_chance(won, lost)


def _label_flags(labels: Labels, logits: Logits) -> list[Flag]:
    """Whether the model agrees with labels that are one lower or higher than the given ones."""
    called, flags = logits.argmax(1), []
    right = called == labels
    for by, words in ((1, "counted from 1: subtract 1"), (-1, "one too low: add 1")):
        now = called + by == labels
        won, lost = int((now & ~right).sum()), int((right & ~now).sum())
        if won - lost >= 0.3 * len(labels) and _beyond_chance(won, lost):
            flags.append(
                Flag(
                    "shifted-labels",
                    f"the model agrees with {int(now.sum())} of {len(labels)} labels if they are "
                    f"{words} (with {int(right.sum())} as they are)",
                )
            )
    return flags


def _beyond_chance(won: int, lost: int, sure: float = _SURE) -> bool:
    if won + lost == 0:
        return False
    return bool(stats.binomtest(won, won + lost, 0.5, "greater").pvalue <= sure)
