"""What fits where: images stay uint8 in memory while they fit, and in a mapped file beyond that."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from classwise.data.places import cache_folder
from classwise.errors import ClasswiseError

SHARE = 0.5  # of the free memory that images may take; the rest is for the model and its gradients
CHUNK = 1 << 24  # bytes of images handled at a time


def free_bytes(device: torch.device) -> int | None:
    """Free memory of a device in bytes, or None where nobody can tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return _free_on_host()


def fits(size: int, device: torch.device) -> bool:
    """Whether so many bytes of images may live on the device."""
    free = free_bytes(device)
    return free is None or size <= SHARE * free


def empty_images(shape: Sequence[int]) -> Tensor:
    """Room for uint8 images: plain memory if it fits, else a mapped file that cleans itself up."""
    size = math.prod(shape)
    if fits(size, torch.device("cpu")):
        return torch.empty(tuple(shape), dtype=torch.uint8)
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # a full disk must be an error here, not a crash
                os.posix_fallocate(file.fileno(), 0, size)
            mapped = np.memmap(file, np.uint8, "w+", shape=tuple(shape))
    except OSError as reason:
        raise ClasswiseError(
            f"{size / 1e9:.1f} GB of images fit neither in memory nor in {folder} "
            f"({reason.strerror or reason}); use fewer or smaller images, or set CLASSWISE_CACHE "
            "to a folder with room"
        ) from None
    return torch.from_numpy(mapped)


def pieces(shape: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
    """Cut `count` images of this shape (n×c×h×w) into runs small enough to handle at a time."""
    step = max(1, CHUNK // max(1, math.prod(shape[1:])))
    return ((begin, min(begin + step, count)) for begin in range(0, count, step))


def _free_on_host() -> int | None:
    """Memory that could be had without swapping, within a container's limit if there is one."""
    free: list[int] = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        if limit.isdigit() and used.isdigit():
            free.append(max(int(limit) - int(used), 0))
    except (OSError, ValueError):
        pass
    return min(free) if free else None
