"""Data that do not fit in memory: decoding once, starting again, training out of a file.

python benchmarks/store.py [--parts decode,second,train,read] [--gigabytes 1] [--folder FOLDER]

Pictures and a store of 224-pixel images are made up in a temporary folder (of `--folder`, which
needs room for them) and removed at the end. `train` reads all of the store for its hash and its
statistics and trains on `--images` of them from all over it. Memory and processor time are read
from `/proc`, so it needs Linux. Prints Markdown.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from measuring import Part, Steal, begin, end, limit
from numpy.lib.format import open_memmap
from PIL import Image

from classwise.data import decoded
from classwise.data.batches import Batches
from classwise.data.mapped import Mapped
from classwise.data.pictures import read_picture
from classwise.data.sources import open_data
from classwise.training.loop import train

SIDE, STORED, BATCH = 224, 256, 256  # pixels used and, with 32 to spare, stored; images
IMAGENET, CORES, WANTED = 1_281_167, 16, 3000  # training images; a machine; images/s of its GPU
MOST_ANONYMOUS = 1 << 30  # bytes beyond the loaded program, whatever the size of the store
MOST_SECONDS = 2.0  # of processor time, until the second command has its data
SECOND = """
import json, sys, time
from classwise.data.sources import open_data
from classwise.data.store import Stored
wall, before = time.perf_counter(), time.process_time()
source = open_data(f"folder:{sys.argv[1]}")
facts = source.train.content_hash, source.train.channel_statistics
print(json.dumps([time.perf_counter() - wall, time.process_time() - before]))
"""


def part_decode(args: argparse.Namespace) -> None:
    """Processor time of a picture, and whether threads or processes are quicker."""
    print("\n## Decoding\n")
    print("| pictures | to | ms of one core | images/s and core | threads | processes |")
    print("| --- | --- | --- | --- | --- | --- |")
    for words, size, side, count in (("500×375 JPEG", (500, 375), STORED, 400),
                                     ("32×32 JPEG", (32, 32), 32, 4000)):  # fmt: skip
        root = args.work / f"pictures{side}"
        files = make_pictures(root, count, size)
        before = time.process_time()
        for file in files[: count // 4]:
            read_picture(file, (side, side), "crop")
        spent = (time.process_time() - before) / (count // 4)
        rates = [f"{count / _decoding(root, side, many):.0f}/s" for many in (10**9, 1)]
        row = f"| {words} | {side} | {1000 * spent:.2f} | {1 / spent:.0f} | {' | '.join(rates)} |"
        print(row, flush=True)
        if side == STORED:
            minutes = IMAGENET * spent / CORES / 60
    gigabytes = IMAGENET * 3 * STORED**2 / 1e9
    print(
        f"\nImageNet with {STORED} pixels stored: {IMAGENET} pictures on {CORES} such cores take "
        f"{minutes:.0f} minutes, once, and {gigabytes:.0f} GB."
    )


def _decoding(root: Path, side: int, many: int) -> float:
    """Seconds to fill an empty cache; from `many` files on by processes."""
    began = time.perf_counter()
    empty = tempfile.TemporaryDirectory(dir=root.parent)
    with patch.object(decoded, "MANY", many), empty as cache:
        os.environ["CLASSWISE_CACHE"] = cache
        open_data(f"folder({root}, size={side}, fit=crop)")
    return time.perf_counter() - began


def make_pictures(root: Path, count: int, size: tuple[int, int]) -> list[Path]:
    """JPEG files like photographs in their size, of ten classes."""
    random, contents = np.random.default_rng(0), []
    for _ in range(min(count, 50)):
        small = random.integers(0, 256, (-(-size[1] // 8), -(-size[0] // 8), 3), np.uint8)
        stream = io.BytesIO()
        Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(
            stream, "JPEG", quality=95
        )
        contents.append(stream.getvalue())
    files = [root / f"class{i % 10}" / f"{i:06d}.jpg" for i in range(count)]
    for number, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(contents[number % len(contents)])
    return files


def part_second(args: argparse.Namespace) -> None:
    """How soon the second command on a folder of 40 000 pictures has its data."""
    root, count = args.work / "many", args.pictures
    make_pictures(root, count, (32, 32))
    place = {**os.environ, "CLASSWISE_CACHE": str(args.work / "cache")}
    spent = []
    for _ in range(4):
        found = subprocess.run(
            [sys.executable, "-c", SECOND, str(root)], env=place, check=True, capture_output=True
        )
        spent.append(json.loads(found.stdout))
    again = [min(times) for times in zip(*spent[1:], strict=True)]
    print(f"\n## Second command on a folder of {count} pictures\n")
    print("| | seconds | of processor time |\n| --- | --- | --- |")
    print(f"| first, decoding | {spent[0][0]:.1f} | {spent[0][1]:.1f}, and the workers' |")
    print(f"| second, best of 3 | {again[0]:.2f} | {again[1]:.2f} |", flush=True)
    limit(again[1] < MOST_SECONDS, f"the second command took {again[1]:.1f} s of processor time")


def part_train(args: argparse.Namespace) -> None:
    """Anonymous memory while a model trains out of a store, in a process of its own."""
    make_store(args)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        facts = pool.apply(_trained, (args.work, args.images))
    size = args.gigabytes
    print(f"\n## Training out of a store of {size:g} GB, on {args.images} images of all over it\n")
    print("| | |\n| --- | --- |")
    print(f"| RssAnon before | {facts['before'] / 2**20:.0f} MiB |")
    print(f"| the most beyond that, hash, statistics and training | **{facts['most'] / 2**20:.0f} "
          f"MiB** |")  # fmt: skip
    print(f"| seconds, to the first epoch and in all | {facts['seconds']:.0f} |", flush=True)
    limit(facts["most"] < MOST_ANONYMOUS, f"{facts['most'] / 2**20:.0f} MiB of anonymous memory")


def make_store(args: argparse.Namespace) -> Path:
    """Images of 224 pixels as `.npy` files, with a class in their mean."""
    place: Path = args.work / "store"
    if place.exists():
        return place
    place.mkdir()
    count = int(args.gigabytes * 1e9 / (3 * SIDE**2))
    images = open_memmap(place / "images.npy", "w+", np.uint8, (count, 3, SIDE, SIDE))
    random, labels = np.random.default_rng(0), np.arange(count) % 10
    noise = random.integers(0, 100, (64, 3, SIDE, SIDE), np.uint8)
    for first in range(0, count, 64):
        some = labels[first : first + 64]
        images[first : first + 64] = noise[: len(some)] + (15 * some[:, None, None, None]).astype(
            np.uint8
        )
    images.flush()
    np.save(place / "labels.npy", labels)
    return place


def _trained(work: Path, images: int) -> dict[str, float]:
    """Train two epochs, and watch the memory meanwhile."""
    os.environ["CLASSWISE_CACHE"] = str(work / "cache")
    torch.set_num_threads(2)
    watch = Anonymous()
    began = time.perf_counter()
    with watch:
        train(
            "clean", data=f"npy:{work / 'store'}", out=work / "run", model="cnn(width=4)",
            epochs=2, batch_size=32, subset=images, valid=0.001, quiet=True,
        )  # fmt: skip
    seconds = time.perf_counter() - began
    return {"before": watch.before, "most": watch.most - watch.before, "seconds": seconds}


class Anonymous:
    """The most anonymous memory of this process while it is entered."""

    def __init__(self) -> None:
        self.before = self.most = self._now()
        self._ended = threading.Event()

    def __enter__(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            self.most = max(self.most, self._now())

    @staticmethod
    def _now() -> int:
        status = Path("/proc/self/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found, "/proc/self/status does not say how much memory is anonymous"
        return int(found[1]) * 1024


def part_read(args: argparse.Namespace) -> None:
    """Random batches out of the store: how many images a second, and how much of a core."""
    place = make_store(args)
    os.environ["CLASSWISE_CACHE"] = str(args.work / "cache")
    data = open_data(f"npy:{place}").train
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[: 16 * BATCH]
    print(f"\n## Random batches of {BATCH} out of {args.gigabytes:g} GB\n")
    print("| | images/s | MB/s | images/s and core |\n| --- | --- | --- | --- |")
    (place_of_all,) = data.pixels.places
    assert isinstance(place_of_all, Mapped), "images of a store are read from its file"
    verified = replace(data.pixels, places=(replace(place_of_all, watch=_verify),))
    ways = {
        "from the disk": data.pixels,
        "from the system's memory": data.pixels,
        "that, and verified, as images of the cache are the first time": verified,
    }
    for words, pixels in ways.items():
        if words == "from the disk":
            with (place / "images.npy").open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began, before = time.perf_counter(), time.process_time()
        for cut in torch.split(order, BATCH):
            pixels[cut]
        wall, spent = time.perf_counter() - began, time.process_time() - before
        rates = [len(order) / wall, len(order) * 3 * SIDE**2 / 1e6 / wall, len(order) / spent]
        print(f"| {words} | {' | '.join(f'{one:.0f}' for one in rates)} |", flush=True)
    cores, rate = WANTED / (len(order) / spent), WANTED * 3 * SIDE**2 / 1e6
    print(
        f"\n{WANTED} images/s take {cores:.2f} of such a core, and {rate:.0f} MB/s of a disk once "
        "the store is larger than memory."
    )
    one = Batches.of(data.subset(order), BATCH, torch.device("cpu"))
    began = time.perf_counter()
    for _ in one.in_order():
        pass
    print(
        f"With floats made on the same cores: {len(order) / (time.perf_counter() - began):.0f}/s."
    )


def _verify(_: np.ndarray, images: np.ndarray) -> None:
    for one in images:
        zlib.crc32(one.data)


PARTS: dict[str, Part] = {
    "decode": part_decode,
    "second": part_second,
    "train": part_train,
    "read": part_read,
}


def main() -> None:
    """Read the options and run."""
    say = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    say.add_argument("--parts", type=lambda t: t.split(","), default=list(PARTS))
    say.add_argument("--gigabytes", type=float, default=1.0)
    say.add_argument("--images", type=int, default=512, help="of the store, to train on")
    say.add_argument("--pictures", type=int, default=40_000)
    say.add_argument("--folder", type=Path, help="with room (default: that of temporary files)")
    args = say.parse_args()
    begin()
    steal = Steal()
    with tempfile.TemporaryDirectory(dir=args.folder) as work:
        args.work = Path(work)
        for part in args.parts:
            PARTS[part](args)
    print(f"\n{steal.words()}")
    end()


if __name__ == "__main__":
    main()
