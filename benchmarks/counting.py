"""How much work a computation is: its multiplications and additions, as torch counts them."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class Work(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch gives it no types
    """Counts the floating-point operations of convolutions and matrix products, backward too.

    `FlopCounterMode` hooks modules besides, which `torch.autograd.grad` does not take.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # nor this
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run it, and count it if it is worth counting."""
        out = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.flops += count(*args, **(kwargs or {}), out_val=out)
        return out
