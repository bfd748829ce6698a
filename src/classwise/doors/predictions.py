"""Predictions that were made elsewhere become a ledger: figures, reports, diff and gate of them."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from classwise.auditing.flags import check_records
from classwise.errors import ClasswiseError
from classwise.judging.audits import AuditedWeights, read_ledger
from classwise.judging.group_files import keep_groupings
from classwise.judging.groups import grouping_of
from classwise.record.card import write_card
from classwise.record.ledger import Ledger
from classwise.record.prediction_files import ForeignPredictions, read_predictions
from classwise.record.remarks import write_remarks
from classwise.record.rows import Predictions, Stamp


def audit_predictions(file: str | Path, out: str | Path | None = None) -> list[AuditedWeights]:
    """Report on a CSV or Parquet file of predictions; with `out` they are kept there as a ledger.

    The folder is then read by `report`, `diff` and `gate`, without a model. One file is one model:
    its name stands for it. Columns: sample, label, predicted (or score_CLASS for every class), and
    if wanted condition, eps, norm and attributes of the images (docs/data.md).
    """
    path, told = Path(file), read_predictions(Path(file))
    if out is not None:
        return _kept(told, path, Path(out))
    with tempfile.TemporaryDirectory(prefix="classwise-predictions-") as folder:
        return _kept(told, path, Path(folder) / path.stem)


def _kept(told: ForeignPredictions, path: Path, folder: Path) -> list[AuditedWeights]:
    name = path.stem
    try:
        groupings = {
            head: grouping_of(head, entries)
            for head, entries in told.attributes.items()
            if any(groups for _, groups in entries)
        }
    except ClasswiseError as reason:
        raise ClasswiseError(f"{path}: {reason}") from None
    data = {
        "name": path.name,
        "class_names": told.class_names,
        "superclass_of": None,
        "superclass_names": None,
        "sizes": told.sizes,
    }
    write_card(folder, name, data)
    ledger = Ledger(folder / "predictions", {"recipe_name": name, "data": data})
    for one in told.found:
        owner = (told.model_hash, told.data_hash, _key(one))
        ledger.append(one, Stamp(folder.name, "given", "test", *owner))
    keep_groupings(folder, told.data_hash, groupings)
    flags = [str(flag) for flag in check_records(told.found, told.class_names)]
    said = (
        f"made-elsewhere: these predictions are from {path.name}; of the model, the images and the "
        "attacks nothing was seen"
    )
    seen = {told.data_hash: [said, *flags]}
    write_remarks(folder, told.model_hash, seen=seen, probed=None, black_box=False, notes={})
    return [one for one in read_ledger(folder) if _is_of(one, told)]


def _is_of(audit: AuditedWeights, told: ForeignPredictions) -> bool:
    """Whether an audit is of this file; a folder may hold others, shown with their hash."""
    shown = audit.weights.partition("@")[2], audit.split.partition("@")[2]
    return told.model_hash.startswith(shown[0]) and told.data_hash.startswith(shown[1])


def _key(one: Predictions) -> str:
    """Sixteen hex digits over what a file says of a condition."""
    facts = ["made elsewhere", one.condition, float(one.radius[0]), one.norm]
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest()
