"""Pictures as images of one size: out of the cache, into it, or, where it cannot be, in memory."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from classwise.data.cache import Cache, NoCache, Pictures, check_room
from classwise.data.decoding import MANY, Crew, Decode, Shard, decode_all, decode_rows, workers_for
from classwise.data.meanwhile import Meanwhile, Questions
from classwise.data.memory import empty_images, fits
from classwise.data.store import Place
from classwise.errors import ClasswiseError

Tell = Callable[[str], None]
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Decoded:
    """Images in the order of their files, and what was odd about these."""

    images: Place
    kinds: Counter[str]
    bad: dict[int, str]  # row -> why it could not be decoded

    @classmethod
    def of(cls, images: Place, shards: dict[int, Shard]) -> Decoded:
        """Put together what every shard says."""
        kinds, bad = Counter[str](), {}
        for first in sorted(shards):
            kinds.update(shards[first].kinds)
            bad.update({int(row): why for row, why in shards[first].bad.items()})
        return cls(images, kinds, bad)

    @property
    def good(self) -> torch.Tensor:
        """Rows that hold an image."""
        rows = torch.arange(len(self.images))
        return rows[~torch.isin(rows, torch.tensor(sorted(self.bad)).long())]


def decoded(
    cache: Cache, box: tuple[int, int], tell: Tell, advance: Advance, questions: Questions
) -> Decoded:
    """The images of some pictures, decoded now unless the cache has them.

    `tell` takes a line for the user, `advance` how many more pictures are done. `questions` that
    need all images are answered on the way.
    """
    size = len(cache.pictures.files) * 3 * math.prod(box)
    try:
        return _kept(cache, box, tell, advance, questions)
    except NoCache as reason:
        if not fits(size, torch.device("cpu")):
            raise ClasswiseError(
                f"{spell_bytes(size)} of decoded images fit neither into memory nor into the "
                f"cache ({reason}); set CLASSWISE_CACHE to a folder with room, or give a smaller "
                "size"
            ) from None
        tell(
            f"decoded images cannot be kept ({reason}), so the next command decodes them again; "
            "set CLASSWISE_CACHE to a folder with room"
        )
    return _in_memory(cache.pictures, box, advance)


def _kept(
    cache: Cache, box: tuple[int, int], tell: Tell, advance: Advance, questions: Questions
) -> Decoded:
    images = None
    if not cache.complete:
        check_room(cache.pictures.place, 0)
        with cache.lock() as lock:
            cache = Cache.of(cache.pictures)  # somebody else may have been at work meanwhile
            if not cache.complete:
                with Meanwhile(cache, questions) as meanwhile:
                    for shard in _decode_missing(cache, box, tell):
                        lock.check()
                        cache.add(shard)
                        meanwhile.add(shard)
                        advance(len(shard.sums))
                images = meanwhile.images  # what was read of them meanwhile has been verified
    return Decoded.of(cache.mapped() if images is None else images, cache.shards)


def _decode_missing(cache: Cache, box: tuple[int, int], tell: Tell) -> Iterator[Shard]:
    """Decode what is not there yet, by processes if it is much."""
    pictures = cache.pictures
    begun = cache.box == box
    if not begun:
        check_room(pictures.place, len(pictures.files) * 3 * math.prod(box))
    target = cache.begin(box)
    missing, count = cache.missing, len(pictures.files)
    left = sum(min(cache.step, count - first) for first in missing)
    some = f"{left} of {count} images are still" if begun else f"{count} images are"
    tell(
        f"{some} to be decoded, once: {spell_bytes(cache.nbytes)} in {pictures.place} (`classwise "
        "data cache` lists and clears)"
    )
    workers = workers_for(len(missing))
    with contextlib.ExitStack() as stack:
        decode: Decode = partial(decode_rows, target.room(), target.fit)
        if left >= MANY:
            with contextlib.suppress(OSError):  # no process can be had: threads do it, too
                decode = stack.enter_context(Crew(target, workers)).decode
        yield from decode_all(decode, pictures.names, missing, cache.step, workers)


def _in_memory(pictures: Pictures, box: tuple[int, int], advance: Advance) -> Decoded:
    images = empty_images((len(pictures.files), 3, *box))
    shards, step = {}, 16
    decode = partial(decode_rows, images.numpy(), pictures.fit)
    firsts = range(0, len(pictures.files), step)
    for shard in decode_all(decode, pictures.names, firsts, step, workers_for(len(firsts))):
        shards[shard.first] = shard
        advance(len(shard.sums))
    return Decoded.of(images, shards)


def spell_bytes(size: int) -> str:
    """A size as people read it.

    >>> spell_bytes(12), spell_bytes(3_400_000), spell_bytes(25 * 10**10)
    ('12 bytes', '3.4 MB', '250.0 GB')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
