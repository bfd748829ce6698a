"""How many images go through a network at a time: as many as the memory that is kept holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from classwise.memory import LARGEST_KEPT
from classwise.types import Images, LogitModel

# Bytes that one pass on a processor may keep for its gradients. With several times as much, the
# memory of a pass goes back to the system and every page is fetched anew for the next one; with a
# quarter of it, small calls begin to cost.
_KEPT = 256 << 20
# Bytes of one layer of a pass, with gradients or without. The C library gives larger blocks back
# whatever it is told, and adds a few bytes of its own to each.
_LAYER = LARGEST_KEPT - 4096
LEAST = 2  # images, however large
FEW = 8  # images that no look with gradients is worth its pass for


def images_at_once(model: LogitModel, images: Images, width: int) -> int:
    """How many images to ask about in one pass, `width` at the most; no result depends on it.

    Counted, never timed, so that it is the same whenever it is asked: half of what autograd keeps
    of a pass over two images, beside the weights, and half of its largest layer, whose gradient is
    as large.

    >>> images_at_once(nn.Flatten(), torch.zeros(9, 3, 4, 4), 500)
    500
    """
    if images.device.type != "cpu" or min(len(images), width) <= LEAST:
        return width
    with largest_layer(model) as seen:
        kept = _kept(model, images[:2])
    return max(LEAST, min(seen.at_once(2, width), 2 * _KEPT // max(kept, 1)))


class Layers:
    """The largest tensor that was seen."""

    def __init__(self) -> None:
        self.bytes = 0

    def see(self, found: Any, given: Any) -> Any:
        """Look at what was computed of what was given, and hand it on."""
        places = [_place(one) for one in given if isinstance(one, Tensor)]
        for one in found if isinstance(found, tuple | list) else (found,):
            if isinstance(one, Tensor) and _place(one) not in places:  # no view, as of weights
                self.bytes = max(self.bytes, one.numel() * one.element_size())
        return found

    def at_once(self, count: int, width: int) -> int:
        """How many images to ask about in one pass, if it saw one of `count`."""
        return min(width, max(LEAST, count * _LAYER // max(self.bytes, 1)))


@contextmanager
def largest_layer(model: LogitModel) -> Iterator[Layers]:
    """See the largest tensor that a model computes meanwhile.

    Listens where Python calls torch. Below that, inside TorchScript, it can only be done with what
    imports torch's compiler, which takes a second of the process.

    >>> with largest_layer(nn.Identity()) as seen:
    ...     _ = torch.zeros(2, 8) + torch.zeros(2, 1)
    >>> seen.bytes, seen.at_once(2, 500)
    (64, 500)
    """
    layers, parts = Layers(), model.modules() if isinstance(model, nn.Module) else ()
    scripted = any(isinstance(part, torch.jit.ScriptModule) for part in parts)
    with _Below(layers) if scripted else _Calls(layers):
        yield layers


class _Calls(TorchFunctionMode):
    """Sees what Python asks of torch."""

    def __init__(self, layers: Layers) -> None:
        super().__init__()
        self.layers = layers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute, and look at what came of it."""
        return self.layers.see(func(*args, **(kwargs or {})), args)


class _Below(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees everything that is computed, whoever asks for it."""

    def __init__(self, layers: Layers) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers = layers

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute, and look at what came of it."""
        return self.layers.see(func(*args, **(kwargs or {})), args)


def _place(tensor: Tensor) -> int:
    """Where its values lie, its own or those that it is a view of; 0 where torch does not tell."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):  # such as of sparse tensors
        return 0


def _kept(model: LogitModel, images: Images) -> int:
    """Bytes that autograd keeps of one pass, every block once and no weights."""
    blocks: dict[int, int] = {}

    def seen(tensor: Tensor) -> Tensor:
        whole = tensor.untyped_storage()
        blocks[whole.data_ptr()] = whole.nbytes()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(seen, lambda one: one):
        logits = model(images.detach().requires_grad_())
    del logits
    if isinstance(model, nn.Module):
        for weight in model.parameters():
            blocks.pop(weight.untyped_storage().data_ptr(), None)
    return sum(blocks.values())
