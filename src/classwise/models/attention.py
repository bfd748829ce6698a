"""Transformers for images: a small ViT, and XCiT, whose attention is among channels."""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.models.resnet import convolution

_HEADS = {"vit": 6, "xcit": 8}  # of attention, at every width
_WAVES = 32  # sines and cosines for each of the two directions of XCiT's positions


def vit_s_224(channels: int, *, width: int = 384, depth: int = 12) -> tuple[nn.Module, int]:
    """ViT-S/16 for 224×224 pixels; 22,050,664 parameters with 3 channels and 1000 classes."""
    return ViT(channels, _divisible(width, "vit"), depth, size=224, patch=16), width


def vit_s_32(channels: int, *, width: int = 384, depth: int = 12) -> tuple[nn.Module, int]:
    """ViT-S for 32×32 pixels, in patches of 4×4."""
    return ViT(channels, _divisible(width, "vit"), depth, size=32, patch=4), width


def xcit_s12_224(channels: int, *, width: int = 384, depth: int = 12) -> tuple[nn.Module, int]:
    """XCiT-S12/16 for large images; 26,253,304 parameters with 3 channels and 1000 classes."""
    return XCiT(channels, _divisible(width, "xcit"), depth, halvings=4), width


def xcit_s12_32(channels: int, *, width: int = 384, depth: int = 12) -> tuple[nn.Module, int]:
    """XCiT-S12 for small images: two of the four convolutions of its stem, so patches of 4×4."""
    return XCiT(channels, _divisible(width, "xcit"), depth, halvings=2), width


def _divisible(width: int, kind: str) -> int:
    heads = _HEADS[kind]
    if width % heads:
        near = heads * max(1, round(width / heads))
        raise ClasswiseError(f"width={width}: {heads} heads share it evenly; take {near}")
    return width


def _norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=1e-6)


def _linear(inside: int, outside: int) -> nn.Linear:
    layer = nn.Linear(inside, outside)
    nn.init.trunc_normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer


def _hidden(width: int) -> nn.Sequential:
    """Two layers with four times the width between them."""
    first, second = _linear(width, 4 * width), _linear(4 * width, width)
    return nn.Sequential(OrderedDict(fc1=first, gelu=nn.GELU(), fc2=second))


class ViT(nn.Module):
    """Patches and a class token with learnt positions; the token's last state."""

    def __init__(self, channels: int, width: int, depth: int, *, size: int, patch: int) -> None:
        super().__init__()
        self.size = size
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.token = nn.Parameter(1e-6 * torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + (size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(_ViTBlock(width) for _ in range(depth)))
        self.norm = _norm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Images of the size that the positions are for."""
        if x.shape[-2:] != (self.size, self.size):
            raise ClasswiseError(
                f"this ViT has places for {self.size}×{self.size} pixels, and the images have "
                f"{x.shape[-2]}×{x.shape[-1]}; take vit-s-32 or vit-s-224, or xcit-s12-32, which "
                "takes any size"
            )
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        out: Tensor = self.norm(self.blocks(x))[:, 0]
        return out


class _ViTBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = _norm(width), _norm(width)
        self.qkv, self.proj = _linear(width, 3 * width), _linear(width, width)
        self.mlp = _hidden(width)

    def forward(self, x: Tensor) -> Tensor:
        """Attention among places, then two layers; both are added to what was there."""
        count, places, width = x.shape
        parts = self.qkv(self.norm1(x)).view(count, places, 3, _HEADS["vit"], -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value)
        x = x + self.proj(seen.transpose(1, 2).reshape(count, places, width))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class XCiT(nn.Module):
    """Blocks over patches, then two blocks in which a class token looks at them."""

    def __init__(self, channels: int, width: int, depth: int, *, halvings: int) -> None:
        super().__init__()
        counts = [channels, *(max(1, width >> n) for n in reversed(range(halvings)))]
        stem: list[nn.Module] = []
        for inside, outside in pairwise(counts):
            unit = nn.Sequential(convolution(inside, outside, 3, 2), nn.BatchNorm2d(outside))
            stem += [unit, nn.GELU()]
        self.stem = nn.Sequential(*stem[:-1])
        self.places = nn.Conv2d(2 * _WAVES, width, 1)
        self.blocks = nn.ModuleList(_ChannelBlock(width) for _ in range(depth))
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        nn.init.trunc_normal_(self.token, std=0.02)
        self.looks = nn.Sequential(*(_TokenBlock(width) for _ in range(2)))
        self.norm = _norm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Images of any size."""
        x = self.stem(x)
        shape = x.shape[-2:]
        x = (x + self.places(_waves(*shape, like=x))).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x, shape)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        out: Tensor = self.norm(self.looks(x))[:, 0]
        return out


def _waves(high: int, wide: int, *, like: Tensor) -> Tensor:
    """Sines and cosines of the row, then of the column; frequencies fall from 1 to 1/10000.

    Computed in float32 whatever the network computes in, as its authors do.
    """
    steps = torch.arange(_WAVES, device=like.device, dtype=torch.float32)
    periods = 10000 ** (2 * torch.div(steps, 2, rounding_mode="floor") / _WAVES)

    def along(count: int) -> Tensor:
        place = torch.arange(1, count + 1, device=like.device, dtype=torch.float32)
        angle = (place / (count + 1e-6) * (2 * math.pi))[:, None] / periods
        return torch.stack([angle[:, 0::2].sin(), angle[:, 1::2].cos()], 2).flatten(1)

    rows, columns = along(high)[:, None], along(wide)[None]
    both = torch.cat([rows.expand(-1, wide, -1), columns.expand(high, -1, -1)], 2)
    return both.permute(2, 0, 1)[None].to(like)


class _ChannelBlock(nn.Module):
    """Attention among channels, 3×3 convolutions of each channel, two layers; each is scaled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (_norm(width) for _ in range(3))
        self.gamma1, self.gamma2, self.gamma3 = (nn.Parameter(torch.ones(width)) for _ in range(3))
        self.temperature = nn.Parameter(torch.ones(_HEADS["xcit"], 1, 1))
        self.qkv, self.proj = _linear(width, 3 * width), _linear(width, width)
        self.near1 = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.bn = nn.BatchNorm2d(width)
        self.near2 = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.mlp = _hidden(width)

    def forward(self, x: Tensor, shape: torch.Size) -> Tensor:
        """All three are added to what was there."""
        x = x + self.gamma1 * self._attended(self.norm1(x))
        maps = self.norm3(x).transpose(1, 2).reshape(*x.shape[::2], *shape)
        maps = self.near2(self.bn(F.gelu(self.near1(maps))))
        x = x + self.gamma3 * maps.flatten(2).transpose(1, 2)
        out: Tensor = x + self.gamma2 * self.mlp(self.norm2(x))
        return out

    def _attended(self, x: Tensor) -> Tensor:
        count, places, width = x.shape
        parts = self.qkv(x).view(count, places, 3, _HEADS["xcit"], -1)
        query, key, value = parts.permute(2, 0, 3, 4, 1)
        alike = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).transpose(-2, -1)
        seen = (alike * self.temperature).softmax(-1) @ value
        out: Tensor = self.proj(seen.permute(0, 3, 1, 2).reshape(count, places, width))
        return out


class _TokenBlock(nn.Module):
    """The class token looks at all places; the others are only normalised."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = _norm(width), _norm(width)
        self.gamma1, self.gamma2 = (nn.Parameter(torch.ones(width)) for _ in range(2))
        self.q, self.k, self.v, self.proj = (_linear(width, width) for _ in range(4))
        self.mlp = _hidden(width)

    def forward(self, x: Tensor) -> Tensor:
        """Two steps, each added to what was there."""
        normed = self.norm1(x)
        x = x + self.gamma1 * torch.cat([self._looked(normed), normed[:, 1:]], 1)
        x = self.norm2(x)
        moved = self.gamma2 * self.mlp(x[:, :1])
        return x + torch.cat([moved, x[:, 1:]], 1)

    def _looked(self, x: Tensor) -> Tensor:
        def heads(y: Tensor) -> Tensor:
            return y.view(*y.shape[:2], _HEADS["xcit"], -1).transpose(1, 2)

        asked = x[:, :1]
        seen = F.scaled_dot_product_attention(
            heads(self.q(asked)), heads(self.k(x)), heads(self.v(x))
        )
        out: Tensor = self.proj(seen.transpose(1, 2).flatten(2))
        return out
