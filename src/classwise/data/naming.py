"""What files and folders are called, and what that says of images: classes by number, groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from classwise.data.labels import check_class_names
from classwise.data.listing import Listing, few
from classwise.errors import ClasswiseError, unknown
from classwise.limits import MOST_CLASSES
from classwise.texts import read_text

NAMES = "names.txt"
GROUPED = ("folder", "prefix")  # ways to group the files of a folder
_NUMBER = re.compile("[0-9]{1,9}")


def text_lines(path: Path) -> list[str]:
    """The lines of a short text, without what is blank at the end."""
    try:
        lines = [line.strip() for line in read_text(path).splitlines()]
    except OSError as reason:
        raise ClasswiseError(f"cannot read {path}: {reason.strerror or reason}") from None
    while lines and not lines[-1]:
        lines.pop()
    return lines


def read_names(root: Path) -> list[str] | None:
    """Names of the classes from 0 on, a line each, if a folder has such a file."""
    path = root / NAMES
    if not path.is_file():
        return None
    names = text_lines(path)
    if not names or not all(names):
        raise ClasswiseError(f"{path} must hold one name per line, that of class 0 first")
    try:
        check_class_names(names)
    except ClasswiseError as reason:
        raise ClasswiseError(f"{path}: {reason}") from None
    return names


def named_by_file(parts: Sequence[Listing], root: Path) -> list[Listing]:
    """Give the classes the names of `names.txt`, in the order of their numbers, if it is there."""
    names = read_names(root)
    if names is None:
        return list(parts)
    folders = parts[0].class_names
    numbers = [int(name) for name in folders if _NUMBER.fullmatch(name)]
    if len(numbers) < len(folders):
        strange = next(name for name in folders if not _NUMBER.fullmatch(name))
        raise ClasswiseError(
            f"{root / NAMES} names classes by number, but the folder {strange!r} is no number; "
            f"remove {NAMES}, or rename the folders to 0, 1, 2, …"
        )
    if len(set(numbers)) < len(numbers):
        raise ClasswiseError(f"{root}: two class folders have one number, such as 1 and 01")
    if max(numbers) >= len(names):
        start = "; folders are counted from 0" if min(numbers) == 1 else ""
        raise ClasswiseError(
            f"{root / NAMES} has {len(names)} lines, for classes 0 to {len(names) - 1}, but there "
            f"is a folder {max(numbers)}{start}"
        )
    found = []
    for part in parts:
        beside = tuple(file for file in part.ignored if file != root / NAMES)
        labels = tuple(numbers[label] for label in part.labels)
        found.append(replace(part, class_names=tuple(names), labels=labels, ignored=beside))
    return found


def with_groups(part: Listing, group: str) -> Listing:
    """Say of each file which others it belongs to, by its folder within the class or its name."""
    if not group:
        return part
    if group not in GROUPED:
        raise ClasswiseError(
            f"{unknown('group of a folder', str(group), GROUPED)}; other groups stand in a column "
            "of a table: csv(PATH, group=COLUMN)"
        )
    words = []
    for file, label in zip(part.files, part.labels, strict=True):
        inside = file.relative_to(part.folder / part.class_names[label])
        if group == "folder":
            rest = inside.parent.as_posix().strip(".")
        else:
            stem = inside.with_suffix("").as_posix()
            rest = re.split(r"[_-](?=[^_-]*$)", stem)[0]
        # Tracks of two classes may have one number.
        words.append(f"{part.class_names[label]}/{rest}" if rest else "")
    if len(set(words) - {""}) < 2:
        raise ClasswiseError(
            f"{part.folder}: group={group} finds {len(set(words) - {''})} groups; give another one"
        )
    return replace(part, attributes={group: tuple(words)})


def distinct(names: Mapping[str, str]) -> dict[str, str]:
    """Names of synsets, told apart by their number where two have one name.

    >>> distinct({"n1": "crane", "n2": "crane", "n3": "tench"})
    {'n1': 'crane (n1)', 'n2': 'crane (n2)', 'n3': 'tench'}
    """
    times = Counter(names.values())
    return {key: f"{name} ({key})" if times[name] > 1 else name for key, name in names.items()}


def check_count(classes: Sequence[str], where: Path) -> None:
    """Refuse too few classes, or more than tables can be made for."""
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise ClasswiseError(
            f"{where} has {len(classes)} classes ({few(list(classes)) or 'none'}); give 2 to "
            f"{MOST_CLASSES}"
        )
