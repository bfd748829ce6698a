"""What tests of the attack inside training share: a batch, a view of a model, one call."""

import torch

from classwise.attacks.ball import LINF
from classwise.attacks.inner import InnerAttack, Moment
from classwise.types import Batch

STARTS = ["none", "uniform", "gaussian"]


def batch_of(count=6, num_classes=4, channels=1, seed=0, size=8):
    rng = torch.Generator().manual_seed(seed)
    images = torch.rand(count, channels, size, size, generator=rng, dtype=torch.float64)
    images = (images * 1.4 - 0.2).clamp(0, 1)  # with pixels at both ends
    labels = torch.randint(num_classes, (count,), generator=rng)
    return Batch(images, labels, torch.arange(count) + 100)


def inner(start="uniform", steps=3, batchnorm="eval", reference="label"):
    return InnerAttack(reference=reference, start=start, steps=steps, batchnorm=batchnorm)


def view(attack, model, batch, radius, step, target_odds=None):
    facts = {"radius": radius, "step": step, "ball": LINF, "target_odds": target_odds}
    if attack.reference == "teacher":
        facts["teacher"] = 1 - model(batch.images).detach()
    return attack.perturb(model, batch, Moment(seed=0, epoch=1, epochs=10), **facts)["robust"]
