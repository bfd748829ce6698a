"""What a folder of audits says of itself: its run.json, and what its shards say of their data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError
from classwise.files import given_path, holds, write_atomically
from classwise.locks import short_lock
from classwise.record.description import check_run
from classwise.record.shards import open_table, read_abouts
from classwise.sealed import BY_HAND, read_sealed, sealed_text


def write_card(folder: Path, name: str, data: Mapping[str, Any]) -> None:
    """Describe a folder that holds audits of a model we did not train."""
    text = sealed_text({"format": 1, "recipe_name": name, "data": dict(data)})
    if holds(folder / "run.json", text):
        return
    with short_lock(folder, "writing run.json"):
        if "identity" in read_run_json(folder):
            raise ClasswiseError(
                f"{folder} holds a training run, whose run.json would be lost; give another "
                f"folder, or audit the run itself: classwise audit {folder}"
            )
        write_atomically(folder / "run.json", text)


def ledger_folder(path: Path) -> Path:
    """Where the Parquet files are: in a run's predictions/, or in the folder itself."""
    inside = path / "predictions"
    return inside if inside.is_dir() or (path / "run.json").exists() else path


def read_run_json(folder: Path) -> dict[str, Any]:
    """What run.json says, every entry of the kind it must be; nothing where there is none."""
    path, restore = folder / "run.json", "restore it from a copy"
    if not given_path(path).exists():
        return {}
    return check_run(read_sealed(path, f"{restore}; {BY_HAND}"), path)


def read_card(path: Path) -> dict[str, Any]:
    """Recipe and class names of a run folder or a bare folder of shards."""
    found = read_run_json(path)
    if not found:
        found = next(iter(read_abouts(ledger_folder(path)).values()), {})
    if not found:
        raise ClasswiseError(
            f"{path} holds no audit: neither a run.json nor shards that name their classes; "
            "give a run folder, or a folder of Parquet shards written by `classwise audit`"
        )
    return {"recipe_name": path.name, **found}


def described_by(card: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What a shard says of itself; of its data the card, if that names the same classes.

    The card may be the younger one, and know superclasses.
    """
    found = {**card, **own}
    if list(own.get("data", {}).get("class_names", ())) == list(card["data"]["class_names"]):
        found["data"] = {**card["data"], "sizes": own["data"].get("sizes")}
    return found


def audit_facts(folder: Path) -> list[dict[str, Any]]:
    """One dictionary per condition in a ledger, with the names that a report shows."""
    with open_table(ledger_folder(folder)) as base:
        found = base.execute(
            "SELECT weights, split, model_hash, data_hash, attack_key, min(condition) AS condition,"
            " max(radius) AS radius, min(norm) AS norm, min(seed) AS seed, min(verdict) AS verdict,"
            " min(kind) AS kind, max(coalesce(sigma, 0)) AS sigma, max(coalesce(alpha, 0)) AS alpha"
            ", min(family) AS family, min(strength) AS strength, min(options) AS options"
            ", bit_xor(hash(sample)) AS images"  # every sample is there once, in any order
            " FROM rows GROUP BY weights, split, model_hash, data_hash, attack_key ORDER BY ALL"
        )
        columns = [column[0] for column in found.description or ()]
        facts = [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
    models: dict[str, set[str]] = {}
    data: dict[str, set[str]] = {}
    for one in facts:
        models.setdefault(one["weights"], set()).add(one["model_hash"])
        data.setdefault(one["split"], set()).add(one["data_hash"])
    for one in facts:
        # A hash only where the name alone would mix two things.
        weights, split = one["weights"], one["split"]
        many, several = len(models[weights]) > 1, len(data[split]) > 1
        one["shown_weights"] = f"{weights}@{one['model_hash'][:8]}" if many else weights
        one["shown_split"] = f"{split}@{one['data_hash'][:8]}" if several else split
    return facts
