"""Which runs of a study `--only` means."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from classwise.errors import ClasswiseError, unknown
from classwise.spelling import split_outside_brackets
from classwise.studies.planned import PlannedRun

MOST_NAMED = 40  # labels in a message


def chosen(runs: Iterable[PlannedRun], patterns: Sequence[str]) -> list[PlannedRun]:
    """The runs that some pattern fits; all without.

    A pattern fits a run of which some label is like it, as `*CFA*` or `eps=8/255`; one with commas,
    as `data=cifar10,row=*CFA*`, fits if each of its parts does. Spaces and capitals do not matter.
    """
    found = list(runs)
    if not patterns:
        return found
    wanted = [pattern.replace(" ", "").lower() for pattern in patterns]
    for pattern, plain in zip(patterns, wanted, strict=True):
        if not any(_fits(run, plain) for run in found):
            raise _nobody(pattern, plain, found)
    return [run for run in found if any(_fits(run, plain) for plain in wanted)]


def _nobody(pattern: str, plain: str, runs: Sequence[PlannedRun]) -> ClasswiseError:
    """What is said of a pattern that no run fits: which part of it, or that no run has all."""
    parts = split_outside_brackets(plain, ",")
    alone = [part for part in parts if not any(_has(run, part) for run in runs)]
    if len(parts) > 1 and not alone:
        return ClasswiseError(
            f"--only {pattern}: some run fits every part of it, but none all of them; take a part "
            "off, or give --only once for each"
        )
    named = alone[0] if len(parts) > 1 else pattern
    axes = dict.fromkeys(axis for run in runs for axis in run.labels)
    axis = named.partition("=")[0].strip()
    shown = {axis} if "=" in named and axis in axes else axes
    known = {f"{a}={v}" for run in runs for a, v in run.labels.items() if a in shown}
    if len(known) > MOST_NAMED and shown is axes:
        return ClasswiseError(
            f"--only {pattern}: no run has a label like {named!r}; write AXIS=VALUE or a VALUE, "
            f"with * for any letters, where an axis is {', '.join(axes)} (--dry-run lists all runs)"
        )
    return unknown("run (--only)", named, known)


def _fits(run: PlannedRun, pattern: str) -> bool:
    parts = split_outside_brackets(pattern, ",")
    return _has(run, pattern) or all(_has(run, part) for part in parts)


def _has(run: PlannedRun, pattern: str) -> bool:
    """Whether some label is like a pattern, with its axis or without."""
    words = ((f"{axis}={value}", value) for axis, value in run.labels.items())
    return any(
        fnmatch.fnmatchcase(word.replace(" ", "").lower(), pattern)
        for pair in words
        for word in pair
    )
