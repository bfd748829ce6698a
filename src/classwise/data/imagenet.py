"""ImageNet (ILSVRC 2012): photos in folders by synset, or a flat validation part and labels."""

from __future__ import annotations

import csv
import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from classwise.csv_rows import csv_rows
from classwise.data.dataset import Dataset, DataSource
from classwise.data.folder import Looks, decode_parts
from classwise.data.listing import Listing, list_classes
from classwise.data.mat import read_mat
from classwise.data.naming import check_count, distinct, text_lines
from classwise.data.official import find
from classwise.data.pictures import SUFFIXES, Fit, pillow
from classwise.data.tiny_imagenet import SYNSET, names_of, read_words
from classwise.errors import ClasswiseError, cut, unknown
from classwise.files import given_path
from classwise.texts import read_some

Part = Literal["all", "val"]
SIDE, SPARE = 224, 32  # pixels; "resize to 256, cut out 224"
DEVKIT = "ILSVRC2012_devkit_t12/data"
TABLES = ("LOC_val_solution.csv", "val.csv")  # file name and synset
WORDS = ("LOC_synset_mapping.txt", "words.txt")
PACKAGE = "imagenet-x"
# The metaclasses of ImageNet-X (Idrissi et al. 2022); whatever is in none of these is `other`.
METACLASSES = (
    *("device", "dog", "commodity", "bird", "structure", "covering", "wheeled_vehicle", "food"),
    *("equipment", "insect", "vehicle", "furniture", "primate", "vessel", "snake"),
    "natural_object",
)


def imagenet(
    path: str | None = None,
    size: int | Sequence[int] = SIDE,
    fit: Fit = "crop",
    part: Part = "all",
    names: str = "",
    skip_bad: bool = False,
    spare: int | None = None,
) -> DataSource:
    """ImageNet: PATH/train and PATH/val with a folder per synset; val is the test part.

    `val` may be flat, with the devkit or Kaggle's LOC_val_solution.csv beside it; PATH may also be
    one flat folder of files such as n01440764_18.JPEG. `part=val` reads no training photos.
    Classes are in the order of their synsets. Their names come from a file beside the photos;
    `names=imagenet-x` takes names and 17 superclasses from that package, if it is installed. At 224
    pixels training photos are kept 32 pixels larger, out of which training cuts random windows;
    `spare=0` keeps none so, and `spare=32` the test photos, too, of which audits see the middle.
    """
    if part not in ("all", "val"):
        raise unknown("part", str(part), ["all", "val"])
    if names not in ("", PACKAGE):
        raise unknown("names", str(names), [PACKAGE])
    pillow("imagenet:PATH")
    root, how = find("imagenet", path), Looks(size, fit, skip_bad, spare=spare or 0)
    beside = [root] if path is None else list(dict.fromkeys([root, given_path(path)]))
    table = _installed_table() if names else _table_beside(beside)
    parts = _parts(root, beside, table, part)
    synsets = parts[0].class_names
    called = names_of(list(synsets), table.words)
    above = _superclasses(synsets, table.above)
    trains = replace(how, spare=SPARE if spare is None and size == SIDE else how.spare)

    def with_names(data: Dataset) -> list[Dataset]:
        return [replace(data, class_names=called, **above)]

    sets = [
        one
        for listing, looks in zip(parts, [trains, how][-len(parts) :], strict=True)
        for data in decode_parts("imagenet", root, [listing], looks, used=with_names)
        for one in with_names(data)
    ]
    train = sets[0] if len(sets) > 1 else _none_of(sets[0])
    return DataSource("imagenet", train, sets[-1])


@dataclass(frozen=True)
class _Table:
    """What is known of synsets: all of them, their names, and what they belong to."""

    synsets: tuple[str, ...]
    words: Mapping[str, str]
    above: Mapping[str, str] | None = None


def _parts(root: Path, beside: list[Path], table: _Table, part: Part) -> list[Listing]:
    """The training and the validation photos, or the one folder that there is."""
    train, val = root / "train", root / "val"
    if not val.is_dir():
        if train.is_dir():
            raise ClasswiseError(f"{root} has train but no val; an audit needs photos to test on")
        return [_by_file_names(root, table)]
    flat = not any(entry.is_dir() for entry in val.iterdir())
    found = [list_classes(train)] if part == "all" and train.is_dir() else []
    if flat:
        known = found[0].class_names if found else table.synsets
        found.append(_flat(val, beside, known))
    else:
        found.append(list_classes(val))
    classes = found[0].class_names
    check_count(classes, found[0].folder)
    for one in found:
        if one.class_names != classes:
            raise ClasswiseError(f"{root}: train and val hold different synsets")
        strange = [name for name in one.class_names if not SYNSET.fullmatch(name)]
        if strange:
            raise ClasswiseError(
                f"{one.folder} holds the folder {cut(strange[0], 50)!r}; ImageNet's are synsets "
                "such as n01440764 (folder:PATH opens any others)"
            )
    return found


def _by_file_names(root: Path, table: _Table) -> Listing:
    """A flat folder of files whose names begin with their synset."""
    files = sorted(file for file in root.iterdir() if file.suffix.lower() in SUFFIXES)
    labels = [file.name[:9] for file in files]
    strange = [file.name for file in files if not re.fullmatch(r"n\d{8}[_.].*", file.name)]
    if strange or not files:
        said = f"the file {cut(strange[0], 50)!r}" if strange else "no photo"
        raise ClasswiseError(
            f"{root} has no folder val, and holds {said}; give a folder with train and val, or one "
            "of files such as n01440764_18.JPEG"
        )
    classes = table.synsets if set(labels) <= set(table.synsets) else tuple(sorted(set(labels)))
    check_count(classes, root)
    number = {synset: k for k, synset in enumerate(classes)}
    return Listing(root, classes, tuple(files), tuple(number[word] for word in labels))


def _flat(val: Path, beside: list[Path], classes: tuple[str, ...]) -> Listing:
    """A flat validation part, with labels from the devkit or from a table."""
    files = sorted(file for file in val.iterdir() if file.suffix.lower() in SUFFIXES)
    truth = _truth(beside, val)
    missing = [file.name for file in files if file.stem not in truth]
    if missing or not files:
        said = f"{missing[0]} has no label" if missing else "there is no photo"
        raise ClasswiseError(f"{val}: {said}; the labels must be those of ILSVRC 2012's validation")
    labels = [truth[file.stem] for file in files]
    classes = classes or tuple(sorted({*truth.values()}))
    number = {synset: k for k, synset in enumerate(classes)}
    if not set(labels) <= set(number):
        raise ClasswiseError(f"{val} has photos of synsets that are not in train")
    return Listing(val, classes, tuple(files), tuple(number[word] for word in labels))


def _truth(beside: list[Path], val: Path) -> dict[str, str]:
    """The synset of each validation photo, by its name without the ending."""
    for folder in beside:
        for name in TABLES:
            if (folder / name).is_file():
                return _truth_of_table(folder / name)
        if (folder / DEVKIT / "ILSVRC2012_validation_ground_truth.txt").is_file():
            return _truth_of_devkit(folder / DEVKIT)
    raise ClasswiseError(
        f"{val} is flat, and nothing says what its photos show; put LOC_val_solution.csv, val.csv "
        f"(file,synset) or the folder {DEVKIT} beside it, or sort the photos into folders"
    )


def _truth_of_table(path: Path) -> dict[str, str]:
    found = {}
    for line, cells in csv_rows(path, "table of labels"):
        synset = cells[1].strip().partition(" ")[0] if len(cells) > 1 else ""
        if SYNSET.fullmatch(synset):
            found[Path(cells[0]).stem] = synset
        elif line > 1:  # the first may be a heading
            raise ClasswiseError(f"{path}: line {line} names no synset such as n01440764")
    return found


def _truth_of_devkit(folder: Path) -> dict[str, str]:
    """Line k is about photo k; its number is the devkit's own, which meta.mat translates."""
    path = folder / "ILSVRC2012_validation_ground_truth.txt"
    synset = {number: one for one, (number, _) in _meta(folder).items()}
    found = {}
    for line, text in enumerate(text_lines(path), start=1):
        if not text.isdecimal() or int(text) not in synset:
            raise ClasswiseError(f"{path}: line {line} is {cut(text, 20)!r}, no number of meta.mat")
        found[f"ILSVRC2012_val_{line:08d}"] = synset[int(text)]
    return found


def _meta(folder: Path) -> dict[str, tuple[int, str]]:
    """Number and names of each of the thousand synsets, from the devkit's table."""
    path = folder / "meta.mat"
    try:
        rows = read_mat(read_some(path), str(path)).get("synsets")
        found = {
            row["WNID"]: (int(row["ILSVRC2012_ID"].item()), row["words"])
            for row in rows or ()
            if int(row["num_children"].item()) == 0  # others are above these
        }
    except OSError as reason:
        raise ClasswiseError(f"cannot read {path}: {reason.strerror or reason}") from None
    except (KeyError, TypeError, AttributeError, ValueError) as reason:
        if isinstance(reason, ClasswiseError):
            raise
        raise ClasswiseError(f"{path} is not the devkit's table of synsets; get it anew") from None
    check_count(list(found), path)
    return found


def _table_beside(folders: list[Path]) -> _Table:
    """Names from a file beside the photos, and from some which synsets there are at all."""
    for folder in folders:
        for name in WORDS:
            if (folder / name).is_file():
                words = read_words(folder / name)
                mapped = name == WORDS[0]
                return _Table(tuple(sorted(words)) if mapped else (), words)
        if (folder / DEVKIT / "meta.mat").is_file():
            words = {
                one: said.partition(",")[0] for one, (_, said) in _meta(folder / DEVKIT).items()
            }
            return _Table(tuple(sorted(words)), words)
    return _Table((), {})


def _installed_table() -> _Table:
    """Names and metaclasses from the files of the package `imagenet-x`; nothing is imported."""
    spec = importlib.util.find_spec("imagenet_x")
    if spec is None or not spec.submodule_search_locations:
        raise ClasswiseError(
            f"names={PACKAGE} needs that package; run: pip install {PACKAGE}, or leave it out"
        )
    folder = Path(next(iter(spec.submodule_search_locations))) / "annotations"
    labels = [line.partition(",") for line in text_lines(folder / "imagenet_labels.txt")]
    lines = text_lines(folder / "imagenet_1k_classes_to_100_metaclasses.csv")
    rows = list(csv.DictReader(lines))
    if len(rows) != len(labels) or not all("name" in row for row in rows):
        raise ClasswiseError(
            f"{folder} is not as {PACKAGE} 0.0.7 has it; leave names={PACKAGE} out"
        )
    above = {
        synset: row["name"] if row["name"] in METACLASSES else "other"
        for (synset, _, _), row in zip(labels, rows, strict=True)
    }
    words = {synset: name for synset, _, name in labels}
    return _Table(tuple(sorted(words)), distinct(words), above)


def _superclasses(synsets: tuple[str, ...], above: Mapping[str, str] | None) -> dict[str, Any]:
    if above is None:
        return {}
    strange = sorted(set(synsets) - set(above))
    if strange:
        raise ClasswiseError(f"{PACKAGE} does not know {strange[0]}; leave names={PACKAGE} out")
    names = tuple(sorted({above[synset] for synset in synsets}))
    number = {name: k for k, name in enumerate(names)}
    return {
        "superclass_of": tuple(number[above[synset]] for synset in synsets),
        "superclass_names": names,
    }


def _none_of(data: Dataset) -> Dataset:
    """No photo at all, of the same kind: there is nothing to train on."""
    return data.subset(torch.arange(0))
