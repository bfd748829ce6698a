"""A search in words and rows: what was tried, who is beaten by none, and the best compromise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from classwise.statistics.intervals import wilson
from classwise.tuning.judged import LIVE, compromise, front, worst_words
from classwise.tuning.search import Tuned, counted
from classwise.tuning.trials import Trial


@dataclass(frozen=True)
class Summary:
    """What is printed, and what the page shows."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # of the front, the best average first
    words: tuple[str, ...]
    front: tuple[Trial, ...]
    best: Trial | None
    best_words: str
    command: str  # trains the best compromise

    @classmethod
    def of(cls, tuned: Tuned) -> Summary:
        """Read a search."""
        found = [(one, one.pair) for one in tuned.complete if one.pair is not None]
        kept = front(found)
        names = [one.option for one in tuned.search.varied]
        worst = worst_words(len(tuned.class_names))
        head = ("trial", *names, "average", worst, "weights")
        best = compromise(kept) if kept else None
        return cls(
            head,
            tuple(_row(one, names) for one, _ in kept),
            _words(tuned, worst, len(kept)),
            tuple(one for one, _ in kept),
            best,
            _best_words(best, worst),
            "" if best is None else tuned.search.start.command(best.values, tuned.folder / "best"),
        )


def _row(one: Trial, names: list[str]) -> tuple[str, ...]:
    assert one.pair is not None
    values = [_spelt(one.values.get(name)) for name in names]
    rates = (f"{100 * one.pair.average:.1f}", f"{100 * one.pair.worst:.1f}")
    return (str(one.number), *values, *rates, str(one.about.get("weights", LIVE)))


def _spelt(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _words(tuned: Tuned, worst: str, kept: int) -> tuple[str, ...]:
    trials, judge, sizes = tuned.trials, tuned.judge, tuned.valid_sizes
    low, high = wilson(min(sizes) / 2, min(sizes))
    counts = ", ".join(
        f"{many} {word}"
        for word, many in (
            ("finished", counted(trials, "complete")),
            ("stopped early", counted(trials, "stopped")),
            ("failed", counted(trials, "failed")),
            ("broken off", counted(trials, "begun")),
        )
        if many
    )
    distinct = len({one.about.get("identity") for one in tuned.complete})
    same = f" (of {distinct} different runs)" if distinct < counted(trials, "complete") else ""
    of = "" if judge.weights == LIVE else f" of the average {judge.weights}, once it has begun"
    failed = next((str(o.about["failed"]) for o in trials if "failed" in o.about), "")
    said = (
        f"{len(trials)} trials: {counts or 'none has ended'}{same}; {kept} beaten by no other.",
        f"Searched: {', '.join(str(one) for one in tuned.search.varied)}.",
        f"Per cent right under {judge.attack}{of}, after the last epoch, on {sum(sizes)} "
        f"validation images; no test image was looked at.",
        f"The smallest class has {min(sizes)} of them: a rate of 50 % there has a 95 % interval "
        f"from {100 * float(low):.0f} to {100 * float(high):.0f} %, and the best of many trials "
        f"looks better than it is, in the {worst} above all. Train it with other seeds and audit "
        "it.",
        _warning(tuned, worst),
        f"The first that failed: {failed}" if failed else "",
    )
    return tuple(one for one in said if one)


def _warning(tuned: Tuned, worst: str) -> str:
    """What makes the choice an empty one."""
    pairs = {one.pair for one in tuned.complete if one.pair is not None}
    if len(pairs) == 1 and len(tuned.complete) > 1:
        return "All finished trials came to the same, so there is nothing to choose between them."
    if pairs and not any(pair.worst for pair in pairs):
        return (
            f"The {worst} is at 0 % in every trial, so only the average was searched; try more "
            "epochs, a smaller eps, or more validation images."
        )
    return ""


def _best_words(best: Trial | None, worst: str) -> str:
    if best is None or best.pair is None:
        return "No trial has finished, so there is no best one."
    return (
        f"Best compromise, by average + {worst}: trial {best.number} with "
        f"{100 * best.pair.average:.1f} and {100 * best.pair.worst:.1f}."
    )
