"""Predictions that were made elsewhere, in a CSV or Parquet file, as rows of a ledger.

Columns: `sample` (or `index`: a number, or any word that tells images apart), `label`, and
`predicted` or a `score_NAME` for every class; if wanted `condition`, `eps` and `norm`. Every other
column is an attribute of the image. Classes are words, or numbers from 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from classwise.attacks.ball import parse_norm
from classwise.attacks.names import traits_named
from classwise.data.labels import check_class_names
from classwise.data.naming import read_names
from classwise.errors import ClasswiseError, cut
from classwise.files import given_path
from classwise.limits import MOST_CLASSES, MOST_SAMPLES
from classwise.record.foreign_table import SCORE, ForeignTable, plain_table, quoted_name
from classwise.record.rows import Predictions
from classwise.record.shard_files import bounds
from classwise.spelling import parse_eps

MOST_CONDITIONS = 1000
MOST_LETTERS = 200  # of a condition's name
PIECE = 20_000_000  # scores looked at at a time
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ForeignPredictions:
    """What a file says: verdicts by condition, the classes, and attributes of the images."""

    found: list[Predictions]
    class_names: tuple[str, ...]
    sizes: list[int]  # images of each class
    attributes: Mapping[str, list[tuple[int, list[str]]]]  # of each sample the groups it is in
    data_hash: str
    model_hash: str


def read_predictions(path: Path) -> ForeignPredictions:
    """Read a file; whatever does not fit is refused with the row that it stands in."""
    file = plain_table(given_path(path))
    with duckdb.connect(config=bounds()) as base:
        table = ForeignTable(base, file)
        try:
            table.load()
            return _told(table)
        except duckdb.Error as reason:
            words = cut(" ".join(str(reason).split()))
            raise ClasswiseError(f"{file} cannot be read as {table.kind} ({words})") from None


def _told(table: ForeignTable) -> ForeignPredictions:
    words, names = _classes(table)
    _number(table, "classes", words, np.arange(len(words)))
    _number_samples(table)
    conditions = _number_conditions(table)
    label, given = (table.columns.get(what) for what in ("label", "predicted"))
    asked = f"JOIN classes p ON p.word = {quoted_name(given)}" if given else ""
    table.base.execute(
        "CREATE TEMP TABLE numbered AS SELECT given.rowid AS place, s.number AS sample, l.number "
        f"AS label, {'p.number' if given else '0'} AS predicted, c.number AS condition FROM given "
        f"JOIN samples s ON s.word = {quoted_name(table.columns['sample'])} "
        f"JOIN classes l ON l.word = {quoted_name(str(label))} {asked} "
        f"JOIN conditions c ON c.word = {_condition_word(table)} ORDER BY place"
    )
    _check_rows(table)
    rows = {
        key: np.asarray(column, np.int64)
        for key, column in table.base.execute("SELECT * FROM numbered ORDER BY place")
        .fetchnumpy()
        .items()
    }
    gaps = np.full(len(rows["label"]), np.nan, np.float32)  # nobody told
    if table.scores:
        best, gaps = _from_scores(table, words, rows["label"])
        if given and (best != rows["predicted"]).any():
            row = int(np.flatnonzero(best != rows["predicted"])[0])
            raise table.bad("predicted is not the class of the highest score", row)
        rows["predicted"] = best
    found = [_verdicts(one, rows, gaps, k) for k, one in enumerate(conditions)]
    attributes = {name: _groups(table, name) for name in table.own}
    return _finished(table, found, names, attributes, rows)


@dataclass(frozen=True)
class _Stated:
    """A condition as the file states it."""

    name: str
    radius: float
    norm: str


def _verdicts(one: _Stated, rows: Mapping[str, Whole], gaps: Any, number: int) -> Predictions:
    """The rows of one condition, by sample number."""
    mine = np.flatnonzero(rows["condition"] == number)
    mine = mine[np.argsort(rows["sample"][mine], kind="stable")]
    label, predicted = rows["label"][mine], rows["predicted"][mine]
    kind, traits = traits_named(one.name)
    if traits.family == "other" and not one.radius:
        kind = "shift"  # fog, or another camera: nothing was searched for inside of a ball
    return Predictions(
        condition=one.name,
        sample=rows["sample"][mine],
        label=label,
        predicted=predicted,
        logit_gap=gaps[mine],
        radius=np.full(len(mine), one.radius),
        iterations=np.zeros(len(mine), np.int64),
        broken_by=np.array([one.name, None], object)[(label == predicted).astype(np.int64)],
        norm=one.norm,
        kind=kind,
        family=traits.family,
        strength=traits.strength,
        options=traits.options,
        weakened=traits.weakened,
    )


def _finished(
    table: ForeignTable,
    found: list[Predictions],
    names: tuple[str, ...],
    attributes: Mapping[str, list[tuple[int, list[str]]]],
    rows: Mapping[str, Whole],
) -> ForeignPredictions:
    sample, first = np.unique(rows["sample"], return_index=True)
    label = rows["label"][first]
    words = table.ask("SELECT word FROM samples ORDER BY number")
    data = hashlib.blake2b(json.dumps([names, words]).encode(), digest_size=8)
    data.update(sample.tobytes() + label.tobytes())
    model = hashlib.blake2b(b"predictions", digest_size=8)
    for one in found:
        model.update(f"{one.condition}\0{one.norm}\0".encode() + one.radius.tobytes())
        model.update(one.sample.tobytes() + one.predicted.tobytes())
    sizes = np.bincount(label, minlength=len(names)).tolist()
    return ForeignPredictions(found, names, sizes, attributes, data.hexdigest(), model.hexdigest())


def _number(table: ForeignTable, name: str, words: Sequence[str], numbers: Whole) -> None:
    """A table inside of the engine that gives each word its number."""
    table.base.register("new", {"word": np.array(words, object), "number": numbers})
    table.base.execute(f"CREATE TEMP TABLE {name} AS SELECT word, number FROM new")
    table.base.unregister("new")


def _all_numbers(words: set[str]) -> bool:
    return all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words)


def _classes(table: ForeignTable) -> tuple[list[str], tuple[str, ...]]:
    """How the file calls the classes, in their order, and what they are called in reports."""
    said = [table.columns[what] for what in ("label", "predicted") if what in table.columns]
    parts = " UNION ".join(f"SELECT {quoted_name(name)} AS word FROM given" for name in said)
    rows = table.ask(f"SELECT word FROM ({parts}) LIMIT {MOST_CLASSES + 1}")
    words = {row[0] for row in rows} | {name.removeprefix(SCORE) for name in table.scores}
    names = read_names(table.file.parent)
    if _all_numbers(words):
        last = max(map(int, words))
        if names is None and min(map(int, words)) == 1:
            raise table.bad(
                f"classes run from 1 to {last}, but are counted from 0; subtract 1, or write names "
                "in their place"
            )
        most = MOST_CLASSES if names is None else len(names)
        if last >= most or any(str(int(word)) != word for word in words):
            raise table.bad(f"classes by number are 0 to {most - 1}, written 7 and not 07")
        names = [str(k) for k in range(last + 1)] if names is None else names
        ordered = [str(k) for k in range(len(names))]
    else:
        ordered = names = sorted(words) if names is None else names
        strange = sorted(words - set(names))
        if strange:
            raise table.bad(f"{cut(strange[0], 50)!r} is no class of names.txt beside it")
    if len(names) < 2:
        raise table.bad("all images are of one class; nothing can be said class by class")
    check_class_names(names)
    lacking = sorted({SCORE + word for word in ordered} - set(table.scores))
    if table.scores and lacking:
        raise table.bad(f"it has no column {cut(lacking[0], 80)!r}; give every class its score")
    return ordered, tuple(names)


def _number_samples(table: ForeignTable) -> None:
    """Numbers as they are; words by their order, so that files about the same images agree."""
    name = quoted_name(table.columns["sample"])
    ((strange,),) = table.ask(
        f"SELECT count(*) FROM given WHERE NOT regexp_full_match({name}, '[0-9]{{1,9}}')"
    )
    number = "row_number() OVER (ORDER BY word) - 1" if strange else "CAST(word AS BIGINT)"
    table.base.execute(
        f"CREATE TEMP TABLE samples AS SELECT word, {number} AS number FROM "
        f"(SELECT DISTINCT {name} AS word FROM given)"
    )
    ((most, count, numbers),) = table.ask(
        "SELECT max(number), count(*), count(DISTINCT number) FROM samples"
    )
    if most >= MOST_SAMPLES or numbers < count:
        raise table.bad(
            f"samples by number are 0 to {MOST_SAMPLES - 1}, each written in one way (7, not 07)"
        )


def _condition_word(table: ForeignTable) -> str:
    """What tells conditions apart: their name, radius and norm, in one word."""
    parts = [
        f"{quoted_name(table.columns[what])}" if what in table.columns else "''"
        for what in ("condition", "eps", "norm")
    ]
    return f"concat_ws(chr(31), {', '.join(parts)})"


def _number_conditions(table: ForeignTable) -> list[_Stated]:
    rows = table.ask(
        f"SELECT word, min(place) FROM (SELECT {_condition_word(table)} AS word, rowid AS place "
        f"FROM given) GROUP BY word ORDER BY min(place) LIMIT {MOST_CONDITIONS + 1}"
    )
    if len(rows) > MOST_CONDITIONS:
        raise table.bad(f"it has more than {MOST_CONDITIONS} conditions; divide it")
    stated = []
    for word, place in rows:
        name, eps, norm = word.split(chr(31)) if word.count(chr(31)) == 2 else ("", "", "")
        name = " ".join(name.split()) or ("" if "condition" in table.columns else "clean")
        if not name or len(name) > MOST_LETTERS or not name.isprintable():
            raise table.bad(f"{cut(word, 50)!r} is no name of a condition", int(place))
        try:
            ball = parse_norm(norm or "Linf")
            stated.append(_Stated(name, parse_eps(eps or "0", ball.too_wide), ball.name))
        except ClasswiseError as reason:
            raise table.bad(str(reason), int(place)) from None
    if len(set(stated)) < len(stated):
        raise table.bad("one eps is written in two ways, such as 8/255 and 0.0313...; write one")
    _number(table, "conditions", [word for word, _ in rows], np.arange(len(rows)))
    return stated


def _check_rows(table: ForeignTable) -> None:
    """One verdict for each sample and condition, and one label for each sample."""
    twice = table.ask(
        "SELECT max(place), any_value(sample) FROM numbered GROUP BY condition, sample "
        "HAVING count(*) > 1 LIMIT 1"
    )
    if twice:
        raise table.bad("a sample is there twice under one condition", int(twice[0][0]))
    several = table.ask(
        "SELECT max(place) FROM numbered GROUP BY sample HAVING count(DISTINCT label) > 1 LIMIT 1"
    )
    if several:
        raise table.bad("a sample has two labels", int(several[0][0]))


def _from_scores(table: ForeignTable, words: Sequence[str], label: Whole) -> tuple[Whole, Any]:
    """The class of the highest score, and by how much the true class leads or lags."""
    names = ", ".join(quoted_name(SCORE + word) for word in words)
    best, gaps = np.empty_like(label), np.empty(len(label), np.float32)
    step = max(1, PIECE // len(words))
    for begin in range(0, len(label), step):
        end = min(begin + step, len(label))
        found = table.base.execute(
            f"SELECT {names} FROM given WHERE rowid >= ? AND rowid < ? ORDER BY rowid", [begin, end]
        ).fetchnumpy()
        scores = np.stack([np.ma.filled(column, np.nan) for column in found.values()], 1)
        if not np.isfinite(scores).all():
            row = int(np.flatnonzero(~np.isfinite(scores).all(1))[0])
            raise table.bad("a score is missing, or no finite number", begin + row)
        best[begin:end] = scores.argmax(1)
        rows = np.arange(end - begin)
        true = scores[rows, label[begin:end]]
        scores[rows, label[begin:end]] = -np.inf
        gaps[begin:end] = true - scores.max(1)
    return best, gaps


def _groups(table: ForeignTable, name: str) -> list[tuple[int, list[str]]]:
    """An attribute of each sample; `fog|night` is two groups."""
    rows = table.ask(
        f"SELECT DISTINCT n.sample, coalesce(g.{quoted_name(name)}, '') FROM numbered n JOIN given "
        "g ON g.rowid = n.place ORDER BY ALL"
    )
    if len(rows) > len({sample for sample, _ in rows}):
        raise table.bad(f"a sample is in different groups of {cut(name, 50)!r} in different rows")
    split = (
        (int(sample), [" ".join(part.split()) for part in text.split("|")]) for sample, text in rows
    )
    return [(sample, [part for part in parts if part]) for sample, parts in split]
