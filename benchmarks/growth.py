"""What attacks need as they grow: memory beside other libraries, and seconds.

python benchmarks/growth.py [--parts memory,growth] [--images 200]

Trains three CIFAR-10 networks first if `runs/bench` does not hold them. Memory is read from
`/proc`, so that part needs Linux. Prints Markdown.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
from pathlib import Path

import others
import torch
from measuring import EPS, ROBUST, Part, options, ours, run, stands, timed
from nets import network, pictures

from classwise.attacks.names import parse_condition
from classwise.attacks.threat import Threat
from classwise.models import build_model
from classwise.models.subject import Subject
from classwise.types import Batch

MIDDLE = (0.5, 0.5, 0.5)


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
        ours(model, Batch(images, labels, torch.arange(count)), attack)
    elif who == "pyautoattack":
        others.pyautoattack(model, images, labels, eps=EPS, attacks=("apgd-ce",))
    else:
        getattr(others, who)(model, images, labels, eps=EPS)
    return _peak_so_far() - before


def _peak_so_far() -> float:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found, "/proc/self/status does not say the peak of the memory"
    return int(found[1]) / 1024


def part_growth(_: argparse.Namespace) -> None:
    """Seconds as classes, images and steps grow, where nothing falls."""
    print("\n## Growth\n\nResNet-9 (width 8) on which every sample survives; apgd-ce, apgd-t and")
    print("fab-t of 10 steps and 2 targets. Best of three.\n")
    attack = "suite(apgd-ce(steps=10),apgd-t(steps=10,targets=2),fab-t(steps=10,targets=2))"
    print("| | | | |\n| --- | --- | --- | --- |")
    row = [_seconds(k, 128, attack) for k in (10, 100, 1000)]
    print(f"| 10, 100, 1000 classes, 128 images | {' | '.join(row)} |")
    row = [_seconds(10, n, attack) for n in (128, 256, 512)]
    print(f"| 128, 256, 512 images, 10 classes | {' | '.join(row)} |")
    row = [_seconds(10, 128, f"apgd-ce(steps={n})") for n in (10, 20, 40)]
    print(f"| 10, 20, 40 steps of apgd-ce | {' | '.join(row)} |", flush=True)


def _seconds(classes: int, count: int, attack: str) -> str:
    """The best of three attacks on images that none can move."""
    torch.manual_seed(0)
    model = build_model(
        "resnet9(width=8)", num_classes=classes, channels=3, mean=MIDDLE, deviation=MIDDLE
    ).eval()
    images, _ = pictures(count)
    with torch.no_grad():
        labels = model(images).argmax(1)
    batch = Batch(images, labels, torch.arange(count))
    condition = parse_condition(attack, Threat.of(1e-6))

    def attacked() -> None:
        subject = Subject(model, classes, 128)
        with subject.asked():
            condition.judge(subject, batch)

    return f"{min(timed(attacked)[1] for _ in range(3)):.2f} s"


PARTS: dict[str, Part] = {"memory": part_memory, "growth": part_growth}


def main() -> None:
    """Read the options and run."""
    run(options(__doc__, PARTS).parse_args(), PARTS)


if __name__ == "__main__":
    main()
