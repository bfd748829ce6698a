"""Predictions read back sample by sample, for what must be paired: diff and gate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from classwise.attacks.condition import Condition
from classwise.attacks.names import asked_for
from classwise.errors import ClasswiseError, unknown
from classwise.files import given_path
from classwise.judging.audits import condition_labels
from classwise.judging.compare import Difference, diff
from classwise.judging.group_files import groupings_in
from classwise.judging.groups import CLASS, Grouping, named, of_classes
from classwise.record.card import audit_facts, described_by, ledger_folder, read_card
from classwise.record.ledger import Ledger
from classwise.record.remarks import read_note, read_remarks
from classwise.record.rows import Predictions, Stamp
from classwise.record.shards import read_abouts
from classwise.spelling import conditions_meant


@dataclass(frozen=True)
class AuditedSamples:
    """All conditions of the weights of one run on one split, each row by row."""

    name: str
    weights: str
    split: str
    class_names: tuple[str, ...]
    conditions: Mapping[str, Predictions]  # by label
    stamps: Mapping[str, Stamp]  # by label
    remarks: Mapping[str, Any] = field(default_factory=dict)  # as in a report's `about`
    unfinished: Mapping[str, str] = field(default_factory=dict)  # by label: what is missing
    groupings: Mapping[str, Grouping] = field(default_factory=dict)  # beside the classes

    def label(self, name: str | Condition, eps: float | None = None) -> str:
        """Find a condition as the reports call it; its attack, or that and eps, may be enough."""
        if isinstance(name, Condition):
            same = [one for one, stamp in self.stamps.items() if stamp.attack_key == name.key]
            if same:
                return same[0]
            raise unknown(f"condition in {self.name}", name.words, self.conditions)
        fitting = conditions_meant(name, self.conditions)
        if len(fitting) > 1 and eps is not None:
            fitting = [one for one in fitting if self.has_radius(one, eps)] or fitting
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise ClasswiseError(
                f"{self.name} has {len(fitting)} audits under {name}; say which: "
                f"{', '.join(fitting)}"
            )
        raise ClasswiseError(
            f"{unknown(f'condition in {self.name}', name, self.conditions)}; "
            f"or first run: classwise audit {self.name} --attacks {name}"
        )

    def grouping(self, name: str) -> Grouping:
        """One way to group the samples: class, superclass, or one of the user's own."""
        return named(of_classes(self.class_names) | dict(self.groupings), name, self.name)

    def has_radius(self, label: str, eps: float) -> bool:
        """Whether a condition was audited at this eps."""
        return math.isclose(self.conditions[label].radius.max(initial=0), eps, rel_tol=1e-6)


def read_samples(path: Path, *, weights: str = "", split: str = "") -> AuditedSamples:
    """Read the audits of a run folder or a bare ledger.

    Without a choice of weights the final ones are taken, or the only ones there are.
    """
    if not given_path(path).is_dir():
        raise ClasswiseError(f"{path} is not a folder; give a run folder or a folder of shards")
    card, every = read_card(path), audit_facts(path)
    if not split:  # the test part, or the only one there is
        parts = {one["shown_split"] for one in every}
        split = parts.pop() if len(parts) == 1 else "test"
    facts = [one for one in every if one["shown_split"] == split]
    if not facts:
        there = sorted({one["shown_split"] for one in every})
        hint = f"it has {', '.join(there)}" if there else f"first run: classwise audit {path}"
        raise ClasswiseError(f"{path} has no audit of the split {split!r}; {hint}")
    known = sorted({one["shown_weights"] for one in facts})
    chosen = weights or (known[0] if len(known) == 1 else "last")
    if chosen not in known:
        raise unknown(
            f"weights in {path} (name some with --weights, or in the contract)", chosen, known
        )
    facts = [one for one in facts if one["shown_weights"] == chosen]
    owner = facts[0]["model_hash"], facts[0]["data_hash"]
    about = described_by(card, read_abouts(ledger_folder(path)).get(owner, {}))
    names = tuple(about["data"]["class_names"])
    facts.sort(key=lambda one: (one["radius"], one["condition"], one["seed"]))
    ledger = Ledger(ledger_folder(path))
    conditions, stamps, unfinished = {}, {}, {}
    every_stamp = [_stamp(path.name, one) for one in facts]
    rows = ledger.read_each(every_stamp, named=True)
    for label, one, stamp, found in zip(
        condition_labels(facts), facts, every_stamp, rows, strict=True
    ):
        if found is not None:
            conditions[label], stamps[label] = replace(found, condition=label), stamp
            unfinished[label] = read_note(path, one)
    said, missing = read_remarks(path, facts), {k: note for k, note in unfinished.items() if note}
    above = (about["data"].get(key) for key in ("superclass_of", "superclass_names"))
    groupings = of_classes(names, *above) | groupings_in(path).get(owner[1], {})
    return AuditedSamples(
        str(path), chosen, split, names, conditions, stamps, said, missing, groupings
    )


def diff_samples(
    before: AuditedSamples,
    after: AuditedSamples,
    *,
    attacks: str | Sequence[Any] = (),
    grouping: str = CLASS,
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> list[Difference]:
    """Compare what was read of two runs; only the same attack on the same data is compared.

    A `grouping` other than the classes may be kept with either run, since both saw the same images.
    """
    if before.class_names != after.class_names:
        raise ClasswiseError(
            f"{before.name} and {after.name} have different classes; audit both on the same data"
        )
    groups = None if grouping == CLASS else _shared_grouping(before, after, grouping)
    wanted = [before.label(name) for name in asked_for(attacks)] or list(before.conditions)
    found = []
    for label in wanted:
        stamp = before.stamps[label]
        twins = [n for n, one in after.stamps.items() if one.attack_key == stamp.attack_key]
        if not twins:
            if attacks:
                raise ClasswiseError(
                    f"{after.name} was not audited under {label} as {before.name} was (attack, "
                    f"eps, norm, seed and verdict alike); it has {', '.join(after.conditions)}"
                )
            continue
        other = after.stamps[twins[0]]
        if stamp.data_hash and other.data_hash and stamp.data_hash != other.data_hash:
            raise ClasswiseError(
                f"{before.name} and {after.name} were audited on different data under {label}; "
                "a paired comparison needs the same images, so audit both on the same split"
            )
        found.append(
            diff(
                before.conditions[label],
                after.conditions[twins[0]],
                before.class_names,
                grouping=groups,
                level=level,
                draws=draws,
                seed=seed,
            )
        )
    if not found:
        raise ClasswiseError(
            f"{before.name} ({', '.join(before.conditions)}) and {after.name} "
            f"({', '.join(after.conditions)}) have no condition in common; "
            "audit both with the same attacks and eps"
        )
    return found


def _shared_grouping(before: AuditedSamples, after: AuditedSamples, name: str) -> Grouping:
    """A grouping that one of two runs keeps, or both alike."""
    groups = named({**before.groupings, **after.groupings}, name, f"{before.name} or {after.name}")
    other = before.groupings.get(name, groups)
    if not groups.same_as(other):
        raise ClasswiseError(
            f"{before.name} and {after.name} keep different groups of {name!r}; audit both with "
            "the same --groups file"
        )
    return groups


def _stamp(run: str, facts: Mapping[str, Any]) -> Stamp:
    keys = ("weights", "split", "model_hash", "data_hash", "attack_key")
    return Stamp(run, *(facts[key] for key in keys))
