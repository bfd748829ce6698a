"""What `classwise study list` prints: what each study shows, its runs, and how long they take."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from classwise.cli.app import out
from classwise.cli.studying_digits import DIGITS, SEEDS, jobs_of_tables

if TYPE_CHECKING:
    from classwise.studies.study import Study


def list_studies() -> None:
    """Name every study and the papers they are of."""
    from classwise.papers import PAPERS
    from classwise.studies.study import load_study, study_names

    _say(
        "Every study with its place in a paper (two are our own), what it shows, and for each "
        "--scale the number of runs (a run is one model, trained and audited) and how long all of "
        "them take on two cores, roughly. The papers:"
    )
    for key, paper in PAPERS.items():
        _say(f"{key}: {paper.cited}", indent=2)
    for name in study_names():
        one = load_study(name)
        where = ", ".join(word for word in (one.paper, one.source) if word)
        _say("")
        _say(f"{name} ({where})")
        _say(one.shows or one.title, indent=2)
        _say(_costs(one), indent=2)
    for name, shows in DIGITS.items():
        _say("")
        _say(f"{name} (our own, docs/results.md)")
        _say(shows, indent=2)
        _say(_costs_of_digits(name), indent=2)


def _costs(study: Study) -> str:
    """How many runs there are at every scale, and what they take."""
    from classwise.studies.planned import count_runs
    from classwise.studies.scale import scale_named
    from classwise.studies.study import SCALES

    if not study.runs:
        return "no runs: all is computed when its page is written, the same at every scale"
    return "; ".join(
        f"{scale}: {_runs(count_runs(study, scale), scale_named(scale).seconds)}"
        for scale in SCALES
    )


def _costs_of_digits(name: str) -> str:
    """The same of tables that have one scale and as many seeds as are asked for."""
    from classwise.studies.digits import SECONDS

    many = sum(map(len, jobs_of_tables(name, SEEDS, Path()).values()))
    return f"one scale, {SEEDS} seeds: {_runs(many, SECONDS)}"


def _runs(many: int, seconds: float) -> str:
    """So many runs of so many seconds."""
    from classwise.progress import spell_seconds

    words = f"{many} run{'s' if many != 1 else ''}, {spell_seconds(many * seconds)}"
    return words if many else "none"


def _say(words: str, indent: int = 0) -> None:
    """Print a line that wraps at spaces, so that no word is cut at the edge of a terminal."""
    lead = " " * indent
    lines = textwrap.wrap(
        words, out.width, initial_indent=lead, subsequent_indent=lead, break_on_hyphens=False
    )
    out.print("\n".join(lines), highlight=False, soft_wrap=True)
