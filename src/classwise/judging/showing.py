"""A class report for its reader: as text, as HTML, as plain data, as a data frame, as a figure."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from classwise.errors import ClasswiseError
from classwise.judging.groups import CLASS
from classwise.judging.rates import ANNOTATED
from classwise.spelling import few_names, one_line, spell_eps

if TYPE_CHECKING:
    from classwise.judging.metrics import ClassReport, ConditionReport

ALL_UP_TO = 20  # classes that are listed in full where room is short; of more, the worst few
FEW = 10
IN_PART = "examined in part"  # images were chosen by what was seen: no average, no interval
_LONGEST = 40  # letters of a class name in running text


def strongest(report: ClassReport) -> ConditionReport:
    """The condition with the lowest accuracy overall; of equal ones the last.

    One that was examined in part only where all were.
    """
    return min(reversed(list(report.values())), key=lambda one: (bool(one.unfinished), one.overall))


def own_groupings(report: ClassReport) -> list[str]:
    """Groupings of the user's own, which every condition has."""
    return [name for name in report.groups if all(name in one.groups for one in report.values())]


def group_notes(report: ClassReport, grouping: str) -> list[str]:
    """What a reader of one grouping must know: images in several groups, and in none."""
    tallies = [one.groupings[grouping] for one in report.values()]
    several = "Images may be in several groups." if tallies[0].overlapping else ""
    outside = max(tally.outside for tally in tallies)
    alone = f"{outside} image{'s are' if outside > 1 else ' is'} in no group." if outside else ""
    ratios = [_ratio_words(one, grouping) for one in report.values() if not one.unfinished]
    return [words for words in (several, alone, *ratios) if words]


def _ratio_words(report: ConditionReport, grouping: str) -> str:
    """Error ratios, the highest first; nothing of a grouping that has none."""
    ratios = report.by(grouping).error_ratios or {}
    known = {name: one for name, one in ratios.items() if one is not None and name != ANNOTATED}
    if not known:
        return ""
    order = sorted(known, key=lambda name: -known[name])
    said = ", ".join(f"{one_line(name)} {known[name]:.2f}" for name in order)
    return f"Error ratios under {report.condition}: {said}."


def worst_first(report: ClassReport, grouping: str = CLASS) -> list[int]:
    """Class numbers, those with the least accuracy under the strongest condition first.

    Classes without samples come last. Another grouping's groups are ordered likewise.
    """
    rates = strongest(report).by(grouping).rates
    return [int(k) for k in np.argsort(np.where(np.isnan(rates), np.inf, rates), kind="stable")]


def listed(report: ClassReport, everything: bool = False, grouping: str = CLASS) -> list[int]:
    """The classes a short table lists: all up to twenty, else the ten worst."""
    order = worst_first(report, grouping)
    return order if everything or len(order) <= ALL_UP_TO else order[:FEW]


def class_records(report: ConditionReport, grouping: str = CLASS) -> list[dict[str, Any]]:
    """A row for every class or group, in order: n, hits, accuracy and its Wilson interval.

    What nobody can know is None: rates of classes without samples, and of audits in part.
    """
    found = report.by(grouping)
    hits, sizes = found.tally.hits.tolist(), found.tally.sizes.tolist()
    rates, spans = found.by_group.values(), found.intervals.values()
    head = "class" if grouping == CLASS else "group"
    known = not report.unfinished
    ratios = found.error_ratios if known else None
    return [
        {
            head: name,
            "n": size,
            "hits": right,
            "accuracy": rate if known else None,
            "low": span[0] if span and known else None,
            "high": span[1] if span and known else None,
            **({} if ratios is None else {"error_ratio": ratios[name]}),
        }
        for name, size, right, rate, span in zip(
            found.tally.names, sizes, hits, rates, spans, strict=True
        )
    ]


def condition_facts(report: ConditionReport) -> dict[str, Any]:
    """What was done to the images, beside the numbers of every class."""
    return {
        "condition": report.condition,
        "eps": report.eps,
        "eps_text": "" if report.eps is None else spell_eps(report.eps),  # as everybody writes it
        "norm": report.norm,
        "verdict": report.verdict,
    }


def as_dict(report: ClassReport) -> dict[str, Any]:
    """A report as plain dictionaries, lists, numbers and words, as JSON can carry them."""
    conditions = []
    for one in report.values():
        about: dict[str, Any] = {**condition_facts(one), "level": one.level}
        if one.unfinished:
            about["unfinished"] = one.unfinished
        else:
            about |= {
                "overall": one.overall,
                "worst": one.worst,
                "worst_class": one.worst_class,
                "worst_interval": list(one.worst_interval),
                "best": one.best,
                "best_class": one.best_class,
                "spread": one.spread,
            }
        about["classes"] = class_records(one)
        if one.groups:
            about["groups"] = {name: class_records(one, name) for name in one.groups}
        conditions.append(about)
    about = {key: _plain(value) for key, value in report.about.items()}
    again = {} if report.relabelled is None else {"relabelled": as_dict(report.relabelled)}
    both = [one.as_dict() for one in report.brackets]
    brackets = {"brackets": both} if both else {}
    return {"about": about, "conditions": conditions, **brackets, **again}


def as_frame(report: ClassReport, grouping: str = CLASS) -> Any:
    """A pandas data frame with a row for every class, or group, and condition."""
    try:
        import pandas
    except ImportError:
        raise ClasswiseError(
            "to_frame() needs pandas; install it with: pip install 'classwise[frames]', "
            "or take to_dict()"
        ) from None
    rows = [
        {**condition_facts(one), **record}
        for one in report.values()
        for record in class_records(one, grouping)
    ]
    # whole columns of None would be objects
    kinds = dict.fromkeys(("eps", "accuracy", "low", "high"), "float64")
    return pandas.DataFrame(rows).astype(kinds)


def as_figure(report: ClassReport) -> Any:
    """A plotly figure: every class with its interval under every condition, worst first."""
    from plotly import graph_objects

    order = worst_first(report)
    figure = graph_objects.Figure()
    for one in report.values():
        records = class_records(one)
        rows = [records[k] for k in order]
        per_cent = [None if row["accuracy"] is None else 100 * row["accuracy"] for row in rows]
        over = [100 * row["high"] - y if y is not None else None
                for row, y in zip(rows, per_cent, strict=True)]  # fmt: skip
        under = [y - 100 * row["low"] if y is not None else None
                 for row, y in zip(rows, per_cent, strict=True)]  # fmt: skip
        said = [f"{escape(row['class'])}: {row['hits']} of {row['n']}" for row in rows]
        figure.add_scatter(
            name=escape(one.condition) + (f" ({IN_PART})" if one.unfinished else ""),
            x=list(range(len(order))),
            y=per_cent,
            error_y={"type": "data", "symmetric": False, "array": over, "arrayminus": under},
            mode="markers",
            text=said,
            hovertemplate="%{text}, %{y:.1f} %",
        )
    # plotly reads tags in its texts, so names are escaped
    names = [escape(one_line(report.class_names[k], _LONGEST)) for k in order]
    figure.update_xaxes(tickvals=list(range(len(names))), ticktext=names)
    figure.update_yaxes(title={"text": "accuracy, %"}, range=[0, 100])
    return figure


def as_text(report: ClassReport) -> str:
    """A few lines for every condition, however many classes there are."""
    unlike = len({int(one.counts.sizes.sum()) for one in report.values()}) > 1
    lines = [f"{key}: {_sentence(one, counted=unlike)}" for key, one in report.items()]
    return "\n".join([*lines, *report.remarks])


def _sentence(report: ConditionReport, *, counted: bool = False) -> str:
    def cut(name: str) -> str:
        return one_line(name, _LONGEST)

    empty = [cut(name) for name, size in report.sizes.items() if not size]
    missing = f"; no samples: {few_names(empty)}" if empty else ""
    seen = int(report.counts.sizes.sum())
    if report.unfinished:
        return f"{IN_PART}, {seen} images, so there is no average to quote{missing}"
    tail = report.tail()
    low, high = report.worst_interval
    ends = [report.names_at(report.worst), report.names_at(report.best)]
    worst, best = (few_names([cut(name) for name in names], most=1) for names in ends)
    last = few_names([cut(name) for name in tail.classes])
    return (
        f"{report.overall:.1%} overall{f' of {seen} images' if counted else ''}, worst class "
        f"{report.worst:.1%} ({worst}; the truly worst {low:.1%} to {high:.1%}), best "
        f"{report.best:.1%} ({best}), worst 10 % of classes {tail.mean:.1%} ({last}), class std "
        f"{100 * report.spread:.1f} points{missing}"
    )


def as_html(report: ClassReport) -> str:
    """A small table for a notebook; every name is escaped."""
    order = listed(report)
    records = {key: class_records(one) for key, one in report.items()}
    heads = "".join(f"<th>{escape(_headed(one))}</th>" for one in report.values())
    rows = [f"<tr><th>class</th><th>n</th>{heads}</tr>"]
    worst = "".join(f"<td>{escape(worst_words(one))}</td>" for one in report.values())
    overall = "".join(f"<td>{overall_words(one)}</td>" for one in report.values())
    wholes = [
        {"n": int(one.counts.sizes.sum()), "accuracy": None if one.unfinished else one.overall}
        for one in report.values()
    ]
    rows.append(f"<tr><th>all</th><td>{sizes_words(wholes)}</td>{overall}</tr>")
    rows.append(f"<tr><th>truly worst class</th><td></td>{worst}</tr>")
    for k in order:
        cells = "".join(f"<td>{rate_words(one[k])}</td>" for one in records.values())
        size = sizes_words([one[k] for one in records.values()])
        name = escape(one_line(report.class_names[k], 2 * _LONGEST))
        rows.append(f"<tr><th>{name}</th><td>{size}</td>{cells}</tr>")
    below = ["Accuracy in per cent with its 95 % Wilson interval, worst class first."]
    if len(order) < len(report.class_names):
        below.append(
            f"The {len(order)} worst of {len(report.class_names)} classes; all: report.to_frame()"
        )
    words = "".join(f"<p>{escape(line)}</p>" for line in [*below, *report.remarks])
    return f"<table>{''.join(rows)}</table>{words}"


def _headed(report: ConditionReport) -> str:
    """A condition with its radius, if it has one that its name does not say."""
    bare = not report.eps or "eps=" in report.condition
    return report.condition if bare else f"{report.condition}, eps {spell_eps(report.eps or 0)}"


def worst_words(report: ConditionReport, grouping: str = CLASS) -> str:
    """The interval of the truly worst class or group, in per cent."""
    if report.unfinished:
        return IN_PART
    found = report.by(grouping)
    if not found.tally.sizes.any():
        return "no samples"
    low, high = found.worst_interval
    return f"{100 * low:.1f}–{100 * high:.1f}"


def overall_words(report: ConditionReport) -> str:
    """The share of all samples that are right, in per cent; none of an audit in part."""
    return IN_PART if report.unfinished else f"{100 * report.overall:.1f}"


def rate_words(record: Mapping[str, Any]) -> str:
    """One class under one condition: its accuracy and interval in per cent."""
    if not record["n"]:
        return "no samples"
    if record["accuracy"] is None:
        return f"{record['hits']} of {record['n']} right"
    return f"{100 * record['accuracy']:.1f} ({100 * record['low']:.1f}–{100 * record['high']:.1f})"


def sizes_words(records: list[dict[str, Any]]) -> str:
    """Samples of a class: one number, or one for each condition where they differ.

    Conditions that were examined in part say their number beside their hits.

    >>> sizes_words([{"n": 20, "accuracy": 0.5}, {"n": 60, "accuracy": 0.1}])
    '20, 60'
    """
    known = [record for record in records if record["accuracy"] is not None]
    sizes = [str(record["n"]) for record in known or records]
    return sizes[0] if len(set(sizes)) == 1 else ", ".join(sizes)


def _plain(value: Any) -> Any:
    """Words, numbers and lists as they are; anything else in words."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
