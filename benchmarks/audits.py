"""Questions and health flags on CIFAR-10 networks: right answers with less work, no false alarms.

python benchmarks/audits.py [--parts question,health] [--limit 2000]

Trains three CIFAR-10 networks first if `runs/bench` does not hold them. Prints Markdown.
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt
from measuring import EPS, ROBUST, Part, limit, options, run, timed
from nets import network, pictures
from others import BATCH
from torch import Tensor, nn

from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.auditing.plan import Plan
from classwise.auditing.question import Question, parse_question
from classwise.auditing.run import Nobody, run_audit
from classwise.auditing.sequential import Limits, PartialAudit, audit_partly
from classwise.data.sources import open_data
from classwise.data.splits import balanced_subset
from classwise.data.view import View
from classwise.doors.health import check_health
from classwise.judging.reports import class_report
from classwise.models.subject import Subject
from classwise.record.rows import Predictions


def part_question(args: argparse.Namespace) -> None:
    """What a settled question saves, in images, in evaluations of the model and in seconds."""
    attack = args.question_attack
    print(f"\n## Questions instead of full audits: {ROBUST}, {args.limit} images, {attack}\n")
    print("| question | answer | right | images | evaluations | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    model, test = network(ROBUST, args.cache), open_data("cifar10").test
    data = View.of(test, "cifar10").take(balanced_subset(test.labels, args.limit, seed=0))
    subject = Subject.of(model, test.images, width=BATCH)
    plan = Plan(subject, data, parse_conditions([attack], Threat.of(EPS)))
    (full,), longest = timed(lambda: run_audit(plan))
    rates = class_report([full], data)[attack].rates
    print(
        f"| the full audit | worst {rates.min():.1%} | | {args.limit} | {evaluations(full)} "
        f"| {longest:.1f} |"
    )
    best = test.class_names[int(rates.argmax())]
    for words in ("worst>=0.2", "worst>=0.5", f"{best}>=0.2"):
        asked = parse_question(words, test.class_names)
        partly, spent = timed(lambda q=asked: audit_partly(plan, None, Nobody(), Limits(q)))
        _answered(asked, partly, full, rates, spent)


def _answered(
    asked: Question,
    partly: PartialAudit,
    full: Predictions,
    rates: npt.NDArray[np.float64],
    spent: float,
) -> None:
    """Print what became of a question, beside the full audit."""
    worst = asked.what == "worst"
    named = full.label if worst else partly.class_names.index(asked.what)
    truth = rates.min() if worst else rates[named]
    concerned = full.label == named
    seen, less = len(partly.found[0].label), evaluations(partly.found[0])
    work = evaluations(full, concerned)
    said = {True: "yes", False: "no", None: "undecided"}[partly.answer]
    right = "yes" if partly.answer == bool(truth >= asked.bar) else "NO"
    saved = min(concerned.sum() / seen, work / less)
    limit(right == "yes" and (saved >= 5 or not worst), f"{asked}: {said}, {saved:.1f} times")
    print(
        f"| {asked} | {said} | {right} | {seen} ({concerned.sum() / seen:.1f} times fewer) "
        f"| {less} ({work / less:.1f}) | {spent:.1f} |",
        flush=True,
    )


def evaluations(found: Predictions, rows: npt.NDArray[np.bool_] | None = None) -> int:
    """Passes over images, with one look at each clean image."""
    spent = found.iterations if rows is None else found.iterations[rows]
    return int(spent.sum()) + len(spent)


class Masked(nn.Module):
    """A network behind rounded pixels, or with logits so large that the softmax is flat."""

    def __init__(self, inside: nn.Module, levels: int = 0, scale: float = 1.0) -> None:
        super().__init__()
        self.inside, self.levels, self.scale = inside, levels, scale

    def forward(self, x: Tensor) -> Tensor:
        """Mask the gradients, not the answers."""
        seen = (x * self.levels).round() / self.levels if self.levels else x
        return self.scale * self.inside(seen)


def part_health(args: argparse.Namespace) -> None:
    """Flags of honest networks and of the same ones behind masks."""
    print(f"\n## Health flags, {args.images} images\n")
    print("| network | honest | pixels rounded to 9 levels | logits times 1000 |")
    print("| --- | --- | --- | --- |")
    images, labels = pictures(args.images)
    for name in args.nets:
        plain = network(name, args.cache)
        cells = []
        for model in (plain, Masked(plain, levels=8), Masked(plain, scale=1000.0)):
            found = check_health(model.eval(), images, labels, eps=EPS)
            cells.append(", ".join(dict.fromkeys(flag.name for flag in found)) or "none")
        limit(cells[0] == "none", f"{name} is honest, but flagged: {cells[0]}")
        limit("none" not in cells[1:], f"{name}: a mask was not flagged: {cells}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


PARTS: dict[str, Part] = {"question": part_question, "health": part_health}


def main() -> None:
    """Read the options and run."""
    say = options(__doc__, PARTS)
    say.add_argument("--limit", type=int, default=2000, help="images of the question's audit")
    say.add_argument("--question-attack", default="pgd-20(verdict=any)")
    run(say.parse_args(), PARTS)


if __name__ == "__main__":
    main()
