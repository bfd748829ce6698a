"""Short ways for tests to ask for verdicts, in terms of the records that the package uses."""

import hashlib
import json

import torch

from classwise.attacks import attack_names
from classwise.attacks.condition import Condition
from classwise.attacks.fixed_steps import FixedSteps
from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.auditing.plan import Plan
from classwise.auditing.run import run_audit
from classwise.data.view import View
from classwise.doors import targets
from classwise.models.subject import Subject
from classwise.record.rows import Predictions, Stamp, Verdicts
from classwise.record.shards import file_stem, write_rows


def parse_attack(text):
    return attack_names.parse_attack(text).attack


def audit_target(target, **facts):
    return targets.audit_target(targets.Wish(target, **facts))


def attack_key(attack, eps, norm, seed, verdict):
    """What ledgers have known conditions by from the beginning."""
    radius = [float(value) for value in ([eps] if isinstance(eps, int | float) else eps)]
    facts = ["clean"] if attack == "clean" else [attack, radius, norm, seed, verdict]
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest()


def condition_of(attack, radius, ball, seed, index):
    eps = radius if isinstance(radius, float | int) else torch.as_tensor(radius).cpu()
    eps = eps if isinstance(eps, float | int) else eps.expand(len(index))
    threat = Threat.of(eps, ball, index)
    if isinstance(attack, str):
        return parse_conditions([attack], threat, seed)[0]
    return attack if isinstance(attack, Condition) else Condition(None, attack, threat, seed)


def attacked(model, batch, attack, *, num_classes, radius, ball, seed=0, width=None, after=None):
    """What an attack makes of a batch."""
    subject = Subject(model, num_classes, width or len(batch))
    condition = condition_of(attack, radius, ball, seed, batch.index)
    with subject.asked():
        return condition.judge(subject, batch, *([after] if after else []))


def judge(model, batch, attack, *, num_classes, radius, ball, seed=0, **more):
    """The same as rows."""
    condition = condition_of(attack, radius, ball, seed, batch.index)
    facts = {"num_classes": num_classes, "radius": radius, "ball": ball, "seed": seed}
    found = attacked(model, batch, condition, **facts, **more)
    return Predictions.of(Verdicts(condition, batch, found))


def perturb(attack, model, batch, *, eps, ball, seed, restart=0):
    """Where an attack leaves the images."""
    attack = parse_attack(attack) if isinstance(attack, str) else attack
    with torch.no_grad():
        count = model(batch.images[:1]).shape[1]
    if isinstance(attack, FixedSteps):
        threat = condition_of(attack, eps, ball, seed, batch.index).threat
        subject = Subject(model, count, len(batch))
        return attack._moved(subject, batch, threat, seed, restart)
    facts = {"num_classes": count, "radius": eps, "ball": ball, "seed": seed}
    return attacked(model, batch, attack, **facts).images


def named(class_names, superclass_of=None, superclass_names=None):
    """A view without images: only what its classes are called."""
    none = torch.empty(0, dtype=torch.int64)
    return View(none, none, none, tuple(class_names), superclass_of, superclass_names)


def view_of(batches, class_names=()):
    return View(batches.images, batches.labels, batches.origin, tuple(class_names))


def evaluate(model, batches, *, num_classes, attacks, eps, norm="Linf", seed=0, width=None):
    """Rows under every attack, nothing kept."""
    subject = Subject.of(model, batches.images, num_classes, width=width or batches.batch_size)
    threat = Threat.of(eps, norm, batches.origin)
    names = [str(k) for k in range(num_classes)]
    plan = Plan(subject, view_of(batches, names), parse_conditions(attacks, threat, seed))
    return run_audit(plan)


def write_predictions(folder, found, *, run, weights, split):
    """One condition in a run folder, under a name that is the same every time."""
    eps = float(found.radius.max(initial=0))
    key = attack_key(found.condition, eps, found.norm, found.seed, found.verdict)
    stamp = Stamp(run, weights, split, attack_key=key)
    path = folder / "predictions" / f"{file_stem(stamp, found)}.parquet"
    write_rows(path, found, stamp, {})
    return path
