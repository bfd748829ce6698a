"""What `even.py` reads of records: recipes, and validation after every epoch; no test image."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError
from classwise.recipe import Recipe, compose
from classwise.recipe_text import make_method
from classwise.record.card import read_run_json
from classwise.training.identity import PASSIVE
from classwise.training.run import Run

LAST_SHARE, LOW_SHARE = 1 / 3, 1 / 5  # of epochs, of classes
Piece = tuple[str, str]  # name, and options as JSON
Pieces = frozenset[Piece]


@dataclass(frozen=True)
class Scored:
    """A run: what it was made of, where it may be compared, and its score on validation images."""

    home: str  # all settings but recipe and seed, as JSON
    seed: int
    pieces: Pieces
    score: float


def score(by_class: Sequence[float]) -> float:
    """The mean of class accuracies, plus that of the lowest fifth of them, one at the least.

    >>> round(score([0.1, 0.2, 0.6, 0.7, 0.9]), 6)
    0.6
    """
    low = sorted(by_class)[: max(1, math.floor(LOW_SHARE * len(by_class)))]
    return statistics.fmean(by_class) + statistics.fmean(low)


def classes_of(history: Sequence[Mapping[str, Any]], attack: str) -> list[float]:
    """Part 2 of the rule for one run; what cannot be scored says why."""
    last = history[-max(1, round(LAST_SHARE * len(history))) :]
    begun = history[-1].get("averages", {})
    if begun and not any(begun.values()):
        raise ClasswiseError("its average never began")
    if len(begun) > 1:
        raise ClasswiseError("it has several averages")
    weights = next(iter(begun), "live")
    seen = [one["valid"].get(weights, {}).get(attack) for one in last]
    rates = [one["by_class"] for one in seen if one is not None]
    if not rates:
        raise ClasswiseError(f"no validation under {attack}")
    columns = [[rate for rate in column if rate is not None] for column in zip(*rates, strict=True)]
    return [statistics.fmean(column) for column in columns if column]


def read_runs(folder: Path) -> tuple[list[Scored], dict[str, str]]:
    """All records of a folder, and why some of them cannot be scored."""
    found, left_out = [], {}
    for card in sorted(folder.glob("[!.]*/run.json")):
        try:
            about, history = read_run_json(card.parent), Run(card.parent).history
            if "config" not in about:
                continue  # a network of other people
            config = about["config"]
            if len(history) < config["epochs"]:
                raise ClasswiseError(f"{len(history)} of {config['epochs']} epochs so far")
            pieces = pieces_of(about["recipe"])
            if config["valid_attack"] == "clean" or not recipe_of(pieces).attacks:
                raise ClasswiseError("nothing attacks it on validation images")
            told = score(classes_of(history, config["valid_attack"]))
        except (ClasswiseError, LookupError) as reason:
            left_out[card.parent.name] = str(reason)
            continue
        passive = {*PASSIVE, "seed"} - {"data"}
        home = json.dumps({k: v for k, v in config.items() if k not in passive}, sort_keys=True)
        found.append(Scored(home, int(config["seed"]), pieces, told))
    return found, left_out


def pieces_of(recipe: Mapping[str, Mapping[str, Any]]) -> Pieces:
    """The methods of a run, each with the options that it would not have by itself in this company.

    So `ccm` is one piece, whichever margins it chooses beside `at` and beside `trades`.
    """
    told = {name: dict(options) for name, options in recipe.items()}
    for name, options in recipe.items():
        for option in sorted(options):
            without = {k: v for k, v in told[name].items() if k != option}
            if _canonical({**told, name: without}) == recipe:
                told[name] = without
    return frozenset((n, json.dumps(o, sort_keys=True)) for n, o in told.items())


def _canonical(told: Mapping[str, Mapping[str, Any]]) -> Any:
    """All options of a recipe, as a record has them; nothing if it does not compose."""
    try:
        known = compose(make_method(name, options, ()) for name, options in told.items())
    except ClasswiseError:
        return None
    return json.loads(json.dumps(known.canonical))


def recipe_of(pieces: Iterable[Piece]) -> Recipe:
    """The recipe of some methods; of a record no code but ours is run."""
    return compose(make_method(name, json.loads(options), ()) for name, options in sorted(pieces))
