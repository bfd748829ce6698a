"""Feature sets as data of a study: one of its runs makes them, and others learn from them.

A study file writes `data = "features('plain model', kind=random, images=10000)"`: the row of a run
of the same study, and options of `classwise features`. The name of the data then has the key of
that run in the place of its row, so that a run on features is known by the run that made them.
Kind `original` is the same images as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from classwise.attacks.features import KINDS, FeatureSettings
from classwise.data.sources import read_spec
from classwise.errors import ClasswiseError, unknown

if TYPE_CHECKING:
    from classwise.data.dataset import DataSource
    from classwise.studies.planned import PlannedRun

FEATURES = "features"
ORIGINAL = "original"


@dataclass(frozen=True)
class Features:
    """Which features, of how many images, and whose; `maker` is a row, or the key of a run."""

    maker: str
    kind: str
    images: int = 0  # balanced; 0 is all
    steps: int | None = None
    step: float | None = None
    eps: float | None = None

    @classmethod
    def of(cls, spec: str) -> Features | None:
        """What the name of some data says; None if they are no features.

        >>> Features.of("features('plain model', kind=random, steps=5)").steps
        5
        """
        name, maker, options = read_spec(spec)
        if name != FEATURES:
            return None
        if not maker or "kind" not in options:
            raise ClasswiseError(f"{spec} says too little; write features('ROW', kind=robust)")
        known = [field.name for field in fields(cls) if field.name != "maker"]
        for option in options:
            if option not in known:
                raise unknown("option of features", option, known)
        found = cls(maker, **options)
        if found.kind not in (ORIGINAL, *KINDS):
            raise unknown("kind of features", found.kind, (ORIGINAL, *KINDS))
        if not isinstance(found.images, int) or found.images < 0:
            raise ClasswiseError(f"images is {found.images!r}; give their number, or 0 for all")
        if found.kind != ORIGINAL:
            FeatureSettings.of(found.kind, **found.how)
        elif found.how:
            raise ClasswiseError(f"{spec}: original images are not made; leave out {[*found.how]}")
        return found

    @property
    def how(self) -> dict[str, Any]:
        """What is said of the way they are made."""
        said = {"steps": self.steps, "step": self.step, "eps": self.eps}
        return {name: value for name, value in said.items() if value is not None}

    @property
    def name(self) -> str:
        """The name of the data, in one spelling."""
        options = {"kind": self.kind, "images": self.images, **self.how}
        return f"{FEATURES}({self.maker}, {', '.join(f'{k}={v}' for k, v in options.items())})"

    def open(self, run: Path, folder: Path, device: str) -> DataSource:
        """The data, made if they are not there yet, with the test part of the run's own data."""
        from classwise.data.sources import open_data
        from classwise.data.splits import balanced_subset
        from classwise.doors.features import make_features
        from classwise.training.run import Run

        if self.kind == ORIGINAL:
            source = open_data(Run(run).config.data)
            labels = source.train.labels
            rows = balanced_subset(labels, self.images or len(labels), seed=0)
            return replace(source, train=source.train.subset(rows), places=None)
        plain = "".join(c if c.isalnum() or c in ".-" else "-" for c in self.name)
        made = make_features(
            run, self.kind, folder / f"{plain}.npz", limit=self.images, device=device, **self.how
        )
        return open_data(made.data)


def with_makers(runs: Sequence[PlannedRun]) -> tuple[PlannedRun, ...]:
    """Give every run on features the run that makes them: of the row it names, with its seed."""
    found = []
    for run in runs:
        features = Features.of(run.config.data)
        if features is None:
            found.append(run)
            continue
        makers = [
            one
            for one in runs
            if one.labels.get("row") == features.maker
            and one.config.seed == run.config.seed
            and Features.of(one.config.data) is None
        ]
        if len({one.key for one in makers}) != 1:
            rows = {one.labels["row"]: None for one in runs if "row" in one.labels}
            if features.maker not in rows:
                raise unknown("row that makes features", features.maker, rows)
            raise ClasswiseError(
                f"{len(makers)} runs of row {features.maker!r} could make the features for "
                f"{run.title}; one with the same seed is needed"
            )
        if any(audit.similarity for audit in run.audits):
            raise ClasswiseError("similarity cannot be kept of runs on features; leave it out")
        features = replace(features, maker=makers[0].key)
        config = run.config.model_copy(update={"data": features.name})
        lacking = run.lacking or makers[0].lacking
        made = replace(run, config=config, lacking=lacking, maker=makers[0], features=features)
        found.append(made)
    return tuple(found)
