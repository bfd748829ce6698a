"""CIFAR-10 and CIFAR-100 from the official files, verified by the md5 of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from classwise.data.archives import read_form
from classwise.data.dataset import Dataset, DataSource
from classwise.data.official import BINARY_10, FORMS, find, how_to_get
from classwise.data.unpickle import read_pickle
from classwise.errors import ClasswiseError

Part: TypeAlias = tuple[NDArray[np.uint8], NDArray[Any]]  # rows of 3072 pixels, labels
TRAIN_10 = tuple(f"data_batch_{i}" for i in range(1, 6))
NAMES_10 = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


def cifar10(path: str | None = None) -> DataSource:
    """CIFAR-10: 60000 photos of 32×32 in 10 classes; `classwise data get cifar10` fetches it."""
    form, files = read_form(find("cifar10", path), FORMS["cifar10"], how_to_get("cifar10"))
    if form.folder == BINARY_10.folder:
        parts = {name: _rows(content, name) for name, content in files.items()}
        train = [parts[f"{name}.bin"] for name in TRAIN_10]
        names, test = NAMES_10, parts["test_batch.bin"]
    else:
        read = {name: read_pickle(content, name) for name, content in files.items()}
        train = [_pickled(read[name], "labels", name) for name in TRAIN_10]
        names = tuple(read["batches.meta"]["label_names"])
        test = _pickled(read["test_batch"], "labels", "test_batch")
    return DataSource("cifar10", _dataset(*_joined(train), names), _dataset(*test, names))


def cifar100(path: str | None = None) -> DataSource:
    """CIFAR-100: 60000 photos of 32×32 in 100 classes and 20 superclasses; get it like cifar10."""
    _, files = read_form(find("cifar100", path), FORMS["cifar100"], how_to_get("cifar100"))
    read = {name: read_pickle(content, name) for name, content in files.items()}
    names = tuple(read["meta"]["fine_label_names"])
    groups = tuple(read["meta"]["coarse_label_names"])
    fine = [*read["train"]["fine_labels"], *read["test"]["fine_labels"]]
    coarse = [*read["train"]["coarse_labels"], *read["test"]["coarse_labels"]]
    above = superclasses(fine, coarse, names, groups)
    train, test = (
        _dataset(*_pickled(read[part], "fine_labels", part), names, above, groups)
        for part in ("train", "test")
    )
    return DataSource("cifar100", train, test)


def superclasses(
    fine: Sequence[int], coarse: Sequence[int], names: Sequence[str], groups: Sequence[str]
) -> tuple[int, ...]:
    """Derive the superclass of each class from the labels; a class in two superclasses is refused.

    >>> superclasses([0, 1, 2, 0], [1, 0, 1, 1], ["beaver", "oak", "otter"], ["tree", "mammal"])
    (1, 0, 1)
    """
    above: dict[int, int] = {}
    for one, group in zip(fine, coarse, strict=True):
        if above.setdefault(one, group) != group:
            raise ClasswiseError(
                f"class {names[one]!r} lies in two superclasses, {groups[above[one]]!r} and "
                f"{groups[group]!r}; coarse labels must follow from fine labels"
            )
    missing = [name for k, name in enumerate(names) if k not in above]
    if missing:
        raise ClasswiseError(f"class {missing[0]!r} has no image, so its superclass is unknown")
    return tuple(above[k] for k in range(len(names)))


def _rows(content: bytes, name: str) -> Part:
    """Pixels and labels of an official binary file."""
    if len(content) % 3073:
        raise ClasswiseError(f"{name} has {len(content)} bytes; it needs rows of 3073")
    rows = np.frombuffer(content, np.uint8).reshape(-1, 3073)
    return rows[:, 1:], rows[:, 0]


def _pickled(batch: Mapping[str, Any], labels: str, name: str) -> Part:
    """Pixels and labels of an official pickle."""
    pixels, numbers = batch.get("data"), batch.get(labels)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != 3072:
        raise ClasswiseError(f"{name} holds no rows of 3072 pixels under 'data'")
    if not isinstance(numbers, list):
        raise ClasswiseError(f"{name} holds no list under {labels!r}")
    return pixels, np.asarray(numbers, np.int64)


def _joined(parts: Sequence[Part]) -> Part:
    """All parts as one, copied on several threads: fresh memory takes longer than the copy."""
    labels = np.concatenate([labels for _, labels in parts])
    pixels = np.empty((len(labels), 3072), np.uint8)
    places = np.split(pixels, np.cumsum([len(labels) for _, labels in parts])[:-1])
    with ThreadPoolExecutor() as pool:
        list(pool.map(np.copyto, places, [rows for rows, _ in parts]))
    return pixels, labels


def _dataset(
    pixels: NDArray[np.uint8],
    labels: NDArray[Any],
    names: tuple[str, ...],
    above: tuple[int, ...] | None = None,
    groups: tuple[str, ...] | None = None,
) -> Dataset:
    # The bytes of a file are read-only, which torch does not like; joined parts are a copy already.
    own = pixels if pixels.flags.writeable and pixels.flags.c_contiguous else np.array(pixels)
    images = torch.from_numpy(own).view(-1, 3, 32, 32)
    return Dataset(images, torch.from_numpy(labels.astype(np.int64)), names, above, groups)
