"""The one function that draws: the data of a picture become an SVG, the same bytes every time."""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Sequence
from typing import Any

from classwise.errors import ClasswiseError
from classwise.spelling import one_line
from classwise.studies.artefact import PERCENT, POINTS, Figure, Series

NO_PICTURES = "The picture needs `pip install 'classwise[figures]'`; its numbers are in"
# Okabe and Ito's colours, which the colour-blind tell apart; further lines differ in their dashes.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    "#8C8C2A",
)
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)))
WIDTH = 8.0  # inches; 800 pixels on a page
MOST_ACROSS = 3  # panels in a row
MOST_NUMBERS = 200  # cells of a map up to which each shows its number
_STYLE: Any = {  # Any: matplotlib has a type for each key
    "svg.hashsalt": "classwise",  # the same names inside of the file every time
    "svg.fonttype": "none",  # words stay words
    "text.parse_math": False,  # a class may be called $x$
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
}


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(figure: Figure, title: str) -> bytes:
    """Draw a picture as an SVG; `title` stands above it and should say the scale."""
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise ClasswiseError(
            "pictures need matplotlib; install it with: pip install 'classwise[figures]'"
        ) from None
    panels = figure.panels or (figure,)
    across = min(MOST_ACROSS, len(panels))
    down = math.ceil(len(panels) / across)
    with matplotlib.rc_context(_STYLE):
        canvas = Canvas(figsize=(WIDTH, _height(panels, across, down)), layout="constrained")
        FigureCanvasSVG(canvas)
        canvas.suptitle(_text(title, 110), fontsize=11)
        grid = canvas.subplots(down, across, squeeze=False).flatten().tolist()
        # a name has one colour in all panels, and no other name has it
        order = list(dict.fromkeys(one.name for panel in panels for one in panel.series))
        names: dict[str, Any] = {}
        for axes, panel in zip(grid, panels, strict=False):
            names |= _panel(axes, panel, order)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        if len(names) > 1 or (names and figure.panels):
            canvas.legend(
                list(names.values()),
                [_text(name, 40) for name in names],
                loc="outside lower center",
                ncols=min(4, len(names)),
                frameon=False,
            )
        stream = io.BytesIO()
        canvas.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def _height(panels: Sequence[Figure], across: int, down: int) -> float:
    """Room for every row of panels, for the rows of a map, and for the names under it all."""
    names = {one.name for panel in panels for one in panel.series if panel.kind != "heat"}
    rows = max((len(panel.series) for panel in panels if panel.kind == "heat"), default=0)
    each = max(3.4 if across == 1 else 2.6, 0.9 + 0.19 * rows)
    return 0.5 + down * each + 0.2 * math.ceil(len(names) / 4)


def _panel(axes: Any, panel: Figure, order: Sequence[str]) -> dict[str, Any]:
    """Draw one panel; what stands for each series in the legend."""
    if panel.title:
        axes.set_title(_text(panel.title, 60), fontsize=9)
    axes.set_xlabel(_text(panel.x_title, 60))
    # of a map, the numbers are its colours
    unit = "" if panel.kind == "heat" else panel.unit
    axes.set_ylabel(_text(_with_unit(panel.y_title, unit), 60))
    if not any(value is not None for one in panel.series for value in one.y):
        axes.text(0.5, 0.5, "no numbers yet", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return {}
    if panel.kind == "heat":
        _heat(axes, panel)
        return {}
    places = _places(panel)
    drawn = {}
    for one in panel.series:
        part = _bars if panel.kind == "bars" else _marks
        drawn[one.name] = part(axes, panel, one, order.index(one.name), places)
    if panel.level is not None:
        axes.axhline(_scaled([panel.level], panel.unit)[0], color="#888888", lw=0.8, ls=":")
    if places:
        slanted = sum(len(name) for name in places) > 40 or len(places) > 8
        turn = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
        axes.set_xticks(range(len(places)), [_text(name, 24) for name in places], **turn)
    if panel.log_x and not places:
        axes.set_xscale("log")
    if panel.unit == POINTS:
        axes.axhline(0, color="#888888", lw=0.8)
    return drawn


def _places(panel: Figure) -> list[str]:
    """Names along the x axis, in order; none where x is a number."""
    named = [x for one in panel.series for x in one.x if isinstance(x, str)]
    return list(dict.fromkeys(named))


def _at(one: Series, places: Sequence[str]) -> list[float]:
    return [float(places.index(x)) if isinstance(x, str) else float(x) for x in one.x]


def _marks(axes: Any, panel: Figure, one: Series, number: int, places: Sequence[str]) -> Any:
    """A line with its band, or a cloud of points."""
    x, y = _at(one, places), _scaled(one.y, panel.unit)
    colour, turn = COLOURS[number % len(COLOURS)], number // len(COLOURS)
    lines = panel.kind == "lines"
    style = DASHES[1] if one.dashed else DASHES[turn % len(DASHES)]
    small = len(x) > 30
    (drawn,) = axes.plot(
        x,
        y,
        color=colour,
        linestyle=style if lines else "none",
        marker="" if lines and small else MARKS[number % len(MARKS)],
        markersize=2.5 if small else 4,
        linewidth=1.4,
    )
    if one.low is not None and one.high is not None:
        low, high = _scaled(one.low, panel.unit), _scaled(one.high, panel.unit)
        if lines:
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        else:
            axes.vlines(x, low, high, color=colour, linewidth=0.8)
    return drawn


def _bars(axes: Any, panel: Figure, one: Series, number: int, places: Sequence[str]) -> Any:
    """Bars beside those of the other series."""
    width, place = 0.8 / len(panel.series), panel.series.index(one)
    x = [at + width * (place - (len(panel.series) - 1) / 2) for at in _at(one, places)]
    y = _scaled(one.y, panel.unit)
    colour, turn = COLOURS[number % len(COLOURS)], number // len(COLOURS)
    drawn = axes.bar(x, y, width, color=colour, hatch=("", "//", "..", "xx")[turn % 4])
    if one.low is not None and one.high is not None:
        low, high = _scaled(one.low, panel.unit), _scaled(one.high, panel.unit)
        axes.vlines(x, low, high, color="#333333", linewidth=0.8)
    axes.grid(visible=False, axis="x")
    return drawn


def _heat(axes: Any, panel: Figure) -> None:
    """A map with a row for every series."""
    columns = list(dict.fromkeys(str(x) for one in panel.series for x in one.x))
    table = [[math.nan] * len(columns) for _ in panel.series]
    for row, one in zip(table, panel.series, strict=True):
        for x, value in zip(one.x, _scaled(one.y, panel.unit), strict=True):
            row[columns.index(str(x))] = value
    image = axes.imshow(table, aspect="auto", cmap="cividis")
    axes.set_xticks(
        range(len(columns)),
        [_text(name, 24) for name in columns],
        **({"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if len(columns) > 6 else {}),
    )
    axes.set_yticks(range(len(table)), [_text(one.name, 28) for one in panel.series])
    axes.grid(visible=False)
    axes.figure.colorbar(image, ax=axes, shrink=0.9, label=_with_unit("", panel.unit))
    if len(columns) * len(table) > MOST_NUMBERS:
        return
    middle = (image.norm.vmin + image.norm.vmax) / 2
    for i, row in enumerate(table):
        for j, value in enumerate(row):
            colour = "white" if value < middle else "black"
            words = "–" if math.isnan(value) else f"{value:.3g}"
            axes.text(j, i, words, ha="center", va="center", fontsize=7, color=colour)


def _scaled(values: Sequence[float | None], unit: str) -> list[float]:
    """Numbers as they are drawn; a gap is nan."""
    times = 100 if unit in (PERCENT, POINTS) else 1
    return [math.nan if value is None else times * value for value in values]


def _with_unit(title: str, unit: str) -> str:
    return f"{title} ({unit})" if title and unit else title or unit


def _text(words: str, most: int) -> str:
    """Words for a picture: one line, not too long, nothing that matplotlib would hide."""
    text = one_line(words, most)
    return f" {text}" if text.startswith("_") else text
