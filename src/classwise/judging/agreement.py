"""Several audited runs: do they put the classes in the same order?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from classwise.errors import ClasswiseError
from classwise.judging.samples import AuditedSamples
from classwise.spelling import few_names
from classwise.statistics.intervals import Rates, check_level
from classwise.statistics.ranks import kendall, random_agreement, spearman, worst_overlap
from classwise.statistics.redrawn import Span, Whole, interval_of, redraw

MEASURES = {
    "spearman": "Spearman's ρ",
    "kendall": "Kendall's τ_b",
    "overlap": "overlap of the worst classes",
}
FEWEST_IMAGES = 30  # of a class; with fewer, intervals hold the truth less often than they say
_WORK = 800_000_000  # pairs of classes that all draws together look at
_FEWEST = 200  # draws, however many classes there are
_BLOCK = 20_000_000  # pairs of classes at a time
_LEAST = {"spearman": -1.0, "kendall": -1.0, "overlap": 0.0}


class Pair(NamedTuple):
    """Two of the runs by their place, and how far they agree."""

    first: int
    second: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class RankAgreement:
    """Agreement of the class accuracies of R runs under one condition.

    Every measure is a `Span` of R×R tables. Accuracies are of the classes that have images in all
    runs. `sure` is the interval of ρ that holds for all pairs at once.
    """

    condition: str
    runs: tuple[str, ...]
    class_names: tuple[str, ...]
    rates: Rates  # R×K
    sizes: Whole  # R×K
    measures: dict[str, Span]
    sure: Span
    mean: Span  # of ρ over all pairs
    steady: Rates  # ρ of each run with itself on images drawn anew
    top: int  # worst classes whose overlap is counted
    level: float
    draws: int
    paired: bool  # all runs were asked about the same images
    left_out: int = 0  # verdicts on images that not all runs of the same data were asked about
    missing: tuple[str, ...] = ()  # classes without images in some run

    @property
    def ranks(self) -> Rates:
        """Rank of every class in every run, 1 for the worst; equal ones share their mean rank."""
        from scipy.stats import rankdata

        found: Rates = rankdata(self.rates, axis=1)
        return found

    @property
    def pairs(self) -> list[Pair]:
        """Spearman's ρ of all pairs of runs, the lowest first; those without a value last."""
        value, low, high = self.measures["spearman"]
        places = zip(*np.triu_indices(len(self.runs), 1), strict=True)
        found = [
            Pair(int(i), int(j), float(value[i, j]), float(low[i, j]), float(high[i, j]))
            for i, j in places
        ]
        return sorted(found, key=lambda pair: (np.isnan(pair.value), pair.value))

    @property
    def by_chance(self) -> float:
        """The ρ that two unrelated orders of so many classes exceed in one case of twenty."""
        return random_agreement(len(self.class_names))

    @property
    def fewest(self) -> int:
        """Images of the smallest class of any run."""
        return int(self.sizes.min())

    @property
    def notes(self) -> list[str]:
        """What was left out, in words."""
        words = []
        if self.missing:
            words.append(f"no images in some run, left out: {few_names(self.missing, 10)}")
        if self.left_out:
            words.append(
                f"{self.left_out} verdicts are on images that not all runs were asked about, and "
                "left out"
            )
        if self.fewest < FEWEST_IMAGES:
            words.append(
                f"the smallest class has {self.fewest} images: below {FEWEST_IMAGES} the intervals "
                "are too short"
            )
        if not self.paired:
            words.append("the runs were audited on different data: images are drawn for each")
        return words


class _Verdicts(NamedTuple):
    """What runs on the same data said of the images that all of them were asked about."""

    runs: list[int]
    labels: Whole
    right: npt.NDArray[np.bool_]
    left_out: int


def agree_samples(
    runs: Sequence[AuditedSamples],
    condition: str,
    *,
    top: int | None = None,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> RankAgreement:
    """Compare the order of the classes between runs under one condition."""
    check_level(level)
    names, groups = check_runs(runs), _grouped(runs, condition)
    count = len(runs[0].class_names)
    sizes, hits = (np.zeros((len(runs), count), np.int64) for _ in range(2))
    for group in groups:
        sizes[group.runs] = np.bincount(group.labels, minlength=count)
        for run, right in zip(group.runs, group.right, strict=True):
            hits[run] = np.bincount(group.labels[right], minlength=count)
    there = (sizes > 0).all(0)
    if there.sum() < 3:
        raise ClasswiseError(
            f"{int(there.sum())} classes have images in all runs; an order needs at least three"
        )
    rates, sizes = hits[:, there] / sizes[:, there], sizes[:, there]
    classes = np.array(runs[0].class_names)[there]
    worst = _worst(top, len(classes))
    many = int(max(_FEWEST, min(draws, _WORK // (len(runs) * len(classes) ** 2))))
    drawn = np.empty((many, len(runs), len(classes)))
    for number, group in enumerate(groups):
        blocks = redraw(group.labels, group.right, count, many, seed + number)
        drawn[:, group.runs] = np.concatenate(list(blocks))[:, :, there]
    measures, sure, mean = _measured(rates, drawn, worst, level)
    own = np.stack([np.broadcast_to(rates, drawn.shape), drawn], axis=2)
    return RankAgreement(
        condition,
        names,
        tuple(classes.tolist()),
        rates,
        sizes,
        measures,
        sure,
        mean,
        np.nan_to_num(spearman(own)[..., 0, 1]).mean(0),
        worst,
        level,
        many,
        len(groups) == 1,
        sum(group.left_out for group in groups),
        tuple(np.array(runs[0].class_names)[~there].tolist()),
    )


def check_runs(runs: Sequence[AuditedSamples]) -> tuple[str, ...]:
    """Refuse runs of different classes, or fewer than two; a name for each."""
    if len(runs) < 2:
        raise ClasswiseError("one run has nobody to agree with; name at least two audited runs")
    for run in runs:
        if run.class_names != runs[0].class_names:
            raise ClasswiseError(
                f"{run.name} and {runs[0].name} have different classes; compare runs of the same "
                "ones"
            )
    last = {run.name: Path(run.name).name for run in runs}
    clash = Counter(last.values())  # folders of one name in several places
    names = [run.name if clash[last[run.name]] > 1 else last[run.name] for run in runs]
    same = Counter(names)
    names = [
        f"{name} ({run.weights})" if same[name] > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ClasswiseError(f"{twice[0]} is named twice; name every run and its weights once")
    return tuple(names)


def labels_alike(runs: Sequence[AuditedSamples], condition: str) -> list[str]:
    """What every run calls the condition that the first one knows by this name."""
    first = runs[0].label(condition)
    key, found = runs[0].stamps[first].attack_key, []
    for run in runs:
        same = [label for label, stamp in run.stamps.items() if stamp.attack_key == key]
        if not same:
            raise ClasswiseError(
                f"{run.name} was not audited under {first} as {runs[0].name} was (attack, eps, "
                f"norm, seed and verdict alike); it has {', '.join(run.conditions)}"
            )
        found.append(same[0])
    return found


def _grouped(runs: Sequence[AuditedSamples], condition: str) -> list[_Verdicts]:
    """The runs by the data they were audited on."""
    labels = labels_alike(runs, condition)
    for run, label in zip(runs, labels, strict=True):
        if label in run.unfinished:
            raise ClasswiseError(
                f"the audit of {run.name} under {label} stopped early, and chose its images by "
                "what it saw; complete it first: classwise audit, without --minutes and --question"
            )
    homes: dict[str, list[int]] = {}
    for number, (run, label) in enumerate(zip(runs, labels, strict=True)):
        homes.setdefault(run.stamps[label].data_hash, []).append(number)
    return [_shared(runs, labels, members) for members in homes.values()]


def _shared(runs: Sequence[AuditedSamples], labels: list[str], members: list[int]) -> _Verdicts:
    found = [runs[number].conditions[labels[number]] for number in members]
    both: Whole = reduce(np.intersect1d, [one.sample for one in found])
    said = f"{runs[members[0]].name} and {runs[members[-1]].name}"
    if not len(both):
        raise ClasswiseError(f"{said} share no image; audit them on the same ones")
    # verdicts of a ledger stand in the order of their samples
    rows = [np.searchsorted(one.sample, both) for one in found]
    truths = [one.label[at] for one, at in zip(found, rows, strict=True)]
    if any(not np.array_equal(truth, truths[0]) for truth in truths):
        raise ClasswiseError(
            f"{said} give other labels to the same sample numbers: they are of different data"
        )
    right = np.stack([one.correct[at] for one, at in zip(found, rows, strict=True)])
    left_out = sum(len(one.sample) for one in found) - len(found) * len(both)
    return _Verdicts(members, truths[0], right, left_out)


def _worst(top: int | None, count: int) -> int:
    """So many worst classes, or, where nobody said, about a third of a few and 10 % of many."""
    if top is None:
        return min(3, count - 1) if count < 30 else round(0.1 * count)
    if not 0 < top < count:
        raise ClasswiseError(
            f"top is {top}; of {count} classes give a number from 1 to {count - 1}"
        )
    return top


def _measured(
    rates: Rates, drawn: Rates, worst: int, level: float
) -> tuple[dict[str, Span], Span, Span]:
    """Every measure with its intervals, ρ with one for all pairs at once, and the mean ρ."""
    of: dict[str, Callable[[Rates], Rates]] = {
        "spearman": spearman,
        "kendall": kendall,
        "overlap": lambda r: worst_overlap(r, worst),
    }
    values = {name: measure(rates) for name, measure in of.items()}
    parts: dict[str, list[Rates]] = {name: [] for name in of}
    for block in _blocks(drawn):
        for name, measure in of.items():
            parts[name].append(measure(block).astype(np.float32))
    joined = {name: np.concatenate(found) for name, found in parts.items()}
    spans = {name: interval_of(values[name], joined[name], level, _LEAST[name], 1.0) for name in of}
    above = np.triu_indices(len(rates), 1)
    rho = values["spearman"]
    all_at_once = 1 - (1 - level) / len(above[0])
    sure = interval_of(rho, joined["spearman"], all_at_once, -1.0, 1.0)
    mean = interval_of(
        rho[above].mean(), joined["spearman"][:, above[0], above[1]].mean(1), level, -1.0, 1.0
    )
    return spans, sure, mean


def _blocks(drawn: Rates) -> Iterator[Rates]:
    size = max(1, _BLOCK // (drawn.shape[1] * drawn.shape[2] ** 2))
    for begin in range(0, len(drawn), size):
        yield drawn[begin : begin + size]
