"""Files of the idx format, and the data sets that come in it: MNIST and Fashion-MNIST."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from classwise.data.archives import plain_or_packed, read_file, read_form
from classwise.data.dataset import Dataset, DataSource, check_flag
from classwise.data.labels import check_numbering
from classwise.data.official import FORMS, find, how_to_get
from classwise.errors import ClasswiseError
from classwise.files import given_path

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
CLOTHES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
    "ankle boot",
)  # fmt: skip
PARTS = {"train": "train", "test": "t10k"}  # as the official files are called
BYTES = 0x08  # the kind of numbers of all of them
KINDS = {0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}


def mnist(path: str | None = None) -> DataSource:
    """MNIST: 70000 handwritten digits of 28×28; `classwise data get mnist` fetches it."""
    # Digits are centred in their frame by their mass; two pixels are what people move them by.
    return _official("mnist", path, DIGITS, mirrored=False, moved=2)


def fashion_mnist(path: str | None = None) -> DataSource:
    """Fashion-MNIST: 70000 pieces of clothing of 28×28; get it like mnist."""
    return _official("fashion-mnist", path, CLOTHES, mirrored=True, moved=2)


def idx(path: str, mirrored: bool = True, moved: int | None = None) -> DataSource:
    """A folder of idx files named as MNIST's are, also .gz: EMNIST's, KMNIST's, your own.

    Nothing is known of them, so nothing is verified but their form. `mirrored` and `moved` as for
    an `.npz`.
    """
    check_flag("mirrored", mirrored)
    root = given_path(path)
    wanted = FORMS["mnist"][0]
    arrays = {}
    for name in wanted.md5:
        file = plain_or_packed(root, name)
        if file is None:
            raise ClasswiseError(
                f"{root} has no {name}, nor that with .gz; idx:PATH is a folder with "
                f"{', '.join(wanted.md5)}"
            )
        arrays[name] = read_idx(read_file(file), str(file))
    labels = np.concatenate([arrays[f"{part}-labels-idx1-ubyte"] for part in PARTS.values()])
    check_numbering(torch.from_numpy(labels.astype(np.int64)), str(root), "or store an .npz")
    names = tuple(str(k) for k in range(int(labels.max()) + 1))
    return _source(f"idx:{root.resolve().name}", arrays, names, mirrored, moved)


def read_idx(content: bytes, name: str) -> NDArray[np.uint8]:
    """The array of an idx file; it must have exactly the bytes that its head claims.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 7]), "labels").tolist()
    [5, 7]
    """
    if len(content) < 8 or content[:2] != b"\0\0":
        seen = f"it begins with {content[:4].hex(' ')}" if content else "it is empty"
        raise ClasswiseError(f"{name} is no idx file: {seen}, not with 00 00 08")
    kind, dimensions = content[2], content[3]
    if kind != BYTES:
        said = KINDS.get(kind, f"kind {kind:#04x}")
        raise ClasswiseError(f"{name} holds {said}; images and labels are bytes (kind 0x08)")
    begin = 4 + 4 * dimensions
    if dimensions not in (1, 3) or len(content) < begin:
        raise ClasswiseError(
            f"{name} claims {dimensions} dimensions; labels have 1, images 3 (n, height, width)"
        )
    shape = tuple(int(side) for side in np.frombuffer(content, ">u4", dimensions, 4))
    claimed, there = math.prod(shape), len(content) - begin
    if claimed != there or not claimed:
        raise ClasswiseError(
            f"{name} claims {' × '.join(map(str, shape))} bytes, but has {there}; it is cut short, "
            "damaged or made up; get it anew"
        )
    return np.frombuffer(content, np.uint8, claimed, begin).reshape(shape)


def _official(
    name: str, path: str | None, names: tuple[str, ...], *, mirrored: bool, moved: int
) -> DataSource:
    _, files = read_form(find(name, path), FORMS[name], how_to_get(name))
    arrays = {file: read_idx(content, file) for file, content in files.items()}
    return _source(name, arrays, names, mirrored, moved)


def _source(
    label: str,
    arrays: Mapping[str, NDArray[np.uint8]],
    names: tuple[str, ...],
    mirrored: bool,
    moved: int | None,
) -> DataSource:
    sets = []
    for part in PARTS.values():
        images, labels = (arrays[f"{part}-{what}-ubyte"] for what in ("images-idx3", "labels-idx1"))
        if images.ndim != 3 or labels.ndim != 1:
            raise ClasswiseError(
                f"{label}: {part}-images have {images.ndim} and {part}-labels {labels.ndim} "
                "dimensions; images have 3 (n, height, width), labels 1"
            )
        # np.array copies: the bytes of a file are read-only, which torch does not like.
        pixels = torch.from_numpy(np.array(images))[:, None]
        numbers = torch.from_numpy(labels.astype(np.int64))
        sets.append(Dataset(pixels, numbers, names, mirrored=mirrored, moved=moved))
    return DataSource(label, sets[0], sets[1])
