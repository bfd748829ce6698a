"""Time to a robust worst class: AT with all its steps beside cheaper ways of training.

python benchmarks/cheaper.py [--budgets 2,5,10] [--seeds 1] [--target 5] [--out runs/cheaper]

Every recipe is trained with the same numbers of network passes, each number as a run of its own,
since a learning rate falls over a whole run: a budget is so many epochs of AT with ten steps, and
who needs fewer passes per epoch trains for more epochs. The weights that validation images chose
are judged by PGD-20 on test images, and nothing is chosen by them. Seconds are those of the epochs
as the run noted them, validation among them; on a shared machine read passes first. Prints
Markdown. Runs that are there are not trained again: a broken benchmark goes on where it stopped.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from classwise import audit, open_data, train
from classwise.data.splits import balanced_subset
from classwise.recipe import Recipe
from classwise.recipe_text import parse_recipe
from classwise.record.lines import read_lines
from classwise.training.passes import passes_of_training
from classwise.training.presets import apply_preset
from classwise.training.run import Run

AT = "at(steps=10)"
RECIPES = (
    AT,
    "at(steps=3)",
    "at(steps={0: 2, 0.5: 10})",
    "fast",
    "free(replays=4)",
    "atta",
)


@dataclass(frozen=True)
class Outcome:
    """What a recipe reached with a budget and a seed."""

    recipe: str
    budget: float
    epochs: int
    passes: float  # of all training images, in thousands of images
    seconds: float
    clean: float
    robust: float
    worst: float
    worst_class: str


def epochs_for(recipe: Recipe, budget: float) -> int:
    """As many epochs as the budget, in epochs of AT, pays for; one at least."""
    allowed, epochs = budget * passes_of_training(parse_recipe(AT).slots, 1), 1
    while passes_of_training(recipe.slots, epochs + 1) <= allowed:
        epochs += 1
    return epochs


def reached(recipe: str, budget: float, seed: int, args: argparse.Namespace) -> Outcome:
    """Train with a budget, and judge on test images."""
    spelled = parse_recipe(recipe)
    epochs = epochs_for(spelled, budget)
    options: dict[str, Any] = {"data": args.data, "epochs": epochs, "seed": seed}
    options |= {"subset": args.subset, "model": args.model, "valid_attack": "pgd-10"}
    whole, config = apply_preset("minutes", spelled, options)
    name = "".join(c if c.isalnum() else "-" for c in recipe).strip("-")
    out = args.out / f"{name}-b{budget:g}-s{seed}"
    if not (out / "done").exists():
        train(whole, config, out=out, resume=True, quiet=True)
        (out / "done").touch()
    test = open_data(args.data).test
    some = balanced_subset(test.labels, args.images, 0)
    found = audit(
        Run(out).model("best"),
        test.images[some],
        test.labels[some],
        eps=config.eps,
        attacks=("clean", "pgd-20"),
        class_names=test.class_names,
    )
    clean, robust = found["clean"], found["pgd-20"]
    seconds = sum(line["seconds"] for line in read_lines(out / "times.jsonl"))
    passes = passes_of_training(spelled.slots, epochs) * args.subset / 1000
    facts = (clean.overall, robust.overall, robust.worst, robust.worst_class)
    return Outcome(recipe, budget, epochs, passes, seconds, *facts)


def row(one: Outcome) -> str:
    """A line of the table."""
    rates = " | ".join(f"{100 * rate:.1f}" for rate in (one.clean, one.robust, one.worst))
    return (
        f"| `{one.recipe}` | {one.budget:g} | {one.epochs} | {one.passes:.0f} | "
        f"{one.seconds:.0f} | {rates} | {one.worst_class} |"
    )


def quickest(outcomes: list[Outcome], recipe: str, target: float) -> str:
    """The cheapest budget whose median worst class reaches the target: seconds and passes."""
    own = [one for one in outcomes if one.recipe == recipe]
    for budget in sorted({one.budget for one in own}):
        seeds = [one for one in own if one.budget == budget]
        if median(one.worst for one in seeds) >= target:
            seconds, passes = median(o.seconds for o in seeds), seeds[0].passes
            return f"| `{recipe}` | {budget:g} | {seconds:.0f} | {passes:.0f} |"
    return f"| `{recipe}` | not reached | | |"


def main() -> None:
    """Train, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budgets", default="2,5,10", help="epochs of AT with ten steps")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--target", type=float, default=5.0, help="worst class, per cent")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--model", default="resnet9(width=8)")
    parser.add_argument("--subset", type=int, default=10_000, help="images to train on")
    parser.add_argument("--images", type=int, default=2000, help="test images to judge by")
    parser.add_argument("--recipes", default=";".join(RECIPES), help="separated by semicolons")
    parser.add_argument("--out", type=Path, default=Path("runs/cheaper"))
    args = parser.parse_args()
    recipes = [recipe.strip() for recipe in args.recipes.split(";")]
    print("| recipe | budget | epochs | 1000 passes | seconds | clean | PGD-20 | worst | class |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    outcomes = []
    for seed in range(args.seeds):
        for budget in map(float, args.budgets.split(",")):
            for recipe in recipes:  # side by side, so that a busy hour is everybody's
                outcomes.append(reached(recipe, budget, seed, args))
                print(row(outcomes[-1]), flush=True)
    print(f"\n| recipe | budget to a worst class of {args.target:g} % | seconds | 1000 passes |")
    print("| --- | ---: | ---: | ---: |")
    for recipe in recipes:
        print(quickest(outcomes, recipe, args.target / 100))


if __name__ == "__main__":
    main()
