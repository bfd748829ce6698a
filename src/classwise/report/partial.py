"""What an audit that stopped early may say of each class, although it chose its images."""

from __future__ import annotations

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from classwise.auditing.sequential import PartialAudit
from classwise.judging.showing import ALL_UP_TO, FEW
from classwise.spelling import few_names, one_line


def partial_table(audit: PartialAudit, title: str, *, everything: bool, command: str) -> Group:
    """Where every class would stand in the full audit, those that look worst first.

    The intervals are confidence sequences: they hold although images were chosen by what was seen.
    """
    standing = audit.standing
    asked = np.flatnonzero(standing.sizes > 0)
    guess = (standing.hits + 1) / (standing.seen + 2)
    guess = np.where(standing.seen > 0, guess, np.inf)  # nobody looked: last
    order = asked[np.argsort(guess[asked], kind="stable")]
    shown = order if everything or len(order) <= ALL_UP_TO else order[:FEW]
    spans = [audit.intervals_under(one) for one in audit.found]
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title=Text(title),
        title_justify="left",
    )
    table.add_column("class", overflow="fold")
    table.add_column("judged", justify="right")
    for one in audit.found:
        table.add_column(Text(one.condition), justify="right", overflow="fold")
    for k in shown:
        cells = [
            one_line(audit.class_names[k]),
            f"{standing.seen[k]} of {standing.sizes[k]}",
            *(f"{100 * low[k]:.1f}–{100 * high[k]:.1f}" for low, high in spans),
        ]
        table.add_row(*map(Text, cells))
    words = _captions(audit, len(shown), len(order), command)
    return Group("", table, Text(" ".join(words)))


def _captions(audit: PartialAudit, shown: int, count: int, command: str) -> list[str]:
    standing = audit.standing
    words = [
        f"Per cent right in the full audit, {100 * standing.level:g} % intervals for each class "
        "that hold although images were chosen by what was seen of others; what looks worst is "
        "first. An average of the chosen images would be no average of the audit, so none is "
        "printed."
    ]
    unasked = [one_line(name) for name, size in zip(audit.class_names, standing.sizes, strict=True)
               if not size]  # fmt: skip
    if unasked:
        words.append(f"Left out (not asked about, or without images): {few_names(unasked, 10)}.")
    if shown < count:
        words.append(f"The {shown} that look worst of {count} classes; all of them: {command}")
    return words
