"""Predictions read back sample by sample, for what must be paired: diff and gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from classwise.auditing.compare import Difference, diff
from classwise.auditing.ledger import Ledger
from classwise.auditing.predictions import (
    Predictions,
    audit_facts,
    condition_labels,
    ledger_folder,
    read_card,
)
from classwise.auditing.remarks import read_remarks
from classwise.auditing.shards import Stamp
from classwise.errors import ClasswiseError, unknown


@dataclass(frozen=True)
class StoredAudit:
    """All conditions of the weights of one run on one split, each row by row."""

    name: str
    weights: str
    split: str
    class_names: tuple[str, ...]
    conditions: Mapping[str, Predictions]  # by label
    stamps: Mapping[str, Stamp]  # by label
    remarks: Mapping[str, Any] = field(default_factory=dict)  # as in a report's `about`

    def condition(self, name: str) -> Predictions:
        """Rows of a condition; its attack is enough of a name where that is unambiguous."""
        return self.conditions[self.label(name)]

    def label(self, name: str) -> str:
        """Find a condition as the reports call it."""
        if name in self.conditions:
            return name
        fitting = [label for label in self.conditions if label.partition(" ")[0] == name]
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


def read_stored(path: Path, *, weights: str = "", split: str = "test") -> StoredAudit:
    """Read the audits of a run folder or a bare ledger.

    Without a choice of weights the final ones are taken, or the only ones there are.
    """
    if not path.is_dir():
        raise ClasswiseError(f"{path} is not a folder; give a run folder or a folder of shards")
    names = tuple(read_card(path)["data"]["class_names"])
    facts = [one for one in audit_facts(path) if one["shown_split"] == split or not split]
    if not facts:
        raise ClasswiseError(
            f"{path} has no audit of the split {split!r}; first run: classwise audit {path}"
        )
    known = sorted({one["shown_weights"] for one in facts})
    chosen = weights or (known[0] if len(known) == 1 else "last")
    if chosen not in known:
        raise unknown(f"weights in {path} (choose with --weights)", chosen, known)
    facts = [one for one in facts if one["shown_weights"] == chosen]
    facts.sort(key=lambda one: (one["radius"], one["condition"], one["seed"]))
    ledger = Ledger(ledger_folder(path))
    conditions, stamps = {}, {}
    for label, one in zip(condition_labels(facts), facts, strict=True):
        stamp = _stamp(path.name, one)
        found = ledger.read(stamp, named=True)
        if found is not None:
            conditions[label], stamps[label] = replace(found, condition=label), stamp
    said = read_remarks(path, facts)
    return StoredAudit(str(path), chosen, split, names, conditions, stamps, said)


def read_all(path: Path, model_hash: str, data_hash: str) -> list[Predictions]:
    """Every condition a model was audited under on one data set, whatever its weights' name."""
    found = {
        one["attack_key"]: Ledger(ledger_folder(path)).read(_stamp(path.name, one))
        for one in audit_facts(path)
        if (one["model_hash"], one["data_hash"]) == (model_hash, data_hash)
    }
    return [one for one in found.values() if one is not None]


def diff_stored(
    before: StoredAudit,
    after: StoredAudit,
    *,
    attacks: tuple[str, ...] = (),
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> list[Difference]:
    """Compare what was read of two runs; only the same attack on the same data is compared."""
    if before.class_names != after.class_names:
        raise ClasswiseError(
            f"{before.name} and {after.name} have different classes; audit both on the same data"
        )
    wanted = [before.label(name) for name in attacks] or list(before.conditions)
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


def _stamp(run: str, facts: Mapping[str, Any]) -> Stamp:
    keys = ("weights", "split", "model_hash", "data_hash", "attack_key")
    return Stamp(run, *(facts[key] for key in keys))
