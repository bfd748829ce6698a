"""What `classwise study` prints of studies before they run: what there is, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from classwise.cli.app import out
from classwise.cli.studying_digits import DIGITS
from classwise.errors import ClasswiseError

if TYPE_CHECKING:
    from classwise.studies.making import Work


def print_costs(work: Work, workers: int, budget: float | None, *, show: bool) -> None:
    """Say what is left to run and what it costs, and refuse what is over the budget."""
    from classwise.progress import spell_seconds
    from classwise.studies.costs import cost_of
    from classwise.studies.theirs import NOT_OURS

    if show:
        out.print(f"{work.done} runs are there, {len(work.jobs)} are left", highlight=False)
    if not work.jobs:
        return
    cost = cost_of(list(work.runs.values()), networks=work.networks)
    if show:
        listing = Table("run", "settings", "cost")
        for key, run in work.runs.items():
            labels = ", ".join(f"{a}={v}" for a, v in run.labels.items() if a != "row")
            seconds = cost.seconds.get(key)
            listing.add_row(run.title, labels, "?" if seconds is None else spell_seconds(seconds))
        for one in work.networks:
            seconds = cost.seconds.get(one.key)
            spelled = "?" if seconds is None else spell_seconds(seconds)
            listing.add_row(one.network.name, f"{NOT_OURS}, {one.network.path.name}", spelled)
        out.print(listing)
        out.print(cost.words(workers), highlight=False, soft_wrap=True)
    if budget is not None and cost.hours(workers) > budget:
        raise ClasswiseError(
            f"{cost.words(workers)}: over the budget of {budget:g} hours; choose a smaller "
            "--scale, fewer --seeds, or some runs with --only"
        )
    if budget is not None and cost.unknown:
        raise ClasswiseError(
            f"--budget {budget:g}: {cost.words(workers)}; put that right, leave those runs out "
            "with --only, or leave out --budget"
        )


def list_studies() -> None:
    """Print every study with its runs and rough costs."""
    from classwise.progress import spell_seconds
    from classwise.studies.planned import count_runs
    from classwise.studies.scale import scale_named
    from classwise.studies.study import SCALES, load_study, study_names

    out.print("Runs of each study, and what they take on two cores, roughly", soft_wrap=True)
    for name in study_names():
        one = load_study(name)
        where = ", ".join(word for word in (one.paper, one.source) if word)
        costs = []
        for scale in SCALES:
            many = count_runs(one, scale)
            costs.append(f"{scale} {many}, {spell_seconds(many * scale_named(scale).seconds)}")
        words = f"\n{name} ({where})\n  {one.shows or one.title}\n  {'; '.join(costs)}"
        out.print(words, soft_wrap=True, highlight=False, markup=False)
    for name, shows in zip(DIGITS, ("many recipes", "the same under other defaults"), strict=True):
        words = f"\n{name}\n  embedded digits, {shows}"
        out.print(words, soft_wrap=True, highlight=False)
