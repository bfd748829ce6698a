"""Random numbers that depend on what they are for, never on when they are asked.

Every draw is a function of (seed, purpose, epoch, sample index): it is the same for every
batch size, order, number of processes and after a resume. The generator is counter-based:
the keys and the element number are hashed (splitmix64's finaliser) with integer tensor
operations on the sample's own device, without a loop over samples.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15  # splitmix64's increment
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BITS = 24  # as many as a float32 holds exactly, so every dtype sees the same draw


@dataclass(frozen=True, slots=True)
class Draws:
    """A family of random numbers for one purpose in one epoch.

    >>> noise = Draws(seed=0, purpose="start", epoch=3)
    >>> both = noise.uniform(torch.tensor([5, 9]), (2,))
    >>> bool((noise.uniform(torch.tensor([9]), (2,)) == both[1]).all())
    True
    """

    seed: int
    purpose: str
    epoch: int = 0

    def uniform(
        self, index: Tensor, shape: Sequence[int] = (), dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Numbers in [0, 1), one block of `shape` per sample index."""
        # half precision has no room for 2^24: it sees the same draw, rounded
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        whole = self._hash(index, math.prod(shape)).to(wide)
        return whole.mul_(2.0**-_BITS).to(dtype).view(-1, *shape)

    def normal(
        self, index: Tensor, shape: Sequence[int] = (), dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Standard normal numbers by Box and Muller, one block of `shape` per sample index."""
        size = math.prod(shape)
        # the half keeps the logarithm finite
        both = (self._hash(index, 2 * size).double() + 0.5) * 2.0**-_BITS
        radius = (-2 * both[:, :size].log()).sqrt()
        return (radius * (2 * math.pi * both[:, size:]).cos()).to(dtype).view(-1, *shape)

    def noise(self, index: Tensor, shape: Sequence[int] = ()) -> Tensor:
        """Standard normal numbers in single precision for whole images: quicker than `normal`.

        Each hash has two halves, and Box and Muller's pair is used whole.
        """
        size = math.prod(shape)
        pairs = (size + 1) // 2
        counter = torch.arange(1, pairs + 1, device=index.device) * _signed(_GOLDEN)
        halves = _mix_(self._keys(index)[:, None] + counter).view(torch.int32)
        both = halves.to(torch.float32).mul_(2.0**-32).add_(0.5).view(-1, pairs, 2)
        radius = both[..., 0].clamp_min(2.0**-33).log_().mul_(-2).sqrt_()
        angle = both[..., 1] * (2 * math.pi)
        found = torch.cat([radius * angle.cos(), radius * angle.sin_()], dim=1)
        return found[:, :size].reshape(-1, *shape)

    def beta(
        self,
        index: Tensor,
        concentration: float,
        shape: Sequence[int] = (),
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Numbers from Beta(a, a), one block of `shape` per sample index; a = 1 is `uniform`.

        Two uniform numbers make each of them exactly, without rejection: ½ + ½·T/√(2a + T²) has
        this distribution if T is Student's t with 2a degrees of freedom, and Bailey's polar method
        gives T² = 2a·(U^(−1/a) − 1)·cos²(2πV), with the sign of the cosine.
        """
        if concentration == 1:
            return self.uniform(index, shape, dtype)
        size = math.prod(shape)
        both = (self._hash(index, 2 * size).double() + 0.5) * 2.0**-_BITS
        log = both[:, :size].log() / concentration
        power, rest = log.exp(), -log.expm1()  # U^(1/a), which may vanish, and 1 − U^(1/a)
        cosine = (2 * math.pi * both[:, size:]).cos()
        # 1 − T²/(2a + T²), multiplied by U^(1/a) above and below so that nothing overflows
        tail = power / (power + rest * cosine**2)
        near = 0.5 * tail / (1 + (1 - tail).sqrt())  # ½ − ½·|T|/√(2a + T²), exact near 0
        return torch.where(cosine < 0, near, 1 - near).to(dtype).view(-1, *shape)

    def integers(self, index: Tensor, high: int, shape: Sequence[int] = ()) -> Tensor:
        """Whole numbers from 0 to `high` - 1."""
        return (self.uniform(index, shape, torch.float64) * high).long()

    def choice(self, index: Tensor, odds: Tensor) -> Tensor:
        """One column per sample, drawn from the sample's own row of `odds` (of any sum)."""
        edges = odds.double().cumsum(dim=1)
        point = self.uniform(index, (1,), torch.float64) * edges[:, -1:]
        # right=True: a column with zero odds has no width and is never hit.
        column = torch.searchsorted(edges, point, right=True).squeeze(1)
        last = odds.gt(0).long().cumsum(dim=1).argmax(dim=1)  # guard against rounding at the end
        return torch.minimum(column, last)

    def order(self, count: int) -> Tensor:
        """A shuffled order of 0 … `count` - 1."""
        return self._keys(torch.arange(count)).argsort(stable=True)

    def _hash(self, index: Tensor, size: int) -> Tensor:
        """Whole numbers below 2^24, one row of `size` per sample index."""
        counter = torch.arange(1, size + 1, device=index.device) * _signed(_GOLDEN)
        mixed = _mix_(self._keys(index)[:, None] + counter)
        return (mixed >> (64 - _BITS)) & ((1 << _BITS) - 1)

    def _keys(self, index: Tensor) -> Tensor:
        words = f"{self.seed}/{self.purpose}/{self.epoch}".encode()
        stream = int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little")
        return _mix_(index.long() * _signed(_GOLDEN) + _signed(stream))


def _signed(number: int) -> int:
    """Write the same 64 bits as the signed integer that torch expects."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _mix_(x: Tensor) -> Tensor:
    """Scramble 64-bit integers in place; shifts are masked because torch's keep the sign."""
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        x ^= (x >> shift) & ((1 << (64 - shift)) - 1)
        x *= _signed(factor)
    x ^= (x >> 31) & ((1 << 33) - 1)
    return x
