"""What labels and the names of classes must be like, checked before tables are made for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from classwise.errors import ClasswiseError, cut
from classwise.limits import MOST_CLASSES
from classwise.texts import check_plain

LONGEST_NAME = 1000  # letters of a class name


def check_labels(labels: Tensor, count: int, num_classes: int) -> None:
    """Refuse labels of another length, type or range."""
    if labels.ndim != 1 or len(labels) != count:
        raise ClasswiseError(
            f"{count} images but labels of shape {tuple(labels.shape)}; give one label per image"
        )
    if labels.dtype.is_floating_point or labels.dtype == torch.bool:
        raise ClasswiseError(f"labels are {labels.dtype}; they must be whole class numbers")
    if count and (int(labels.min()), int(labels.max())) == (1, num_classes):
        raise ClasswiseError(
            f"labels run from 1 to {num_classes}, but classes are counted from 0; subtract 1"
        )
    if count and (int(labels.min()) < 0 or int(labels.max()) >= num_classes):
        raise ClasswiseError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, "
            f"but there are {num_classes} classes, 0 to {num_classes - 1}"
        )


def check_numbering(
    labels: Tensor, where: str, named: str = "or give class_names, one for every class"
) -> None:
    """Refuse labels of data without class names that cannot be the numbers of all its classes."""
    numbers = np.unique(labels.numpy()).tolist()
    if not numbers or numbers[0] < 0:
        return  # told elsewhere
    if len(numbers) == 1:
        raise ClasswiseError(
            f"{where}: labels say that all {len(labels)} images are of one class, number "
            f"{numbers[0]}; "
            f"nothing can be said class by class: give images of several classes, {named}"
        )
    if numbers == list(range(1, len(numbers) + 1)):
        raise ClasswiseError(
            f"{where}: labels run from 1 to {len(numbers)}, but classes are counted from 0; "
            f"subtract 1, {named}"
        )
    if numbers != list(range(len(numbers))):
        holes = sorted(set(range(numbers[-1] + 1)) - set(numbers)) if numbers[-1] < 10**6 else []
        some = f" (no image of class {', '.join(map(str, holes[:5]))}{', …' * (len(holes) > 5)})"
        raise ClasswiseError(
            f"{where}: the labels of {len(numbers)} classes run from {numbers[0]} to {numbers[-1]}"
            f"{some if holes else ''}; number them from 0 without holes, {named}"
        )


def check_num_classes(count: int) -> None:
    """Refuse a number of classes whose tables would fill the memory, before they are made."""
    if count > MOST_CLASSES:
        raise ClasswiseError(
            f"labels or names call for {count} classes, and {MOST_CLASSES} are the most (tables "
            "have a row and a column for each); number the classes from 0 without holes"
        )


def check_class_names(names: Sequence[str]) -> None:
    """Refuse names that are too many, too long or equal, or that no text can hold."""
    check_num_classes(len(names))
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ClasswiseError(f"class names must differ; {cut(min(twice))!r} appears twice")
    for name in names:
        if len(name) > LONGEST_NAME:
            raise ClasswiseError(
                f"the class name {cut(name, 30)!r} has {len(name)} letters; {LONGEST_NAME} are the "
                "most"
            )
    check_plain(list(names), "a class name")


def check_superclasses(
    num_classes: int, superclass_of: tuple[int, ...] | None, names: tuple[str, ...] | None
) -> None:
    """Refuse superclasses that do not cover the classes, or have no name."""
    if superclass_of is None:
        if names is not None:
            raise ClasswiseError("superclass_names without superclass_of; give both or neither")
        return
    if len(superclass_of) != num_classes:
        raise ClasswiseError(
            f"superclass_of has {len(superclass_of)} entries for {num_classes} classes; give one "
            "superclass number per class"
        )
    count = len(names) if names is not None else max(superclass_of, default=0) + 1
    check_num_classes(count)
    check_plain(list(names or ()), "a superclass name")
    if any(not 0 <= number < count for number in superclass_of):
        raise ClasswiseError(
            f"superclass_of runs from {min(superclass_of)} to {max(superclass_of)}, but there are "
            f"{count} superclasses, 0 to {count - 1}"
        )
