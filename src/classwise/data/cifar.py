"""CIFAR-10 and CIFAR-100 from the official files, verified by the md5 of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from classwise.data.archives import Form, read_form
from classwise.data.dataset import Dataset, DataSource
from classwise.data.places import look_in, put_into
from classwise.data.unpickle import read_pickle
from classwise.errors import ClasswiseError
from classwise.files import given_path

Part: TypeAlias = tuple[NDArray[np.uint8], NDArray[Any]]  # rows of 3072 pixels, labels
HOME = "https://www.cs.toronto.edu/~kriz/"
TRAIN_10 = tuple(f"data_batch_{i}" for i in range(1, 6))
NAMES_10 = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip

PYTHON_10 = Form(
    archive="cifar-10-python.tar.gz",
    folder="cifar-10-batches-py",
    md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
    address=HOME + "cifar-10-python.tar.gz",
)
# The official binary version: rows of one label byte and 3072 pixel bytes. It holds no file names,
# so it can be rebuilt bit by bit from pixels and labels alone.
BINARY_10 = Form(
    archive="cifar-10-binary.tar.gz",
    folder="cifar-10-batches-bin",
    md5={
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    address=HOME + "cifar-10-binary.tar.gz",
)
PYTHON_100 = Form(
    archive="cifar-100-python.tar.gz",
    folder="cifar-100-python",
    md5={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
    address=HOME + "cifar-100-python.tar.gz",
)
FORMS: dict[str, tuple[Form, ...]] = {
    "cifar10": (PYTHON_10, BINARY_10),
    "cifar100": (PYTHON_100,),
}


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
    pixels, labels = (np.concatenate(column) for column in zip(*train, strict=True))
    return DataSource("cifar10", _dataset(pixels, labels, names), _dataset(*test, names))


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


def find(name: str, path: str | None = None) -> Path:
    """Find a data set at a path, else in $CLASSWISE_DATA and the cache."""
    place = locate(name, look_in()) if path is None else _at(name, given_path(path))
    if place is None:
        where = path or ", ".join(str(folder) for folder in look_in())
        raise ClasswiseError(f"{name} is not in {where}; {how_to_get(name)}")
    return place


def locate(name: str, folders: Sequence[Path]) -> Path | None:
    """Return the first archive or unpacked folder of a data set in these folders."""
    for folder in folders:
        for form in FORMS[name]:
            if (folder / form.archive).is_file():
                return folder / form.archive
            if (folder / form.folder).is_dir():
                return folder / form.folder
    return None


def how_to_get(name: str, where: Path | None = None) -> str:
    """Say which file to put where."""
    form = FORMS[name][0]
    sums = ", ".join(f"{file} {md5}" for file, md5 in form.md5.items())
    return (
        f"run `classwise data get {name}`, or put {form.archive} (from {form.address}) or its "
        f"unpacked folder {form.folder} into {where or put_into()}; md5 of the files inside: {sums}"
    )


def _at(name: str, place: Path) -> Path | None:
    if place.is_file():
        return place
    held = any((place / file).is_file() for form in FORMS[name] for file in form.md5)
    return place if held else locate(name, [place])


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
