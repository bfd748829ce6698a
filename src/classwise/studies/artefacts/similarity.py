"""Which classes are taken for each other, and whether a model sees just these alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from classwise.errors import ClasswiseError
from classwise.judging.asymmetry import Asymmetry
from classwise.judging.metrics import ConditionReport
from classwise.judging.similarity import Similarity
from classwise.record.means import ClassMeans
from classwise.statistics.intervals import Rates
from classwise.studies.artefact import Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.cells import Setting, cell_over, condition_words, notes_of, settings_of
from classwise.studies.class_means import FoundRunWithMeans
from classwise.studies.epochs import gaps
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.readings import ConditionName, Read

NOT_MADE = "no mean logits on record; make them with classwise similarity RUN"
HEAD = (
    *("run", "seed", "most confused", "mistakes within the superclass", "if spread evenly"),
    *("most alike", "ρ of likeness and confusion", "ρ of likeness and accuracy"),
)


class SimilarityOptions(ArtefactOptions):
    """Confusion and cosine similarity of classes, and whether they go together.

    Benz, section 3.2: classes of similar meaning are expected to be taken for each other, and a
    class that is close to others to be weak. Cosines are of the class-mean logits on clean images.
    """

    kind: Literal["similarity"]
    condition: ConditionName = "pgd-20"
    weights: str = "last"


def similarity(found: Found, options: SimilarityOptions) -> Artefact:
    """Confusions of every run, and its cosines where somebody made them."""
    found = found.only(options.where)
    rows, panels = list[tuple[Cell, ...]](), list[Figure]()
    for setting in settings_of(found):
        rows += [_row(setting, run, options) for run in setting.runs]
        panels += _panels(setting, options)
    named = condition_words(found, options.condition)
    return Artefact(
        options.file_name,
        options.title,
        HEAD,
        tuple(rows),
        (
            *notes_of(found, [options.condition], [options.weights]),
            f"Confusion under {named}: (share of A taken for B + share of B taken for A)/2. "
            "Likeness: the cosine of mean logits of clean images. ρ is Spearman's, over pairs of "
            "classes for confusion and over classes for accuracy; p by permuting the classes.",
            *([options.note] if options.note else []),
        ),
        Figure("heat", "class", "class", panels=tuple(panels), unit="") if panels else None,
    )


def alike(run: FoundRun, options: SimilarityOptions) -> Similarity:
    """The cosines of a run beside its confusions."""
    report = run.report(options.condition, options.weights)
    audit = run.audit(options.weights)
    kept = run.means if isinstance(run, FoundRunWithMeans) else ()
    means = [one for one in kept if (one.weights, one.split) == (audit.weights, audit.split)]
    if not means:
        raise Hole(NOT_MADE)
    most = max(means, key=lambda one: int(one.sizes.sum()))
    return _together(most, report)


def _together(means: ClassMeans, report: ConditionReport) -> Similarity:
    try:
        return Similarity.of(means, Asymmetry(report.class_names, report.confusion))
    except ClasswiseError as reason:
        raise Hole(str(reason)) from None


def within_superclasses(report: ConditionReport) -> tuple[float, float]:
    """The share of mistakes that stay in the superclass, and what it is if spread evenly."""
    if report.superclass_of is None:
        raise Hole("no superclasses")
    group = np.asarray(report.superclass_of)
    wrong = report.confusion.copy()
    np.fill_diagonal(wrong, 0)
    if not wrong.sum():
        raise Hole("no mistakes")
    same = group[:, None] == group[None]
    others = (same.sum(1) - 1) / (len(group) - 1)
    return float(wrong[same].sum() / wrong.sum()), float(wrong.sum(1) @ others / wrong.sum())


def _most_confused(report: ConditionReport) -> Read:
    mutual = Asymmetry(report.class_names, report.confusion).mutual.copy()
    mutual[np.tril_indices(len(mutual))] = np.nan
    if np.isnan(mutual).all():
        raise Hole("fewer than two classes have images")
    first, second = np.unravel_index(int(np.nanargmax(mutual)), mutual.shape)
    names = report.class_names
    return Read(float(mutual[first, second]), (f"{names[first]} and {names[second]}",))


def _row(setting: Setting, run: FoundRun, options: SimilarityOptions) -> tuple[Cell, ...]:
    def report(one: FoundRun) -> ConditionReport:
        return one.report(options.condition, options.weights)

    def closest(one: FoundRun) -> Read:
        first, second, cosine = alike(one, options).closest[0]
        return Read(cosine, (f"{first} and {second}",))

    def with_confusion(one: FoundRun) -> Read:
        return _said(alike(one, options).with_confusion)

    def with_accuracy(one: FoundRun) -> Read:
        return _said(alike(one, options).with_accuracy)

    return (
        Cell(words=setting.label),
        Cell(words=run.seed),
        cell_over([run], lambda one: _most_confused(report(one))),
        cell_over([run], lambda one: within_superclasses(report(one))[0]),
        cell_over([run], lambda one: within_superclasses(report(one))[1]),
        cell_over([run], closest, unit=""),
        cell_over([run], with_confusion, unit=""),
        cell_over([run], with_accuracy, unit=""),
    )


def _said(found: tuple[float, float]) -> Read:
    rho, p_value = found
    if np.isnan(rho):
        raise Hole("all are equal, which is no order")
    return Read(rho, (f"p {p_value:.2g}",))


def _panels(setting: Setting, options: SimilarityOptions) -> list[Figure]:
    """Confusions and cosines of the first seed that has them."""
    drawn = list[Figure]()
    for run in setting.runs:
        try:
            report = run.report(options.condition, options.weights)
            mutual = Asymmetry(report.class_names, report.confusion).mutual.copy()
            np.fill_diagonal(mutual, np.nan)
            drawn.append(_heat(f"{setting.label}, confusion", report.class_names, mutual))
            found = alike(run, options)
            drawn.append(_heat(f"{setting.label}, cosine", found.class_names, found.cosines))
        except Hole:
            continue
        break
    return drawn[:2]


def _heat(title: str, names: Sequence[str], table: Rates) -> Figure:
    series = tuple(
        Series(name, tuple(names), gaps(row)) for name, row in zip(names, table, strict=True)
    )
    return Figure("heat", "class", "class", series, title=title, unit="")
