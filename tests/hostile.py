"""Hostile inputs from a seed: words for parsers, bytes for readers, and what may come of them.

`make test` tries a few thousand words and a few hundred files of each kind; a longer soak calls
`try_parser` and `try_reader` with more. Only success or a ClasswiseError is right.
"""

import contextlib
import io
import json
import os
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import torch
from PIL import Image
from safetensors.torch import save

from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.auditing.question import parse_question
from classwise.data.arrays import map_npy
from classwise.data.pictures import NotAnImage, picture_size, read_picture
from classwise.data.sources import open_data, read_spec, with_option
from classwise.data.splits import split_indices
from classwise.data.unpickle import read_pickle
from classwise.errors import ClasswiseError
from classwise.judging.audits import read_ledger
from classwise.judging.contract import load_contract, parse_share
from classwise.judging.group_files import kept_groupings, read_table
from classwise.judging.samples import read_samples
from classwise.recipe_text import load_recipe, parse_recipe
from classwise.record.ledger import Ledger
from classwise.record.remarks import read_remarks
from classwise.record.rows import Predictions, Stamp
from classwise.record.shards import read_abouts, write_rows
from classwise.record.tensors import read_tensors
from classwise.spelling import (
    conditions_meant,
    parse_call,
    parse_eps,
    parse_value,
    split_outside_brackets,
)
from classwise.texts import parse_json, parse_toml
from classwise.training.config import TrainConfig, choose_device
from classwise.training.run import Run
from classwise.training.watched import parse_watched

WORDS = int(os.environ.get("CLASSWISE_HOSTILE_WORDS", "2000"))  # per parser
FILES = int(os.environ.get("CLASSWISE_HOSTILE_FILES", "200"))  # per reader

PIECES = [
    *("pgd-20", "clean", "suite", "apgd-ce", "square", "eps", "8/255", "trades", "ccm", "at"),
    *("digits", "longtail", "cifar10", "npz:", "folder", "npy:x", "test:", "worst", "cnn", "true"),
    *("(", ")", "[", "]", "{", "}", ",", "=", "+", ">", ">=", ":", "@", "/", "-", ".", "'", '"'),
    *("%", "#", " ", "\n", "\t", "\r", "\0", "\x1b[2J", "\ud800", "\udcff", "é", "²", "٣", "０"),
    *("0", "1", "1e999", "-1", "1e-999", "nan", "inf", "1j", "b'x'", "...", "0x10", "1_0", "None"),
    *("1" * 400, "9" * 5000, "(" * 50, "[" * 300, "-" * 300, "a." * 200, "~nobody/x", "~"),
    *("/" + "x" * 5000, "x" * 12000, "lambda:0", "*a", "**a", "x if y else z", "f'{a}'", "a:=1"),
    *("last:", "first:", "0.1", "1/0", "1e99999999", "beta=6", "size=", "width=", "..", "\\"),
]
PIECES += ["pgd-20(step=2/255,restarts=3)", "trades(beta=6)+ccm", "folder(x, size=[8, 8])", "ema"]
PIECES += [
    "suite(apgd-ce,square(queries=50),eps=0.1)",
    "longtail(digits, factor=10)",
    "eps/4",
    "0.05",
]
PIECES += [
    "worst>=0.2",
    "epochs=3",
    "fgsm(eps=0.2)",
    "mod:Blur(radius=2)>pgd-3",
    "last:0.5",
    "40 %",
]
TOML = [
    '[[rule]]\nunder = "pgd-20"\nno_class_below = 0.2\n',
    "rule",
    "[[rule]]\n",
    "[a]\n",
    'under = "pgd-20"\n',
    "no_class_below = 0.2\n",
    "a.b = 1\n",
]
TOML += [
    'compose = "trades + ccm"\n',
    "[trades]\n",
    "beta = 6\n",
    "eps = 1\n",
    "= ",
    '"""',
    "a" * 300,
]
TOML += ["a." * 40 + "b = 1\n", "x = " + "[" * 500, "y = 1979-05-27\n", "z = " + "7" * 4400 + "\n"]
JSON = ['{"data": ', '{"class_names": ', '["a", "b"]', "}", "{", "[", "]", ",", ":", "null", "NaN"]
JSON += [
    "1" * 5000,
    "1e999",
    '"\\ud800"',
    '"a"',
    "-1",
    "[" * 400,
    '{"a":' * 400,
    "true",
    "100000000",
]
JSON += [
    '"superclass_of": [0, 99999999]',
    '"config": ',
    '"identity": 3',
    '"notes": []',
    '"seen": 1',
]


def words(rng: random.Random, pieces: list[str], most: int = 12) -> str:
    """Some pieces in a row, now and then with letters exchanged."""
    count = rng.randint(1, most) if rng.random() < 0.6 else 1
    text = "".join(rng.choices(pieces, k=count))
    if rng.random() < 0.3 and text:
        at = rng.randrange(len(text))
        text = text[:at] + chr(rng.choice([*range(32, 127), 0x2028, 0xFEFF])) + text[at + 1 :]
    return text


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


def _config(text: str) -> None:
    name, _, value = text.partition("=")
    fields = [*TrainConfig.model_fields]
    TrainConfig(**{fields[len(name) % len(fields)]: parse_value(value)})


def _eps(text: str) -> None:
    parse_eps(text)
    parse_eps(text, float("inf"))


def _text_files(read: Callable[[Path], Any]) -> Callable[[str, Path], None]:
    def parse(text: str, place: Path) -> None:
        file = place / "given.toml"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        read(file)

    return parse


def _share(text: str) -> None:
    with contextlib.suppress(ValueError):  # what pydantic makes a message of
        parse_share(text)


Parser = Callable[[str], Any]
PARSERS: dict[str, tuple[list[str], Parser]] = {
    "parse_call": (PIECES, parse_call),
    "parse_value": (PIECES, parse_value),
    "parse_eps": (PIECES, _eps),
    "split": (PIECES, lambda text: split_outside_brackets(text, ",")),
    "recipe": (PIECES, lambda text: parse_recipe(text, imports=())),
    "attacks": (PIECES, lambda text: parse_conditions(text, Threat.of(0.1), own=False)),
    "watch": (PIECES, lambda text: parse_watched(f"test:{text}")),
    "question": (PIECES, lambda text: parse_question(text, ["cat"])),
    "meant": (PIECES, lambda text: conditions_meant(text, ["pgd-20 eps=8/255", text])),
    "data spelling": (PIECES, read_spec),
    "data": (PIECES, lambda text: open_data(f"npz:/nowhere/{text}")),
    "data option": (PIECES, lambda text: with_option(text, "folder", "skip_bad=true")),
    "share": (PIECES, _share),
    "valid": (PIECES, lambda text: split_indices(torch.tensor([0, 0, 1, 1]), text)),
    "config": (PIECES, _config),
    "device": (PIECES, choose_device),
    "json": (JSON, lambda text: parse_json(text, "it")),
    "toml": (TOML, lambda text: parse_toml(text, "it")),
}
TEXT_FILES: dict[str, tuple[list[str], Callable[[str, Path], None]]] = {
    "contract": (TOML, _text_files(load_contract)),
    "recipe file": (TOML, _text_files(load_recipe)),
}


def try_parser(name: str, count: int, seed: int = 0, place: Path | None = None) -> int:
    """Give so many words to a parser; return how many it took. Anything else is raised."""
    rng, taken = random.Random(f"{name} {seed}"), 0
    for _ in range(count):
        if name in PARSERS:
            pieces, parse = PARSERS[name]
            text = words(rng, pieces)
        else:
            pieces, of_file = TEXT_FILES[name]
            assert place is not None
            text, parse = words(rng, pieces), lambda text, do=of_file: do(text, place)
        taken += accepted(lambda text=text, parse=parse: parse(text), repr(text[:300]))
    return taken


def accepted(do: Callable[[], Any], what: str) -> bool:
    """Whether something went well; a ClasswiseError that can be printed is as good."""
    try:
        do()
    except ClasswiseError as reason:
        if "\x1b" in str(reason).encode().decode():
            raise AssertionError(f"{what} speaks to the terminal") from None
        return False
    except NotAnImage:  # which the reader of a folder counts and names
        return False
    except Exception as reason:
        raise AssertionError(
            f"{type(reason).__name__} from {what}: {str(reason)[:300]}"
        ) from reason
    return True


# Readers: good bytes, a file to put them into, and how it is read.


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
    content = path.read_bytes()
    path.unlink()
    return content


CARD = {
    "recipe_name": "at",
    "data": {"name": "digits", "class_names": ["cat", "dog"], "superclass_of": [0, 1]},
}
REMARKS = {"m": {"seen": {"d": ["random"]}, "probed": [], "black_box": True, "notes": {"d k": "x"}}}
GROUPS = {"format": 1, "name": "camera", "data_hash": "d", "samples": {"a": [0, 1], "b": [2]}}
BATCH = {"labels": [1, 2, 70000], "names": ["a", "b"], "more": (1, 0.5, None, True)}


def _ledger(folder: Path) -> None:
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


def _picture_bytes(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(stream, kind)
    return stream.getvalue()


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
    "parquet": (shard_bytes, "x.parquet", _ledger, True),
    "run.json": (
        lambda _: json.dumps(CARD | {"config": {"epochs": 3}}).encode(),
        "run.json",
        _run,
        True,
    ),
    "remarks.json": (lambda _: json.dumps(REMARKS).encode(), "remarks.json", _remarks, True),
    "groups": (lambda _: json.dumps(GROUPS).encode(), "groups/x.json", kept_groupings, True),
    "group table": (
        lambda _: b"sample,camera\n0,front\n1,rear|front\n2,\n",
        "x.csv",
        lambda p: read_table(p, 3),
        False,
    ),
    "png": (lambda _: _picture_bytes("PNG"), "x.png", _picture, False),
    "jpeg": (lambda _: _picture_bytes("JPEG"), "x.jpg", _picture, False),
    "gif": (lambda _: _picture_bytes("GIF"), "x.gif", _picture, False),
    "bmp": (lambda _: _picture_bytes("BMP"), "x.bmp", _picture, False),
}


def try_reader(name: str, count: int, place: Path, seed: int = 0) -> int:
    """Damage a good file so many times; return how often it was read all the same."""
    make, file, read, folder = READERS[name]
    rng, taken = random.Random(f"{name} {seed}"), 0
    path = place / file
    path.parent.mkdir(parents=True, exist_ok=True)
    good = make(place)
    if name.startswith("npy"):  # the other one stays whole
        (place / "images.npy").write_bytes(npy_bytes(np.zeros((4, 1, 4, 4), np.uint8)))
        (place / "labels.npy").write_bytes(npy_bytes(np.arange(4) % 2))
    for content in files(rng, good, count):
        path.write_bytes(content)
        taken += accepted(lambda: read(place if folder else path), f"{name} {content[:200]!r}")
    return taken


def files(rng: random.Random, good: bytes, count: int) -> Iterator[bytes]:
    """The good bytes first, which must be taken, then damaged ones."""
    yield good
    for _ in range(count - 1):
        yield damaged(rng, good)


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
    return ledger.shelf(Stamp("r", "last", "test", "m", "d", "k")).samples, _ledger(place)


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
