"""Which files a folder of class folders holds, in an order that never changes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from classwise.data.labels import check_class_names
from classwise.data.pictures import SUFFIXES
from classwise.errors import ClasswiseError

SHOWN = 5  # names in a message


@dataclass(frozen=True)
class Listing:
    """The image files of one part (all, train or test), class by class in sorted order."""

    folder: Path
    class_names: tuple[str, ...]
    files: tuple[Path, ...]
    labels: tuple[int, ...]
    ignored: tuple[Path, ...] = ()  # what is neither an image by its suffix nor hidden
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # a word per file


def list_parts(root: Path) -> list[Listing]:
    """List the whole folder, or its train and its test part."""
    if not root.is_dir():
        kind = "a file, not a folder" if root.exists() else "not there"
        raise ClasswiseError(f"{root} is {kind}; give a folder that holds one folder per class")
    names = {"train", "test"}
    # A class may be called train: then its folder holds images, not folders.
    split = {name for name in names if (root / name).is_dir() and _folders(root / name)}
    if not split:
        return [list_classes(root)]
    if split != names:
        (have,), (lack,) = split, names - split
        raise ClasswiseError(
            f"{root} has {have} but no {lack} with one folder per class; add {lack}, or give "
            f"{root / have} to have a third of it held out for testing"
        )
    train, test = list_classes(root / "train"), list_classes(root / "test")
    if train.class_names != test.class_names:
        raise ClasswiseError(
            f"{root}: train and test have different classes ({_difference(train, test)}); both "
            "need the same folders"
        )
    beside = tuple(entry for entry in _visible(root) if entry.name not in names)
    return [replace(train, ignored=beside + train.ignored), test]


def list_classes(root: Path) -> Listing:
    """List a folder of class folders; hidden files do not count, an empty class is refused."""
    classes = _folders(root)
    if len(classes) < 2:
        raise ClasswiseError(
            f"{root} holds {counted(len(classes), 'folder')}; it needs one folder per class, at "
            "least two, with the images inside"
        )
    names = tuple(place.name for place in classes)
    check_class_names(names)
    files: list[Path] = []
    labels: list[int] = []
    ignored = [entry for entry in _visible(root) if not entry.is_dir()]
    for number, place in enumerate(classes):
        inside = _files(place)
        images = [file for file in inside if file.suffix.lower() in SUFFIXES]
        if not images:
            held = f"only {few([file.name for file in inside])}" if inside else "nothing"
            raise ClasswiseError(
                f"class folder {place} has no image (it holds {held}); add images such as .png "
                "or .jpg, or remove the folder"
            )
        files += images
        labels += [number] * len(images)
        ignored += [file for file in inside if file.suffix.lower() not in SUFFIXES]
    return Listing(root, names, tuple(files), tuple(labels), tuple(ignored))


def few(names: Sequence[str]) -> str:
    """Join some names, with the number of those left out.

    >>> few(["a", "b"]), few(list("abcdefg"))
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def counted(count: int, noun: str) -> str:
    """Write a number with its noun: no image, 1 image, 2 images."""
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def _difference(train: Listing, test: Listing) -> str:
    sides = []
    for part, other in ((train, test), (test, train)):
        alone = sorted(set(part.class_names) - set(other.class_names))
        if alone:
            sides.append(f"only in {part.folder.name}: {few(alone)}")
    return "; ".join(sides)


def _visible(root: Path) -> list[Path]:
    try:
        return sorted(entry for entry in root.iterdir() if not entry.name.startswith("."))
    except OSError as reason:
        raise ClasswiseError(f"cannot read {root}: {reason.strerror or reason}") from None


def _folders(root: Path) -> list[Path]:
    return [entry for entry in _visible(root) if entry.is_dir()]


def _files(place: Path) -> list[Path]:
    """Every visible file of a class, also in folders inside it, sorted by path."""
    found = []
    for base, folders, names in os.walk(place):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(base, name) for name in names if not name.startswith(".")]
    # In the order of paths, part by part, but without making and comparing paths, which is slow.
    found.sort(key=lambda file: os.path.normcase(file).split(os.sep))
    return [Path(file) for file in found]
