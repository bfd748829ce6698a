"""Compose a recipe of our own from the validation figures of stored runs, by a rule stated before.

python benchmarks/even.py [--records docs/studies/records] [--data 'pooled(cifar10, by=2),…']

Reads of every record who it is (run.json) and its validation after every epoch (history.jsonl), and
nothing else: predictions, which are of test images, are not opened. Prints the recipe to freeze and
the recipes to compare it with. Nothing is trained.

The rule, stated before any result of it was known.
1. Homes. Runs are compared with runs that differ from them in recipe and seed alone. Of each data
   set the settings with the most different recipes are its home, and runs elsewhere do not count.
2. Score. A run's classes are its validation accuracies under attack, each the mean over the last
   third of the epochs, of its average where the recipe has one, else of the trained weights. Its
   score is their mean plus the mean of the lowest fifth of them. A single worst class of a few
   dozen images would be chosen by noise; a fifth is two classes of ten. A recipe whose average
   never began or that has several is left out, and so is training without an attack.
3. Recipes are ranked by their score, the mean over seeds, then over homes; those that do not stand
   in every home are left out.
4. Pieces. A piece is a method that is no base, with those options that it would not have by
   itself. Where two runs of a home have the same seed, and their recipes are the same but for one
   piece that one has more, the difference of their scores is a pair. The effect of a piece is the
   mean of its pairs in a home, then over homes; its error is the standard error of its pairs, about
   their homes' means. It is good if there are at least three pairs, it has some in every home, and
   its effect is above its error.
5. Composition. It begins with the best recipe that is a base alone. Good pieces are added by
   falling effect, each method once, as long as the recipe composes and has one average at most.
6. Comparison. The five best recipes that are not the composition itself, with the epochs that
   equal training cost gives each: network passes of one image, as many as the costliest needs in
   the epochs of the home.
Whatever comes out is frozen in a commit, and only then are five fresh seeds looked at on test.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from even_records import Piece, Pieces, Scored, read_runs, recipe_of

from classwise.errors import ClasswiseError
from classwise.recipe_text import method_class
from classwise.spelling import split_outside_brackets
from classwise.training.passes import passes_of_training

FEWEST_PAIRS, COMPARED = 3, 5


@dataclass(frozen=True)
class Effect:
    """What a piece adds to the score."""

    piece: Piece
    mean: float
    error: float
    pairs: int
    everywhere: bool  # whether it has pairs in every home

    @property
    def good(self) -> bool:
        """Part 4 of the rule."""
        return self.everywhere and self.pairs >= FEWEST_PAIRS and self.mean > self.error


@dataclass(frozen=True)
class Choice:
    """What comes of the rule."""

    ranking: tuple[tuple[Pieces, float], ...]  # best first
    effects: tuple[Effect, ...]  # largest first
    composition: Pieces
    refused: Mapping[Piece, str]  # good, and why it is not in

    @property
    def compared(self) -> tuple[Pieces, ...]:
        """The best recipes that are not the composition itself."""
        others = [pieces for pieces, _ in self.ranking if pieces != self.composition]
        return tuple(others[:COMPARED])


def homes_of(runs: Sequence[Scored], data: Sequence[str]) -> list[str]:
    """Part 1 of the rule: for each data set the settings with the most recipes."""
    recipes = defaultdict[str, set[Pieces]](set)
    for run in runs:
        recipes[run.home].add(run.pieces)
    best: dict[str, str] = {}
    for home in sorted(recipes, key=lambda one: (-len(recipes[one]), one)):
        best.setdefault(str(json.loads(home)["data"]), home)
    for name in data:
        if name not in best:
            raise ClasswiseError(f"no record is of {name}; there are {', '.join(best) or 'none'}")
    return [best[name] for name in data or sorted(best)]


def choose(runs: Sequence[Scored], homes: Sequence[str]) -> Choice:
    """Parts 3 to 5 of the rule."""
    inside = [run for run in runs if run.home in homes]
    ranking, effects = rank(inside, homes), effects_of(inside, homes)
    alone = [pieces for pieces, _ in ranking if len(pieces) == 1]
    if not alone:
        raise ClasswiseError("no base alone stands in every home, so nothing can be composed")
    composition, refused = alone[0], dict[Piece, str]()
    for effect in effects:
        if not effect.good:
            continue
        if effect.piece[0] in {name for name, _ in composition}:
            refused[effect.piece] = "it is in already, with other options"
            continue
        try:
            if len(recipe_of(composition | {effect.piece}).slots.averages) > 1:
                raise ClasswiseError("the recipe has an average already")
            composition |= {effect.piece}
        except ClasswiseError as reason:
            refused[effect.piece] = str(reason)
    return Choice(tuple(ranking), tuple(effects), composition, refused)


def rank(runs: Sequence[Scored], homes: Sequence[str]) -> list[tuple[Pieces, float]]:
    """Recipes that stand in every home with their scores, best first."""
    scores = defaultdict[Pieces, dict[str, list[float]]](lambda: defaultdict(list))
    for run in runs:
        scores[run.pieces][run.home].append(run.score)
    means = {
        pieces: statistics.fmean(statistics.fmean(by[home]) for home in homes)
        for pieces, by in scores.items()
        if len(by) == len(homes)
    }
    return sorted(means.items(), key=lambda pair: (-pair[1], sorted(pair[0])))


def effects_of(runs: Sequence[Scored], homes: Sequence[str]) -> list[Effect]:
    """What every piece adds, largest first."""
    pairs = defaultdict[Piece, dict[str, list[float]]](lambda: defaultdict(list))
    for more, less in permutations(runs, 2):
        alike = (more.home, more.seed) == (less.home, less.seed)
        if alike and less.pieces < more.pieces and len(more.pieces) == len(less.pieces) + 1:
            (piece,) = more.pieces - less.pieces
            pairs[piece][more.home].append(more.score - less.score)
    found = [_effect(piece, by, len(homes)) for piece, by in pairs.items()]
    return sorted(found, key=lambda one: (-one.mean, one.piece))


def _effect(piece: Piece, by_home: Mapping[str, Sequence[float]], homes: int) -> Effect:
    means = {home: statistics.fmean(some) for home, some in by_home.items()}
    about = [one - means[home] for home, some in by_home.items() for one in some]
    many = len(about)
    free = many - len(means)
    error = math.sqrt(sum(x * x for x in about) / free / many) if free else math.inf
    return Effect(piece, statistics.fmean(means.values()), error, many, len(means) == homes)


def spelled(pieces: Iterable[Piece]) -> str:
    """A recipe as people write it, the base first."""
    words = []
    for name, options in pieces:
        inside = ", ".join(f"{option}={value}" for option, value in json.loads(options).items())
        base = method_class(name, ()).base
        words.append((not base, f"{name}({inside})" if inside else name))
    return "+".join(text for _, text in sorted(words))


def equal_epochs(recipes: Sequence[Pieces], epochs: int) -> list[int]:
    """Epochs of each that cost what the costliest of them costs in so many."""
    each = [passes_of_training(recipe_of(one).slots, epochs) / epochs for one in recipes]
    return [round(epochs * max(each) / one) for one in each]


def page(choice: Choice, homes: Sequence[str], runs: int, left_out: Mapping[str, str]) -> str:
    """What is printed, as Markdown."""
    data = ", ".join(str(json.loads(home)["data"]) for home in homes)
    lines = [f"{runs} runs, scored on validation images alone; homes: {data}", ""]
    lines += ["| piece | effect, points | error | pairs | good |", "|" + " --- |" * 5]
    for one in choice.effects:
        numbers = f"{100 * one.mean:+.2f} | {100 * one.error:.2f} | {one.pairs}"
        why = choice.refused.get(one.piece, "")
        good = ("yes" if one.good else "no") + (f", left out: {why}" if why else "")
        lines.append(f"| {spelled([one.piece])} | {numbers} | {good} |")
    lines += ["", "| recipe | score, points |", "| --- | ---: |"]
    lines += [f"| {spelled(pieces)} | {100 * value:.2f} |" for pieces, value in choice.ranking]
    compared = [choice.composition, *choice.compared]
    epochs = equal_epochs(compared, int(json.loads(homes[0])["epochs"]))
    known = any(pieces == choice.composition for pieces, _ in choice.ranking)
    again = ", which is among the recipes above: nothing new comes of it" if known else ""
    lines += ["", f"To freeze: `{spelled(choice.composition)}`, {epochs[0]} epochs{again}", ""]
    lines += ["To compare it with, at equal training cost:", ""]
    pairs = zip(choice.compared, epochs[1:], strict=True)
    lines += [f"* `{spelled(one)}`, {many} epochs" for one, many in pairs]
    often = "".join(f" (most often: {why})" for why in statistics.multimode(left_out.values())[:1])
    return "\n".join([*lines, "", f"{len(left_out)} records were left out{often}", ""])


def main(words: Sequence[str] | None = None) -> int:
    """Print the choice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=Path, default=Path("docs/studies/records"))
    parser.add_argument("--data", default="", help="data sets that count; all without")
    given = parser.parse_args(words)
    names = split_outside_brackets(given.data, ",")
    try:
        runs, left_out = read_runs(given.records)
        if not runs:
            raise ClasswiseError(
                f"{given.records} has no record that can be scored ({len(left_out)} cannot); keep "
                "some with classwise study NAME --records FOLDER"
            )
        homes = homes_of(runs, [one.strip() for one in names if one.strip()])
        print(page(choose(runs, homes), homes, len(runs), left_out))
    except ClasswiseError as reason:
        print(f"even: {reason}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
