"""How much the worst class swings from one epoch to the next, of live and of averaged weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from classwise.studies.artefact import Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.cells import Setting, notes_of, settings_of
from classwise.studies.epochs import OVERALL, WORST, OverEpochs, Window, WindowOption, gaps
from classwise.studies.found import Found, Hole
from classwise.studies.looks import Look, LookOption, SeedsOver, can_show, split_notes, window_note
from classwise.training.fluctuation import fluctuation as swing_of


class FluctuationOptions(ArtefactOptions):
    """|change of the worst class between adjacent epochs|, and of all samples beside it.

    Wei, figure 4 (a) and (b) and section 3.3: of = ["test:robust", "test:robust@fawa"], epochs 101
    to 120 of 200 as within = [0.5, 0.6].
    """

    kind: Literal["fluctuation"]
    of: tuple[LookOption, ...] = Field(min_length=1)
    within: WindowOption = Window(0.5, 0.6)


def fluctuation(found: Found, options: FluctuationOptions) -> Artefact:
    """Put the swings of every setting and look side by side, and draw them over the epochs."""
    found = found.only(options.where)
    pairs = [(one, look) for one in settings_of(found) for look in options.of]
    chosen = [(one, look) for one, look in pairs if can_show(one.runs, look)]
    rows, panels = [], []
    for setting, look in chosen:
        seeds = SeedsOver.of(setting.runs, look)
        rows.append(_row(setting, look, seeds, options.within))
        if seeds.known:
            panels.append(_panel(f"{setting.label}, {look}", seeds.known[0]))
    return Artefact(
        options.file_name,
        options.title,
        (
            *("run", "weights"),
            *("change of the worst class, mean", "largest", "change of the overall, mean"),
            *("worst class, whole run", "overall, mean", "worst class, mean"),
        ),
        tuple(rows),
        (
            *notes_of(found),
            window_note(found, options.within, least=2),
            "|change| between two epochs in a row, both in that part of the run; the worst class "
            "may be another one in each. Overall and worst class are means over that part; "
            '"whole run" is the mean change over all epochs.',
            "The picture is of the first seed.",
            *split_notes(options.of),
            *([options.note] if options.note else []),
        ),
        Figure("lines", "epoch", "accuracy", panels=tuple(panels)) if panels else None,
    )


def changes(seen: OverEpochs) -> dict[int, dict[str, Any]]:
    """|change| of every class, of the worst and of the overall, by the later of two epochs."""
    rates = seen.by_epoch
    pairs = [(epoch - 1, epoch) for epoch in rates if epoch - 1 in rates]
    if not pairs:
        raise Hole(f"{seen.said}: no two epochs in a row were looked at; set watch_every = 1")
    return {
        now: swing_of(rates[before], rates[now])
        | {OVERALL: abs(rates[now][OVERALL] - rates[before][OVERALL])}
        for before, now in pairs
    }


def mean_change(seen: OverEpochs, of: str) -> float:
    """The mean |change| of the worst class or of the overall."""
    found = [one[of] for one in changes(seen).values() if one[of] is not None]
    return float(sum(found) / len(found))


def _row(setting: Setting, look: Look, seeds: SeedsOver, within: Window) -> tuple[Cell, ...]:
    def inside(measure: Callable[[OverEpochs], float]) -> Cell:
        return seeds.cell(lambda seen: measure(seen.within(within, least=2)))

    return (
        Cell(words=setting.label),
        Cell(words=str(look)),
        inside(lambda seen: mean_change(seen, WORST)),
        inside(lambda seen: max(one[WORST] for one in changes(seen).values())),
        inside(lambda seen: mean_change(seen, OVERALL)),
        seeds.cell(lambda seen: mean_change(seen, WORST)),
        inside(lambda seen: float(seen.overall.mean())),
        inside(lambda seen: float(seen.worst.mean())),
    )


def _panel(title: str, seen: OverEpochs) -> Figure:
    """Overall, worst class, and its change, as the paper draws them."""
    x = tuple(float(epoch) for epoch in seen.epochs)
    series = [Series(name, x, gaps(seen.line(name))) for name in (OVERALL, WORST)]
    try:
        moved = changes(seen)
    except Hole:
        moved = {}
    if moved:
        swings = tuple(one[WORST] for one in moved.values())
        name = "change of the worst"
        series.append(Series(name, tuple(float(epoch) for epoch in moved), swings))
    return Figure("lines", "epoch", "accuracy", tuple(series), title=title)
