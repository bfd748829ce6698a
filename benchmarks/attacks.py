"""Attacks side by side with pyautoattack, torchattacks and foolbox: same verdicts, less time.

python benchmarks/attacks.py [--parts pgd,autoattack,batches,growth] [--images 200] [--queries 5000]

Needs CIFAR-10 and `pip install pyautoattack torchattacks foolbox`. Times are processor seconds of
one thread, ours and theirs in turn within one run; the machine may be busy, so read the ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import resource
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import binomtest
from small_models import MODELS, small_model, test_images
from torch import Tensor, nn

from classwise.attacks.ball import parse_norm
from classwise.auditing.judging import judge
from classwise.types import Batch

Standing = npt.NDArray[np.bool_]
CLASSES = 10


def ours(
    model: nn.Module, images: Tensor, labels: Tensor, attack: str, args: argparse.Namespace
) -> Standing:
    """Who is still standing."""
    found = judge(
        model,
        Batch(images, labels, torch.arange(len(labels))),
        attack,
        num_classes=CLASSES,
        radius=args.eps,
        ball=parse_norm(args.norm),
        width=args.batch,
    )
    return found.correct


def pyautoattack(
    model: nn.Module, images: Tensor, labels: Tensor, attacks: list[str], args: argparse.Namespace
) -> Standing:
    """Who is still standing under the reference implementation of the same attacks."""
    import pyautoattack as theirs

    reference = theirs.AutoAttack(
        model, attacks=attacks, version="custom", eps=args.eps, norm=args.norm, seed=0
    )
    reference.verbose = False
    reference.apgd.n_restarts = 1  # as in the standard version
    reference.square.n_queries = args.queries
    moved, _ = reference.run_standard_evaluation(images, labels, batch_size=args.batch)
    return _judged(model, moved, labels)


def torchattacks(model: nn.Module, images: Tensor, labels: Tensor, args: Any) -> Standing:
    """PGD-20 judged at the last iterate."""
    import torchattacks as theirs

    attack = theirs.PGD(model, eps=args.eps, alpha=args.eps / 4, steps=20)
    parts = zip(images.split(args.batch), labels.split(args.batch), strict=True)
    return _judged(model, torch.cat([attack(x, y) for x, y in parts]), labels)


def foolbox(model: nn.Module, images: Tensor, labels: Tensor, args: Any) -> Standing:
    """PGD-20 judged at the last iterate."""
    import foolbox as theirs

    wrapped = theirs.PyTorchModel(model, bounds=(0, 1))
    attack = theirs.attacks.LinfPGD(abs_stepsize=args.eps / 4, steps=20)
    parts = zip(images.split(args.batch), labels.split(args.batch), strict=True)
    moved = [attack(wrapped, x, y, epsilons=args.eps)[1] for x, y in parts]
    return _judged(model, torch.cat(moved), labels)


def _judged(model: nn.Module, moved: Tensor, labels: Tensor) -> Standing:
    with torch.no_grad():
        right: Standing = (model(moved).argmax(1) == labels).numpy()
    return right


def timed(function: Callable[[], Standing]) -> tuple[Standing, float]:
    """Run it and count its processor seconds."""
    began = time.process_time()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        found = function()
    return found, time.process_time() - began


def compared(name: str, mine: Standing, its: Standing, seconds: float, its_seconds: float) -> str:
    """Write one line of a table of comparisons."""
    only_theirs, only_ours = int((mine & ~its).sum()), int((~mine & its).sum())
    p = (
        binomtest(only_theirs, only_theirs + only_ours, alternative="greater").pvalue
        if (only_theirs + only_ours)
        else 1.0
    )
    return (
        f"  {name:22} standing {mine.mean():6.1%} ours {its.mean():6.1%} theirs | broken only by "
        f"theirs {only_theirs:2d}, only by ours {only_ours:2d} (p {p:.2f}) | "
        f"{seconds:6.1f} s, {its_seconds:6.1f} s: {its_seconds / seconds:4.2f}x"
    )


def part_autoattack(args: argparse.Namespace) -> None:
    """Each attack of the standard suite alone, then the suite, on three models."""
    square = f"square(queries={args.queries})"
    spelled = {"apgd-ce": "apgd-ce", "apgd-t": "apgd-t", "fab-t": "fab-t", "square": square}
    images, labels = test_images(args.images)
    for name in args.models:
        model = small_model(name, args.cache)
        print(f"{name}, {args.images} CIFAR-10 images, {args.norm} {args.eps:.4f}:", flush=True)
        lists = [[one] for one in args.attacks] + ([list(spelled)] if args.whole else [])
        for attacks in lists:
            own = f"suite({','.join(spelled[one] for one in attacks)})"
            mine, seconds = timed(lambda own=own, m=model: ours(m, images, labels, own, args))
            its, its_seconds = timed(
                lambda a=attacks, m=model: pyautoattack(m, images, labels, a, args)
            )
            title = attacks[0] if len(attacks) == 1 else "autoattack"
            print(compared(title, mine, its, seconds, its_seconds), flush=True)
            if len(attacks) > 1:
                by_class = [int((mine & (labels.numpy() == k)).sum()) for k in range(CLASSES)]
                print(f"    survivors by class: {by_class}")


def part_pgd(args: argparse.Namespace) -> None:
    """PGD-20 of the same start, step and radius; ours lets a sample go when it has fallen."""
    images, labels = test_images(args.images)
    for name in args.models:
        model = small_model(name, args.cache)
        runs: dict[str, Callable[[], Standing]] = {
            "ours, any": lambda m=model: ours(m, images, labels, "pgd-20(verdict=any)", args),  # type: ignore[misc]
            "ours, last": lambda m=model: ours(m, images, labels, "pgd-20", args),  # type: ignore[misc]
            "torchattacks": lambda m=model: torchattacks(m, images, labels, args),  # type: ignore[misc]
            "foolbox": lambda m=model: foolbox(m, images, labels, args),  # type: ignore[misc]
        }
        seconds: dict[str, list[float]] = {key: [] for key in runs}
        standing: dict[str, Standing] = {}
        for _ in range(args.repeats):
            for key, run in runs.items():
                standing[key], spent = timed(run)
                seconds[key].append(spent)
        middle = {key: statistics.median(values) for key, values in seconds.items()}
        print(f"{name}, pgd-20, {args.images} images, median of {args.repeats}:")
        first = standing["ours, any"]
        clean = _judged(model, images, labels)
        for key in runs:
            # a wrong image that an attack makes right is no robust image
            differ = int((first != (standing[key] & clean)).sum())
            print(
                f"  {key:14} standing {(standing[key] & clean).mean():6.1%}, other verdict than "
                f"ours on {differ}, {middle[key]:6.2f} s = {middle[key] / middle['ours, any']:.2f}x"
            )


def part_batches(args: argparse.Namespace) -> None:
    """The same verdicts for any working batch: exactly in float64, nearly in float32."""
    images, labels = test_images(min(args.images, 100))
    model = small_model("robust resnet9", args.cache)
    attack = "suite(apgd-ce(steps=20),apgd-t(steps=10,targets=3),fab-t(steps=10,targets=3)," + (
        "square(queries=100))"
    )
    for kind in (torch.float64, torch.float32):
        exact = model.to(kind)
        found = []
        for width in (7, 64, 500):
            args.batch = width
            found.append(ours(exact, images.to(kind), labels, attack, args))
        differ = max(float((found[0] != one).mean()) for one in found[1:])
        print(
            f"working batches of 7, 64 and 500 in {kind}: at most {differ:.2%} of verdicts differ"
        )


def part_growth(args: argparse.Namespace) -> None:
    """Seconds and memory as classes, images and steps grow."""

    class Wide(nn.Module):
        def __init__(self, classes: int) -> None:
            super().__init__()
            self.inside = small_model("undefended resnet9", args.cache)
            self.inside.head = nn.Linear(64, classes)  # type: ignore[assignment]

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.inside(x)
            return out

    def seconds(classes: int, count: int, attack: str) -> float:
        torch.manual_seed(0)
        model = Wide(classes).eval()
        model.inside.num_classes = classes
        images, _ = test_images(count)
        with torch.no_grad():
            labels = model(images).argmax(1)
        batch = Batch(images, labels, torch.arange(count))
        began = time.process_time()
        facts: dict[str, Any] = {"ball": parse_norm("Linf"), "width": 128, "radius": 1e-6}
        judge(model, batch, attack, num_classes=classes, **facts)  # nothing falls
        return time.process_time() - began

    attack = "suite(apgd-ce(steps=10),apgd-t(steps=10,targets=2),fab-t(steps=10,targets=2))"
    for classes in (10, 100, 1000):
        print(f"  {classes:5} classes: {seconds(classes, 64, attack):6.2f} s")
    for count in (64, 128, 256):
        print(f"  {count:5} images: {seconds(10, count, attack):6.2f} s")
    for steps in (10, 20, 40):
        print(f"  {steps:5} steps of apgd-ce: {seconds(10, 64, f'apgd-ce(steps={steps})'):6.2f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  peak memory of this process: {peak:.0f} MB")


PARTS = {
    "pgd": part_pgd,
    "autoattack": part_autoattack,
    "batches": part_batches,
    "growth": part_growth,
}


def main() -> None:
    """Run the parts that were asked for."""
    say = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    say.add_argument("--parts", type=lambda t: t.split(","), default=list(PARTS))
    say.add_argument("--models", type=lambda t: t.split(","), default=list(MODELS))
    say.add_argument("--attacks", type=lambda t: [a for a in t.split(",") if a],
                     default=["apgd-ce", "apgd-t", "fab-t", "square"])  # fmt: skip
    say.add_argument("--whole", type=int, default=1, help="1: the whole suite too")
    say.add_argument("--images", type=int, default=200)
    say.add_argument("--queries", type=int, default=5000)
    say.add_argument("--batch", type=int, default=100)
    say.add_argument("--repeats", type=int, default=3)
    say.add_argument("--eps", type=float, default=8 / 255)
    say.add_argument("--norm", default="Linf")
    say.add_argument("--cache", type=Path, default=Path("runs/bench"))
    args = say.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    for part in args.parts:
        PARTS[part](args)


if __name__ == "__main__":
    main()
