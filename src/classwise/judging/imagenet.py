"""ImageNet's reassessed labels and the factors of ImageNet-X, from the package `imagenet-x`.

Its annotation files are read, its code is not imported. They are about the 50 000 validation images
by file name; a folder of them, one folder per class, has them in the order of `filename_label.csv`,
so that image i of the data is line i there. That every label agrees is checked.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from classwise.errors import ClasswiseError
from classwise.judging.groups import Grouping
from classwise.judging.rates import ANNOTATED
from classwise.judging.truth import MOST_BYTES, ManyLabels
from classwise.texts import parse_json, read_text

CLASSES = 1000
FACTORS = (
    *("pose", "background", "pattern", "color", "smaller", "shape", "partial_view", "subcategory"),
    *("texture", "larger", "darker", "object_blocking", "person_blocking", "style", "brighter"),
    "multiple_objects",
)
METACLASSES = (  # as the package groups them; what is none of these is "other"
    *("device", "dog", "commodity", "bird", "structure", "covering", "wheeled_vehicle", "food"),
    *("equipment", "insect", "vehicle", "furniture", "primate", "vessel", "snake"),
    "natural_object",
)


def annotation_folder() -> Path:
    """The folder of annotation files."""
    found = importlib.util.find_spec("imagenet_x")
    if found is None or found.origin is None:
        raise ClasswiseError(
            "ImageNet's reassessed labels and ImageNet-X need the package imagenet-x; run: pip "
            'install "classwise[imagenet]"'
        )
    return Path(found.origin).parent / "annotations"


def real_labels(labels: Tensor) -> ManyLabels:
    """The reassessed labels (ReaL) of the validation images, in the order of the data."""
    files = _validation_files(labels)
    entries = parse_json(
        read_text(annotation_folder() / "imagenet_real_labels.jsonl", MOST_BYTES), "ReaL"
    )
    numbers = [_number(file) for file in files]
    if not isinstance(entries, list) or max(numbers) > len(entries):
        raise ClasswiseError("imagenet_real_labels.jsonl does not have a list for every image")
    return ManyLabels.of("ReaL", [entries[n - 1] for n in numbers], len(files), CLASSES)


def factor_groupings(labels: Tensor) -> dict[str, Grouping]:
    """ImageNet-X: the top factor of each validation image, and its metaclass.

    As the package has it, prototypical images are left out, and ratios are over all others that
    were annotated.
    """
    files = _validation_files(labels)
    place = {file: number for number, file in enumerate(files)}
    folder = annotation_folder()
    prototypes = {row["file_name"] for row in _rows(folder / "prototypical_paths.csv")}
    pairs: list[tuple[int, int]] = []
    for line in read_text(folder / "imagenet_x_val_top_factor.jsonl", MOST_BYTES).splitlines():
        one = parse_json(line, "imagenet_x_val_top_factor.jsonl")
        if one["file_name"] in prototypes or one["file_name"] not in place:
            continue
        number = place[one["file_name"]]
        pairs += [(number, k) for k, factor in enumerate(FACTORS) if one.get(factor)]
        pairs.append((number, len(FACTORS)))
    member, group = np.array(pairs, np.int64).T
    factor = Grouping("factor", (*FACTORS, ANNOTATED), "sample", member, group)
    return {"factor": factor, **metaclass_grouping(labels)}


def metaclass_grouping(labels: Tensor) -> dict[str, Grouping]:
    """The seventeen metaclasses of ImageNet-X, for any images of ImageNet's 1000 classes."""
    if int(labels.max()) >= CLASSES:
        raise ClasswiseError(f"a label is {int(labels.max())}; ImageNet has {CLASSES} classes")
    rows = _rows(annotation_folder() / "imagenet_1k_classes_to_100_metaclasses.csv")
    names = (*METACLASSES, "other")
    of = np.array([names.index(r["name"] if r["name"] in METACLASSES else "other") for r in rows])
    group = of[labels.cpu().numpy()]
    return {"metaclass": Grouping("metaclass", names, "sample", np.arange(len(group)), group)}


def groups_named(word: str) -> Callable[[Tensor], dict[str, Grouping]] | None:
    """What a word stands for where a table of groups is expected; None of any other."""
    return {"imagenet-x": factor_groupings, "imagenet-metaclass": metaclass_grouping}.get(word)


def _validation_files(labels: Tensor) -> list[str]:
    """File names of the validation images, if these are they."""
    rows = _rows(annotation_folder() / "filename_label.csv")
    if len(labels) != len(rows):
        raise ClasswiseError(
            f"the data have {len(labels)} images, and ImageNet's validation set {len(rows)}; its "
            "annotations are for the whole set, as a folder with one folder per class"
        )
    other = np.flatnonzero(np.array([int(r["label"]) for r in rows]) != labels.cpu().numpy())
    if len(other):
        raise ClasswiseError(
            f"{len(other)} labels are not those of ImageNet's validation set in the order of its "
            f"class folders, such as that of image {other[0]}"
        )
    return [row["file_name"] for row in rows]


def _rows(path: Path) -> list[dict[str, Any]]:
    return list(csv.DictReader(read_text(path, MOST_BYTES).splitlines()))


def _number(file: str) -> int:
    """The number in the name of a validation image.

    >>> _number("ILSVRC2012_val_00000293.JPEG")
    293
    """
    return int(file.partition(".")[0].rpartition("_")[2])
