"""What corruptions do to classes: severities pooled, the worst class, mean errors, mCE.

The errors of AlexNet that the official mCE divides by are those of `ALEXNET_ERR` in `imagenet.py`
of github.com/google-research/augmix, commit 202cf4c, over severities; per severity they are in
issue 10 of github.com/hendrycks/robustness. AlexNet is torchvision's (issue 38 there), whose
documentation gives 56.522 % right on clean images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from classwise.attacks.corruption import PREFIX
from classwise.corruptions.severities import C15, SEVERITIES
from classwise.judging.groups import CLASS
from classwise.judging.metrics import ClassReport, ConditionReport
from classwise.judging.rates import Intervals, RatedGroups, Tally, Whole
from classwise.statistics.intervals import wilson, worst_interval

ALEXNET = dict(
    zip(
        C15,
        (
            *(0.886428, 0.894468, 0.922640, 0.819880, 0.826268, 0.785948, 0.798360, 0.866816),
            *(0.826572, 0.819324, 0.564592, 0.853204, 0.646056, 0.717840, 0.606500),
        ),
        strict=True,
    )
)
ALEXNET_CLEAN = 1 - 0.56522
IMAGENET_CLASSES = 1000
FEW = 3  # corruptions up to which each is shown as any other condition


@dataclass(frozen=True)
class CorruptedClasses(RatedGroups):
    """One corruption: right answers of each class over all severities that were audited.

    Severities are pooled before anything is said of a class, so that its rate is the mean over
    severities, where all saw the same images. Groups of another `grouping` are pooled alike.
    Intervals are those of as many verdicts as there are images: an image at five severities is not
    five images, and one verdict for each is the most that it can be less.
    """

    name: str
    severities: tuple[int, ...]
    seen: tuple[ConditionReport, ...]  # one for each severity
    grouping: str = CLASS

    @cached_property
    def tally(self) -> Tally:
        """Right answers and verdicts of each class, all severities together."""
        tallies = [one.by(self.grouping).tally for one in self.seen]
        hits = np.sum([one.hits for one in tallies], axis=0)
        sizes = np.sum([one.sizes for one in tallies], axis=0)
        return tallies[0]._replace(hits=hits, sizes=sizes)

    def by(self, grouping: str) -> CorruptedClasses:
        """The same verdicts in other groups, such as `camera`."""
        return replace(self, grouping=grouping)

    @property
    def images(self) -> tuple[int, int]:
        """The fewest and the most images that some severity was asked about."""
        counts = [int(one.tally.sizes.sum()) for one in self.seen]
        return min(counts), max(counts)

    @property
    def same_images(self) -> bool:
        """Whether all severities were asked about the same images."""
        return len({one.images_key for one in self.seen}) == 1

    @property
    def confidence(self) -> float:
        """Of all intervals."""
        return self.seen[0].level

    @property
    def overall(self) -> float:
        """Share of all verdicts that are right, whatever group their images are in."""
        right = sum(int(one.tally.hits.sum()) for one in self.seen)
        return right / sum(int(one.tally.sizes.sum()) for one in self.seen)

    @property
    def error(self) -> float:
        """Mean over severities of the share that is wrong."""
        return float(np.mean([1 - one.overall for one in self.seen]))

    @cached_property
    def _images(self) -> Whole:
        """Images of each class: the fewest of any severity that was asked about some."""
        sizes = np.array([one.by(self.grouping).tally.sizes for one in self.seen])
        some = np.where(sizes > 0, sizes, sizes.max(initial=0)).min(axis=0)
        fewest: Whole = np.minimum(some, sizes.max(axis=0))  # 0 where no severity has any
        return fewest

    @property
    def images_of(self) -> dict[str, int]:
        """Images of each class."""
        return dict(zip(self.tally.names, self._images.tolist(), strict=True))

    @property
    def intervals(self) -> Intervals:
        """Wilson interval of each class, for as many verdicts as images."""
        hits = np.nan_to_num(self.rates) * self._images
        return self._named(wilson(hits, self._images, self.confidence))

    @property
    def worst_interval(self) -> tuple[float, float]:
        """Interval for the truly worst class, for as many verdicts as images."""
        _, hits, sizes, overlapping, _ = self.tally
        times, verdicts = hits * self._images, np.maximum(sizes, 1)
        low, high = (
            worst_interval(some, self._images, self.confidence, overlapping=overlapping)
            for some in (times // verdicts, -(-times // verdicts))
        )
        return float(low[0]), float(high[1])


@dataclass(frozen=True)
class CorruptionReport:
    """All corruptions of an audit, with the clean images beside them."""

    corruptions: Mapping[str, CorruptedClasses]
    clean: ConditionReport | None

    @property
    def error(self) -> float:
        """Mean over corruptions of the mean error over severities, divided by nothing."""
        return float(np.mean([one.error for one in self.corruptions.values()]))

    @property
    def groupings(self) -> list[str]:
        """Groupings of the user's own, which every severity of every corruption has."""
        every = self.together.seen
        return [name for name in every[0].groups if all(name in one.groups for one in every)]

    @property
    def together(self) -> CorruptedClasses:
        """All corruptions pooled as severities of one are: an image is still one image."""
        every = [one for several in self.corruptions.values() for one in several.seen]
        return CorruptedClasses("all", (), tuple(every))

    @property
    def official(self) -> bool:
        """Whether there is all that the official mCE is defined for."""
        one = next(iter(self.corruptions.values()))
        return len(one.seen[0].class_names) == IMAGENET_CLASSES and all(
            name in self.corruptions and self.corruptions[name].severities == SEVERITIES
            for name in C15
        )

    @property
    def mce(self) -> float | None:
        """The official mean corruption error: each of fifteen errors over AlexNet's; ImageNet only.

        1 is AlexNet's own. None where a corruption or severity is missing, or on other data.
        """
        if not self.official:
            return None
        return float(np.mean([self.corruptions[n].error / ALEXNET[n] for n in C15]))

    @property
    def relative_mce(self) -> float | None:
        """The same of what errors rise above those on clean images, which must be the same ones."""
        if not self.official or self.clean is None or not self.beside_clean:
            return None
        base = 1 - self.clean.overall
        rises = [(self.corruptions[n].error - base) / (ALEXNET[n] - ALEXNET_CLEAN) for n in C15]
        return float(np.mean(rises))

    @property
    def beside_clean(self) -> bool:
        """Whether the clean images are known to be the corrupted ones, not only as many."""
        if self.clean is None or not self.clean.images_key:
            return False
        return all(one.images_key == self.clean.images_key for one in self.together.seen)

    @property
    def missing(self) -> str:
        """Why there is no official mCE; nothing where there is one."""
        lacking = [name for name in C15 if name not in self.corruptions]
        one = next(iter(self.corruptions.values()))
        if len(one.seen[0].class_names) != IMAGENET_CLASSES:
            return "no mCE: AlexNet's errors, which it divides by, are those on ImageNet"
        if lacking:
            return f"no mCE: {len(lacking)} of its 15 corruptions were not audited"
        return "" if self.official else "no mCE: not all five severities were audited"

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            "mean_error": self.error,
            "mce": self.mce,
            "relative_mce": self.relative_mce,
            "corruptions": [
                {
                    "corruption": name,
                    "severities": list(one.severities),
                    "error": one.error,
                    "errors": [1 - each.overall for each in one.seen],
                    "overall": one.overall,
                    "worst": one.worst,
                    "worst_class": one.worst_group,
                    "worst_interval": list(one.worst_interval),
                    "best": one.best,
                    "best_class": one.best_group,
                    "spread": one.spread,
                    "gap": one.gap,
                    "classes": one.by_group,
                    "groups": {name: one.by(name).by_group for name in self.groupings},
                }
                for name, one in self.corruptions.items()
            ],
        }


def corruption_report(report: ClassReport) -> CorruptionReport | None:
    """The corruptions of an audit, severities pooled; None where there is none.

    What was examined in part has no average, and is left out.
    """
    found: dict[str, list[ConditionReport]] = {}
    for one in _corrupted(report):
        name = one.family.removeprefix(PREFIX)
        found.setdefault(f"{name} ({one.options})" if one.options else name, []).append(one)
    if not found:
        return None
    pooled = {}
    for name, several in found.items():
        ordered = {int(one.strength): one for one in sorted(several, key=lambda o: o.strength)}
        if len(ordered) == len(several):  # one audit of each severity, not one for each seed
            pooled[name] = CorruptedClasses(name, tuple(ordered), tuple(ordered.values()))
    clean = next((one for one in report.values() if one.kind == "clean"), None)
    return CorruptionReport(pooled, clean) if pooled else None


def shown_apart(report: ClassReport) -> tuple[ClassReport, CorruptionReport | None]:
    """A report for tables of conditions, and its corruptions for a table of their own.

    Up to three corruptions stand among the other conditions; more would be nothing but columns.
    """
    many = corruption_report(report)
    taken = [] if many is None else [s for c in many.corruptions.values() for s in c.seen]
    if many is None or len(taken) <= FEW:
        return report, None
    inside = {one.condition for one in taken}
    rest = [one for one in report.values() if one.condition not in inside]
    if not rest:
        return report, many
    plain = ClassReport(rest, report.about)
    plain.relabelled = report.relabelled
    return plain, many


def _corrupted(report: ClassReport) -> list[ConditionReport]:
    return [
        one
        for one in report.values()
        if one.kind == "shift" and one.family.startswith(PREFIX) and not one.unfinished
    ]
