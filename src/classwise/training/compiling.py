"""Networks compiled by torch, on request: kernels of their own, or a recorded graph of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.models.classifier import all_outputs
from classwise.slots import Slots
from classwise.types import LogitModel

Compile: TypeAlias = Literal["off", "on", "graphs"]


def check_compile(how: Compile, slots: Slots, device: torch.device) -> None:
    """Refuse what a recorded graph cannot do."""
    if how == "graphs" and device.type != "cuda":
        raise ClasswiseError(
            f"compile=graphs records CUDA graphs, but the device is {device}; set compile=on, or "
            "leave it out"
        )
    if how == "graphs" and slots.inner is not None and any(v.stop for v in slots.inner.views):
        raise ClasswiseError(
            "compile=graphs records one batch size, but here samples leave the attack early; set "
            "compile=on, or leave it out"
        )


class Compiler:
    """Compiles what it is given, each thing once; with `off` it gives back what it got.

    Weights that move in place, a twin's too, stay those of the compiled function.
    """

    def __init__(self, how: Compile) -> None:
        self.how: Compile = how
        self._made: dict[tuple[int, Callable[..., Tensor]], nn.Module] = {}

    def model(self, model: nn.Module) -> nn.Module:
        """The model; it gives its logits."""
        return model if self.how == "off" else self._compiled(model, _logits)

    def outputs(self, model: nn.Module) -> LogitModel:
        """All outputs of the model, those behind the K classes, too."""
        if self.how == "off":
            return partial(all_outputs, model)
        return self._compiled(model, all_outputs)

    def _compiled(self, model: nn.Module, ask: Callable[..., Tensor]) -> nn.Module:
        if (id(model), ask) not in self._made:
            self._made[id(model), ask] = _Compiled(model, ask, self.how)
        return self._made[id(model), ask]

    def next_step(self) -> None:
        """Outputs of graphs recorded before are used up."""
        if self.how == "graphs":
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]


def _logits(model: nn.Module, images: Tensor) -> Tensor:
    found: Tensor = model(images)
    return found


class _Compiled(nn.Module):
    """A model that is compiled on its first call, with words where that fails."""

    def __init__(self, model: nn.Module, ask: Callable[..., Tensor], how: Compile) -> None:
        super().__init__()
        self.model = model  # kept, so that nobody else gets its place in memory
        self.ask = torch.compile(ask, mode="reduce-overhead" if how == "graphs" else None)
        self.training = model.training

    def forward(self, images: Tensor) -> Tensor:
        """Ask."""
        try:
            return self.ask(self.model, images)
        except torch._dynamo.exc.TorchDynamoException as reason:
            words = str(reason).strip().splitlines()[:1] or [type(reason).__name__]
            raise ClasswiseError(
                f"torch could not compile the model ({words[0]}); leave compile out"
            ) from reason
