"""What keeping an audit costs: seconds of the ledger beside those of the attacks.

python benchmarks/ledger.py [--images 1000,3000,10000]

A small network is audited on made-up images, nothing kept before: in one go, and in small steps as
`--minutes` and `--question` go. Counted is all that `Record`, `Ledger` and `Shelf` do, also the
hashes of model and images. Prints Markdown.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from measuring import begin, end, limit, timed

from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.auditing.plan import Plan
from classwise.auditing.run import Nobody, run_audit
from classwise.auditing.sequential import Limits, audit_partly
from classwise.data.view import View
from classwise.models import build_model
from classwise.models.subject import Subject
from classwise.record.ledger import Ledger
from classwise.record.record import Record
from classwise.record.shelf import Shelf

MIDDLE = (0.5, 0.5, 0.5)
SHARE = 0.05  # of the seconds of an audit that its ledger may take, at the largest size
GROWTH = 2.0  # times the ledger's seconds per image at the smallest size, at the largest
ENDLESS = Limits(minutes=1e6)  # in steps to the last image: nothing costs a ledger more


@dataclass
class Watch:
    """Seconds inside the methods of some classes; a method that calls another counts once."""

    seconds: float = 0.0
    _inside: bool = False

    def watch(self, *kinds: type) -> None:
        """Count the time of all methods of these classes from now on."""
        for kind in kinds:
            for name, thing in list(vars(kind).items()):
                if isinstance(thing, classmethod):
                    setattr(kind, name, classmethod(self._counted(thing.__func__)))
                elif isinstance(thing, property) and thing.fget is not None:
                    setattr(kind, name, property(self._counted(thing.fget)))
                elif callable(thing) and not isinstance(thing, type):
                    setattr(kind, name, self._counted(thing))

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def counted(*args: Any, **more: Any) -> Any:
            if self._inside:
                return method(*args, **more)
            self._inside, began = True, time.perf_counter()
            try:
                return method(*args, **more)
            finally:
                self.seconds += time.perf_counter() - began
                self._inside = False

        return counted


def plan_of(count: int, network: str, attacks: str) -> Plan:
    """An audit of a network with random weights, which is right about every image."""
    torch.manual_seed(0)
    model = build_model(network, num_classes=10, channels=3, mean=MIDDLE, deviation=MIDDLE).eval()
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        labels = torch.cat([model(x.float() / 255).argmax(1) for x in torch.split(images, 500)])
    subject = Subject.of(model, images)
    # a radius inside which nothing falls: every image takes all steps, so that runs are alike
    conditions = parse_conditions(attacks, Threat.of(1e-6))
    return Plan(subject, View.given(images, labels, 10), conditions)


def in_one_go(plan: Plan, folder: Path) -> None:
    """An audit as it is without limits."""
    run_audit(plan, _record(plan, folder))


def in_steps(plan: Plan, folder: Path) -> None:
    """An audit with a look at the evidence after every few images."""
    audit_partly(plan, _record(plan, folder), Nobody(), ENDLESS)


def _record(plan: Plan, folder: Path) -> Record:
    return Record.of(
        folder, plan.subject, plan.data, recipe="made up", weights="given", split="test"
    )


def main() -> None:
    """Audit more and more images, both ways."""
    say = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = [1000, 3000, 10_000]
    say.add_argument("--images", type=lambda t: [int(n) for n in t.split(",")], default=sizes)
    say.add_argument("--network", default="resnet9(width=8)")
    say.add_argument("--attacks", default="clean,pgd-10")
    args = say.parse_args()
    begin()
    watch = Watch()
    watch.watch(Record, Ledger, Shelf)
    print(f"\n## What the ledger costs: {args.network}, {args.attacks}\n")
    print("| audit | images | seconds | of them for the ledger | share | per 1000 images | again |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for title, audit in (("in one go", in_one_go), ("in steps", in_steps)):
        rates = []
        for count in args.images:
            with tempfile.TemporaryDirectory() as folder:
                plan, watch.seconds = plan_of(count, args.network, args.attacks), 0.0
                audited = functools.partial(audit, plan, Path(folder) / "run")
                _, whole = timed(audited)
                spent = watch.seconds
                # everything is known: the ledger is read, and nothing is judged
                _, again = timed(audited)
            rates.append(spent / count)
            print(
                f"| {title} | {count} | {whole:.1f} | {spent:.2f} | {spent / whole:.1%} "
                f"| {1000 * rates[-1]:.3f} | {again:.2f} |",
                flush=True,
            )
        limit(spent <= SHARE * whole, f"{title}: the ledger takes {spent / whole:.1%}")
        growth = rates[-1] / rates[0]
        limit(growth <= GROWTH, f"{title}: {growth:.1f} times the seconds per image at the end")
    end()


if __name__ == "__main__":
    main()
