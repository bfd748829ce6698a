"""Data sets of other libraries: `hf:NAME` of Hugging Face, `torchvision:NAME`; both are extras."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from classwise.data.dataset import Dataset, DataSource
from classwise.data.folder import Looks, box_of
from classwise.data.labels import check_labels
from classwise.data.listing import few
from classwise.data.loaders import images_and_labels
from classwise.data.memory import empty_images
from classwise.data.pictures import Fit, NotAnImage, pillow, read_picture
from classwise.data.places import cache_folder, data_folder
from classwise.data.splits import held_out
from classwise.errors import ClasswiseError, cut, unknown
from classwise.files import given_path
from classwise.limits import MOST_SAMPLES

TEST_PARTS = ("test", "validation", "valid", "val")  # what others call theirs, in this order


def hf(
    name: str,
    size: int | Sequence[int] | None = None,
    fit: Fit = "resize",
    config: str | None = None,
    image: str | None = None,
    label: str | None = None,
    mirrored: bool = True,
    moved: int | None = None,
) -> DataSource:
    """A data set of Hugging Face by its name, or a folder of one: `hf:mnist`, `hf:data/mine`.

    Needs the extra `hf`; a name is fetched from the hub unless it is in their cache. `config`,
    `image` and `label` name a configuration and the columns where there are several. Its test part,
    or, where that has no labels or is not there, its validation part is the test part. `size`,
    `fit`, `mirrored`, `moved` as for a folder.
    """
    how = Looks(size, fit, False, mirrored, moved)
    parts = _loaded(name, config)
    if "train" not in parts and len(parts) > 1:
        raise ClasswiseError(f"hf:{name} has the parts {few(list(parts))}, and none called train")
    train = parts.get("train") or next(iter(parts.values()))
    tests = (parts[word] for word in TEST_PARTS if word in parts and len(parts) > 1)
    test = next((one for one in tests if _has_labels(f"hf:{name}", one, label)), None)
    found = [_read_hf(f"hf:{name}", one, how, image, label) for one in (train, test) if one]
    title = f"hf:{name}"
    return held_out(title, found[0]) if len(found) == 1 else DataSource(title, found[0], found[1])


def torchvision(
    name: str, root: str | None = None, mirrored: bool = True, moved: int | None = None
) -> DataSource:
    """A data set of torchvision by its class, such as `torchvision(CIFAR10, root=data)`.

    It must be there already: nothing is downloaded. Without `root`, $CLASSWISE_DATA or the cache.
    """
    sets = _torchvision_sets()
    kind = getattr(sets, name, None) if name in getattr(sets, "__all__", ()) else None
    if not inspect.isclass(kind):
        raise unknown("data set of torchvision", name, getattr(sets, "__all__", ()))
    folder = str(given_path(root) if root else data_folder() or cache_folder())
    accepted = inspect.signature(kind).parameters
    if "train" in accepted:
        ways: list[dict[str, Any]] = [{"train": True}, {"train": False}]
    elif "split" in accepted:
        ways = [{"split": "train"}, {"split": "test"}]
    else:
        raise ClasswiseError(
            f"torchvision:{name} has neither train= nor split=; make it in Python and give it to "
            "classwise.open_data"
        )
    found = [_read_torchvision(kind, folder, way, name) for way in ways]
    train, test = (replace(one, mirrored=mirrored, moved=moved) for one in found)
    return DataSource(f"torchvision:{name}", train, test)


def _read_torchvision(kind: Any, folder: str, way: dict[str, Any], name: str) -> Dataset:
    fetching = {"download": False} if "download" in inspect.signature(kind).parameters else {}
    try:
        data = kind(folder, **way, **fetching)
    except Exception as reason:  # whatever it says of its files
        words = cut(" ".join(str(reason).split()))
        raise ClasswiseError(
            f"torchvision:{name} cannot be opened in {folder} ({words}); download it there with "
            "torchvision, or give root=FOLDER"
        ) from None
    images, labels = images_and_labels(data, None)
    names = getattr(data, "classes", None) or range(int(labels.max()) + 1)
    check_labels(labels, len(images), len(names))
    return Dataset(images, labels.long(), tuple(str(one) for one in names))


def _torchvision_sets() -> Any:
    try:
        import torchvision.datasets as sets
    except ImportError:
        raise ClasswiseError(
            'torchvision:NAME needs torchvision; run: pip install "classwise[zoo]"'
        ) from None
    except RuntimeError as reason:
        raise ClasswiseError(
            f"torchvision cannot be imported ({cut(reason)}): it was built for another torch; "
            "install the torchvision that fits your torch, from the same index"
        ) from None
    return sets


def _loaded(name: str, config: str | None) -> dict[str, Any]:
    """The parts of a data set, from a folder or by name."""
    try:
        import datasets
    except ImportError:
        raise ClasswiseError(
            'hf:NAME needs the library datasets; run: pip install "classwise[hf]"'
        ) from None
    place = given_path(name)
    try:
        if place.is_dir() and _is_saved(place):
            found = datasets.load_from_disk(str(place))
        else:
            found = datasets.load_dataset(name, config)
    except Exception as reason:  # of the network, the hub or a file
        words = cut(" ".join(f"{type(reason).__name__}: {reason}".split()))
        raise ClasswiseError(
            f"hf:{name} cannot be loaded ({words}); give the name of a data set on the hub, or a "
            "folder of parquet files or of Dataset.save_to_disk"
        ) from None
    return dict(found) if isinstance(found, dict) else {"train": found}


def _is_saved(place: Path) -> bool:
    return any((place / file).is_file() for file in ("dataset_dict.json", "dataset_info.json"))


def _read_hf(title: str, data: Any, how: Looks, image: str | None, label: str | None) -> Dataset:
    """Decode a part with our own reader, under our own limits."""
    import datasets

    pillow(title)
    pictures = _column(title, data, datasets.Image, image, "image")
    labels = _column(title, data, datasets.ClassLabel, label, "label")
    if not 0 < len(data) <= MOST_SAMPLES:
        raise ClasswiseError(f"{title} has {len(data)} images; 1 to {MOST_SAMPLES} can be read")
    raw = data.select_columns([pictures, labels]).cast_column(
        pictures, datasets.Image(decode=False)
    )
    box = box_of(how.size)
    store: torch.Tensor | None = None
    numbers = _numbers(title, raw, labels)
    for row, (content, where) in enumerate(_contents(raw, pictures)):
        pixels = _pixels(title, row, content, where, box, how.fit)
        if store is None:
            store = empty_images((len(raw), *pixels.shape))
        elif pixels.shape != tuple(store.shape[1:]):
            raise ClasswiseError(
                f"{title}: image {row} has {pixels.shape[1]}×{pixels.shape[2]} pixels, the first "
                f"{store.shape[2]}×{store.shape[3]}; write hf({title[3:]}, size=32) to scale them"
            )
        store.numpy()[row] = pixels
    assert store is not None
    names = tuple(str(one) for one in data.features[labels].names)
    return Dataset(store, numbers, names, mirrored=how.mirrored, moved=how.moved)


def _has_labels(title: str, data: Any, label: str | None) -> bool:
    """Whether a part has labels at all: competitions keep those of their test part, and say -1."""
    import datasets

    column = _column(title, data, datasets.ClassLabel, label, "label")
    return any(one is not None and one >= 0 for one in data.select_columns([column])[column])


def _numbers(title: str, data: Any, labels: str) -> torch.Tensor:
    found = list(data[labels])
    if None in found:
        raise ClasswiseError(
            f"{title}: image {found.index(None)} has no label; leave such out with Dataset.filter, "
            "and save the rest with save_to_disk"
        )
    return torch.tensor(found).long()


def _contents(raw: Any, pictures: str) -> Iterator[tuple[bytes | None, str]]:
    for entry in raw:
        one = entry[pictures] or {}
        yield one.get("bytes"), one.get("path") or ""


def _pixels(
    title: str,
    row: int,
    content: bytes | None,
    where: str,
    box: tuple[int, int] | None,
    fit: Fit,
) -> NDArray[np.uint8]:
    try:
        source = Path(where) if content is None else content
        return read_picture(source, box, fit)[0]
    except NotAnImage as reason:
        raise ClasswiseError(f"{title}: image {row} cannot be decoded ({reason})") from None


def _column(title: str, data: Any, kind: Any, said: str | None, what: str) -> str:
    """The column of a kind, the only one or the one that was named."""
    fitting = [name for name, feature in data.features.items() if isinstance(feature, kind)]
    if not fitting and what == "label":
        raise ClasswiseError(
            f"{title} has no column of the kind ClassLabel (it has {few(list(data.features))}); "
            'numbers or words become one by Dataset.class_encode_column("COLUMN"), then save it '
            "with save_to_disk"
        )
    if said is not None:
        if said not in fitting:
            raise unknown(f"{what} column of {title}", said, fitting)
        return said
    if len(fitting) != 1:
        raise ClasswiseError(
            f"{title} has {len(fitting)} columns of the kind {kind.__name__} "
            f"({few(fitting) or 'it has ' + few(list(data.features))}); name one with {what}=COLUMN"
        )
    return str(fitting[0])
