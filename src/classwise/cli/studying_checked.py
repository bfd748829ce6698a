"""Which options of `classwise study` go together: what would have no effect is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from classwise.errors import ClasswiseError

if TYPE_CHECKING:
    from classwise.studies.making import PlannedStudy
    from classwise.studies.theirs_planned import PlannedNetwork


def refuse_idle(idle: Mapping[str, object], beside: str) -> None:
    """Refuse what was given and would not be used."""
    for option, given in idle.items():
        if given is not None and given is not False and given not in ([], ()):
            raise ClasswiseError(f"{option} has no effect with {beside}; leave it out")


def refuse_urls(places: Mapping[str, Path | None]) -> None:
    """Refuse a URL where a folder is meant: it would be taken for one of that name."""
    for option, place in places.items():
        if place is not None and place.parts[:1] and place.parts[0].endswith(":"):
            raise ClasswiseError(
                f"{option} {place}: only --out may be a URL; give a folder of this machine"
            )


def check_records(source: Path, idle: Mapping[str, object]) -> None:
    """Refuse what records alone have no use for, and a folder that is not there."""
    refuse_idle(idle, f"--from {source}")
    if not source.is_dir():
        raise ClasswiseError(
            f"--from {source}: there is no such folder of records; keep some with --records"
        )


def place_of_digits(
    names: list[str], folder: str | None, idle: Mapping[str, object]
) -> Path | None:
    """The folder of a study of digits, which stands alone; nothing where it is the usual one."""
    url = "://" in (folder or "")
    refuse_idle({"another study": len(names) > 1, "a URL as --out": url, **idle}, names[0])
    return Path(folder) if folder else None


def check_device(name: str | None, *, here: bool) -> None:
    """Refuse a device that is none, or that is not `here`, before every run fails with it."""
    if name is None or name == "auto":
        return
    import torch

    from classwise.training.config import choose_device

    try:
        choose_device(name)
    except ClasswiseError as reason:
        with contextlib.suppress(RuntimeError):
            if torch.device(name) and not here:
                return  # a machine of the cluster may have it
        raise ClasswiseError(f"--device {name}: {reason}") from None


def choose_device(workers: int, device: str | None, gpus: float | None) -> str:
    """Where runs are trained; several at a time would all take the one GPU, so not by themselves.

    >>> choose_device(1, None, None), choose_device(2, None, None), choose_device(2, "cuda", None)
    ('auto', 'cpu', 'cuda')
    """
    return device or ("auto" if workers == 1 or gpus else "cpu")


def networks_beside(words: list[str], planned: list[PlannedStudy]) -> tuple[PlannedNetwork, ...]:
    """The networks of other people that are to stand beside the runs of the one study."""
    from classwise.studies.theirs_planned import plan_networks, stand_of

    if not words:
        return ()
    if len(planned) > 1:
        raise ClasswiseError(
            f"--beside stands beside the runs of one study, and {len(planned)} are named; name one"
        )
    return plan_networks(words, stand_of(planned[0].study, planned[0].runs))
