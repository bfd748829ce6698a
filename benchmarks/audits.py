"""Questions and health flags on CIFAR-10 networks: right answers with less work, no false alarms.

python benchmarks/audits.py [--parts question,health,small,large] [--limit 2000]

Trains three CIFAR-10 networks first if `runs/bench` does not hold them, and two small ones of
`strangers.py`, whose audits stand beside torchattacks, pyautoattack and a plain loop. Prints
Markdown.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import others
from measuring import EPS, ROBUST, Part, limit, options, run, timed
from nets import STRANGERS, network, pictures
from others import BATCH
from strangers import LARGE, large_lesson
from torch import Tensor, nn

from classwise import audit
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

SMALL_FLOOR, LARGE_FLOOR = 1.8, 1.5  # times faster than theirs, at the least


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
        partly, spent = timed(partial(audit_partly, plan, None, Nobody(), Limits(asked)))
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
        logits: Tensor = self.inside(seen)
        return self.scale * logits


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


def part_small(args: argparse.Namespace) -> None:
    """Whole audits of small networks without BatchNorm, where fixed costs show."""
    print(f"\n## Audits of small networks of other people's, {args.images} images\n")
    print(f"Best of {args.turns} turns (median). At least {SMALL_FLOOR} times, the goal is 2.\n")
    print("| network | attack | ours | theirs | times | of the medians |")
    print("| --- | --- | --- | --- | --- | --- |")
    images, labels = pictures(args.images)
    for name in STRANGERS:
        model = network(name, args.cache)
        for attack, library, more, turns in (
            ("pgd-20(verdict=any)", "torchattacks", {}, args.turns),
            ("autoattack", "pyautoattack", {"attacks": others.SUITE}, min(2, args.turns)),
        ):

            def own(model: nn.Module = model, attack: str = attack) -> float:
                return timed(lambda: audit(model, images, labels, attacks=attack, eps=EPS))[1]

            def its(name: str = name, library: str = library, more: Any = more) -> float:
                return others.theirs(library, name, args.cache, args.images, eps=EPS, **more)[1]

            _side_by_side(f"{name} | {attack}", own, its, turns, SMALL_FLOOR)


def part_large(args: argparse.Namespace) -> None:
    """An audit at 224 pixels beside a plain loop over the same network."""
    count, steps, width = 64, 5, 32
    print(f"\n## An audit at 224 pixels, {count} images, PGD-{steps}\n")
    print(f"The plain loop takes {width} images at a time. At least {LARGE_FLOOR} times.\n")
    print("| network | attack | ours | plain loop | times | of the medians |")
    print("| --- | --- | --- | --- | --- | --- |")
    model, images, labels = large_lesson(count)

    def own() -> float:
        return timed(lambda: audit(model, images, labels, attacks=f"pgd-{steps}", eps=EPS))[1]

    def its() -> float:
        how = {"eps": EPS, "steps": steps, "width": width}
        return others.theirs("plain", LARGE, args.cache, count, **how)[1]

    _side_by_side(f"{LARGE} | pgd-{steps}", own, its, min(3, args.turns), LARGE_FLOOR)


def _side_by_side(
    words: str, own: Callable[[], float], its: Callable[[], float], turns: int, floor: float
) -> None:
    """Let both take turns, after one to warm up; print a row."""
    own(), its()
    mine, theirs = [], []
    for _ in range(turns):
        mine.append(own())
        theirs.append(its())
    times = min(theirs) / min(mine)
    usual = statistics.median(theirs) / statistics.median(mine)
    cells = [f"{min(some):.2f} s ({statistics.median(some):.2f})" for some in (mine, theirs)]
    print(f"| {words} | {' | '.join(cells)} | **{times:.2f}** | {usual:.2f} |", flush=True)
    limit(times >= floor, f"{words.replace(' | ', ', ')}: {times:.2f} times, not {floor}")


PARTS: dict[str, Part] = {
    "question": part_question,
    "health": part_health,
    "small": part_small,
    "large": part_large,
}


def main() -> None:
    """Read the options and run."""
    say = options(__doc__, PARTS)
    say.add_argument("--limit", type=int, default=2000, help="images of the question's audit")
    say.add_argument("--turns", type=int, default=5, help="of audits beside others")
    say.add_argument("--question-attack", default="pgd-20(verdict=any)")
    run(say.parse_args(), PARTS)


if __name__ == "__main__":
    main()
