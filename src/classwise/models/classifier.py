"""Every classifier is normalise -> features -> head, and shows K logits to the world."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from classwise.types import Images, Logits


class Classifier(nn.Module):
    """Images in [0, 1] to K logits.

    The head may have `extra` outputs behind the first K (label augmentation uses them). Attacks,
    counts and audits call the model and see K logits; only the objective asks for `outputs`.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        features: nn.Module,
        width: int,
        num_classes: int,
        *,
        mean: Sequence[float],
        deviation: Sequence[float],
        extra: int = 0,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(1, -1, 1, 1))
        self.features = features
        self.head = nn.Linear(width, num_classes + extra)
        if extra:  # idle at first, so that adding slots does not disturb the K classes
            nn.init.zeros_(self.head.weight[num_classes:])
            nn.init.zeros_(self.head.bias[num_classes:])

    def outputs(self, images: Images) -> Logits:
        """All K + M outputs."""
        normalised = (images - self.mean) / self.deviation
        found: Logits = self.head(self.features(normalised))
        return found

    def forward(self, images: Images) -> Logits:
        """Return the K class logits."""
        return self.outputs(images)[:, : self.num_classes]


def all_outputs(model: nn.Module, images: Images) -> Logits:
    """K + M outputs of our classifiers, plain logits of any other model."""
    found: Logits = model.outputs(images) if isinstance(model, Classifier) else model(images)
    return found
