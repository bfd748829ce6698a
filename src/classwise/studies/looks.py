"""What was seen of a run over its epochs, out of its history: class rates or class settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import BeforeValidator, PlainSerializer

from classwise.attacks.names import named_condition, parse_condition
from classwise.attacks.threat import Threat
from classwise.errors import ClasswiseError, unknown
from classwise.report.runs import ReportRun
from classwise.spelling import few_names, same_condition, spell_eps
from classwise.statistics.intervals import Rates
from classwise.studies.artefact import PERCENT, Cell
from classwise.studies.cells import cell_over
from classwise.studies.epochs import OverEpochs, Window
from classwise.studies.found import Found, FoundRun, Hole

SPLITS = ("train", "valid", "test", "training", "settings")
_SPLIT_WORDS = {
    "training": "training: counted while the weights moved, with batch statistics.",
    "train": "train: watched after the epoch, on the images that train.",
    "valid": "valid: images held out of training.",
    "settings": "settings: what each class was trained with in that epoch.",
}


@dataclass(frozen=True)
class Look:
    """Which statistics of each epoch are meant.

    `test:` and `train:` were watched, `valid:` is in every history; `training:` was counted while
    the weights moved, and `settings:margin` is what each class was trained with. Behind the colon
    stands an attack by its name, `clean`, `robust` (the one attack at the judge's radius) or `own`
    (the one at the radius of training).

    >>> str(parse_look("test: pgd-10 @ fawa")), parse_look("settings:beta").seen
    ('test:pgd-10@fawa', 'beta')
    """

    split: str
    seen: str
    average: str = ""  # empty: the live weights

    def __str__(self) -> str:
        return f"{self.split}:{self.seen}" + (f"@{self.average}" if self.average else "")


def parse_look(text: object) -> Look:
    """Read SPLIT:ATTACK, SPLIT:ATTACK@AVERAGE or settings:NAME."""
    if isinstance(text, Look):
        return text
    split, colon, rest = str(text).strip().partition(":")
    seen, at, average = (part.strip() for part in rest.partition("@"))
    if not colon or not seen or (at and not average):
        raise ClasswiseError(
            f"look {text!r}: write SPLIT:ATTACK as in test:robust, SPLIT:ATTACK@AVERAGE as in "
            "valid:pgd-10@fawa, or settings:NAME as in settings:margin"
        )
    if split not in SPLITS:
        raise unknown("part of a run to look at", split, SPLITS)
    if average and split in ("training", "settings"):
        raise ClasswiseError(
            f"look {text!r}: an average never trains; look at test, train or valid"
        )
    if seen not in ("clean", "robust", "own") and split in ("train", "valid", "test"):
        seen = named_condition(seen)[0]
    return Look(split, seen, average)


# An option that is written as people write looks.
LookOption: TypeAlias = Annotated[Look, BeforeValidator(parse_look), PlainSerializer(str)]


@dataclass(frozen=True)
class SeedsOver:
    """What runs that differ in their seed alone show under one look, or why one shows nothing."""

    runs: tuple[FoundRun, ...]
    by_run: tuple[OverEpochs | Hole, ...]

    @classmethod
    def of(cls, runs: Sequence[FoundRun], look: Look) -> SeedsOver:
        """Read the histories of some runs."""
        found: list[OverEpochs | Hole] = []
        for run in runs:
            try:
                found.append(over_epochs(run, look))
            except Hole as reason:
                found.append(reason)
        return cls(tuple(runs), tuple(found))

    @property
    def known(self) -> list[OverEpochs]:
        """Of the runs that show something."""
        return [one for one in self.by_run if isinstance(one, OverEpochs)]

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs in which all of them were looked at."""
        seen = [set(one.epochs) for one in self.known]
        return tuple(sorted(set.intersection(*seen))) if seen else ()

    def values(self, name: str) -> Rates:
        """Seeds × epochs of a class, `overall` or `worst`."""
        epochs = self.epochs
        rows = [[one.line(name)[one.epochs.index(epoch)] for epoch in epochs] for one in self.known]
        return np.array(rows, np.float64).reshape(len(self.known), len(epochs))

    def cell(self, measure: Callable[[OverEpochs], float], unit: str = PERCENT) -> Cell:
        """One number of each seed; seeds without it are said in the hole."""
        found = {id(run): one for run, one in zip(self.runs, self.by_run, strict=True)}

        def read(run: FoundRun) -> float:
            one = found[id(run)]
            if isinstance(one, Hole):
                raise one
            return known_number(measure(one))

        return cell_over(self.runs, read, unit)


def can_show(runs: Sequence[FoundRun], look: Look) -> bool:
    """Whether runs may have the average that is looked at; a recipe without it never will."""
    for run in runs:
        last = run.run.history[-1] if run.run is not None and run.run.history else {}
        if look.average and "averages" in last:
            return look.average in last["averages"]
    return True


def known_number(value: float) -> float:
    """The number itself; what is none is a hole."""
    if math.isnan(value):
        raise Hole("no samples of the class")
    return float(value)


def split_notes(looks: Iterable[Look]) -> tuple[str, ...]:
    """What the parts of a run are that somebody looked at, each once."""
    there = {look.split for look in looks}
    return tuple(words for split, words in _SPLIT_WORDS.items() if split in there)


def window_note(found: Found, window: Window, least: int = 1) -> str:
    """Which epochs a window means in the runs at hand."""
    lengths = sorted({epochs_of(run.run) for run in found.runs if run.run and run.run.history})
    meant = [(window.of(length, least), length) for length in lengths]
    said = [f"epochs {epochs[0]} to {epochs[-1]} of {length}" for epochs, length in meant]
    return f"{window}: {', '.join(said) or 'no run has a history'}."


def epochs_of(run: ReportRun) -> int:
    """How many epochs the run was to have."""
    return int(run.about.get("config", {}).get("epochs") or run.history[-1]["epoch"])


def over_epochs(found: FoundRun, look: Look) -> OverEpochs:
    """The statistics of one run; a hole where nobody looked, with what there is instead."""
    run = found.record()
    if not run.history:
        raise Hole("the record has no history of the training")
    if run.history[-1].get("averages", {}).get(look.average) == 0:
        raise Hole(f"{look.average} took in no epoch: its gate stayed shut")
    rows = [(line["epoch"], _there(line, look)) for line in run.history]
    look = replace(look, seen=found.stand_ins.get(look.seen, look.seen))
    name = _meant(look, run, list(dict.fromkeys(key for _, there in rows for key in there)))
    looks = [(epoch, there[name]) for epoch, there in rows if name in there]
    values = [one if isinstance(one, Mapping) else _of_settings(one) for _, one in looks]
    rates = np.array([_numbers(one["by_class"]) for one in values], np.float64)
    overall = np.array(_numbers([one["overall"] for one in values]), np.float64)
    at = f"@{look.average}" if look.average else ""
    return OverEpochs(
        f"{look.split}:{name}{at}",
        tuple(epoch for epoch, _ in looks),
        rates,
        overall,
        tuple(run.about["data"]["class_names"]),
        epochs_of(run),
    )


def _there(line: Mapping[str, Any], look: Look) -> dict[str, Any]:
    """All that an epoch has of this part of a run and of these weights, by attack or setting."""
    if look.split == "settings":
        return dict(line.get("settings", {}))
    if look.split == "training":
        return dict(line.get("train", {}))
    if look.split == "valid":
        return dict(line.get("valid", {}).get(look.average or "live", {}))
    found = {}
    for name, rates in line.get("watch", {}).items():
        split, _, rest = name.partition(":")
        attack, _, average = rest.partition("@")
        if (split, average) == (look.split, look.average):
            found[attack] = rates
    return found


def _meant(look: Look, run: ReportRun, known: Sequence[str]) -> str:
    """Which of the looks of a record is meant."""
    there = f"there: {few_names(known, 5)}" if known else "nothing of that kind is there"
    if look.split in ("settings", "training") or look.seen == "clean":
        if look.seen not in known:
            raise Hole(f"{look} is not on record ({there})")
        return look.seen
    if look.seen not in ("robust", "own"):
        same = [name for name in known if same_condition(name, look.seen)]
        if not same:
            raise Hole(f"{look} is not on record ({there})")
        return same[0]
    config = run.about.get("config", {})
    judged = config.get("judge_eps") or config.get("eps")
    wanted = judged if look.seen == "robust" else config.get("eps")
    if judged is None or wanted is None:
        raise Hole(f"{look}: the record says no radius")
    fits = [name for name in known if _same(_radius(name, judged), wanted)]
    if look.split == "valid" and config.get("valid_attack") in fits:
        return str(config["valid_attack"])  # by which weights are chosen; others serve a policy
    if len(fits) == 1:
        return fits[0]
    many = f"{len(fits)} attacks" if fits else "no attack"
    raise Hole(f"{look}: {many} at eps {spell_eps(wanted)} on record ({there})")


def _radius(name: str, judged: float) -> float | None:
    """The radius of a look; None where it is no attack of one radius."""
    if name in ("clean", "robust"):  # robust: a policy's own attack, class by class
        return None
    found = parse_condition(name, Threat.of(judged, "L2"))  # under which any radius may be meant
    return None if found.attack is None or found.threat is None else found.threat.widest


def _same(one: float | None, other: float) -> bool:
    return one is not None and math.isclose(one, other, rel_tol=1e-6)


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else float(value) for value in values]


def _of_settings(values: Sequence[float]) -> dict[str, Any]:
    """A class setting in the shape of rates; its `overall` is the mean over classes."""
    return {"overall": sum(values) / len(values), "by_class": list(values)}
