"""A folder of images, one sub-folder per class."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.markup import escape
from rich.progress import Progress

from classwise.data.attributes import Attributes
from classwise.data.cache import Cache, Pictures
from classwise.data.dataset import Dataset, DataSource, check_flag
from classwise.data.decoded import decoded
from classwise.data.listing import Listing, counted, few, list_parts
from classwise.data.mapped import Mapped
from classwise.data.naming import named_by_file, with_groups
from classwise.data.pictures import Fit, NotAnImage, picture_size, pillow
from classwise.data.splits import held_out
from classwise.data.store import Place, Stored
from classwise.errors import ClasswiseError, cut, unknown
from classwise.files import given_path
from classwise.limits import MOST_PIXELS
from classwise.terminal import Terminal

T = TypeVar("T")
R = TypeVar("R")
# What becomes of the images of a part: the sets that are trained on, or audited.
Used = Callable[[Dataset], Sequence[Dataset]]


def _as_it_is(data: Dataset) -> Sequence[Dataset]:
    return (data,)


@dataclass(frozen=True)
class Looks:
    """How pictures become images of one size, and what may be done to these."""

    size: int | Sequence[int] | None = None
    fit: Fit = "resize"
    skip_bad: bool = False
    mirrored: bool = True
    moved: int | None = None
    spare: int = 0  # pixels that are stored beyond the size

    def __post_init__(self) -> None:
        if self.fit not in ("resize", "crop"):
            raise unknown("fit", str(self.fit), ["resize", "crop"])
        check_flag("skip_bad", self.skip_bad)
        check_flag("mirrored", self.mirrored)
        box_of(self.size, self.spare)


def folder(
    path: str,
    size: int | Sequence[int] | None = None,
    fit: Fit = "resize",
    skip_bad: bool = False,
    mirrored: bool = True,
    moved: int | None = None,
    spare: int = 0,
    group: str = "",
) -> DataSource:
    """Your own images, one folder per class; PATH/train and PATH/test, or a third is held out.

    `size=32` or `size=[height, width]` scales every image, with `fit=crop` it keeps its
    proportions and loses its edges; without `size` all images must have the same one. Every image
    becomes RGB. `skip_bad=true` leaves out files that cannot be decoded. `mirrored=false` says
    that a mirror image is no longer of the same class (signs, letters), `moved=2` that an image may
    be moved by two pixels and no more. Decoded images are kept in a cache; with `spare=32` they are
    kept larger by so many pixels, out of which training cuts random windows and audits the middle.
    `group=folder` keeps the images of a folder within a class on one side of every split,
    `group=prefix` those whose names are alike up to the last _ or -.
    """
    how, root = Looks(size, fit, skip_bad, mirrored, moved, spare), given_path(path)
    parts = named_by_file([with_groups(part, group) for part in list_parts(root)], root)
    return open_listings("folder", f"folder:{root.resolve().name}", root, parts, how, group)


def open_listings(
    kind: str, label: str, root: Path, parts: Sequence[Listing], how: Looks, whole: str = ""
) -> DataSource:
    """Decode one part, of which a third is held out, or a training and a test part.

    `whole` is the attribute whose groups no split divides.
    """
    pillow(f"{kind}:PATH")

    def divided(every: Dataset) -> Sequence[Dataset]:
        source = held_out(label, every)
        return source.train, source.test

    used = _as_it_is if len(parts) > 1 else divided
    sets = decode_parts(kind, root, parts, how, whole, used)
    return held_out(label, sets[0]) if len(sets) == 1 else DataSource(label, sets[0], sets[1])


def decode_parts(
    kind: str,
    root: Path,
    parts: Sequence[Listing],
    how: Looks,
    whole: str = "",
    used: Used = _as_it_is,
) -> list[Dataset]:
    """The images of each part, all of one size.

    Hash and statistics of what will be `used` of a part are found while it is decoded.
    """
    reader, box = _Reader(root, how, kind, used), box_of(how.size, how.spare)
    with warnings.catch_warnings(action="ignore"), reader.progress:  # Pillow's, about odd files
        caches = [Cache.of(Pictures(part.folder, part.files, box, how.fit)) for part in parts]
        box = box or _known_size(caches)
        box = box or reader.common_size([file for part in parts for file in part.files])
        sets = [
            reader.decode(part, cache, box, whole)
            for part, cache in zip(parts, caches, strict=True)
        ]
    if reader.bad and not how.skip_bad:
        raise reader.refusal()
    for part, data in zip(parts, sets, strict=True):
        _refuse_empty(part, data)
    reader.tell([file for part in parts for file in part.ignored])
    return sets


class _Reader:
    """Decodes files on all cores, and remembers what was odd about them."""

    def __init__(self, root: Path, how: Looks, kind: str, used: Used) -> None:
        self.root, self.how, self.kind, self.used = root, how, kind, used
        self.kinds: Counter[str] = Counter()
        self.bad: list[str] = []
        self.console = Terminal(stderr=True)
        self.progress = Progress(
            console=self.console, transient=True, disable=not self.console.is_terminal
        )

    def decode(self, part: Listing, cache: Cache, box: tuple[int, int], whole: str) -> Dataset:
        """Decode every file, each into its own row; leave out what cannot be decoded."""

        def of(images: Place) -> Dataset:
            return Dataset(
                Stored.of(images, spare=self.how.spare),
                torch.tensor(part.labels).long(),
                part.class_names,
                mirrored=self.how.mirrored,
                moved=self.how.moved,
                attributes=Attributes.of(part.attributes, whole),
            )

        def questions(images: Mapped) -> list[Callable[[], object]]:
            sets = self.used(of(images))
            return [*(one.find_hash for one in sets), sets[0].find_statistics]

        words = f"decoding {part.folder.name}"
        task = self.progress.add_task(
            escape(words), total=len(part.files), visible=not cache.complete
        )
        advance = partial(self.progress.advance, task)
        found = decoded(cache, box, self._say, advance, questions)
        self.kinds += found.kinds
        for row, why in sorted(found.bad.items()):
            self.bad.append(f"{self._short(part.files[row])} ({why})")
        data = of(found.images)
        return data.subset(found.good) if found.bad else data

    def common_size(self, files: Sequence[Path]) -> tuple[int, int]:
        """Return the one size of all images, or say which sizes there are and what to do."""

        def one(file: Path) -> tuple[int, int] | NotAnImage:
            try:
                return picture_size(file)
            except NotAnImage as reason:
                return reason

        examples: dict[tuple[int, int], Path] = {}
        counts: Counter[tuple[int, int]] = Counter()
        bad = []
        for file, size in zip(files, self._each(one, files, "looking at sizes"), strict=True):
            if isinstance(size, NotAnImage):
                bad.append(f"{self._short(file)} ({size})")
            else:
                counts[size] += 1
                examples.setdefault(size, file)
        if not counts:
            raise ClasswiseError(
                f"none of the {len(files)} image files in {self.root} can be decoded: {few(bad)}"
            )
        if len(counts) > 1:
            some = [
                f"{_times(size)} ({n}, such as {self._short(examples[size])})"
                for size, n in counts.most_common(3)
            ]
            raise ClasswiseError(
                f"images in {self.root} have {len(counts)} different sizes, from "
                f"{_times(min(counts))} to {_times(max(counts))} pixels, most often "
                f"{', '.join(some)}; write {self.kind}({self.root}, size=32) to scale them all, "
                "and with fit=crop behind that to keep proportions and cut the middle"
            )
        return next(iter(counts))

    def refusal(self) -> ClasswiseError:
        """Build the error that names and counts the bad images."""
        return ClasswiseError(
            f"{len(self.bad)} of {sum(self.kinds.values()) + len(self.bad)} images in {self.root} "
            f"cannot be decoded: {few(self.bad)}; repair or remove them, or leave them out with "
            f"--skip-bad, that is {self.kind}(PATH, skip_bad=true)"
        )

    def tell(self, ignored: Sequence[Path]) -> None:
        """Print one line about conversions, skipped and ignored files, if there were any."""
        converted = [f"{n} {kind}" for kind, n in sorted(self.kinds.items()) if kind != "RGB"]
        said = [f"converted to RGB: {', '.join(converted)}"] if converted else []
        if self.bad:
            said.append(f"skipped {counted(len(self.bad), 'bad image')}: {few(self.bad)}")
        if ignored:
            names = few([self._short(file) for file in ignored])
            said.append(f"ignored {counted(len(ignored), 'other file')}: {names}")
        if said:
            self._say("; ".join(said))

    def _say(self, words: str) -> None:
        line = f"{self.kind}:{self.root.name}: {words}"
        self.console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _each(self, do: Callable[[T], R], items: Sequence[T], words: str) -> Iterator[R]:
        """Map over items on all cores, in order."""
        task = self.progress.add_task(words, total=len(items))
        pool = ThreadPoolExecutor(os.cpu_count() or 1)
        try:
            for result in pool.map(do, items):
                self.progress.advance(task)
                yield result
        finally:
            pool.shutdown(cancel_futures=True)  # Ctrl-C does not wait for the rest

    def _short(self, file: Path) -> str:
        return str(file.relative_to(self.root) if file.is_relative_to(self.root) else file)


def box_of(size: int | Sequence[int] | None, spare: int = 0) -> tuple[int, int] | None:
    """Read the size option, and pixels to spare, as (height, width) of what is stored."""
    if isinstance(spare, bool) or not isinstance(spare, int) or spare < 0 or spare % 2:
        raise ClasswiseError(f"spare is {spare!r}; give an even number of pixels, such as 32")
    if size is None:
        if spare:
            raise ClasswiseError(f"spare={spare} needs a size, as in size=224, spare={spare}")
        return None
    sides: list[Any] = list(size) if isinstance(size, list | tuple) else [size, size]
    if len(sides) != 2 or not all(
        isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in sides
    ):
        raise ClasswiseError(f"size is {size!r}; write size=32, or size=[height, width]")
    sides = [side + spare for side in sides]
    if sides[0] * sides[1] > MOST_PIXELS:
        raise ClasswiseError(
            f"size={cut(size, 40)} asks for images of more than {MOST_PIXELS} pixels; write size=32"
        )
    return sides[0], sides[1]


def _known_size(caches: Sequence[Cache]) -> tuple[int, int] | None:
    """The one size of all images, where the cache holds them all: no file need be opened."""
    sizes = {cache.box if cache.complete else None for cache in caches}
    return sizes.pop() if len(sizes) == 1 else None


def _refuse_empty(part: Listing, data: Dataset) -> None:
    sizes, listed = data.sizes.tolist(), set(part.labels)
    for number, name in enumerate(part.class_names):
        if number in listed and not sizes[number]:
            raise ClasswiseError(f"class {name!r} in {part.folder} has no readable images")


def _times(size: tuple[int, int]) -> str:
    return f"{size[0]}×{size[1]}"
