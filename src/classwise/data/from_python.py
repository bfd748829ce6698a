"""Data that Python code has at hand, as a source: torch's data sets, arrays, pairs of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from classwise.data.dataset import Dataset, DataSource
from classwise.data.from_arrays import dataset_from_arrays
from classwise.data.labels import check_numbering
from classwise.data.loaders import images_and_labels
from classwise.data.splits import held_out
from classwise.errors import ClasswiseError

GIVEN = "given data"  # what a run says of them


def source_from_python(data: Any, class_names: Sequence[str] | None = None) -> DataSource:
    """A data source of what was given; of data without a test part a third is held out."""
    if isinstance(data, DataSource):
        return data
    parts = list(data) if isinstance(data, tuple | list) and len(data) == 2 else None
    if parts is None or not all(_is_whole(part) for part in parts):
        return held_out(GIVEN, _dataset(data, class_names))
    train, test = (_dataset(part, class_names) for part in parts)
    if class_names is None and len(train.class_names) != len(test.class_names):
        names = max(train.class_names, test.class_names, key=len)
        train, test = replace(train, class_names=names), replace(test, class_names=names)
    return DataSource(GIVEN, train, test)


def _is_whole(part: Any) -> bool:
    """Whether something has images and labels: a data set, a loader, or a pair of both."""
    if isinstance(part, Dataset | DataLoader | TorchDataset):
        return True
    return isinstance(part, tuple | list) and len(part) == 2


def _dataset(part: Any, class_names: Sequence[str] | None) -> Dataset:
    if isinstance(part, Dataset):
        return part
    if isinstance(part, DataLoader | TorchDataset):
        images, labels = images_and_labels(part, None)
        inner = part.dataset if isinstance(part, DataLoader) else part
        own = getattr(inner, "classes", None)  # as torchvision's data sets have them
        if class_names is None and isinstance(own, list | tuple):
            class_names = [str(name) for name in own]
    elif isinstance(part, tuple | list) and len(part) == 2:
        images, labels = images_and_labels(*part)
    else:
        raise ClasswiseError(
            f"data are given as {type(part).__name__}; give a name such as 'mnist', a data set or "
            "DataLoader of torch, a pair (images, labels), or a pair (train, test) of these"
        )
    if class_names is None:
        numbers = torch.as_tensor(labels)
        if not numbers.dtype.is_floating_point:
            check_numbering(numbers.cpu().long(), "the data given", "or give class_names")
    return dataset_from_arrays(images.cpu(), labels, class_names, channels_last=False)
