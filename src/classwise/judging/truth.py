"""More than one true label per image, such as ImageNet's reassessed labels (ReaL).

A prediction is right if it is one of the image's labels; an image without any is left out, and
counted. Classes are those of the original labels: a model is asked the same question, and its
answers are judged again. Nothing is attacked again, and no row of a ledger changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import torch

from classwise.classes.counts import ClassCounts
from classwise.errors import ClasswiseError, cut
from classwise.files import holds, write_atomically
from classwise.judging.metrics import ClassReport, count_predictions
from classwise.judging.rates import Whole
from classwise.locks import short_lock
from classwise.record.rows import Predictions
from classwise.sealed import read_sealed, sealed_text
from classwise.texts import parse_json, read_text

FORMAT = 1
MOST_BYTES = 64 << 20
_STAMP = "weights, split, model_hash, data_hash, attack_key"


@dataclass(frozen=True)
class ManyLabels:
    """The labels of every image of a split, by its number."""

    name: str
    labels: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, name: str, entries: Any, count: int, num_classes: int) -> ManyLabels:
        """Check a list with a list of labels for each image."""
        if not isinstance(entries, list) or len(entries) != count:
            size = len(entries) if isinstance(entries, list) else type(entries).__name__
            raise ClasswiseError(
                f"{name} has {size} entries, and the data {count} images; it needs a list of "
                "labels for each image of the split, in its order"
            )
        for number, one in enumerate(entries):
            whole = isinstance(one, list) and all(type(label) is int for label in one)
            if not whole or any(not 0 <= label < num_classes for label in one):
                raise ClasswiseError(
                    f"{name}: image {number} has {cut(repr(one), 60)}; give a list of whole "
                    f"numbers from 0 to {num_classes - 1}, empty where nobody knows"
                )
        return cls(name, tuple(tuple(sorted(set(one))) for one in entries))

    @classmethod
    def given(
        cls, labels: Sequence[Sequence[int]] | None, count: int, num_classes: int
    ) -> ManyLabels | None:
        """Check what was given in Python; None where nothing was."""
        if labels is None:
            return None
        entries = [[int(label) for label in one] for one in labels]
        return cls.of("true_labels", entries, count, num_classes)

    @classmethod
    def read(cls, path: Path, count: int, num_classes: int) -> ManyLabels:
        """Read a JSON file: [[3], [5, 7], [], …]."""
        try:
            text = read_text(path, MOST_BYTES)
        except OSError as reason:
            raise ClasswiseError(f"cannot read {path}: {reason.strerror or reason}") from None
        return cls.of(path.name, parse_json(text, path), count, num_classes)

    @cached_property
    def pairs(self) -> tuple[Whole, Whole]:
        """(image, label) of all that is true."""
        sizes = [len(one) for one in self.labels]
        flat = [label for one in self.labels for label in one]
        return np.repeat(np.arange(len(sizes)), sizes), np.array(flat, np.int64)

    @property
    def empty(self) -> int:
        """Images that nobody knows a label of."""
        return sum(not one for one in self.labels)

    def judged(self, found: Predictions, num_classes: int) -> ClassCounts:
        """Confusion by the original label; what is right stands on its diagonal.

        Whoever gives the original label where that is wrong is counted under the first true one.
        """
        image, label = self.pairs
        first = np.full(len(self.labels), -1)
        first[image[::-1]] = label[::-1]  # the first of each image is written last
        known = first[found.sample] >= 0
        sample, old, said = found.sample[known], found.label[known], found.predicted[known]
        right = np.isin(sample * num_classes + said, image * num_classes + label)
        other = np.where(said == old, first[sample], said)
        return count_predictions(old, np.where(right, old, other), num_classes)

    def keep(self, folder: Path, data_hash: str) -> None:
        """Keep them beside audits, for whoever reads these."""
        entries = [list(one) for one in self.labels]
        content = {"format": FORMAT, "name": self.name, "labels": entries}
        path, text = folder / "truth" / f"{data_hash}.json", sealed_text(content, indent=None)
        if not holds(path, text):
            with short_lock(folder, "writing labels"):
                write_atomically(path, text)


def truths_in(folder: Path) -> dict[str, ManyLabels]:
    """What a folder of audits keeps: data hash -> labels."""
    found = {}
    for path in sorted((folder / "truth").glob("*.json")):
        content = read_sealed(path, "delete it, and audit again with --real", MOST_BYTES)
        entries = content.get("labels")
        if content.get("format") != FORMAT or not isinstance(entries, list):
            raise ClasswiseError(f"{path} is no list of labels of format {FORMAT}; delete it")
        found[path.stem] = ManyLabels.of(str(content.get("name")), entries, len(entries), 2**31)
    return found


def count_truths(
    base: duckdb.DuckDBPyConnection, truths: Mapping[str, ManyLabels], sizes: Mapping[str, int]
) -> dict[tuple[str, ...], ClassCounts]:
    """Confusions of every condition in the table `rows`, as `judged` counts them.

    `sizes` has the number of classes for each data hash.
    """
    found: dict[tuple[str, ...], ClassCounts] = {}
    for data, truth in truths.items():
        image, label = truth.pairs
        base.register("true_labels", {"sample": image, "truth": label})
        cells = base.execute(
            "WITH known AS (SELECT sample, min(truth) AS first FROM true_labels GROUP BY sample)"
            f" SELECT {_STAMP}, label, CASE WHEN truth IS NOT NULL THEN label"
            " WHEN predicted <> label THEN predicted ELSE first END AS said, count(*)"
            " FROM rows JOIN known USING (sample) LEFT JOIN true_labels"
            " ON rows.sample = true_labels.sample AND rows.predicted = true_labels.truth"
            " WHERE data_hash = ? GROUP BY ALL",
            [data],
        ).fetchall()
        base.unregister("true_labels")
        found |= _tables(cells, sizes.get(data, 0))
    return found


def _tables(cells: Sequence[Any], size: int) -> dict[tuple[str, ...], ClassCounts]:
    tables: dict[tuple[str, ...], Any] = {}
    for *stamp, label, said, count in cells:
        table = tables.setdefault(tuple(stamp), torch.zeros(size, size, dtype=torch.int64))
        if max(label, said) >= size:
            raise ClasswiseError(f"a label is {max(label, said)}, but there are {size} classes")
        table[label, said] = count
    return {stamp: ClassCounts(table) for stamp, table in tables.items()}


def relabelled(
    report: ClassReport, counts: Mapping[str, ClassCounts], truth: ManyLabels
) -> ClassReport:
    """The same conditions with other confusions; groups stay with the original labels."""
    found = [replace(report[name], counts=one, groups={}) for name, one in counts.items()]
    again = ClassReport(found, report.about)
    left = f"; {truth.empty} images without any are left out" if truth.empty else ""
    again.about["note"] = f"by the labels of {truth.name}, of which any is right{left}"
    return again
