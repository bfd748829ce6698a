"""A model around another one, in which every weight keeps the name that it has there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn


class SameNames(nn.Module):
    """Asks `model`; its weights fit with and without what is around it."""

    model: nn.Module

    def state_dict(self, *args: Any, **options: Any) -> Any:
        """The model's own, under its own names."""
        return self.model.state_dict(*args, **options)

    def load_state_dict(self, *args: Any, **options: Any) -> Any:
        """The reverse."""
        return self.model.load_state_dict(*args, **options)

    def named_parameters(self, *args: Any, **options: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """The model's own, under its own names."""
        return self.model.named_parameters(*args, **options)


def innermost(model: nn.Module) -> nn.Module:
    """The model whose names all that is around it keep: its parts are found by them."""
    while isinstance(model, SameNames):
        model = model.model
    return model
