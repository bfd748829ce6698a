"""Damaged files from a seed for every reader; only success or a ClasswiseError is right."""

import contextlib
import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hostile import accepted
from official_files import idx_bytes, mat_bytes
from onnx_files import residual
from PIL import Image
from safetensors.torch import save

from classwise.data.arrays import map_npy
from classwise.data.idx import read_idx
from classwise.data.labelled import ImageRows
from classwise.data.mat import read_mat
from classwise.data.pictures import picture_size, read_picture
from classwise.data.sources import open_data
from classwise.data.unpickle import read_pickle
from classwise.judging.audits import read_ledger
from classwise.judging.group_files import groupings_in, read_table
from classwise.judging.samples import read_samples
from classwise.models.onnx_file import onnx_bytes, read_onnx
from classwise.models.onnx_network import entrance_of, translated
from classwise.models.onnx_wire import NotTranslated
from classwise.record.prediction_files import read_predictions
from classwise.record.remarks import read_remarks
from classwise.record.rows import Predictions, Stamp
from classwise.record.shards import read_abouts, write_rows
from classwise.record.tensors import read_tensors
from classwise.training.run import Run

FILES = int(os.environ.get("CLASSWISE_HOSTILE_FILES", "200"))  # per reader


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Bytes with some changed, cut off, doubled, or with an absurd number in them."""
    found = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at, kind = rng.randrange(len(found) + 1), rng.randrange(6)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del found[at : at + rng.randint(1, 64)]
        elif kind == 2:
            found[at:at] = found[at : at + rng.randint(1, 64)]
        elif kind == 3:
            size = rng.choice(["<I", ">I", "<Q"])
            number = rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 10**8, 10**9])
            found[at : at + struct.calcsize(size)] = struct.pack(size, number)
        elif kind == 4:
            found[at : at + 8] = rng.choice(
                [b"-1", b"1000000000000", b"\xff" * 8, b"[[[[[[", b"\x1b"]
            )
        elif len(found) > 8:
            del found[rng.randrange(8, len(found)) :]
        if not found:
            found += b"x"
    return bytes(found)


def npz_bytes() -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(
        stream,
        images=np.zeros((6, 3, 4, 4), np.uint8),
        labels=np.array([0, 1, 0, 1, 0, 1]),
        class_names=np.array(["cat", "dog"]),
    )
    return stream.getvalue()


def npy_bytes(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npy_claiming(shape: str, kind: str = "|u1") -> bytes:
    """A header of an array with no array behind it."""
    words = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    padded = words.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded.encode()


def zip_of(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def shard_bytes(place: Path) -> bytes:
    """Predictions of two classes, as an audit writes them."""
    count = 6
    zeros, numbers = np.zeros(count), np.arange(count)
    found = Predictions(
        "clean",
        numbers,
        numbers % 2,
        numbers % 2,
        zeros.astype(np.float32),
        zeros,
        numbers * 0,
        np.full(count, None, object),
    )
    path = place / "good.parquet"
    write_rows(path, found, Stamp("r", "last", "test", "m", "d", "k"), CARD)
    # Without its checksum: what lies behind it is to be tried as well.
    content = path.read_bytes().replace(b"blake2b=", b"unsealed")
    path.unlink()
    return content


CARD = {
    "recipe_name": "at",
    "data": {"name": "digits", "class_names": ["cat", "dog"], "superclass_of": [0, 1]},
}
REMARKS = {"m": {"seen": {"d": ["random"]}, "probed": [], "black_box": True, "notes": {"d k": "x"}}}
GROUPS = {"format": 1, "name": "camera", "data_hash": "d", "samples": {"a": [0, 1], "b": [2]}}
BATCH = {"labels": [1, 2, 70000], "names": ["a", "b"], "more": (1, 0.5, None, True)}


def read_all(folder: Path) -> None:
    read_abouts(folder)  # most damage ends here
    read_ledger(folder)
    read_samples(folder)


def _run(folder: Path) -> None:
    run = Run(folder)
    assert isinstance(run.about, dict)
    if "config" in run.about:
        assert run.config.epochs


def _picture(path: Path) -> None:
    picture_size(path)
    read_picture(path, (4, 4), "resize")


def _image_table(path: Path) -> None:
    rows = ImageRows(path, False)
    rows.read()
    rows.parts()


def _picture_bytes(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(stream, kind)
    return stream.getvalue()


def _onnx(path: Path) -> None:
    images = torch.zeros(2, 1, 8, 8)
    with contextlib.suppress(NotTranslated):  # onnxruntime may have a try then
        graph = read_onnx(path, onnx_bytes(path))
        translated(graph, entrance_of(graph, "x.onnx", images), (1, 8, 8))


def _remarks(folder: Path) -> None:
    facts = {"model_hash": "m", "data_hash": "d", "attack_key": "k"}
    read_remarks(folder, [facts])


Reader = tuple[
    Callable[[Path], bytes], str, Callable[[Path], Any], bool
]  # bytes, file, read, folder
READERS: dict[str, Reader] = {
    "npz": (lambda _: npz_bytes(), "x.npz", lambda p: open_data(f"npz:{p}"), False),
    "npy": (lambda _: npy_bytes(np.zeros((4, 1, 4, 4), np.uint8)), "images.npy", map_npy, True),
    "npy labels": (lambda _: npy_bytes(np.arange(4) % 2), "labels.npy", map_npy, True),
    "pickle": (
        lambda _: pickle.dumps(BATCH, protocol=2),
        "batch",
        lambda p: read_pickle(p.read_bytes(), "batch"),
        False,
    ),
    "safetensors": (
        lambda _: save({"a": torch.zeros(3, 2)}, {"classwise": json.dumps({"format": 1})}),
        "x.safetensors",
        read_tensors,
        False,
    ),
    "parquet": (shard_bytes, "x.parquet", read_all, True),
    "run.json": (
        lambda _: json.dumps(CARD | {"config": {"epochs": 3}}).encode(),
        "run.json",
        _run,
        True,
    ),
    "remarks.json": (lambda _: json.dumps(REMARKS).encode(), "remarks.json", _remarks, True),
    "groups": (lambda _: json.dumps(GROUPS).encode(), "groups/x.json", groupings_in, True),
    "group table": (
        lambda _: b"sample,camera\n0,front\n1,rear|front\n2,\n",
        "x.csv",
        lambda p: read_table(p, 3),
        False,
    ),
    "onnx": (lambda _: residual()[0].SerializeToString(), "x.onnx", _onnx, False),
    "image table": (
        lambda _: b"path,label,track\na.png,cat,t1\nb.png,dog,t2\nc/d.png,cat,\n",
        "x.csv",
        _image_table,
        False,
    ),
    "idx": (
        lambda _: idx_bytes(np.zeros((3, 4, 4), np.uint8)),
        "x",
        lambda p: read_idx(p.read_bytes(), "x"),
        False,
    ),
    "mat": (
        lambda _: mat_bytes({"X": np.zeros((4, 3), np.uint8), "w": "word"}, do_compression=True),
        "x.mat",
        lambda p: read_mat(p.read_bytes(), "x.mat"),
        False,
    ),
    "predictions": (
        lambda _: b"sample,label,predicted,eps\n0,cat,dog,0\n1,dog,dog,0\n0,cat,cat,8/255\n",
        "x.csv",
        read_predictions,
        False,
    ),
    "png": (lambda _: _picture_bytes("PNG"), "x.png", _picture, False),
    "jpeg": (lambda _: _picture_bytes("JPEG"), "x.jpg", _picture, False),
    "gif": (lambda _: _picture_bytes("GIF"), "x.gif", _picture, False),
    "bmp": (lambda _: _picture_bytes("BMP"), "x.bmp", _picture, False),
}


def set_out(name: str, place: Path) -> tuple[bytes, Path, Callable[[], Any]]:
    """Put a whole file into a folder: its bytes, where it is, and what reads it."""
    make, file, read, folder = READERS[name]
    path = place / file
    path.parent.mkdir(parents=True, exist_ok=True)
    good = make(place)
    if name.startswith("npy"):  # the other one stays whole
        (place / "images.npy").write_bytes(npy_bytes(np.zeros((4, 1, 4, 4), np.uint8)))
        (place / "labels.npy").write_bytes(npy_bytes(np.arange(4) % 2))
    path.write_bytes(good)
    return good, path, lambda: read(place if folder else path)


def try_reader(name: str, count: int, place: Path, seed: int = 0) -> int:
    """Damage a good file so many times; return how often it was read all the same."""
    rng, taken = random.Random(f"{name} {seed}"), 0
    good, path, read = set_out(name, place)
    for content in files(rng, good, count):
        path.write_bytes(content)
        taken += accepted(read, f"{name} {content[:200]!r}")
    return taken


def files(rng: random.Random, good: bytes, count: int) -> Iterator[bytes]:
    """The good bytes first, which must be taken, then damaged ones."""
    yield good
    for _ in range(count - 1):
        yield damaged(rng, good)
