"""A study at a scale as runs, each resolved to its recipe and all its settings before any begins.

Runs are shared between studies. A run is known by its key: a hash over its recipe with every
option, every training setting that decides its result (the seed among them), the data by name,
and the code of methods that are not our own. The run's identity, which also has the content of the
data in it, is compared by training itself when it steps into a folder; the key can be had without
the data, so that stored records are found by it, too.

What is watched does not decide a result and is not in the key. Studies that are run together have
the union of their looks taken. One that comes later uses a run that is there if the run took all
the looks that the study wants, as often as it wants them; otherwise it trains the run again, in a
folder beside, since the looks cannot be made up for. Audits need no such care: attacks and weights
of several studies add up in the ledger of the one run, and each study reads its own of them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.errors import ClasswiseError, unknown
from classwise.recipe import Recipe
from classwise.spelling import spell_eps, split_outside_brackets
from classwise.studies.feature_sets import Features, with_makers
from classwise.studies.found import like
from classwise.studies.named import check_names
from classwise.studies.papers import PaperRow, paper_rows
from classwise.studies.scale import Scale, read_with, scale_of
from classwise.studies.settings import said
from classwise.studies.study import AtScale, Audit, Block, Study, Watch
from classwise.training.config import TrainConfig
from classwise.training.identity import PASSIVE, foreign_sources
from classwise.training.watched import parse_watched

MOST_RUNS = 5000  # of a study
UNOBTAINABLE = "not run: data unobtainable"
_SHARED = tuple(name for name in PASSIVE if name != "data")


@dataclass(frozen=True)
class PlannedRun:
    """One run: where it stands on the axes, and all that it takes to train and audit it."""

    labels: Mapping[str, str]
    recipe: Recipe
    config: TrainConfig
    audits: tuple[Audit, ...]
    lacking: str = ""  # why it is not run at this scale
    maker: PlannedRun | None = None  # the run that makes its data, if they are features
    features: Features | None = None

    @property
    def key(self) -> str:
        """What the run is known by, in every study."""
        return run_key(
            self.recipe.canonical, self.config.model_dump(mode="json"), foreign_sources(self.recipe)
        )

    @property
    def title(self) -> str:
        """A name for people."""
        row = self.labels.get("row", "")
        return f"{row or self.labels['recipe']}, seed {self.config.seed}"


class _Point(NamedTuple):
    """One point on the axes of a block, without its seed; nothing is looked up yet."""

    labels: dict[str, str]
    recipe: str
    preset: str
    options: dict[str, Any]  # of training
    methods: dict[str, Any]  # METHOD.OPTION


def run_key(
    recipe: Mapping[str, Any], config: Mapping[str, Any], sources: Mapping[str, Any] | None
) -> str:
    """The key of a planned run, or of one whose run.json says these."""
    decides = {name: value for name, value in config.items() if name not in _SHARED}
    facts = {"recipe": recipe, "config": decides, "sources": sources or {}}
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=8).hexdigest()


def plan(
    study: Study,
    scale_name: str,
    *,
    seeds: int | None = None,
    imports: Sequence[str] = (),
) -> tuple[PlannedRun, ...]:
    """All runs of a study at a scale, resolved; whatever is wrong with one is told here.

    `seeds` are so many for every block; `imports` the modules that its recipes may name.
    """
    scale = scale_of(study, scale_name)
    _check_rows(study, scale_name)
    audits, found = scale.audits(study.audits_at(scale_name)), []
    for number, block in _blocks(study, scale_name):
        lacking = _lacking(study, block, scale)
        for point in _points(study, block, scale):
            try:
                planned = [
                    _resolved(point, seed, study, scale, audits, tuple(imports))
                    for seed in _seeds(study, block, point, scale, seeds)
                ]
            except ClasswiseError as reason:
                raise ClasswiseError(
                    f"study {study.name}, [[runs]] {number} at scale {scale_name}: {reason}"
                ) from None
            found += [replace(run, lacking=lacking) for run in planned]
    try:
        return with_makers(found)
    except ClasswiseError as reason:
        raise ClasswiseError(f"study {study.name} at scale {scale_name}: {reason}") from None


def count_runs(study: Study, scale_name: str) -> int:
    """How many runs a study has at a scale, those that lack their data left out."""
    scale, many = scale_of(study, scale_name), 0
    for _, block in _blocks(study, scale_name):
        if not _lacking(study, block, scale):
            points = _points(study, block, scale)
            many += sum(len(_seeds(study, block, point, scale, None)) for point in points)
    return many


def _blocks(study: Study, scale_name: str) -> list[tuple[int, Block]]:
    """The blocks that a scale has, with their places in the file."""
    every = enumerate(study.runs, 1)
    return [(n, block) for n, block in every if not block.scales or scale_name in block.scales]


def _lacking(study: Study, block: Block, scale: Scale) -> str:
    skip = study.scale.get(scale.name, AtScale()).skip
    if skip:
        return f"not run: {skip}"
    return f"{UNOBTAINABLE} ({block.need})" if block.need in scale.lacks else ""


def _seeds(
    study: Study, block: Block, point: _Point, scale: Scale, wanted: int | None
) -> tuple[int, ...]:
    """The seeds of a setting: as many as the user says, or the study at this scale, or its file."""
    at_scale = study.scale.get(scale.name, AtScale())
    own = at_scale.seeds
    found = block.seeds if own is None else own
    if wanted is not None:
        counted = found == tuple(range(len(found)))
        return tuple(range(wanted)) if counted else found[:wanted]
    found = found[: scale.seeds] if own is None and scale.seeds else found
    row = point.labels.get("row", "")
    fewer = [many for pattern, many in at_scale.seeds_of.items() if like(row, pattern)]
    return found[: fewer[0]] if fewer else found


def _check_rows(study: Study, scale_name: str) -> None:
    """Refuse `seeds_of` rows that no block has at this scale, or of fewer than one seed."""
    scale = scale_of(study, scale_name)
    points = [p for _, block in _blocks(study, scale_name) for p in _points(study, block, scale)]
    rows = list(dict.fromkeys(point.labels.get("row", "") for point in points))
    for pattern, many in study.scale.get(scale_name, AtScale()).seeds_of.items():
        where = f"study {study.name}, [scale.{scale_name}.seeds_of]"
        if not any(like(row, pattern) for row in rows):
            raise unknown(f"row in {where}", pattern, rows)
        if many < 1:
            raise ClasswiseError(f"{where}: {pattern} has {many} seeds; give at least 1")


def _points(study: Study, block: Block, scale: Scale) -> Iterator[_Point]:
    """The product of the axes of a block, the last axis running fastest."""
    own = study.scale.get(scale.name, AtScale()).axes
    settings = {name: own.get(name, values) for name, values in block.settings.items()}
    many = math.prod(len(values) for values in settings.values()) * len(block.seeds)
    many *= len(block.recipe) or 1
    if many > MOST_RUNS:
        raise ClasswiseError(
            f"study {study.name}: a block has {many} runs; {MOST_RUNS} are the most, take values "
            "off its axes"
        )
    data = settings.pop("data", ()) if block.rows else ()
    heads = _of_rows(block, data) if block.rows else _of_recipes(block)
    for head in heads:
        for values in itertools.product(*settings.values()):
            said_here = dict(zip(settings, values, strict=True))
            options = {n: v for n, v in said_here.items() if n in TrainConfig.model_fields}
            methods = {n: v for n, v in said_here.items() if n not in options}
            labels = {**head.labels, **{name: said(value) for name, value in said_here.items()}}
            yield head._replace(labels=labels, options={**head.options, **options}, methods=methods)


def _of_recipes(block: Block) -> Iterator[_Point]:
    rows = block.row * len(block.recipe) if len(block.row) == 1 else block.row
    for number, text in enumerate(block.recipe):
        row = {"row": rows[number]} if rows else {}
        yield _Point({**row, "recipe": text}, text, block.preset or "paper", {}, {})


def _of_rows(block: Block, data: tuple[Any, ...]) -> Iterator[_Point]:
    """Rows of the papers' tables; with `data` those of these data, or all with other data."""
    for words in block.rows:
        rows = [row for row in _rows_named(words) if block.variants or not row.variant]
        pairs = [(row, row.data) for row in rows] if not data else []
        for one in data:
            of_these = [row for row in rows if row.data == one]
            names = {(row.row, row.variant): row for row in reversed(rows)}
            pairs += [(row, one) for row in of_these or reversed(list(names.values()))]
        for row, spec in pairs:
            name = f"{row.row} ({row.variant})" if row.variant else row.row
            labels = {"row": name, "recipe": row.recipe, "data": spec, "model": row.model}
            yield _Point(labels, row.recipe, row.preset, {"data": spec, "model": row.model}, {})


def _rows_named(words: str) -> list[PaperRow]:
    """The rows of `PAPER TABLE`, or the one of `PAPER TABLE: ROW`, for each of its data."""
    where, _, name = words.partition(":")
    paper, _, table = where.strip().partition(" ")
    every = paper_rows()
    if paper not in {row.paper for row in every}:
        raise unknown("paper of a row", paper, {row.paper for row in every})
    of_paper = [row for row in every if row.paper == paper]
    tables = {one: [row for row in of_paper if one in row.table.split(",")]
              for row in of_paper for one in row.table.split(",")}  # fmt: skip
    if table not in tables:
        raise unknown(f"table of {paper}", table, tables)
    if not name:
        return tables[table]
    found = [row for row in tables[table] if row.row == name.strip()]
    if not found:
        raise unknown(f"row of {where}", name.strip(), {row.row for row in tables[table]})
    return found


def _resolved(
    point: _Point,
    seed: int,
    study: Study,
    scale: Scale,
    audits: tuple[Audit, ...],
    imports: tuple[str, ...],
) -> PlannedRun:
    recipe = read_with(point.recipe, point.methods, imports)
    watch = study.scale.get(scale.name, AtScale()).watch or study.watch
    options = {**point.options, "seed": seed, **_watching(watch, recipe)}
    recipe, config = scale.resolve(recipe, point.preset, options)
    if config.judge_eps == config.eps:  # the same run, whichever way it is said
        config = config.model_copy(update={"judge_eps": None})
    check_names(config)
    threat = Threat.of(config.eps_of_judge, config.norm)
    wanted = tuple(a for a in audits if not a.seeds or seed < a.seeds)
    for audit in wanted:
        parse_conditions(",".join(audit.attacks), threat, own=False)
    _ = config.watched  # read, so that a mistake is told
    labels = {
        **point.labels,
        "data": str(point.options.get("data", config.data)),
        "model": str(point.options.get("model", config.model)),
        "eps": point.labels.get("eps", spell_eps(config.eps)),
        "seed": str(seed),
    }
    return PlannedRun(labels, recipe, config, wanted)


def _watching(watch: Watch | None, recipe: Recipe) -> dict[str, Any]:
    """The looks that a recipe can be given: those at an average only where it has that."""
    if watch is None:
        return {}
    averages = {"", *(average.name for average in recipe.slots.averages)}
    looks = [look.strip() for look in split_outside_brackets(watch.looks, ",")]
    kept = [look for look in looks if parse_watched(look).average in averages]
    return {"watch": ",".join(kept), "watch_every": watch.every} if kept else {}
