"""Models of transformers answer with an object; this takes their logits out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from classwise.models.same_names import SameNames
from classwise.types import Images, Logits


class LogitsOf(SameNames):
    """A model of transformers, which wraps its logits in an object."""

    def __init__(self, model: nn.Module, published: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.published = published  # classes of the weights that came with it

    def forward(self, images: Images) -> Logits:
        """Ask, and take the logits out."""
        found: Logits = self.model(pixel_values=images).logits
        return found

    def renamed(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A file's tensors under the names that the installed transformers has for them.

        Names in files and in memory differ since version 5; only its own loader knows how.
        """
        make: Any = type(self.model)
        try:
            found, told = make.from_pretrained(
                None, config=self.model.config, state_dict=dict(tensors), output_loading_info=True
            )
        except Exception:  # wrong shapes, for one; who asks will list what does not fit
            return dict(tensors)
        taken = {n: t for n, t in found.state_dict().items() if n not in told["missing_keys"]}
        return taken | {n: tensors[n] for n in told["unexpected_keys"] if n in tensors}
