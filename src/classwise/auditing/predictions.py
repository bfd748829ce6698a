"""The stored record: one row per sample and condition, in Parquet through duckdb."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from classwise.auditing.metrics import ClassReport, ConditionReport, count_predictions
from classwise.errors import ClasswiseError
from classwise.files import write_atomically


@dataclass(frozen=True)
class Predictions:
    """What a model said about every sample under one condition."""

    condition: str
    sample: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    logit_gap: npt.NDArray[np.float32]  # true logit minus the best other
    radius: npt.NDArray[np.float64]  # eps of each sample in image units; 0 when clean
    iterations: npt.NDArray[np.int32]  # steps spent on each sample
    broken_by: npt.NDArray[np.object_]  # the attack that broke it; None where it stands
    norm: str = "Linf"
    seed: int = 0
    verdict: str = "last"  # judged at the final iterate, as the papers do

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """Whether the verdict on each sample is right."""
        same: npt.NDArray[np.bool_] = self.label == self.predicted
        return same


# The long table, one row per sample; None is null.
COLUMNS = {
    "run": "VARCHAR",
    "weights": "VARCHAR",
    "split": "VARCHAR",
    "condition": "VARCHAR",
    "sample": "BIGINT",
    "label": "INTEGER",
    "predicted": "INTEGER",
    "correct": "BOOLEAN",
    "broken_by": "VARCHAR",
    "iterations": "INTEGER",
    "logit_gap": "FLOAT",
    "radius": "DOUBLE",
    "norm": "VARCHAR",
    "seed": "BIGINT",
    "verdict": "VARCHAR",
}


def write_predictions(
    folder: Path, found: Predictions, *, run: str, weights: str, split: str
) -> Path:
    """Write one condition as a Parquet file, atomically; the same condition is replaced."""
    name = f"{weights}--{split}--{found.condition}--eps{found.radius.max():.6g}--seed{found.seed}"
    path = folder / "predictions" / (re.sub(r"[^\w.=,()-]", "_", name) + ".parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    rows = {
        "sample": found.sample,
        "label": found.label,
        "predicted": found.predicted,
        "correct": found.correct,
        "logit_gap": found.logit_gap,
        "radius": found.radius,
        "iterations": found.iterations,
        "broken_by": found.broken_by,
    }
    constants = {
        "run": run,
        "weights": weights,
        "split": split,
        "condition": found.condition,
        "norm": found.norm,
        "seed": found.seed,
        "verdict": found.verdict,
    }
    expression = {
        **{name: name for name in rows},
        **{name: f"${name}" for name in constants},
    }
    select = ", ".join(f"CAST({expression[n]} AS {kind}) AS {n}" for n, kind in COLUMNS.items())
    try:
        with duckdb.connect() as base:
            base.register("found", rows)
            copy = f"COPY (SELECT {select} FROM found) TO '{_quoted(part)}' (FORMAT parquet)"
            base.execute(copy, constants)
        part.replace(path)
    except (duckdb.Error, OSError) as reason:
        raise ClasswiseError(f"cannot write {path}: {reason}") from None
    finally:
        part.unlink(missing_ok=True)
    return path


def write_card(folder: Path, name: str, data: Mapping[str, Any]) -> None:
    """Describe a folder that holds audits of a model we did not train."""
    card = {"format": 1, "recipe_name": name, "data": dict(data)}
    write_atomically(folder / "run.json", (json.dumps(card, indent=1) + "\n").encode())


@dataclass(frozen=True)
class AuditedWeights:
    """One row of a table: the weights of a run, and what audits found."""

    run: str
    recipe: str
    weights: str
    split: str
    report: ClassReport


def read_audits(folder: Path, about: Mapping[str, Any]) -> list[AuditedWeights]:
    """Every audit stored in a run folder, one entry per weights and split.

    Audits of one condition at several radii stand side by side as `pgd-20 eps=0.1`.
    """
    files = sorted((folder / "predictions").glob("*.parquet"))
    groups: dict[tuple[str, str], list[tuple[dict[str, Any], ConditionReport]]] = {}
    data = about["data"]
    names = tuple(data["class_names"])
    with duckdb.connect() as base:
        for path in files:
            for facts, label, predicted in _conditions(base, path):
                counts = count_predictions(label, predicted, len(names))
                report = ConditionReport(
                    facts["condition"],
                    counts,
                    names,
                    _tuple(data.get("superclass_of")),
                    _tuple(data.get("superclass_names")),
                )
                groups.setdefault((facts["weights"], facts["split"]), []).append((facts, report))
    return [
        AuditedWeights(folder.name, about["recipe_name"], weights, split, _side_by_side(found))
        for (weights, split), found in sorted(groups.items())
    ]


def _conditions(
    base: duckdb.DuckDBPyConnection, path: Path
) -> list[tuple[dict[str, Any], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """(facts, labels, predictions) of each condition in a file."""
    keys = ["weights", "split", "condition", "radius", "norm", "seed", "verdict"]
    columns = ", ".join(keys)
    source = f"read_parquet('{_quoted(path)}')"
    try:
        kinds = base.execute(f"SELECT DISTINCT {columns} FROM {source} ORDER BY ALL").fetchall()
        found = []
        for values in kinds:
            where = " AND ".join(f"{key} IS NOT DISTINCT FROM ?" for key in keys)
            table = base.execute(
                f"SELECT CAST(label AS BIGINT) AS label, CAST(predicted AS BIGINT) AS predicted "
                f"FROM {source} WHERE {where} ORDER BY sample",
                list(values),
            ).fetchnumpy()
            facts = dict(zip(keys, values, strict=True))
            found.append((facts, np.asarray(table["label"]), np.asarray(table["predicted"])))
    except duckdb.Error as reason:
        raise ClasswiseError(f"{path} is not a table of predictions ({reason})") from None
    return found


def _side_by_side(found: Sequence[tuple[dict[str, Any], ConditionReport]]) -> ClassReport:
    """One report over all conditions; those that differ only in radius or seed say so."""
    named = [report.condition for _, report in found]
    conditions = []
    for facts, report in sorted(found, key=lambda pair: (pair[0]["radius"], pair[1].condition)):
        label = report.condition
        if named.count(label) > 1:
            label = f"{label} eps={facts['radius']:.4g} seed={facts['seed']}"
        conditions.append(replace(report, condition=label))
    radii = sorted({facts["radius"] for facts, _ in found if facts["radius"]})
    about = {
        "eps": ", ".join(_as_fraction(radius) for radius in radii),
        "norm": found[0][0]["norm"],
        "verdict": found[0][0]["verdict"],
    }
    return ClassReport(conditions, about)


def _as_fraction(radius: float) -> str:
    """Write a radius the way people do: 8/255 where it is one."""
    pixels = radius * 255
    return f"{round(pixels)}/255" if abs(pixels - round(pixels)) < 1e-6 else f"{radius:.4g}"


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _tuple(values: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
