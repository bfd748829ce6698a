"""What `classwise study` prints before anything runs: what is left, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from classwise.cli.app import out
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
