"""Reports that are queries over the record of a run folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from classwise.attacks.condition import CERTIFIED, Condition
from classwise.attacks.names import asked_for
from classwise.auditing.sequential import PartialAudit
from classwise.classes.counts import ClassCounts
from classwise.errors import ClasswiseError, unknown
from classwise.files import given_path
from classwise.judging.group_files import count_groups, groupings_in
from classwise.judging.metrics import ClassReport, ConditionReport
from classwise.judging.smoothed import Drawn
from classwise.judging.truth import count_truths, relabelled, truths_in
from classwise.record.card import audit_facts, described_by, ledger_folder, read_card
from classwise.record.remarks import read_note, read_remarks
from classwise.record.shards import open_table, read_abouts
from classwise.spelling import conditions_meant, spell_eps


@dataclass(frozen=True)
class AuditedWeights:
    """One row of a table: the weights of a run, and what audits found."""

    run: str
    recipe: str
    weights: str
    split: str
    report: ClassReport
    partial: PartialAudit | None = None  # where a question or a time limit chose the images


def read_ledger(
    path: str | Path, *, attacks: str | Sequence[Any] = (), weights: str = "", split: str = ""
) -> list[AuditedWeights]:
    """Recompute reports from a ledger, without a model: all it holds, or what is asked for.

    `attacks` are names, attack objects of classwise or parsed conditions; `classwise audit --from
    LEDGER` prints these.
    """
    path = given_path(path)
    if not path.is_dir():
        raise ClasswiseError(f"{path} is not a folder; give a run folder or a folder of shards")
    audits = read_audits(path, read_card(path))
    if not audits:
        raise ClasswiseError(f"{path} holds no audit yet; first run: classwise audit")
    for name, wanted in (("weights", weights), ("split", split)):
        known = {getattr(one, name) for one in audits}
        if wanted and wanted not in known:
            raise unknown(f"{name} in {path}", wanted, known)
        audits = [one for one in audits if not wanted or getattr(one, name) == wanted]
    conditions = asked_for(attacks)
    if not conditions:
        return audits
    chosen = []
    for one in audits:
        meant: set[str] = set()
        for attack in conditions:
            fitting = _meant(attack, one.report)
            if not fitting:
                name = attack if isinstance(attack, str) else attack.words
                raise unknown(f"condition in {path}", name, one.report)
            meant |= set(fitting)
        names = [n for n in one.report if n in meant]
        report = ClassReport([one.report[n] for n in names], one.report.about)
        chosen.append(replace(one, report=report))
    return chosen


def _meant(asked: str | Condition, report: ClassReport) -> list[str]:
    """The conditions of a report that a name means, or a condition at its own radius."""
    if isinstance(asked, str):
        return conditions_meant(asked, report)
    fitting = conditions_meant(asked.name, report)
    if asked.threat is None:
        return fitting
    return [
        name
        for name in fitting
        if report[name].norm == asked.norm
        and math.isclose(report[name].eps or 0.0, asked.threat.widest, rel_tol=1e-6)
    ]


def read_audits(folder: Path, about: Mapping[str, Any]) -> list[AuditedWeights]:
    """Every audit stored in a run folder, one entry per weights and split.

    Audits of one condition at several radii stand side by side as `pgd-20 eps=0.1`. Weights that
    changed between two audits are told apart by their hash, as `last@3f2a…`; so are data. Each
    audit has the class names it was written with; `about` is for those that say nothing.
    """
    facts = audit_facts(folder)
    own = read_abouts(ledger_folder(folder))
    said = {key: described_by(about, one) for key, one in own.items()}
    abouts = {_key(one): said.get((one["model_hash"], one["data_hash"]), about) for one in facts}
    with open_table(ledger_folder(folder)) as base:
        cells = base.execute(
            "SELECT weights, split, model_hash, data_hash, attack_key, label, predicted, count(*),"
            " count(certified_radius), count(*) FILTER (certified_radius = 0)"
            " FROM rows GROUP BY ALL"
        ).fetchall()
        tallies = count_groups(base, groupings_in(folder))
        truths = truths_in(folder)
        sizes = {key[3]: len(own["data"]["class_names"]) for key, own in abouts.items()}
        judged_again = count_truths(base, truths, sizes)
    counted = _counted(folder, cells, {k: len(o["data"]["class_names"]) for k, o in abouts.items()})
    groups: dict[tuple[str, str], list[tuple[dict[str, Any], ConditionReport]]] = {}
    for one in facts:
        data = abouts[_key(one)]["data"]
        counts, abstained = counted[_key(one)]
        abstained = abstained if one["verdict"] == CERTIFIED else ()
        groups_of = (_tuple(data.get("superclass_of")), _tuple(data.get("superclass_names")))
        report = ConditionReport(
            one["condition"],
            counts,
            tuple(data["class_names"]),
            *groups_of,
            eps=one["radius"],
            groups=tallies.get(_key(one), {}),
            kind=one["kind"] or "",
            family=one["family"] or "",
            strength=one["strength"] or 0.0,
            options=one["options"] or "",
            split_sizes=_tuple(data.get("sizes")),
            norm=one["norm"],
            verdict=one["verdict"],
            unfinished=read_note(folder, one),
            drawn=Drawn(one["sigma"], one["alpha"], abstained),
            images_key=f"{one['images']:016x}",
        )
        shown = one["shown_weights"], one["shown_split"]
        groups.setdefault(shown, []).append((one, report))
    audits = []
    for (weights, split), found in sorted(groups.items()):
        whole = _side_by_side(found)
        whole.about |= read_remarks(folder, [one for one, _ in found])
        named = dict(zip(condition_labels([one for one, _ in found]), found, strict=True))
        keys = {name: _key(named[name][0]) for name in whole}
        again = {name: judged_again[key] for name, key in keys.items() if key in judged_again}
        if again:
            whole.relabelled = relabelled(whole, again, truths[found[0][0]["data_hash"]])
        recipe = abouts[_key(found[0][0])]["recipe_name"]
        audits.append(AuditedWeights(folder.name, recipe, weights, split, whole))
    return audits


def _counted(
    folder: Path, cells: Sequence[tuple[Any, ...]], classes: Mapping[tuple[str, ...], int]
) -> dict[tuple[str, ...], tuple[ClassCounts, tuple[int, ...]]]:
    """Counts of every audit, and of how many images of each class nothing is certified.

    A certificate that names no class has the number K, one more than any class.
    """
    tables = {k: torch.zeros(count, count + 1, dtype=torch.int64) for k, count in classes.items()}
    nothing: dict[tuple[str, ...], dict[int, int]] = {key: {} for key in classes}
    for *where, label, predicted, count, certificates, silent in sorted(
        cells, key=lambda cell: -max(cell[5:7])
    ):
        table, named = tables[tuple(where)], classes[tuple(where)]
        none = predicted == named and certificates == count
        if label >= named or (predicted >= named and not none):
            raise ClasswiseError(
                f"{folder} has predictions of class number {max(label, predicted)}, but names only "
                f"{named} classes; its run.json belongs to other data"
            )
        table[label, predicted] = count
        if none:
            nothing[tuple(where)][label] = silent
    return {
        key: (
            ClassCounts(table[:, :-1].contiguous(), unanswered=table[:, -1]),
            tuple(nothing[key].get(k, 0) for k in range(len(table))),
        )
        for key, table in tables.items()
    }


def _side_by_side(found: Sequence[tuple[dict[str, Any], ConditionReport]]) -> ClassReport:
    """One report over all conditions; those of one name say in what they differ."""
    labels = condition_labels([facts for facts, _ in found])
    pairs = sorted(zip(labels, found, strict=True), key=lambda p: (p[1][0]["radius"], p[0]))
    conditions = [replace(report, condition=label) for label, (_, report) in pairs]
    radii = sorted({facts["radius"] for facts, _ in found if facts["radius"]})
    attacked = [facts for facts, one in found if one.kind != "clean"] or [found[0][0]]
    about = {
        "eps": ", ".join(spell_eps(radius) for radius in radii),
        "norm": ", ".join(sorted({facts["norm"] for facts in attacked})),
        "verdict": ", ".join(sorted({facts["verdict"] for facts in attacked})),
    }
    return ClassReport(conditions, about)


def condition_labels(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name each condition by its attack, and by what tells it from others of that attack.

    >>> one = {"condition": "fgsm", "radius": 0.1, "seed": 0, "norm": "Linf", "verdict": "last"}
    >>> condition_labels([one]), condition_labels([one, one | {"radius": 0.2}])
    (['fgsm'], ['fgsm eps=0.1 seed=0', 'fgsm eps=0.2 seed=0'])
    >>> condition_labels([one, one | {"radius": 8 / 255}])[1]
    'fgsm eps=8/255 seed=0'
    """
    labels = []
    for one in facts:
        same = [other for other in facts if other["condition"] == one["condition"]]
        label = str(one["condition"])
        if len(same) > 1:
            label += f" eps={spell_eps(one['radius'])} seed={one['seed']}"
            for fact in ("norm", "verdict"):
                if len({other[fact] for other in same}) > 1:
                    label += f" {fact}={one[fact]}"
        labels.append(label)
    # Radii that differ from sample to sample may have the same largest one.
    twice = {label for label in labels if labels.count(label) > 1}
    return [
        f"{label} key={one['attack_key'][:6]}" if label in twice else label
        for label, one in zip(labels, facts, strict=True)
    ]


def _key(facts: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(facts[n] for n in ("weights", "split", "model_hash", "data_hash", "attack_key"))


def _tuple(values: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
