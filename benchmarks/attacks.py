"""Attacks side by side with other libraries, in one run: the same verdicts in less time.

python benchmarks/attacks.py [--parts pgd,autoattack,batches] [--images 200]

Trains three CIFAR-10 networks first if `runs/bench` does not hold them. Ours and theirs take turns
on the same images, each in a process of its own, so read the ratios; the seconds are those of the
machine. Prints Markdown.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import others
import torch
from measuring import EPS, ROBUST, Part, limit, options, ours, run, share, stands, timed
from nets import network, pictures
from scipy.stats import binomtest
from torch import Tensor, nn

from classwise.attacks.judged import Judged
from classwise.types import Batch

FLOORS = {"apgd-ce": 2.5, "**autoattack**": 1.6}  # times faster than theirs, at the least


def numbered(count: int) -> Batch:
    """The first test images, with their numbers."""
    return Batch(*pictures(count), torch.arange(count))


def theirs(
    library: str, net: str, args: argparse.Namespace, **more: object
) -> tuple[Tensor, float]:
    """Images another library moved, and the seconds it took."""
    return others.theirs(library, net, args.cache, args.images, eps=EPS, **more)


def _predicted(model: nn.Module, batch: Batch) -> Tensor:
    return ours(model, batch, "pgd-20(verdict=any)").predicted


def part_pgd(args: argparse.Namespace) -> None:
    """PGD-20 of one step size, radius and kind of start."""
    print(f"\n## PGD-20, {args.images} images, best of {args.repeats} turns\n")
    print("| network | clean | ours | torchattacks | foolbox | other verdicts than ours | ratio |"
          " of the medians |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    batch = numbered(args.images)
    for name in args.nets:
        model = network(name, args.cache)
        clean = stands(model, batch.images, batch.labels)
        runs: dict[str, Callable[[], tuple[Tensor, float]]] = {
            "ours": partial(timed, partial(_predicted, model, batch)),
            "torchattacks": partial(theirs, "torchattacks", name, args),
            "foolbox": partial(theirs, "foolbox", name, args),
        }
        seconds: dict[str, list[float]] = {key: [] for key in runs}
        standing: dict[str, Tensor] = {}
        for _ in range(args.repeats):
            for key, turn in runs.items():
                found, spent = turn()
                seconds[key].append(spent)
                if key == "ours":
                    standing[key] = found == batch.labels
                else:  # a wrong image that an attack happens to make right is no robust image
                    standing[key] = stands(model, found, batch.labels) & clean
        # other work on the machine only adds to the seconds: the best turn has least of it
        best = {key: min(values) for key, values in seconds.items()}
        middle = {key: statistics.median(values) for key, values in seconds.items()}
        cells = [f"{share(standing[key])}, {best[key]:.2f} s" for key in runs]
        differ = [int((standing["ours"] != standing[key]).sum()) for key in list(runs)[1:]]
        missed = [int((standing["ours"] & ~standing[key]).sum()) for key in list(runs)[1:]]
        faster, usually = (
            min(one["torchattacks"], one["foolbox"]) / one["ours"] for one in (best, middle)
        )
        limit(faster >= 3.5, f"PGD-20 on {name}: {faster:.2f} times faster, not 3.5")
        few = max(missed) <= 0.01 * args.images  # starts are drawn: who breaks more has no fault
        limit(few, f"PGD-20 on {name}: broken only by theirs {missed}")
        print(
            f"| {name} | {share(clean)} | {' | '.join(cells)} | {differ[0]} and {differ[1]} | "
            f"**{faster:.2f}** | {usually:.2f} |",
            flush=True,
        )


def part_autoattack(args: argparse.Namespace) -> None:
    """Each attack of the standard suite alone, then the suite."""
    print(f"\n## AutoAttack beside pyautoattack, {args.images} images, Linf 8/255\n")
    print(
        f"Seconds: the best of {args.turns} turns, of two for the suite, and a single turn where "
        f"it takes over {args.long:g} s.\n"
    )
    print("| network | attack | standing: ours | theirs | broken only by theirs | only by ours |"
          " p | ours | theirs | ratio |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    batch = numbered(args.images)
    notes = []
    for name in args.nets:
        model = network(name, args.cache)
        for attacks in [*((one,) for one in others.SUITE), others.SUITE]:
            found = _beside(name, model, batch, attacks, args)
            notes.append(verified(model, batch, found))
        stood = batch.labels[found.predicted == batch.labels]
        by_class = torch.bincount(stood, minlength=10).tolist()
        print(f"| | survivors by class | {', '.join(map(str, by_class))} | | | | | | | |")
    outside = max(note.outside for note in notes)
    fooled, claimed = (sum(numbers) for numbers in list(zip(*notes, strict=True))[1:])
    limit(outside <= 1e-6 and fooled == claimed, "an adversarial image is none")
    print(f"\nOur adversarial images leave ball and [0, 1] by at most {outside:.1e}; asked again, "
          f"the plain model is wrong about {fooled} of the {claimed}.")  # fmt: skip


def _beside(
    name: str, model: nn.Module, batch: Batch, attacks: tuple[str, ...], args: argparse.Namespace
) -> Judged:
    """Print the row of one attack, or of the suite, on one network; return our verdicts."""
    title = attacks[0] if len(attacks) == 1 else "**autoattack**"
    own = f"suite({','.join(attacks)})"
    ours_in, theirs_in = [], []
    for _ in range(args.turns if len(attacks) == 1 else min(2, args.turns)):
        found, spent = timed(lambda: ours(model, batch, own))
        moved, longer = theirs("pyautoattack", name, args, attacks=attacks)
        ours_in.append(spent)
        theirs_in.append(longer)
        if spent + longer > args.long:
            break
    spent, longer = min(ours_in), min(theirs_in)
    mine, its = found.predicted == batch.labels, stands(model, moved, batch.labels)
    only_theirs, only_ours = int((mine & ~its).sum()), int((~mine & its).sum())
    apart = only_theirs + only_ours
    p = binomtest(only_theirs, apart, alternative="greater").pvalue if apart else 1.0
    ratio, floor = longer / spent, FLOORS.get(title, 0)
    print(
        f"| {name} | {title} | {share(mine)} | {share(its)} | {only_theirs} | {only_ours} "
        f"| {p:.2f} | {spent:.1f} s | {longer:.1f} s | {ratio:.2f} |",
        flush=True,
    )
    limit(ratio >= floor, f"{title} on {name}: {ratio:.2f} times faster, not {floor}")
    fair = only_theirs <= 0.01 * args.images and p > 0.05
    limit(fair, f"{title} on {name}: {only_theirs} broken only by theirs")
    return found


class Verified(NamedTuple):
    """What adversarial images are, looked at once more."""

    outside: float  # how far they lie outside
    fooled: int  # how many fool the model
    claimed: int  # how many are said to


def verified(model: nn.Module, batch: Batch, found: Judged) -> Verified:
    """Look at adversarial images once more."""
    fallen = found.predicted != batch.labels
    moved = found.images.double()
    outside = max(
        float((moved - batch.images.double()).abs().max() - EPS),
        float(-moved.min()),
        float(moved.max() - 1),
    )
    fooled = ~stands(model, found.images[fallen], batch.labels[fallen])
    return Verified(max(0.0, outside), int(fooled.sum()), int(fallen.sum()))


def part_batches(args: argparse.Namespace) -> None:
    """The same verdicts for any working batch and order: exactly in float64, nearly in float32."""
    print("\n## Working batches of 7, 64 and 500, and the images in another order\n")
    given = numbered(args.images)
    attack = (
        "suite(apgd-ce(steps=20),apgd-t(steps=10,targets=3),"
        "fab-t(steps=10,targets=3),square(queries=100))"
    )
    mixed = torch.randperm(len(given), generator=torch.Generator().manual_seed(0))
    for kind in (torch.float64, torch.float32):
        model = network(ROBUST, args.cache).to(kind)
        batch = Batch(given.images.to(kind), given.labels, given.index)
        verdicts = [ours(model, batch, attack, width).predicted for width in (7, 64, 500)]
        turned = Batch(batch.images[mixed], batch.labels[mixed], mixed)
        other = ours(model, turned, attack, 64).predicted
        verdicts.append(torch.empty_like(other).index_copy_(0, mixed, other))
        right = [one == batch.labels for one in verdicts]
        differ = max(float((right[0] != one).float().mean()) for one in right[1:])
        allowed = 0.0 if kind == torch.float64 else 0.005
        limit(differ <= allowed, f"{differ:.2%} of verdicts in {kind} depend on the batch")
        print(f"- {kind}: at most {differ:.2%} of {len(batch)} verdicts differ", flush=True)


PARTS: dict[str, Part] = {
    "pgd": part_pgd,
    "autoattack": part_autoattack,
    "batches": part_batches,
}


def main() -> None:
    """Read the options and run."""
    say = options(__doc__, PARTS)
    say.add_argument("--repeats", type=int, default=5, help="turns of PGD; the best counts")
    say.add_argument("--turns", type=int, default=5, help="of single attacks; the best counts")
    say.add_argument("--long", type=float, default=20, help="seconds beyond which once is enough")
    run(say.parse_args(), PARTS)


if __name__ == "__main__":
    main()
