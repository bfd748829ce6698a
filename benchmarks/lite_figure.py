"""The figure of docs/imagenet-photographs.md: rates of groups with intervals, as plain SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, LEFT, RIGHT, TOP, ROW, LANE = 760, 170, 20, 56, 34, 8
COLOURS = ("#0072b2", "#d55e00", "#009e73")  # told apart by the colour-blind, too
PAPER, INK, FAINT = "#ffffff", "#222222", "#dddddd"


class Lane(NamedTuple):
    """One network's rates of one group."""

    clean: float
    corrupted: float
    low: float
    high: float


class Row(NamedTuple):
    """One group."""

    name: str
    size: int
    lanes: Sequence[Lane]


def _x(rate: float) -> float:
    return LEFT + rate * (WIDTH - LEFT - RIGHT)


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, width: float = 1) -> str:
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def _dot(x: float, y: float, colour: str, filled: bool) -> str:
    inside = colour if filled else PAPER
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{inside}" stroke="{colour}"/>'


def _legend(networks: Sequence[str]) -> list[str]:
    found = []
    for number, (name, colour) in enumerate(zip(networks, COLOURS, strict=True)):
        found += [_dot(LEFT + 70 * number + 4, 14, colour, True)]
        found += [_text(LEFT + 70 * number + 13, 18, name)]
    there = LEFT + 70 * len(networks) + 10
    found += [_dot(there, 14, INK, True), _text(there + 9, 18, "corrupted, with 95 % interval")]
    return [*found, _dot(there + 215, 14, INK, False), _text(there + 224, 18, "clean")]


def drawn(title: str, networks: Sequence[str], rows: Sequence[Row]) -> str:
    """All groups from top to bottom, a lane for each network."""
    height = TOP + ROW * len(rows) + 12
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>',
        *_legend(networks),
    ]
    for tick in range(0, 101, 20):
        found += [_line(_x(tick / 100), TOP - 6, _x(tick / 100), height - 12, FAINT)]
        found += [_text(_x(tick / 100), TOP - 12, f"{tick} %", "middle")]
    for number, row in enumerate(rows):
        middle = TOP + ROW * number + ROW / 2
        found.append(_text(LEFT - 10, middle + 4, f"{row.name} ({row.size})", "end"))
        for place, (lane, colour) in enumerate(zip(row.lanes, COLOURS, strict=True)):
            y = middle + LANE * (place - (len(row.lanes) - 1) / 2)
            found += [_line(_x(lane.low), y, _x(lane.high), y, colour, 1.5)]
            found += [_dot(_x(lane.clean), y, colour, False)]
            found += [_dot(_x(lane.corrupted), y, colour, True)]
    return "\n".join([*found, "</svg>", ""])
