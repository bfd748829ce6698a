"""Which epoch is chosen by the overall accuracy, and which by overall and worst class together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from classwise.statistics.intervals import Rates
from classwise.studies.artefact import POINTS, Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.cells import Setting, cell_over, line_of, notes_of, settings_of
from classwise.studies.epochs import OVERALL, WORST, OverEpochs, Window, WindowOption
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.looks import Look, LookOption, can_show, known_number, over_epochs

SCORES: dict[str, Callable[[OverEpochs], Rates]] = {
    OVERALL: lambda seen: seen.overall,
    f"{OVERALL} + {WORST}": lambda seen: seen.overall + seen.worst,
}
VALIDATION = "validation"
GAIN = "the second less the first"
ON_TEST = "test, as the paper does; no fair choice"


class SelectionOptions(ArtefactOptions):
    """What a rule for choosing the weights costs or brings on test images.

    Wei, section 3.3: the epoch of the best overall robustness has a poor worst class, and one close
    to it a better one. Here the choice is made on validation images; the paper's own, made on the
    test images themselves, stands in rows of its own.
    """

    kind: Literal["selection"]
    chosen_by: LookOption = Look("valid", "robust")
    judged_by: LookOption = Look("test", "robust")
    averages: tuple[str, ...] = Field(("",), min_length=1)  # "" is the live weights, or fawa, ema
    within: WindowOption = Window(0.0, 1.0)  # epochs to choose from; Wei's figure shows the late


@dataclass(frozen=True)
class Choice:
    """A rule on a part of the data: which epoch it takes, and what that is worth on test."""

    score: str
    chosen_by: Look
    judged_by: Look
    within: Window

    def epoch(self, run: FoundRun) -> int:
        """The first epoch with the highest score, of those that were judged as well."""
        seen = over_epochs(run, self.chosen_by).within(self.within)
        judged = set(over_epochs(run, self.judged_by).epochs)
        pairs = zip(seen.epochs, SCORES[self.score](seen).tolist(), strict=True)
        scores = {epoch: score for epoch, score in pairs if epoch in judged and score == score}
        if not scores:
            raise Hole(f"no epoch has both {self.chosen_by} and {self.judged_by}")
        return max(scores, key=lambda epoch: scores[epoch])

    def value(self, run: FoundRun, line: str) -> float:
        """Overall or worst class of the chosen epoch, as it was judged."""
        epoch, judged = self.epoch(run), over_epochs(run, self.judged_by)
        return known_number(float(judged.line(line)[judged.epochs.index(epoch)]))


def selection(found: Found, options: SelectionOptions) -> Artefact:
    """Put what every rule chooses side by side, by the epoch and by its worth on test."""
    found = found.only(options.where)
    rows, bars = list[tuple[Cell, ...]](), list[Series]()
    for setting in settings_of(found):
        for average in options.averages:
            if not can_show(setting.runs, Look("test", "robust", average)):
                continue  # its recipe has no such average
            name = setting.label + (f", {average}" if average else "")
            cells = {}
            for part, score in ((p, s) for p in (VALIDATION, ON_TEST) for s in SCORES):
                choice = _choice(score, part, average, options)
                overall, worst = (_cell(setting, choice, line) for line in (OVERALL, WORST))
                cells[f"{score}, {part.partition(',')[0]}"] = worst
                named = Cell(words=name), Cell(words=part), Cell(words=score)
                rows.append((*named, _epochs(setting, choice), overall, worst))
            rows += [_gain(setting, name, part, average, options) for part in (VALIDATION, ON_TEST)]
            bars.append(line_of(name, tuple(cells), list(cells.values())))
    return Artefact(
        options.file_name,
        options.title,
        ("run", "chosen on", "by the highest", "epoch", "test overall", "test worst class"),
        tuple(rows),
        (
            *notes_of(found),
            f"Chosen by {options.chosen_by}, judged by {options.judged_by}, among the epochs that "
            f"have both in {options.within}; the first of equal ones. What is chosen on the test "
            "images is too good by that choice.",
            *([options.note] if options.note else []),
        ),
        Figure("bars", "chosen by", "test accuracy of the worst class", tuple(bars)),
    )


def _choice(score: str, part: str, average: str, options: SelectionOptions) -> Choice:
    """The rule for live weights or an average, on validation or on test images."""
    looks = (options.chosen_by, options.judged_by)
    chosen, judged = (Look(one.split, one.seen, average or one.average) for one in looks)
    return Choice(score, judged if part == ON_TEST else chosen, judged, options.within)


def _cell(setting: Setting, choice: Choice, line: str) -> Cell:
    return cell_over(setting.runs, lambda run: choice.value(run, line))


def _gain(
    setting: Setting, name: str, part: str, average: str, options: SelectionOptions
) -> tuple[Cell, ...]:
    """What the second rule brings over the first, seed by seed."""
    first, second = (_choice(score, part, average, options) for score in SCORES)

    def gain(line: str) -> Cell:
        return cell_over(
            setting.runs, lambda run: second.value(run, line) - first.value(run, line), unit=POINTS
        )

    words = name, part, GAIN, "–"
    return (*(Cell(words=word) for word in words), gain(OVERALL), gain(WORST))


def _epochs(setting: Setting, choice: Choice) -> Cell:
    return cell_over(setting.runs, lambda run: float(choice.epoch(run)), unit="")
