"""Ways to group samples: by class, by superclass, or by an attribute of the user's own.

A grouping says nothing about verdicts and nothing about pixels: it is laid over what was counted,
so that a new one voids no audit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from classwise.data.attributes import Attributes
from classwise.errors import ClasswiseError, unknown
from classwise.judging.rates import Tally, Whole

CLASS, SUPERCLASS = "class", "superclass"
T = TypeVar("T")
MOST_GROUPS = 1000  # of one grouping; more is a name for every image rather than a group
MOST_LETTERS = 200  # in a name


@dataclass(frozen=True)
class Grouping:
    """Which samples belong together, as pairs (member, group); a member may be in several groups.

    Members are the numbers of samples in their split, or of classes: then a sample is where its
    label is. Who is in no pair is in no group.

    >>> pets = Grouping("kind", ("pet", "wild"), "label", np.array([0, 1, 2]), np.array([0, 0, 1]))
    >>> pets.count(sample=np.arange(5), label=np.array([0, 0, 1, 2, 3])).tolist()
    [3, 1]
    """

    name: str
    names: tuple[str, ...]
    of: Literal["sample", "label"]
    member: Whole
    group: Whole

    def __post_init__(self) -> None:
        pairs = self._pairs
        known = not len(pairs) or (
            self.member.min() >= 0 and 0 <= self.group.min() <= self.group.max() < len(self.names)
        )
        if not known or len(np.unique(pairs)) < len(pairs):
            raise ClasswiseError(
                f"{self.name!r}: a member is twice in one group, or in one that has no name"
            )

    @property
    def overlapping(self) -> bool:
        """Whether some member is in several groups."""
        return len(np.unique(self.member)) < len(self.member)

    def same_as(self, other: Grouping) -> bool:
        """Whether both put the same members into the same groups."""
        alike = (self.of, self.names) == (other.of, other.names)
        return alike and np.array_equal(np.sort(self._pairs), np.sort(other._pairs))

    def count(self, sample: Whole, label: Whole) -> Whole:
        """How many of these rows are in each group."""
        keys = np.sort(sample if self.of == "sample" else label)
        times = np.searchsorted(keys, self.member, "right") - np.searchsorted(keys, self.member)
        return self._per_group(times)

    def sums(self, values: Whole) -> Whole:
        """Sum of a whole number for each class over the classes of each group."""
        return self._per_group(values[self.member])

    def tally(self, sample: Whole, label: Whole, correct: Any) -> Tally:
        """Right answers and samples of each group."""
        inside = np.isin(sample if self.of == "sample" else label, self.member)
        return Tally(
            self.names,
            self.count(sample[correct], label[correct]),
            self.count(sample, label),
            self.overlapping,
            int((~inside).sum()),
        )

    @property
    def _pairs(self) -> Whole:
        """A number for each pair."""
        return self.member * len(self.names) + self.group

    def _per_group(self, values: Whole) -> Whole:
        return np.bincount(self.group, values, minlength=len(self.names)).astype(np.int64)


def of_classes(
    class_names: Sequence[str],
    superclass_of: Sequence[int] | None = None,
    superclass_names: Sequence[str] | None = None,
) -> dict[str, Grouping]:
    """The groupings that labels alone decide: class, and superclass where there are any."""
    every = np.arange(len(class_names))
    found = {CLASS: Grouping(CLASS, tuple(class_names), "label", every, every)}
    if superclass_of is not None:
        of = np.asarray(superclass_of, np.int64)
        names = superclass_names or [str(s) for s in range(int(of.max()) + 1)]
        found[SUPERCLASS] = Grouping(SUPERCLASS, tuple(names), "label", every, of)
    return found


def of_samples(groups: Mapping[str, Sequence[Any]] | None, size: int) -> dict[str, Grouping]:
    """Read attributes as Python has them: for each, one entry per image.

    An entry is a name, several names in a list, tuple or set, or None (also "" and nan).

    >>> cameras = of_samples({"camera": ["rear", None, ["front", "rear"]]}, 3)["camera"]
    >>> cameras.names, cameras.member.tolist(), cameras.group.tolist(), cameras.overlapping
    (('front', 'rear'), [0, 2, 2], [1, 0, 1], True)
    """
    found = {}
    for name, entries in (groups or {}).items():
        listed = entries.tolist() if hasattr(entries, "tolist") else entries
        if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Iterable):
            raise ClasswiseError(f"groups[{name!r}] is {type(entries).__name__}; give a list")
        listed = list(listed)
        if len(listed) != size:
            raise ClasswiseError(
                f"groups[{name!r}] has {len(listed)} entries for {size} images; give one for each, "
                "None for an image in no group"
            )
        found[str(name)] = grouping_of(str(name), list(enumerate(map(_names_in, listed))))
    return found


def of_attributes(known: Attributes | None) -> tuple[dict[str, Grouping], list[str]]:
    """What a data set knows of its images as groupings; and the names of those with too many."""
    found: dict[str, Grouping] = {}
    left: list[str] = []
    for name, words in ({} if known is None else known.words).items():
        count = len(np.unique(words[words != ""]))
        if count > MOST_GROUPS:
            left.append(name)
        elif count:
            found |= of_samples({name: words.tolist()}, len(words))
    return found, left


def grouping_of(name: str, entries: Sequence[tuple[int, Sequence[str]]]) -> Grouping:
    """A grouping from samples and the names of their groups; names are sorted, 2 before 10."""
    found = {group for _, groups in entries for group in groups}
    check_own(name, list(found))
    names = sorted(found, key=_natural)
    number = {group: k for k, group in enumerate(names)}
    pairs = [(sample, number[group]) for sample, groups in entries for group in groups]
    members = np.array(pairs, np.int64)
    return Grouping(name, tuple(names), "sample", members[:, 0], members[:, 1])


def tallies(
    groupings: Mapping[str, Grouping] | None, sample: Whole, label: Whole, correct: Any
) -> dict[str, Tally]:
    """Count the same verdicts in every grouping."""
    return {name: one.tally(sample, label, correct) for name, one in (groupings or {}).items()}


def named(groupings: Mapping[str, T], name: str, where: str) -> T:
    """One of several groupings, or an error that says which there are and how to add one."""
    if name in groupings:
        return groupings[name]
    reason = unknown(f"grouping in {where}", name, groupings)
    raise ClasswiseError(f"{reason}; add yours with --groups FILE.csv or groups= when you audit")


def check_own(name: str, groups: Sequence[str]) -> None:
    """Refuse names of a grouping and its groups that a report could not show."""
    if name in (CLASS, SUPERCLASS):
        raise ClasswiseError(f"{name!r} is a grouping that labels decide; give yours another name")
    check_name("grouping", name)
    for group in groups:
        check_name(f"group of {name!r}", group)
    if not groups:
        raise ClasswiseError(f"{name!r} puts no image into any group; leave it out")
    if len(groups) > MOST_GROUPS:
        raise ClasswiseError(
            f"{name!r} has {len(groups)} groups, and {MOST_GROUPS} are the most that a report can "
            "show; put images together, by ranges for example"
        )


def check_name(what: str, name: str) -> None:
    """Refuse a name that a table cannot show."""
    if not name or name != " ".join(name.split()) or not name.isprintable():
        raise ClasswiseError(f"{name[:50]!r} is no name for a {what}; use plain words in one line")
    if len(name) > MOST_LETTERS:
        raise ClasswiseError(
            f"the {what} {name[:30]!r}… has {len(name)} letters; {MOST_LETTERS} are the most"
        )


def _names_in(entry: Any) -> list[str]:
    """The groups of one image; what pandas and others write for nothing is nothing."""
    parts = entry if isinstance(entry, list | tuple | set | frozenset) else [entry]
    names = {" ".join(str(part).split()) for part in parts if not _is_missing(part)}
    return sorted(names - {""})


def _is_missing(part: Any) -> bool:
    nothing = part is None or type(part).__name__ in ("NAType", "NaTType")
    return nothing or (isinstance(part, float) and math.isnan(part))


def _natural(text: str) -> list[Any]:
    """Sort numbers inside of words as numbers."""
    return [int(part) if k % 2 else part for k, part in enumerate(re.split(r"(\d+)", text))]
