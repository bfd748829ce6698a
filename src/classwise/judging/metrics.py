"""Class-wise metrics, all derived from predictions by way of confusion counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from classwise.attacks.names import traits_named
from classwise.classes.counts import ClassCounts
from classwise.errors import ClasswiseError, unknown
from classwise.judging import showing
from classwise.judging.groups import CLASS, named, of_classes
from classwise.judging.rates import GroupReport, Intervals, RatedGroups, Tail, Tally
from classwise.judging.smoothed import Bracket, Drawn, brackets
from classwise.record.remarks import said_of
from classwise.statistics.worst_class import ExpectedWorst, worst_class_warning


@dataclass(frozen=True)
class ConditionReport(RatedGroups):
    """Class-wise results under one condition, such as `clean` or `pgd-20`.

    Classes without samples are None in every table and enter no mean, minimum or spread. Classes
    are one way to group samples; `by("camera")` says the same of another.
    """

    condition: str
    counts: ClassCounts
    class_names: tuple[str, ...]
    superclass_of: tuple[int, ...] | None = None
    superclass_names: tuple[str, ...] | None = None
    level: float = 0.95
    eps: float | None = None  # the largest radius; 0 when clean, None where nobody said
    norm: str = ""
    verdict: str = ""
    unfinished: str = ""  # what is missing, where images were chosen by what was seen of others
    groups: Mapping[str, Tally] = field(default_factory=dict)  # of the user's own groupings
    kind: str = ""  # clean, attack, shift, shifted attack or certificate
    split_sizes: tuple[int, ...] | None = None  # of the classes in the whole that images are from
    drawn: Drawn = field(default_factory=Drawn)  # what verdicts on a smoothed model rest on
    family: str = ""  # of the attack or shift, such as corruption:fog
    strength: float = 0.0  # its steps or severity
    options: str = ""
    images_key: str = ""  # tells its images from others of the same data; nothing: nobody said

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", traits_named(self.condition)[0])
        if not int(self.counts.sizes.sum()):
            raise ClasswiseError(f"{self.condition}: no samples at all, nothing to report")

    @property
    def tally(self) -> Tally:
        """Right answers and samples of each class."""
        hits = self.counts.confusion.diagonal().numpy()
        return Tally(self.class_names, hits, self.counts.sizes.numpy())

    @property
    def confidence(self) -> float:
        """Of all intervals."""
        return self.level

    @cached_property
    def groupings(self) -> dict[str, Tally]:
        """All ways in which the samples are grouped: class, superclass and the user's own.

        A superclass is counted sample by sample here; `by_superclass` is a mean over classes.
        """
        found = {}
        of = of_classes(self.class_names, self.superclass_of, self.superclass_names)
        for name, grouping in of.items():
            hits, sizes = (grouping.sums(counts) for counts in self.tally[1:3])
            found[name] = Tally(grouping.names, hits, sizes)
        return {**found, **self.groups}

    def by(self, grouping: str = CLASS) -> GroupReport:
        """Rates, intervals, worst, spread and gap of another grouping, such as `camera`."""
        tally = named(self.groupings, grouping, f"this report of {self.condition}")
        return GroupReport(grouping, self.condition, tally, self.level)

    @property
    def overall(self) -> float:
        """Share of all samples that are right."""
        return self.counts.overall

    @property
    def mix_average(self) -> float | None:
        """Σₖ (share of class k in the whole split)·accuracyₖ, where the images have another mix.

        A choice that is even over the classes has an average of its own, which is not that of the
        split. None where both are the same, or a class of the split has no image here.
        """
        sizes = self.counts.sizes.numpy()
        if self.split_sizes is None or len(self.split_sizes) != len(sizes):
            return None
        whole = np.array(self.split_sizes, float)
        if not whole.sum() or ((whole > 0) & (sizes == 0)).any():
            return None
        share = whole / whole.sum()
        if np.abs(share * sizes.sum() - sizes).max() <= 1:  # the same mix, but for rounding
            return None
        return float((share * np.nan_to_num(self.rates)).sum())

    @property
    def by_class(self) -> dict[str, float | None]:
        """Accuracy of each class."""
        return self.by_group

    @property
    def worst_class(self) -> str:
        """Name of the worst class; the first one where several are equal."""
        return self.worst_group

    @property
    def best_class(self) -> str:
        """Name of the best class; the first one where several are equal."""
        return self.best_group

    @property
    def equal_classes_p_value(self) -> float:
        """Chance that equal classes show a worst class as bad as this one; approximate."""
        return self.equal_p_value

    @cached_property
    def warning(self) -> str | None:
        """What forbids a claim about the worst class, with the samples needed; None if nothing."""
        sizes = self.counts.sizes.numpy()
        return worst_class_warning(sizes, self.overall, worst=self.worst, level=self.level)

    @property
    def false_positive_share(self) -> dict[str, float]:
        """C_FPS: of all mistakes, the share that was called each class."""
        return dict(zip(self.class_names, self.counts.false_positive_share.tolist(), strict=True))

    @property
    def one_vs_rest_accuracy(self) -> dict[str, float]:
        """C_acc = (TP + TN) / N; close to 1 even for a hopeless class when K is large."""
        return dict(zip(self.class_names, self.counts.one_vs_rest_accuracy.tolist(), strict=True))

    @property
    def confusion(self) -> npt.NDArray[np.int64]:
        """Rows: true class, columns: predicted class."""
        return self.counts.confusion.numpy()

    @property
    def by_superclass(self) -> dict[str, float | None] | None:
        """Mean accuracy of the classes of each superclass; None without superclasses."""
        if self.superclass_of is None:
            return None
        group = np.asarray(self.superclass_of)
        present = ~np.isnan(self.rates)
        count = int(group.max()) + 1
        names = self.superclass_names or tuple(str(s) for s in range(count))
        sums = np.bincount(group[present], self.rates[present], minlength=count)
        sizes = np.bincount(group[present], minlength=count)
        return {
            name: float(total / size) if size else None
            for name, total, size in zip(names, sums, sizes, strict=True)
        }


T = TypeVar("T")


class PerCondition(Generic[T]):
    """A property of `ConditionReport`, collected into a dictionary over conditions."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, report: ClassReport | None, owner: type | None = None) -> dict[str, T]:
        if report is None:
            raise AttributeError(self.name)
        return {key: getattr(condition, self.name) for key, condition in report.items()}


class ClassReport(Mapping[str, ConditionReport]):
    """What an audit found: `report["pgd-20"].worst`, or `report.worst["pgd-20"]`.

    Every property and method of `ConditionReport` is here too, as a dictionary over conditions.
    """

    def __init__(
        self, conditions: Sequence[ConditionReport], about: Mapping[str, Any] | None = None
    ) -> None:
        self._conditions = {report.condition: report for report in conditions}
        self.about = dict(about or {})  # eps, norm, seed, verdict: printed beside the numbers
        self.relabelled: ClassReport | None = None  # the same answers by more than one true label

    def __getitem__(self, condition: str) -> ConditionReport:
        if condition not in self._conditions:
            raise unknown("condition", condition, self._conditions)
        return self._conditions[condition]

    def __iter__(self) -> Iterator[str]:
        return iter(self._conditions)

    def __len__(self) -> int:
        return len(self._conditions)

    @property
    def class_names(self) -> tuple[str, ...]:
        """All classes, also those without samples."""
        return next(iter(self._conditions.values())).class_names

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of all groupings: class, superclass, and the user's own."""
        return tuple(dict.fromkeys(name for one in self.values() for name in one.groupings))

    def by(self, grouping: str = CLASS) -> dict[str, GroupReport]:
        """What `ConditionReport.by` says, under every condition."""
        return {key: report.by(grouping) for key, report in self.items()}

    overall = PerCondition[float]()
    by_class = PerCondition[dict[str, float | None]]()
    sizes = PerCondition[dict[str, int]]()
    intervals = PerCondition[Intervals]()
    exact_intervals = PerCondition[Intervals]()
    simultaneous_intervals = PerCondition[Intervals]()
    worst_interval = PerCondition[tuple[float, float]]()
    expected_worst_if_equal = PerCondition[ExpectedWorst]()
    equal_classes_p_value = PerCondition[float]()
    warning = PerCondition["str | None"]()
    worst = PerCondition[float]()
    worst_class = PerCondition[str]()
    best = PerCondition[float]()
    best_class = PerCondition[str]()
    spread = PerCondition[float]()
    gap = PerCondition[float]()
    false_positive_share = PerCondition[dict[str, float]]()
    one_vs_rest_accuracy = PerCondition[dict[str, float]]()
    confusion = PerCondition[npt.NDArray[np.int64]]()
    by_superclass = PerCondition["dict[str, float | None] | None"]()
    by_group = PerCondition[dict[str, float | None]]()

    def tail(self, share: float = 0.1) -> dict[str, Tail]:
        """Mean of the worst `share` of the classes, with their names."""
        return {key: report.tail(share) for key, report in self.items()}

    def group_min(self) -> dict[str, float]:
        """Alias of `worst`."""
        return self.worst

    def group_max(self) -> dict[str, float]:
        """Alias of `best`."""
        return self.best

    def difference(self) -> dict[str, float]:
        """Alias of `gap`."""
        return self.gap

    def ratio(self) -> dict[str, float]:
        """Worst over best class."""
        return {key: report.ratio() for key, report in self.items()}

    @property
    def brackets(self) -> list[Bracket]:
        """Certified and attacked share of each class, where a smoothed classifier has both."""
        return brackets(self)

    @property
    def remarks(self) -> list[str]:
        """What a reader must know before believing the numbers: flags, and what is missing."""
        return said_of(self.about)

    def to_dict(self) -> dict[str, Any]:
        """All conditions and classes as plain data, for JSON."""
        return showing.as_dict(self)

    def to_frame(self, grouping: str = CLASS) -> Any:
        """A pandas data frame with a row for every class, or group, and condition."""
        return showing.as_frame(self, grouping)

    def plot(self) -> Any:
        """A plotly figure of every class with its interval, worst first."""
        return showing.as_figure(self)

    def __repr__(self) -> str:
        return showing.as_text(self)

    def _repr_html_(self) -> str:
        return showing.as_html(self)


def count_predictions(
    labels: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], num_classes: int
) -> ClassCounts:
    """Class counts from stored predictions."""
    return ClassCounts.of_verdicts(
        torch.from_numpy(labels), torch.from_numpy(predicted), num_classes=num_classes
    )
