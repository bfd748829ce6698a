"""Arrays in `.npz` and `.npy` files; every size is checked before any memory is taken."""

from __future__ import annotations

import math
import stat
import zipfile
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy_format

from classwise.data.memory import fits
from classwise.errors import ClasswiseError, cut
from classwise.limits import MOST_CLASSES

WHOLE = ("images", "labels")
PARTS = ("train_images", "train_labels", "test_images", "test_labels")
# What Keras and those who learnt from it call the same arrays.
KERAS = {
    f"{a}_{p}": f"{p}_{b}" for p in ("train", "test") for a, b in (("x", "images"), ("y", "labels"))
}
KERAS_TEST = {"x_test": "images", "y_test": "labels"}  # where there is nothing else
OPTIONAL = ("class_names", "superclass_of", "superclass_names")
MOST_MEMBERS = 1000  # files in an .npz
PACKED = 1032  # times that deflate can shrink at most; whoever claims more has no such content
_HEADERS = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
}


def read_npz(path: Path) -> dict[str, Any]:
    """Read those arrays of an `.npz` that a data set is made of."""
    size = _plain_size(path, "give an .npz with images and labels")
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, path, size)
            _check_names(members, path)
            wanted = {n: members[said] for said, n in _meant(members).items()}
            _check_room(sum(member.file_size for member in wanted.values()), path)
            return {name: _member(archive, one, path) for name, one in wanted.items()}
    except ClasswiseError:
        raise
    except zipfile.BadZipFile as reason:
        raise ClasswiseError(f"{path} is no .npz: {_seen(path, reason)}") from None
    except Exception as reason:  # a stranger's file: whatever is wrong with it, it is refused
        words = cut(f"{type(reason).__name__}: {reason}")
        raise ClasswiseError(f"{path} is not a readable .npz of plain arrays ({words})") from None


def map_npy(folder: Path) -> dict[str, Any]:
    """Map those `.npy` files of a folder that a data set is made of; nothing is read yet."""
    if not folder.is_dir():
        raise ClasswiseError(f"no folder {folder}; give a folder with images.npy and labels.npy")
    files = {file.stem: file for file in sorted(folder.glob("*.npy"))}
    _check_names(files, folder)
    arrays = {}
    for said, name in _meant(files).items():
        arrays[name] = map_array(files[said])
    return arrays


def map_array(file: Path) -> Any:
    """Map one `.npy` file; nothing is read yet."""
    size = _plain_size(file, "give a .npy array")
    try:
        with file.open("rb") as stream:
            check_header(stream, size, str(file))
        # "c": changes stay in memory; torch warns about arrays it may not write to.
        return np.load(file, mmap_mode="c", allow_pickle=False)
    except ClasswiseError:
        raise
    except Exception as reason:  # as above
        words = cut(f"{type(reason).__name__}: {reason}")
        raise ClasswiseError(f"{file} is not a readable .npy array ({words})") from None


def listed(name: str, array: Any, where: object) -> list[Any]:
    """An optional array as a list: names of classes, or numbers of superclasses."""
    kinds, what = ("iu", "whole numbers") if name == "superclass_of" else ("USiu", "names")
    if array.ndim != 1 or array.dtype.kind not in kinds:
        raise ClasswiseError(
            f"{where}: {name} is {array.dtype} of shape {array.shape}; give a list of {what}"
        )
    if len(array) > MOST_CLASSES:
        raise ClasswiseError(
            f"{where}: {name} has {len(array)} entries; {MOST_CLASSES} classes are the most"
        )
    if array.dtype.kind != "S":
        return list(array.tolist())
    try:
        return [one.decode() for one in array.tolist()]
    except UnicodeDecodeError:
        raise ClasswiseError(
            f"{where}: {name} holds bytes that are not UTF-8; store text"
        ) from None


def check_header(stream: IO[bytes], size: int, where: str) -> None:
    """Refuse an array that is no plain one, or claims other than the bytes it has.

    `size` is that of the whole file, header included.
    """
    try:
        version = npy_format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"version {version}")
        shape, _, dtype = _HEADERS[version](stream)
    except Exception as reason:  # the header is a piece of Python that numpy reads
        words = cut(" ".join(str(reason).split()) or type(reason).__name__, 80)
        raise ClasswiseError(
            f"{where} has no header of an array ({words}); save it with numpy"
        ) from None
    if dtype.hasobject or dtype.kind not in "buifUS":
        raise ClasswiseError(f"{where} holds {cut(dtype, 80)}; only numbers and text are read")
    if any(isinstance(n, bool) or n < 0 for n in shape):
        raise ClasswiseError(f"{where} claims the shape {cut(shape, 80)}; no side is below 0")
    claimed, there = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if claimed != there:
        raise ClasswiseError(
            f"{where} claims {dtype} of shape {cut(shape, 80)}, {_bytes(claimed)}, but has "
            f"{_bytes(there)}; it is damaged or made up, save it anew"
        )


def _members(archive: zipfile.ZipFile, path: Path, size: int) -> dict[str, zipfile.ZipInfo]:
    """The arrays inside by name; nothing is unpacked that could not be there."""
    found: dict[str, zipfile.ZipInfo] = {}
    entries = archive.infolist()
    if len(entries) > MOST_MEMBERS:
        raise ClasswiseError(f"{path} holds {len(entries)} files; {MOST_MEMBERS} are the most")
    for one in entries:
        name = one.filename.removesuffix(".npy")
        stored = one.compress_type == zipfile.ZIP_STORED
        if not stored and one.compress_type != zipfile.ZIP_DEFLATED:
            raise ClasswiseError(f"{path}: {cut(name)} is packed as numpy never does; save it anew")
        most = one.compress_size * (1 if stored else PACKED)
        if one.compress_size > size or one.file_size > most:
            raise ClasswiseError(
                f"{path}: {cut(name)} claims {_bytes(one.file_size)}, which cannot be inside of "
                f"{_bytes(size)}; it is damaged or made up, save it anew"
            )
        if name in found:
            raise ClasswiseError(f"{path} holds {cut(name)} twice; save it anew")
        found[name] = one
    return found


def _check_names(names: Collection[str], path: Path) -> None:
    ways = (WHOLE, PARTS, KERAS_TEST)
    fitting = [way for way in ways if set(way) <= set(names)]
    if not fitting:
        raise ClasswiseError(
            f"{path} holds {cut(', '.join(sorted(names))) or 'nothing'}; it needs images and "
            "labels, or train_images, train_labels, test_images and test_labels, or x_train, "
            "y_train, x_test and y_test"
        )
    known = {*WHOLE, *PARTS, *OPTIONAL, *KERAS}
    for stray in sorted(set(names) - known):  # others may stand there; one with a slip may not
        meant = get_close_matches(stray.lower(), sorted(known), 1, 0.85)
        if meant and meant[0] not in names:
            raise ClasswiseError(
                f"{path} holds {cut(stray)}, which nobody reads; is it {meant[0]}? Rename it, or "
                "leave it out"
            )
    if KERAS_TEST in fitting and len(fitting) > 1:
        raise ClasswiseError(f"{path} holds x_test beside {fitting[0][0]}; keep one of the two")  # type: ignore[index]


def _meant(names: Collection[str]) -> dict[str, str]:
    """Which arrays a data set is made of, as the file calls them and as we do."""
    theirs = KERAS if set(KERAS) <= set(names) else KERAS_TEST
    theirs = theirs if set(theirs) <= set(names) else {}
    ours = {name: name for name in (*WHOLE, *PARTS, *OPTIONAL) if name in names}
    return {**ours, **theirs}


def _check_room(size: int, path: Path) -> None:
    if not fits(size, torch.device("cpu")):
        raise ClasswiseError(
            f"{path} holds {_bytes(size)} of arrays, more than half of the free memory; store them "
            "as .npy files and give their folder as npy:PATH, which is not read into memory"
        )


def _member(archive: zipfile.ZipFile, one: zipfile.ZipInfo, path: Path) -> Any:
    with archive.open(one) as stream:
        check_header(stream, one.file_size, f"{path}: {one.filename}")
    with archive.open(one) as stream:
        return npy_format.read_array(stream, allow_pickle=False)


def _plain_size(path: Path, remedy: str) -> int:
    """Bytes of a plain file; pipes and devices have no size to check."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise ClasswiseError(f"no file {path}; {remedy}") from None
    except OSError as reason:
        raise ClasswiseError(f"cannot read {path}: {reason.strerror or reason}") from None
    if not stat.S_ISREG(found.st_mode):
        raise ClasswiseError(f"{path} is no plain file; {remedy}")
    return found.st_size


def _seen(path: Path, reason: Exception) -> str:
    """What a file is instead, as far as its first bytes tell."""
    try:
        with path.open("rb") as stream:
            begin = stream.read(512)
    except OSError as trouble:
        return f"it cannot be read ({trouble.strerror or trouble})"
    if not begin:
        return "it is empty"
    if begin.startswith(npy_format.MAGIC_PREFIX):
        return "it is one .npy array; use np.savez with images= and labels="
    if begin.startswith(b"PK"):
        return f"it is a damaged one ({reason})"
    if b"\0" not in begin:
        words = begin[:20].decode("utf-8", "replace")
        return f"it begins with the text {words!r}; make one with np.savez(PATH, images=, labels=)"
    return "it is some other kind of file; make one with np.savez(PATH, images=, labels=)"


def _bytes(size: int) -> str:
    """A size as people read it, also an absurd one.

    >>> _bytes(12), _bytes(3 * 10**9)
    ('12 bytes', '3.0 GB')
    """
    if size < 10**6:
        return f"{size} bytes"
    return f"{size / 1e9:.1f} GB" if size < 10**18 else "more bytes than any disk holds"
