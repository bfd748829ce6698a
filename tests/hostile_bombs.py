"""Small files that ask for gigabytes, minutes or the whole process; each is refused."""

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import torch
from hostile import accepted
from hostile_files import CARD, npy_bytes, npy_claiming, read_all, shard_bytes, zip_of

from classwise.data.sources import open_data
from classwise.data.splits import split_indices
from classwise.data.unpickle import read_pickle
from classwise.record.ledger import Ledger
from classwise.record.rows import Stamp
from classwise.record.tensors import read_tensors
from classwise.training.run import Run


def png_claiming(width: int, height: int) -> bytes:
    """The header of a picture of any size, and a few bytes of it."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(1000))),
        (b"IEND", b""),
    ]
    parts = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _npz(place: Path, **members: bytes) -> Any:
    good = {
        "images": npy_bytes(np.zeros((4, 1, 4, 4), np.uint8)),
        "labels": npy_bytes(np.arange(4)),
    }
    path = place / "x.npz"
    path.write_bytes(zip_of({f"{name}.npy": c for name, c in (good | members).items()}))
    return open_data(f"npz:{path}")


def _npz_with_forged_size(place: Path) -> Any:
    """A zip whose directory claims 4 GB for a member of a hundred bytes."""
    header = npy_claiming("(4294967000,)")
    content = bytearray(zip_of({"images.npy": header, "labels.npy": npy_bytes(np.arange(4))}))
    at = content.index(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", 4294967000 + len(header))
    (place / "x.npz").write_bytes(content)
    return open_data(f"npz:{place / 'x.npz'}")


def _npy(place: Path, images: bytes) -> Any:
    (place / "images.npy").write_bytes(images)
    (place / "labels.npy").write_bytes(npy_bytes(np.arange(4)))
    return open_data(f"npy:{place}")


def _written(place: Path, name: str, content: bytes) -> Path:
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _card(place: Path, **data: Any) -> Any:
    card = CARD | {"data": {"class_names": ["a", "b"]} | data}
    _written(place, "run.json", json.dumps(card).encode())
    return Run(place).about


def _rows(place: Path, **values: str) -> Any:
    (place / "x.parquet").write_bytes(shard_bytes(place))
    changed = ", ".join(f"({value}) AS {name}" for name, value in values.items())
    source = f"SELECT * REPLACE ({changed}) FROM '{place / 'x.parquet'}'"
    about = json.dumps(CARD).replace("'", "''")
    parquet_of(place / "y.parquet", source, f"classwise_ledger: '1', about: '{about}'")
    (place / "x.parquet").unlink()
    ledger = Ledger(place)
    return ledger.shelf(Stamp("r", "last", "test", "m", "d", "k")).samples, read_all(place)


def _folder(place: Path) -> Any:
    for name in ("a", "b"):
        _written(place, f"{name}/x.png", png_claiming(10_000, 10_000))
    return open_data(f"folder({place}, size=8)")


def _pickled(content: bytes) -> Any:
    return read_pickle(content, "batch")


DEEP = b"(" * 1 + b")" + b"\x85" * 1_000_000  # a tuple in a tuple in a tuple …
# Each would take gigabytes, minutes or the whole process; each is refused.
BOMBS: dict[str, Callable[[Path], Any]] = {
    "a label of 10^8": lambda p: _npz(p, labels=npy_bytes(np.array([0, 1, 2, 10**8]))),
    "20000 class names": lambda p: _npz(p, class_names=npy_bytes(np.arange(20_000).astype(str))),
    "superclass 10^8": lambda p: _npz(p, superclass_of=npy_bytes(np.array([0, 1, 2, 10**8]))),
    "1 TB in an npz": lambda p: _npz(p, images=npy_claiming("(1000000000000,)")),
    "a forged size in an npz": _npz_with_forged_size,
    "1 TB of names": lambda p: _npz(p, class_names=npy_claiming("(2,)", "<U125000000000")),
    "1 TB in an npy": lambda p: _npy(p, npy_claiming("(1000000000000,)")),
    "a negative shape": lambda p: _npy(p, npy_claiming("(-4, -1, 4, 4)")),
    "a shape of 400 digits": lambda p: _npy(p, npy_claiming(f"({'9' * 60}, {'9' * 40})")),
    "a nested header": lambda p: _npy(p, npy_claiming("(" * 90)),
    "a pickle of 8 GB of bytes": lambda _: _pickled(b"\x80\x04\x8e" + struct.pack("<Q", 8 << 30)),
    "a pickle of 8 GB of letters": lambda _: _pickled(b"\x80\x04\x8d" + struct.pack("<Q", 8 << 30)),
    "a pickle of an 8 GB array": lambda _: _pickled(b"\x80\x05\x96" + struct.pack("<Q", 8 << 30)),
    "a pickle of 4 GB of bytes": lambda _: _pickled(b"\x80\x03B" + struct.pack("<I", 4294967295)),
    "a pickle with a far memory": lambda _: _pickled(
        b"\x80\x02}r" + struct.pack("<I", 2**30) + b"."
    ),
    "a pickle nested deep": lambda _: _pickled(b"\x80\x02}" + DEEP + b"K\x01s."),
    "1 TB header in safetensors": lambda p: read_tensors(
        _written(p, "x.safetensors", struct.pack("<Q", 10**12) + b"{}")
    ),
    "a picture of 10000×10000": _folder,
    "20000 classes in run.json": lambda p: _card(p, class_names=[str(k) for k in range(20_000)]),
    "superclass 10^12 in run.json": lambda p: _card(p, superclass_of=[0, 10**12]),
    "17 MB of run.json": lambda p: (
        Run(_written(p, "run.json", b"[" + b"[]," * 6_000_000).parent).about
    ),
    "label 10^8 in a ledger": lambda p: _rows(p, label="100000000", predicted="100000000"),
    "sample 10^12 in a ledger": lambda p: _rows(p, sample="sample + 1000000000000"),
    "sample below 0 in a ledger": lambda p: _rows(p, sample="-1 - sample"),
    "a label below 0 in a ledger": lambda p: _rows(p, label="-1", predicted="-1"),
    "a ledger without labels": lambda p: _rows(p, label="NULL"),
    "words for labels in a ledger": lambda p: _rows(p, label="'cat'"),
    "a verdict that contradicts itself": lambda p: _rows(p, correct="false"),
    "a split of 10^99999999": lambda _: split_indices(torch.tensor([0, 0]), "1e99999999"),
    "images of 10^9 pixels a side": lambda p: open_data(f"folder({p}, size=1000000000)"),
}


def refuse_bombs(place: Path) -> None:
    """Every bomb must be refused in words."""
    for number, (name, read) in enumerate(BOMBS.items()):
        here = place / str(number)
        here.mkdir()
        assert not accepted(lambda read=read, here=here: read(here), name), f"{name} was taken"


def parquet_of(path: Path, select: str, notes: str = "classwise_ledger: '1'") -> None:
    """A table that is written without any of our care."""
    with duckdb.connect() as base:
        base.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet, KV_METADATA {{{notes}}})")
