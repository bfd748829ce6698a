"""Where images come from: names such as `digits` or `npz:PATH`."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from classwise.data.dataset import Dataset, DataSource, dataset_from_arrays
from classwise.data.splits import split_indices
from classwise.errors import ClasswiseError, unknown

HELD_OUT = 1 / 3  # test share of each class where a source has no test part of its own


def digits() -> DataSource:
    """1797 handwritten digits of 8×8 grey pixels, inside scikit-learn; a third is the test part."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    pixels = np.rint(raw.images * (255 / 16)).astype(np.uint8)  # 0…16 grey levels
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    whole = dataset_from_arrays(pixels, raw.target, names, mirrored=False)
    return held_out("digits", whole)


def npz(path: str) -> DataSource:
    """An `.npz` file: images and labels, or train_images, train_labels, test_images, test_labels.

    Optional: class_names, superclass_of, superclass_names.
    """
    arrays = _read_npz(Path(path))
    extra = {
        name: arrays[name].tolist()
        for name in ("class_names", "superclass_of", "superclass_names")
        if name in arrays
    }
    label = f"npz:{Path(path).name}"
    if {"train_images", "train_labels", "test_images", "test_labels"} <= set(arrays):
        if "class_names" not in extra:
            both = [arrays["train_labels"], arrays["test_labels"]]
            extra["class_names"] = [str(k) for k in range(int(max(a.max() for a in both)) + 1)]
        train = dataset_from_arrays(arrays["train_images"], arrays["train_labels"], **extra)
        test = dataset_from_arrays(arrays["test_images"], arrays["test_labels"], **extra)
        return DataSource(label, train, test)
    if {"images", "labels"} <= set(arrays):
        return held_out(label, dataset_from_arrays(arrays["images"], arrays["labels"], **extra))
    raise ClasswiseError(
        f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; it needs images and labels, or "
        "train_images, train_labels, test_images and test_labels"
    )


def held_out(name: str, whole: Dataset) -> DataSource:
    """Set a third of each class aside for testing, always the same third."""
    train, test = split_indices(whole.labels, HELD_OUT, seed=0)
    return DataSource(name, whole.subset(train), whole.subset(test))


NAMED: dict[str, Callable[[], DataSource]] = {"digits": digits}
FROM_PATH: dict[str, Callable[[str], DataSource]] = {"npz": npz}


def open_data(spec: str) -> DataSource:
    """Open a data source by its name, or a path behind its kind.

    >>> open_data("digits").train.num_classes
    10
    """
    kind, colon, path = spec.partition(":")
    if colon and kind in FROM_PATH:
        return FROM_PATH[kind](path)
    if spec in NAMED:
        return NAMED[spec]()
    raise unknown("data set", spec, [*NAMED, *(f"{kind}:PATH" for kind in FROM_PATH)])


def choose_split(source: DataSource, split: str) -> Dataset:
    """Return the part of a source that an audit looks at."""
    match split:
        case "test":
            return source.test
        case "train":
            return source.train
        case "all":
            train, test = source.train, source.test
            images = torch.cat([train.images, test.images])
            return Dataset(
                images,
                torch.cat([train.labels, test.labels]),
                train.class_names,
                train.superclass_of,
                train.superclass_names,
                train.mirrored,
            )
    raise unknown("split", split, ["test", "train", "all"])


def _read_npz(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except FileNotFoundError:
        raise ClasswiseError(f"no file {path}; give an .npz with images and labels") from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as reason:
        raise ClasswiseError(f"{path} is not a readable .npz of plain arrays ({reason})") from None
