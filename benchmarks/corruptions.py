"""Our corruptions beside the package `imagecorruptions-imaug`: the same images, and their cost.

python benchmarks/corruptions.py [--parts images,statistics,constants,speed] [--scripts FOLDER]
    [--page docs/corruptions-compared.md]

`images` compares image by image, on the same random numbers where there are any; `statistics`
compares what both make of random numbers of their own; `constants` reads the scripts that made
CIFAR-10-C, Tiny-ImageNet-C and ImageNet-C (`ImageNet-C/create_c` of the GitHub repository
hendrycks/robustness) without running them, if their folder is given; `speed` measures both.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import begin, end, limit
from replayed import DETERMINISTIC, REPLAYED, STATISTICAL, both, theirs, with_their_constants
from scripts import differences

from classwise.corruptions.corrupting import corrupt
from classwise.corruptions.severities import C19, SEVERITIES

AT_32, AT_224 = 5.0, 1.0  # times as fast in total, at the least
FARTHEST = 1  # levels of 255 that an image may differ by: what was cut down on either side of one
SIGNS = 5.0  # standard errors that statistics may differ by
DRAWS = 12
HEAD = "| corruption | " + " | ".join(f"severity {s}" for s in SEVERITIES) + " |"


@cache
def photographs(side: int, count: int) -> Any:
    """Pieces of the two photographs that come with scikit-learn."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    found = []
    for number in range(count):
        whole = load_sample_images().images[number % 2]
        left = (37 * number) % (whole.shape[1] - 400)
        piece = Image.fromarray(whole[:400, left : left + 400])
        found.append(np.array(piece.resize((side, side), Image.Resampling.LANCZOS)))
    return np.stack(found)


def images(_: argparse.Namespace) -> None:
    """The same image, and the same draws, by both."""
    print("\n## Image by image at 224 pixels\n")
    print("Largest difference in levels of 255, and share of values that differ at all.\n")
    print(HEAD, "| --- |" + " --- |" * 5, sep="\n")
    for name in C19:
        if name in STATISTICAL:
            continue
        cells = []
        for severity in SEVERITIES:
            apart = []
            for number, image in enumerate(photographs(224, 2)):
                other, ours = both(image, name, severity, seed=10 * severity + number)
                apart.append(np.abs(other.astype(int) - ours))
            far, share = int(np.max(apart)), float(np.mean(np.array(apart) > 0))
            limit(far <= FARTHEST, f"{name}-{severity} differs by {far} levels")
            cells.append(f"{far}, {share:.2%}")
        same = "" if name in DETERMINISTIC else " (same draws)"
        print(f"| {name}{same} | {' | '.join(cells)} |", flush=True)
    print(
        "\nelastic_transform at the package's constants, which are not those of ImageNet-C; frost "
        "with its photographs."
    )


def statistics_of(_: argparse.Namespace) -> None:
    """What both make of random numbers of their own."""
    print("\n## By statistics at 224 pixels\n")
    print(
        f"Mean level, and mean change of a value in levels of 255, ours / theirs, over {DRAWS} "
        "draws of two images; in brackets the larger of both differences in standard errors.\n"
    )
    print(HEAD, "| --- |" + " --- |" * 5, sep="\n")
    for name in (*STATISTICAL, *REPLAYED):
        cells = []
        for severity in SEVERITIES:
            sides = [
                np.array([_measures(made(image, name, severity, seed), image)
                          for image in photographs(224, 2) for seed in range(DRAWS)])
                for made in (_ours, _theirs)
            ]  # fmt: skip
            gap, signs = sides[0].mean(0) - sides[1].mean(0), _signs(*sides)
            # what is drawn hardly moves a mean: a hundredth of a level is no difference
            far = float(np.where(np.abs(gap) < 0.01, 0, signs).max())
            limit(far <= SIGNS, f"{name}-{severity}: statistics differ by {far:.1f} errors")
            words = [f"{a:.1f} / {b:.1f}" for a, b in zip(*(s.mean(0) for s in sides), strict=True)]
            cells.append(f"{'; '.join(words)} ({far:.1f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _signs(one: Any, other: Any) -> Any:
    """Differences in standard errors; draws of one image are compared with one another."""
    spread = [side.reshape(2, DRAWS, -1).var(1, ddof=1).mean(0) for side in (one, other)]
    error = np.sqrt((spread[0] + spread[1]) / (2 * DRAWS))
    return np.abs(one.mean(0) - other.mean(0)) / np.maximum(error, 1e-9)


def _measures(made: Any, image: Any) -> list[float]:
    return [float(made.mean()), float(np.abs(made.astype(int) - image).mean())]


def _ours(image: Any, name: str, severity: int, seed: int) -> Any:
    return with_their_constants(image, name, severity, seed)


def _theirs(image: Any, name: str, severity: int, seed: int) -> Any:
    np.random.seed(seed)  # noqa: NPY002  the package draws from there
    return theirs(image, name, severity)


def constants(args: argparse.Namespace) -> None:
    """Our tables beside the scripts'."""
    if args.scripts is None:
        print("\nConstants: not compared; --scripts names the folder of the scripts.")
        return
    print("\n## Constants, value by value\n")
    for size, script in (
        (32, "make_cifar_c"),
        (64, "make_tinyimagenet_c"),
        (224, "make_imagenet_c"),
    ):
        other, count = differences(args.scripts / f"{script}.py", size)
        limit(not other, f"{script}: {'; '.join(other)}")
        said = "; ".join(other) or "none"
        print(f"- `{script}`, {count} values of 19 corruptions × 5 severities; other ones: {said}")


def speed(args: argparse.Namespace) -> None:
    """Processor time of both on the same images, in turns, one thread each."""
    import cv2

    cv2.setNumThreads(1)
    print("\n## Speed\n")
    print(
        "Milliseconds of processor time an image for all five severities together, one thread "
        f"each, the package image by image, ours in batches of {args.small} and {args.large}; "
        f"medians of {args.rounds} turns.\n"
    )
    print("| corruption | 32 px, package | ours | ratio | 224 px, package | ours | ratio |")
    print("| --- |" + " ---: |" * 6)
    totals = np.zeros((2, 2))
    for name in C19:
        cells = []
        for place, (side, count) in enumerate(((32, args.small), (224, args.large))):
            spent = _seconds(name, side, count, args.rounds)
            totals[place] += spent
            cells += [
                f"{1e3 * spent[0]:.2f}",
                f"{1e3 * spent[1]:.3f}",
                f"{spent[0] / spent[1]:.1f}",
            ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    cells = [f"{1e3 * a:.1f} | {1e3 * b:.1f} | **{a / b:.1f}**" for a, b in totals]
    print(f"| total | {' | '.join(cells)} |")
    for (a, b), least, side in zip(totals, (AT_32, AT_224), (32, 224), strict=True):
        limit(a / b >= least, f"{a / b:.1f} times as fast at {side} pixels, {least} wanted")


def _seconds(name: str, side: int, count: int, rounds: int) -> tuple[float, float]:
    """Medians an image: by the package one after the other, by us as a batch."""
    pictures = photographs(side, count)
    batch = torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous().float() / 255
    few = max(1, count // 8)  # of theirs, whose time does not depend on how many there are

    def other() -> None:
        for severity in SEVERITIES:
            for image in pictures[:few]:
                theirs(image, name, severity)

    def ours() -> None:
        for severity in SEVERITIES:
            corrupt(batch, name, severity)

    other()  # compilers and tables, once
    ours()
    turns = [(_spent(other) / few, _spent(ours) / count) for _ in range(rounds)]
    return statistics.median(a for a, _ in turns), statistics.median(b for _, b in turns)


def _spent(function: Callable[[], None]) -> float:
    """Seconds of the processor, whatever else runs on the machine."""
    began = time.process_time()
    function()
    return time.process_time() - began


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "images": images,
    "statistics": statistics_of,
    "constants": constants,
    "speed": speed,
}


class _Both(io.StringIO):
    """What is printed, to be kept as well."""

    def write(self, text: str) -> int:
        sys.__stdout__.write(text)  # type: ignore[union-attr]  # None without a console, as under pythonw
        return super().write(text)


def main(given: Sequence[str] | None = None) -> None:
    """Run the parts that were asked for."""
    say = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    say.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    say.add_argument("--scripts", type=Path)
    say.add_argument("--small", type=int, default=256, help="images of 32 pixels")
    say.add_argument("--large", type=int, default=16, help="images of 224 pixels")
    say.add_argument("--rounds", type=int, default=3)
    say.add_argument("--page", type=Path, help="keep what is printed as a page, too")
    args = say.parse_args(given)
    kept = _Both()
    torch.set_num_threads(1)  # as many as the package has
    # the package divides by nothing where no drop falls, and the compiler has advice
    warnings.simplefilter("ignore")
    try:
        with contextlib.redirect_stdout(kept):
            print("# Corruptions beside `imagecorruptions-imaug`\n")
            print("Written by `make corruptions`; what the tables are about is in "
                  "[corruptions.md](corruptions.md).\n")  # fmt: skip
            begin()
            for part in args.parts:
                PARTS[part](args)
            end()
    finally:
        if args.page is not None:
            args.page.write_text(kept.getvalue())


if __name__ == "__main__":
    main()
