"""Freed memory is kept for the next pass instead of being given back; the most that was held."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # options of mallopt(3)
_KEPT = 1 << 30  # bytes
LARGEST_KEPT = 32 << 20  # bytes of a block that is kept; glibc allows no more


@cache
def keep_freed_memory() -> bool:
    """Tell the C library, for the whole process, to keep up to 1 GiB of freed memory.

    A pass over a batch frees tens of megabytes that the next one needs again. By default they may
    go back to the system in between, and then every page is fetched and zeroed anew: in one epoch
    of training a small network that took a quarter of the time. Leaves alone what the user has
    set, and does nothing where the C library is not glibc. Returns whether it did anything.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST_KEPT)) and bool(mallopt(_TRIM_THRESHOLD, _KEPT))


class PeakMemory:
    """The most memory that is held from now on: by the process, or by torch on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        # where it is not Linux, or not allowed, the peak is that since the process began
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def bytes(self) -> int | None:
        """The peak; None where nobody can tell."""
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        try:
            status = Path("/proc/self/status").read_text()
        except OSError:
            return None
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else None
