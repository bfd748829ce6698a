"""Made-up verdicts, the place they have in a ledger, and audits that go into one."""

from dataclasses import replace

import numpy as np
import torch
from asked import attack_key, view_of
from torch import nn

from classwise.attacks.condition import Condition, Traits
from classwise.attacks.judged import Judged
from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.auditing.plan import Plan
from classwise.auditing.run import Nobody, run_audit
from classwise.data.batches import Batches
from classwise.models.subject import Subject
from classwise.record.record import Record
from classwise.record.rows import Predictions, Stamp

ABOUT = {"recipe_name": "made up", "data": {"name": "x", "class_names": ["a", "b", "c"]}}


def verdicts(samples, predicted=None, labels=None, condition="pgd-2", **facts):
    samples = np.asarray(samples, np.int64)
    labels = samples % 3 if labels is None else np.asarray(labels, np.int64)
    predicted = labels if predicted is None else np.asarray(predicted, np.int64)
    return Predictions(
        condition,
        samples,
        labels,
        predicted,
        np.where(labels == predicted, 1, -1).astype(np.float32),
        radius=np.full(len(samples), 0.1),
        iterations=np.full(len(samples), 2, np.int64),
        broken_by=np.array([condition, None], dtype=object)[(labels == predicted).astype(int)],
        **facts,
    )


def stamp(weights="last", split="test", model="m1", data="d1", attack="pgd-2", eps=0.1, seed=0):
    key = attack_key(attack, eps, "Linf", seed, "last")
    return Stamp("run", weights, split, model, data, key)


class Counting:
    """An attack that notes whom it was shown, and may break."""

    name = identity = "pgd-2"
    traits, verdict, needs_gradient, by_batch = Traits("pgd", 2), "last", True, False

    def __init__(self, fail_at=None):
        self.shown, self.fail_at = [], fail_at

    def judge(self, subject, batch, threat, seed, tell):  # noqa: ARG002
        if self.fail_at is not None and len(self.shown) == self.fail_at:
            raise RuntimeError("the model\nbroke")
        self.shown.append(batch.index.tolist())
        predicted = (batch.index // 2) % 3
        stands = predicted == batch.labels
        return Judged(
            predicted,
            torch.where(stands, 1.0, -1.0),
            torch.full_like(batch.labels, 2),
            torch.where(stands, -1, 0),
            ("pgd-2",),
            batch.images,
        )


class Named(Record):
    """A record whose rows have one name and key, whatever the condition."""

    def stamped(self, condition):  # noqa: ARG002
        return self.stamp


class Told(Nobody):
    def __init__(self):
        self.known, self.steps = 0, []

    def begin(self, words, total, done=0):  # noqa: ARG002
        self.known = done

    def advance(self, images):
        self.steps.append(images)


def complete(ledger, stamp, batches, attack, *, listener=None, tidy=True):
    """Verdicts of a made-up attack on a batch, those that the ledger lacks and those it has."""
    condition = Condition(None, attack, Threat.of(0.1), 0)
    subject = Subject(lambda x: x.flatten(1)[:, :3], 3, max(1, batches.batch_size // 2))
    plan = Plan(subject, view_of(batches, "abc"), (condition,))
    record = Named(ledger.folder, ledger, stamp)
    return run_audit(plan, record, listener or Nobody(), tidy=tidy)[0]


def audit_model(model, batches, *, ledger, num_classes, attacks, eps):
    """A real audit that goes into a ledger."""
    subject = Subject(model, num_classes, max(1, batches.batch_size // 2))
    conditions = parse_conditions(attacks, Threat.of(eps, "Linf", batches.origin))
    plan = Plan(subject, view_of(batches, "abc"), conditions)
    return run_audit(plan, Record(ledger.folder, ledger, replace(stamp(), attack_key="")))


def missing(ledger, stamp, samples):
    return samples[~ledger.shelf(stamp).has(samples)]


def data(count=20, batch_size=6, first=0):
    images = torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    index = torch.arange(first, first + count)
    return Batches(images, index % 3, index, batch_size)


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 3)

    def forward(self, x):
        return self.layer(x.flatten(1))
