"""Attacks side by side with other libraries, in one run: the same verdicts in less time.

python benchmarks/attacks.py [--parts pgd,autoattack,...] [--images 200]

Trains three CIFAR-10 networks first if `runs/bench` does not hold them. Ours and theirs take turns
on the same images, each in a process of its own, so read the ratios; the seconds are those of the
machine. Prints Markdown.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import others
import torch
from classwise.auditing.evaluate import class_report, evaluate
from classwise.auditing.judging import attacked
from nets import NETS, network, pictures, trained
from scipy.stats import binomtest
from torch import Tensor, nn

from classwise.attacks.attack_names import parse_attack
from classwise.attacks.ball import parse_norm
from classwise.attacks.judged import Judged
from classwise.auditing.question import parse_question
from classwise.auditing.sequential import examine
from classwise.data.batches import Batches
from classwise.data.sources import open_data
from classwise.data.splits import balanced_subset
from classwise.doors.health import check_health
from classwise.models import build_model
from classwise.record.rows import Predictions
from classwise.types import Batch

EPS = 8 / 255
LINF = parse_norm("Linf")
ROBUST = "robust resnet9"
MIDDLE = (0.5, 0.5, 0.5)
MISSED: list[str] = []  # limits that were not kept


def limit(kept: bool, words: str) -> None:
    """Note a limit that was missed; the run ends with an error then."""
    if not kept:
        MISSED.append(words)


def ours(
    model: nn.Module, images: Tensor, labels: Tensor, attack: str, width: int = others.BATCH
) -> Judged:
    """Attack all images, `width` at a time."""
    batch = Batch(images, labels, torch.arange(len(labels)))
    classes = int(model(images[:1]).shape[1])
    facts = {"num_classes": classes, "radius": EPS, "ball": LINF, "width": width}
    return attacked(model, batch, parse_attack(attack), **facts)


def stands(model: nn.Module, moved: Tensor, labels: Tensor) -> Tensor:
    """Who is right about the moved images, on the plain model."""
    with torch.no_grad():
        return model(moved).argmax(1) == labels


def timed(function: Callable[[], object]) -> tuple[object, float]:
    """Run it and count the seconds."""
    began = time.perf_counter()
    found = function()
    return found, time.perf_counter() - began


def theirs(
    library: str, net: str, args: argparse.Namespace, **more: object
) -> tuple[Tensor, float]:
    """Images another library moved, and the seconds it took."""
    return others.theirs(library, net, args.cache, args.images, eps=EPS, **more)


def part_pgd(args: argparse.Namespace) -> None:
    """PGD-20 of one step size, radius and kind of start."""
    print(f"\n## PGD-20, {args.images} images, best of {args.repeats} turns\n")
    print("| network | clean | ours | torchattacks | foolbox | other verdicts than ours | ratio |"
          " of the medians |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    images, labels = pictures(args.images)
    for name in args.nets:
        model = network(name, args.cache)
        clean = stands(model, images, labels)
        runs = {
            "ours": lambda m=model: timed(
                lambda: ours(m, images, labels, "pgd-20(verdict=any)").predicted
            ),
            "torchattacks": lambda n=name: theirs("torchattacks", n, args),
            "foolbox": lambda n=name: theirs("foolbox", n, args),
        }
        seconds: dict[str, list[float]] = {key: [] for key in runs}
        standing: dict[str, Tensor] = {}
        for _ in range(args.repeats):
            for key, run in runs.items():
                found, spent = run()
                seconds[key].append(spent)
                # a wrong image that an attack happens to make right is no robust image
                right = found == labels if key == "ours" else stands(model, found, labels) & clean
                standing[key] = right
        # other work on the machine only adds to the seconds: the best turn has least of it
        best = {key: min(values) for key, values in seconds.items()}
        middle = {key: statistics.median(values) for key, values in seconds.items()}
        cells = [f"{share(standing[key])}, {best[key]:.2f} s" for key in runs]
        differ = [int((standing["ours"] != standing[key]).sum()) for key in list(runs)[1:]]
        faster, usually = (
            min(one["torchattacks"], one["foolbox"]) / one["ours"] for one in (best, middle)
        )
        limit(faster >= 3.5, f"PGD-20 on {name}: {faster:.2f} times faster, not 3.5")
        limit(max(differ) <= 0.01 * args.images, f"PGD-20 on {name}: verdicts differ {differ}")
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
    images, labels = pictures(args.images)
    notes = []
    for name in args.nets:
        model = network(name, args.cache)
        for attacks in [*((one,) for one in others.SUITE), others.SUITE]:
            title = attacks[0] if len(attacks) == 1 else "**autoattack**"
            own = f"suite({','.join(attacks)})"
            turns = args.turns if len(attacks) == 1 else min(2, args.turns)
            ours_in, theirs_in = [], []
            for _ in range(turns):
                found, spent = timed(lambda m=model, a=own: ours(m, images, labels, a))
                moved, longer = theirs("pyautoattack", name, args, attacks=attacks)
                ours_in.append(spent)
                theirs_in.append(longer)
                if spent + longer > args.long:
                    break
            spent, longer = min(ours_in), min(theirs_in)
            mine, its = found.predicted == labels, stands(model, moved, labels)
            only_theirs, only_ours = int((mine & ~its).sum()), int((~mine & its).sum())
            apart = only_theirs + only_ours
            p = binomtest(only_theirs, apart, alternative="greater").pvalue if apart else 1.0
            print(
                f"| {name} | {title} | {share(mine)} | {share(its)} | {only_theirs} | {only_ours} "
                f"| {p:.2f} | {spent:.1f} s | {longer:.1f} s | {longer / spent:.2f} |",
                flush=True,
            )
            notes.append(verified(model, images, labels, found))
            floor = {"apgd-ce": 2.5, "**autoattack**": 1.6}.get(title, 0)
            ratio = longer / spent
            limit(ratio >= floor, f"{title} on {name}: {ratio:.2f} times faster, not {floor}")
            fair = only_theirs <= 0.01 * args.images and p > 0.05
            limit(fair, f"{title} on {name}: {only_theirs} broken only by theirs")
        by_class = torch.bincount(labels[mine], minlength=10).tolist()
        print(f"| | survivors by class | {', '.join(map(str, by_class))} | | | | | | | |")
    outside, fooled, claimed = (
        max(n[0] for n in notes),
        *(sum(n[i] for n in notes) for i in (1, 2)),
    )
    limit(outside <= 1e-6 and fooled == claimed, "an adversarial image is none")
    print(f"\nOur adversarial images leave ball and [0, 1] by at most {outside:.1e}; asked again, "
          f"the plain model is wrong about {fooled} of the {claimed}.")  # fmt: skip


def verified(
    model: nn.Module, images: Tensor, labels: Tensor, found: Judged
) -> tuple[float, int, int]:
    """How far images lie outside, how many fool the model, how many are said to."""
    fallen = found.predicted != labels
    moved = found.images.double()
    outside = max(
        float((moved - images.double()).abs().max() - EPS),
        float(-moved.min()),
        float(moved.max() - 1),
    )
    fooled = ~stands(model, found.images[fallen], labels[fallen])
    return max(0.0, outside), int(fooled.sum()), int(fallen.sum())


def part_batches(args: argparse.Namespace) -> None:
    """The same verdicts for any working batch and order: exactly in float64, nearly in float32."""
    print("\n## Working batches of 7, 64 and 500, and the images in another order\n")
    images, labels = pictures(args.images)
    attack = (
        "suite(apgd-ce(steps=20),apgd-t(steps=10,targets=3),"
        "fab-t(steps=10,targets=3),square(queries=100))"
    )
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    for kind in (torch.float64, torch.float32):
        model, exact = network(ROBUST, args.cache).to(kind), images.to(kind)
        verdicts = [ours(model, exact, labels, attack, width).predicted for width in (7, 64, 500)]
        batch = Batch(exact[mixed], labels[mixed], mixed)
        facts = {"num_classes": 10, "radius": EPS, "ball": LINF, "width": 64}
        other = attacked(model, batch, parse_attack(attack), **facts).predicted
        verdicts.append(torch.empty_like(other).index_copy_(0, mixed, other))
        right = [one == labels for one in verdicts]
        differ = max(float((right[0] != one).float().mean()) for one in right[1:])
        allowed = 0.0 if kind == torch.float64 else 0.005
        limit(differ <= allowed, f"{differ:.2%} of verdicts in {kind} depend on the batch")
        print(f"- {kind}: at most {differ:.2%} of {len(labels)} verdicts differ", flush=True)


def part_question(args: argparse.Namespace) -> None:
    """What a settled question saves, in images, in evaluations of the model and in seconds."""
    attack = args.question_attack
    print(f"\n## Questions instead of full audits: {ROBUST}, {args.limit} images, {attack}\n")
    print("| question | answer | right | images | evaluations | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    model, test = network(ROBUST, args.cache), open_data("cifar10").test
    chosen = balanced_subset(test.labels, args.limit, seed=0)
    batches = Batches.of(test.subset(chosen), others.BATCH, torch.device("cpu"), chosen)
    facts = {"num_classes": 10, "attacks": [attack], "eps": EPS}
    (full,), longest = timed(lambda: evaluate(model, batches, **facts))
    rates = class_report([full], test.class_names)[attack].rates
    print(
        f"| the full audit | worst {rates.min():.1%} | | {args.limit} | {evaluations(full)} "
        f"| {longest:.1f} |"
    )
    best = test.class_names[int(rates.argmax())]
    for words in ("worst>=0.2", "worst>=0.5", f"{best}>=0.2"):
        asked = parse_question(words, test.class_names)
        partly, spent = timed(
            lambda q=asked: examine(
                batches, test.class_names, lambda part: evaluate(model, part, **facts), question=q
            )
        )
        worst = asked.what == "worst"
        truth = rates.min() if worst else rates.max()
        seen, less = len(partly.found[0].label), evaluations(partly.found[0])
        concerned = full.label == (full.label if worst else test.class_names.index(best))
        work = evaluations(full, concerned)
        said = {True: "yes", False: "no", None: "undecided"}[partly.answer]
        right = "yes" if partly.answer == bool(truth >= asked.bar) else "NO"
        saved = min(concerned.sum() / seen, work / less)
        limit(right == "yes" and (saved >= 5 or not worst), f"{words}: {said}, {saved:.1f} times")
        print(
            f"| {words} | {said} | {right} | {seen} ({concerned.sum() / seen:.1f} times fewer) "
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


def part_memory(args: argparse.Namespace) -> None:
    """Peak memory above that of the loaded model, each library in a process of its own."""
    print(f"\n## Peak memory above the loaded network and images, {args.images} images\n")
    print("| attack | ours | theirs |")
    print("| --- | --- | --- |")
    for attack, rivals in (("pgd-20(verdict=any)", ("torchattacks", "foolbox")),
                           ("suite(apgd-ce)", ("pyautoattack",))):  # fmt: skip
        peaks = {}
        for who in ("ours", *rivals):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                peaks[who] = pool.apply(_peak, (who, attack, args.images, args.cache))
        others_said = ", ".join(f"{who} {peaks[who]:.0f} MB" for who in rivals)
        print(f"| {attack} | {peaks['ours']:.0f} MB | {others_said} |", flush=True)


def _peak(who: str, attack: str, count: int, cache: Path) -> float:
    model, (images, labels) = network(ROBUST, cache), pictures(count)
    stands(model, images, labels)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading the data
    before = _peak_so_far()
    if who == "ours":
        ours(model, images, labels, attack)
    elif who == "pyautoattack":
        others.pyautoattack(model, images, labels, eps=EPS, attacks=("apgd-ce",))
    else:
        getattr(others, who)(model, images, labels, eps=EPS)
    return _peak_so_far() - before


def _peak_so_far() -> float:
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def part_growth(_: argparse.Namespace) -> None:
    """Seconds as classes, images and steps grow, where nothing falls."""
    print("\n## Growth\n\nResNet-9 (width 8) on which every sample survives; apgd-ce, apgd-t and")
    print("fab-t of 10 steps and 2 targets. Best of three.\n")
    attack = "suite(apgd-ce(steps=10),apgd-t(steps=10,targets=2),fab-t(steps=10,targets=2))"

    def seconds(classes: int, count: int, attack: str) -> str:
        torch.manual_seed(0)
        model = build_model(
            "resnet9(width=8)", num_classes=classes, channels=3, mean=MIDDLE, deviation=MIDDLE
        ).eval()
        images, _ = pictures(count)
        with torch.no_grad():
            labels = model(images).argmax(1)
        batch = Batch(images, labels, torch.arange(count))
        facts = {"num_classes": classes, "radius": 1e-6, "ball": LINF, "width": 128}
        run = parse_attack(attack)
        spent = [timed(lambda: attacked(model, batch, run, **facts))[1] for _ in range(3)]
        return f"{min(spent):.2f} s"

    print("| | | | |\n| --- | --- | --- | --- |")
    row = [seconds(k, 128, attack) for k in (10, 100, 1000)]
    print(f"| 10, 100, 1000 classes, 128 images | {' | '.join(row)} |")
    row = [seconds(10, n, attack) for n in (128, 256, 512)]
    print(f"| 128, 256, 512 images, 10 classes | {' | '.join(row)} |")
    row = [seconds(10, 128, f"apgd-ce(steps={n})") for n in (10, 20, 40)]
    print(f"| 10, 20, 40 steps of apgd-ce | {' | '.join(row)} |", flush=True)


def share(right: Tensor) -> str:
    """Write a share of all."""
    return f"{right.double().mean():.1%}"


PARTS = {
    "pgd": part_pgd,
    "autoattack": part_autoattack,
    "batches": part_batches,
    "question": part_question,
    "health": part_health,
    "memory": part_memory,
    "growth": part_growth,
}


def main() -> None:
    """Run the parts that were asked for."""
    say = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    say.add_argument("--parts", type=lambda t: t.split(","), default=list(PARTS))
    say.add_argument("--nets", type=lambda t: t.split(","), default=list(NETS))
    say.add_argument("--images", type=int, default=200)
    say.add_argument("--limit", type=int, default=2000, help="images of the question's audit")
    say.add_argument("--question-attack", default="pgd-20(verdict=any)")
    say.add_argument("--repeats", type=int, default=5)
    say.add_argument("--turns", type=int, default=5, help="of single attacks; the best counts")
    say.add_argument("--long", type=float, default=20, help="seconds beyond which once is enough")
    say.add_argument("--cache", type=Path, default=Path("runs/bench"))
    args = say.parse_args()
    for name in args.nets:
        trained(name, args.cache)
    print(f"Torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}.")
    for part in args.parts:
        PARTS[part](args)
    print(f"\nLimits missed: {'; '.join(MISSED) or 'none'}.")
    raise SystemExit(bool(MISSED))


if __name__ == "__main__":
    main()
