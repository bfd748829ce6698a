"""The nearest point of a hyperplane inside the cube of images, without sorting."""

from __future__ import annotations

import torch
from torch import Tensor

from classwise.types import Images, PerSample

_MOST = 50  # Newton steps; each passes at least one kink, in practice fewer than ten are needed


def toward_plane(images: Images, normal: Tensor, rise: PerSample, *, steep_first: bool) -> Tensor:
    """Return the shortest offset δ with ⟨w, δ⟩ = `rise` that keeps x + δ in [0, 1].

    Each pixel moves in the direction sᵢ of sign(`rise`·wᵢ) until it meets a face of the cube, at
    room uᵢ. Linf: δᵢ = sᵢ·min(r, uᵢ) with Σ|wᵢ|·min(r, uᵢ) = |rise|; L2: |wᵢ|·min(λ, uᵢ/|wᵢ|) with
    Σ wᵢ²·min(λ, uᵢ/|wᵢ|) = |rise|. Both left sides are concave, rising and piecewise linear, so
    Newton from 0 climbs to the solution from below. Where the plane misses the cube, δ is the
    corner nearest to it.

    >>> x, w = torch.tensor([0.5, 0.9]).view(1, 1, 1, 2), torch.ones(1, 1, 1, 2)
    >>> toward_plane(x, w, torch.tensor([0.4]), steep_first=False).flatten()
    tensor([0.3000, 0.1000])
    """
    sign = normal.sign() * rise.sign().view(-1, 1, 1, 1)
    size = normal.abs()
    room = torch.where(sign > 0, 1 - images, images)
    if steep_first:
        weight, limit = size.square(), room / size.clamp(min=1e-30)
    else:
        weight, limit = size, room
    reach = solve_capped_sum(_flat(weight), _flat(limit), rise.abs()).view(-1, 1, 1, 1)
    length = torch.minimum(reach, limit)
    return sign * (length * size if steep_first else length)


def solve_capped_sum(weight: Tensor, limit: Tensor, wanted: PerSample) -> PerSample:
    """Return the smallest r ≥ 0 with Σᵢ aᵢ·min(r, cᵢ) = `wanted`, or the largest cᵢ if none does.

    >>> solve_capped_sum(torch.ones(1, 3), torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([6.0]))
    tensor([3.])
    """
    r = wanted / weight.sum(1).clamp(min=1e-30)
    most = limit.where(weight > 0, 0).amax(1)
    whole = weight * limit
    total = whole.sum(1)
    going = torch.ones_like(wanted, dtype=torch.bool)
    for _ in range(_MOST):
        free = (limit > r[:, None]).to(weight.dtype)
        steep = torch.linalg.vecdot(weight, free)
        fixed = total - torch.linalg.vecdot(whole, free)
        # on the piece that r lies in, the sum is fixed + steep·r
        ahead = torch.where(steep > 0, (wanted - fixed) / steep.clamp(min=1e-30), most)
        ahead = torch.minimum(torch.maximum(ahead, r), most)
        r, going = torch.where(going, ahead, r), going & (ahead > r)
        if not bool(going.any()):
            break
    return torch.minimum(r, most)


def _flat(images: Tensor) -> Tensor:
    """All pixels of an image in a row, in the order in which they lie in memory."""
    if images.is_contiguous(memory_format=torch.channels_last):
        images = images.permute(0, 2, 3, 1)
    return images.flatten(1)
