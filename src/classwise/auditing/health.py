"""Signs that an audit measures broken gradients or a broken set-up rather than robustness.

A flag is a reason to look, in words, with the classes it concerns; no flag is no proof of health.
Comparisons are paired and tested, so that chance alone seldom raises one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from classwise.attacks.losses import CrossEntropy, LogitGap
from classwise.attacks.names import parse_condition, parse_conditions
from classwise.attacks.threat import Threat
from classwise.auditing.first_look import set_up_flags
from classwise.auditing.flags import SURE, Flag, Mask, check_records, random_flags, tolerance
from classwise.auditing.plan import Plan
from classwise.auditing.run import run_audit
from classwise.data.view import View
from classwise.models.asking import ask, eval_mode
from classwise.models.subject import Subject
from classwise.record.rows import Predictions
from classwise.spelling import spell_eps
from classwise.statistics.paired import holm
from classwise.types import Batch, LogitModel

_FEW = 0.05  # share of images from which a defect counts


def probe(
    subject: Subject,
    data: View,
    threat: Threat,
    *,
    steps: int = 10,
    queries: int = 200,
    seed: int = 0,
) -> list[Flag]:
    """Probe the subject of an audit on these images; the radius is the same for all."""
    flags, names, width = _mode_flags(subject.logits), data.class_names, subject.width
    given = data.batch(np.arange(len(data)))
    home = subject.device
    batch = Batch(subject.take(given.images), given.labels.to(home), given.index.to(home))
    model = subject.logits
    with subject.asked():
        logits = ask(model, batch.images, width, subject.num_classes)
        flags += _answer_flags(model, batch, logits, width, names)
        flags += set_up_flags(model, batch, logits, width)
        if subject.black_box:
            return flags
        flags += _gradient_flags(model, batch, logits, width, names)
    ball, radius = threat.ball, threat.widest
    wide = Threat(ball, min(2 * radius, 0.999 * ball.too_wide))
    grey = Threat(ball, ball.all_grey(batch.images))
    white = f"pgd-{steps}(verdict=any)"
    plan = Plan(
        subject,
        data,
        (
            *parse_conditions(["fgsm", white, f"square(queries={queries})"], threat, seed),
            parse_condition(white, wide, seed),
            parse_condition(f"pgd-{2 * steps}(verdict=any)", grey, seed),
        ),
    )
    *found, far = run_audit(plan)
    return flags + check_records(found, names) + _far_flags(far, names)


def _mode_flags(model: LogitModel) -> list[Flag]:
    if not isinstance(model, nn.Module):
        return []
    flags = []
    if model.training:
        flags.append(Flag("train-mode", "the model was given in train mode; judged in eval mode"))
    with eval_mode(model):
        stuck = [name or "the model" for name, part in model.named_modules() if part.training]
    if stuck:
        words = f"eval() leaves {len(stuck)} parts in train mode, such as {stuck[0]}"
        flags.append(Flag("train-mode", words))
    return flags


def _answer_flags(
    model: LogitModel, batch: Batch, logits: Tensor, width: int, names: Sequence[str]
) -> list[Flag]:
    """Randomness, and answers that depend on the neighbours in the batch."""
    flags: list[Flag] = []
    random = random_flags(model, batch.images, logits, width)
    if random:
        return flags + random
    few = min(16, len(logits))
    alone = ask(model, batch.images[:few], 1, logits.shape[1])
    moved = (alone - logits[:few]).abs().amax(1) > tolerance(logits[:few])
    if bool(moved.any()):
        classes = tuple(names[k] for k in sorted(set(batch.labels[:few][moved].tolist())))
        words = "an image's answer depends on its batch, as with BatchNorm in train mode"
        flags.append(Flag("batch-dependent", words, classes))
    return flags


def _gradient_flags(
    model: LogitModel, batch: Batch, logits: Tensor, width: int, names: Sequence[str]
) -> list[Flag]:
    """Zero gradients at rightly classified images, of cross-entropy and of the logit gap."""
    right = (logits.argmax(1) == batch.labels).cpu().numpy()
    zero: dict[str, Mask] = {}
    for word, kind in (("cross-entropy", CrossEntropy), ("logit gap", LogitGap)):
        flat = []
        for rows in torch.split(torch.arange(len(batch), device=batch.labels.device), width):
            start = batch.images[rows].detach().requires_grad_()
            with torch.enable_grad():
                height = kind(batch.labels[rows])(model(start)).sum()
                if not height.requires_grad:
                    slope = torch.zeros_like(start)
                else:
                    (given,) = torch.autograd.grad(height, start, allow_unused=True)
                    slope = torch.zeros_like(start) if given is None else given
            flat.append(slope.flatten(1).abs().amax(1) == 0)
        zero[word] = torch.cat(flat).cpu().numpy() & right
    label = batch.labels.cpu().numpy()
    either = zero["cross-entropy"] | zero["logit gap"]
    n = np.bincount(label[right], minlength=len(names))
    bad = np.bincount(label[either], minlength=len(names))
    many = (bad >= np.maximum(2, 2 * _FEW * n)) & (n > 0)
    if either.sum() < max(1, _FEW * right.sum()) and not many.any():
        return []
    total = max(right.sum(), 1)
    shares = " and ".join(f"{mask.sum() / total:.0%} for {word}" for word, mask in zero.items())
    words = f"the gradient is exactly zero at rightly classified images: {shares}"
    return [Flag("zero-gradients", words, tuple(names[int(k)] for k in np.flatnonzero(many)))]


def _far_flags(found: Predictions, names: Sequence[str]) -> list[Flag]:
    """Accuracy above chance where the ball holds a plain grey image for every class."""
    n = np.bincount(found.label, minlength=len(names))
    hits = np.bincount(found.label[found.correct], minlength=len(names))
    chance = max(1 / len(names), float(n.max() / n.sum()))
    overall = stats.binomtest(int(hits.sum()), int(n.sum()), chance, "greater").pvalue
    p_values = np.where(n > 0, stats.binom.sf(hits - 1, n, 0.5), 1.0)
    classes = tuple(names[int(k)] for k in np.flatnonzero(holm(p_values) <= SURE))
    if overall > SURE and not classes:
        return []
    rate, eps = hits.sum() / n.sum(), float(found.radius.max())
    words = (
        f"{rate:.0%} survive {found.condition} at eps {spell_eps(eps)}, where chance is "
        f"{chance:.0%}"
    )
    return [Flag("robust-at-huge-eps", words, classes)]
