"""What the quickstart was chosen by: its candidates, five seeds, judged on validation images.

python benchmarks/quickstart.py [--seeds 5] [--out runs/quickstart-choice]

Three tenths of the training part are held out and never trained on; the test part is not opened.
Prints Markdown. Takes about twenty minutes on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean, stdev

import torch

from classwise import ClassReport, audit, open_data, train
from classwise.data.splits import split_indices
from classwise.quickstart import CONFIG

RECIPES = ("at", "at+ccm", "trades", "trades+wat", "trades+dafa")
HELD_OUT = "0.3"


def judged(recipe: str, seed: int, folder: Path) -> ClassReport:
    """Train one candidate and audit it on the images that it held out."""
    run = train(
        recipe, CONFIG, out=folder / f"{recipe}-s{seed}", resume=True, device="cpu", quiet=True,
        valid=HELD_OUT, valid_attack="pgd-1", seed=seed,
    )  # fmt: skip
    data = open_data(CONFIG.data).train
    held_out = data.subset(split_indices(data.labels, HELD_OUT, seed)[1])
    return audit(
        run.model("last"),
        held_out.images,
        held_out.labels,
        eps=CONFIG.eps,
        attacks=("clean", "pgd-20"),
        class_names=held_out.class_names,
    )


def cell(rates: list[float]) -> str:
    """Mean and sample deviation in per cent."""
    return f"{100 * mean(rates):.1f} ± {100 * stdev(rates):.1f}"


def main() -> None:
    """Train, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/quickstart-choice"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| recipe | average, clean | average, robust | worst, robust | worst classes |")
    print("| --- | ---: | ---: | ---: | --- |")
    for recipe in RECIPES:
        found = [judged(recipe, seed, args.out) for seed in range(args.seeds)]
        clean, robust = [one["clean"] for one in found], [one["pgd-20"] for one in found]
        cells = (
            cell([one.overall for one in clean]),
            cell([one.overall for one in robust]),
            cell([one.worst for one in robust]),
            ", ".join(one.worst_class for one in robust),
        )
        print(f"| {recipe} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
