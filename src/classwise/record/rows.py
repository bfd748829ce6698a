"""The long table: a row per sample and condition. Its columns are declared here and nowhere else.

A column is a field of `Predictions` (what became of the samples under one condition) or of `Stamp`
(whose they are), with its type in Parquet and where its value comes from. Files without a column
are read as if it said `missing`, and one that may be left out is None where no file has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from classwise.attacks.condition import Condition
from classwise.attacks.judged import Judged
from classwise.attacks.names import traits_named
from classwise.errors import ClasswiseError
from classwise.types import Batch

VERSION = 1  # of the long table; raised when the meaning of a column or of an attack changes
_DTYPES = {"BIGINT": np.int64, "INTEGER": np.int64, "FLOAT": np.float32, "DOUBLE": np.float64}


class Verdicts(NamedTuple):
    """What was judged: where the values of all columns come from."""

    condition: Condition
    batch: Batch
    judged: Judged
    with_images: bool = False  # keep where the verdicts were found, too

    @property
    def radius(self) -> Tensor:
        """The radius of each sample; 0 where nothing is threatened."""
        threat = self.condition.threat
        index = self.batch.index
        return index.cpu().double() * 0 if threat is None else threat.at(index)

    @property
    def broken_by(self) -> npt.NDArray[np.object_]:
        """The attack that broke each sample; None where it stands."""
        names = np.array([None, *self.judged.attacks], dtype=object)
        found: npt.NDArray[np.object_] = names[self.judged.fell_to.cpu().numpy() + 1]
        return found

    @property
    def image(self) -> npt.NDArray[np.object_] | None:
        """The pixels of each image as bytes, if they are wanted."""
        if not self.with_images:
            return None
        pixels = self.judged.images.detach().cpu().contiguous().numpy()
        found = np.empty(len(pixels), dtype=object)
        found[:] = [one.tobytes() for one in pixels]
        return found


class Column(NamedTuple):
    """One column of the table."""

    kind: str  # in Parquet
    of: Callable[[Any], Any]  # its values, from `Verdicts`
    per_sample: bool
    missing: Any
    optional: bool = False  # None where nobody asked for it, or wrote it


def per_sample(kind: str, of: Callable[[Verdicts], Any], missing: Any = None, **how: Any) -> Any:
    """A column with a value for every sample; with default=None it may be left out."""
    return field(metadata={"column": Column(kind, of, True, missing, "default" in how)}, **how)


def for_all(kind: str, of: Callable[[Verdicts], Any], missing: Any = None, **how: Any) -> Any:
    """A column that says the same of every sample of a condition."""
    return field(metadata={"column": Column(kind, of, False, missing)}, **how)


@dataclass(frozen=True)
class Predictions:
    """What a model said about every sample under one condition."""

    condition: str = for_all("VARCHAR", lambda v: v.condition.name)
    sample: npt.NDArray[np.int64] = per_sample("BIGINT", lambda v: v.batch.index)
    label: npt.NDArray[np.int64] = per_sample("INTEGER", lambda v: v.batch.labels)
    # K where a certificate names no class
    predicted: npt.NDArray[np.int64] = per_sample("INTEGER", lambda v: v.judged.predicted)
    # true logit minus the best other; empty where predictions came without scores
    logit_gap: npt.NDArray[np.float32] = per_sample(
        "FLOAT", lambda v: v.judged.logit_gap, missing=np.nan
    )
    # eps of each sample in image units; 0 when clean
    radius: npt.NDArray[np.float64] = per_sample("DOUBLE", lambda v: v.radius)
    # steps spent on each sample
    iterations: npt.NDArray[np.int64] = per_sample("INTEGER", lambda v: v.judged.iterations)
    # the attack that broke it; None where it stands
    broken_by: npt.NDArray[np.object_] = per_sample("VARCHAR", lambda v: v.broken_by)
    norm: str = for_all("VARCHAR", lambda v: v.condition.norm, default="Linf")
    seed: int = for_all("BIGINT", lambda v: v.condition.seed, 0, default=0)
    # `last`: judged at the final iterate, as the papers do; `certified`: no attack can succeed
    verdict: str = for_all("VARCHAR", lambda v: v.condition.verdict, default="last")
    # clean, attack, shift, shifted attack or certificate; what follows is of use together with it
    kind: str = for_all("VARCHAR", lambda v: v.condition.kind, "", default="")
    family: str = for_all("VARCHAR", lambda v: v.condition.traits.family, "", default="")
    strength: float = for_all("DOUBLE", lambda v: v.condition.traits.strength, 0.0, default=0.0)
    options: str = for_all("VARCHAR", lambda v: v.condition.traits.options, "", default="")
    weakened: bool = for_all("BOOLEAN", lambda v: v.condition.traits.weakened, False, default=False)
    # of the noise that the judged classifier is smoothed with; 0 for the model itself
    sigma: float = for_all("DOUBLE", lambda v: v.condition.traits.sigma, 0.0, default=0.0)
    # chance that the verdict on one sample is wrong; 0 where it does not rest on draws
    alpha: float = for_all("DOUBLE", lambda v: v.condition.traits.alpha, 0.0, default=0.0)
    # how far the label is certified, whatever the radius of this audit; 0 where it is not at all
    certified_radius: npt.NDArray[np.float64] | None = per_sample(
        "DOUBLE", lambda v: v.judged.certified_radius, default=None
    )
    # adversarial images as bytes, for those who want them back
    image: npt.NDArray[np.object_] | None = per_sample("BLOB", lambda v: v.image, default=None)
    losses: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)  # never written

    def __post_init__(self) -> None:
        if not self.kind:  # from a file of an older version, or made by hand
            kind, traits = traits_named(self.condition)
            for name in ("family", "strength", "options", "weakened", "sigma", "alpha"):
                object.__setattr__(self, name, getattr(traits, name))
            object.__setattr__(self, "kind", kind)

    @classmethod
    def of(cls, found: Verdicts) -> Predictions:
        """Write what was judged as rows."""
        declared = columns(cls)
        values = {name: _plain(column, column.of(found)) for name, column in declared.items()}
        losses = {name: _numbers(value) for name, value in found.judged.losses.items()}
        return cls(**values, losses=losses)

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """Whether the verdict on each sample is right."""
        same: npt.NDArray[np.bool_] = self.label == self.predicted
        return same


@dataclass(frozen=True, slots=True)
class Stamp:
    """Whose predictions they are: what a row says beside the verdict itself."""

    run: str = for_all("VARCHAR", str)
    weights: str = for_all("VARCHAR", str)
    split: str = for_all("VARCHAR", str)
    model_hash: str = for_all("VARCHAR", str, default="")
    data_hash: str = for_all("VARCHAR", str, default="")
    attack_key: str = for_all("VARCHAR", str, default="")


def columns(kind: type[Any]) -> dict[str, Column]:
    """The columns that a class declares."""
    return {f.name: f.metadata["column"] for f in fields(kind) if "column" in f.metadata}


def sql_types() -> dict[str, str]:
    """Every column of the table with its type in Parquet."""
    declared = {**columns(Stamp), **columns(Predictions)}
    kinds = {name: column.kind for name, column in declared.items()}
    return {**kinds, "correct": "BOOLEAN", "version": "INTEGER"}


def samples_of(found: Predictions) -> dict[str, Any]:
    """The values of each sample, by column; without those that were not asked for."""
    names = (name for name, column in columns(Predictions).items() if column.per_sample)
    return {name: getattr(found, name) for name in names if getattr(found, name) is not None}


def concatenate(parts: Sequence[Predictions]) -> Predictions:
    """Join verdicts of one condition."""
    if not parts:
        raise ClasswiseError("no images given; an audit needs at least one")
    values = [samples_of(part) for part in parts]
    shared = [name for name in values[0] if all(name in each for each in values)]
    joined: dict[str, Any] = {name: np.concatenate([v[name] for v in values]) for name in shared}
    losses = {n: np.concatenate([p.losses[n] for p in parts]) for n in parts[0].losses}
    joined |= {name: None for name in values[0] if name not in shared}
    return replace(parts[0], **joined, losses=losses)


def select(found: Predictions, rows: npt.NDArray[np.int64]) -> Predictions:
    """Keep some rows."""
    kept: dict[str, Any] = {name: value[rows] for name, value in samples_of(found).items()}
    return replace(found, **kept, losses={n: value[rows] for n, value in found.losses.items()})


def in_order_of(samples: npt.NDArray[np.int64], found: Predictions) -> Predictions:
    """Bring verdicts into the order of `samples`; others are left out."""
    order = np.argsort(found.sample, kind="stable")
    place = np.searchsorted(found.sample[order], samples)
    return select(found, order[place])


def certified_at(
    found: Predictions, radius: npt.ArrayLike, name: str, num_classes: int
) -> Predictions:
    """What a certificate says at another radius, as rows of the condition `name`.

    No model is asked: how far each label is certified is in the rows.
    """
    if found.certified_radius is None:
        raise ClasswiseError(f"{found.condition} certifies nothing; only smoothing does")
    reached = np.broadcast_to(np.asarray(radius, float), found.label.shape)
    stands = (found.certified_radius > 0) & (found.certified_radius >= reached)
    other = (found.predicted != found.label) & (found.predicted < num_classes)
    return replace(
        found,
        condition=name,
        predicted=np.where(stands, found.label, np.where(other, found.predicted, num_classes)),
        radius=reached.copy(),
        broken_by=np.array([name, None], dtype=object)[stands.astype(int)],
    )


def read_back(found: Mapping[str, Any]) -> Predictions:
    """Rows of a query over all columns of one condition, as duckdb returns them."""
    values: dict[str, Any] = {}
    for name, column in columns(Predictions).items():
        array = np.ma.asarray(found[name])
        empty, plain = np.ma.getmaskarray(array), np.ma.getdata(array)
        if not column.per_sample:
            value = column.missing if empty[0] else plain[0]
            values[name] = value.item() if isinstance(value, np.generic) else value
        elif column.optional and empty.all():
            values[name] = None
        elif column.kind in _DTYPES:
            filled = np.where(empty, column.missing, plain) if empty.any() else plain
            values[name] = np.asarray(filled).astype(_DTYPES[column.kind])
        else:
            words = plain.astype(object)
            words[empty] = column.missing
            values[name] = words
    return Predictions(**values)


def _plain(column: Column, value: Any) -> Any:
    numbers = _numbers(value) if isinstance(value, Tensor) else value
    if isinstance(numbers, np.ndarray) and column.kind in _DTYPES:
        return numbers.astype(_DTYPES[column.kind])
    return numbers


def _numbers(values: Tensor) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = values.detach().cpu().numpy()
    return found
