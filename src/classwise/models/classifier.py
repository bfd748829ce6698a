"""Every classifier is normalise -> features -> head, and shows K logits to the world."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.models.extra import WithExtraOutputs
from classwise.types import Images, LogitModel, Logits


class CosineHead(nn.Linear):
    """Logits s·cos(w_k, h): both the features and each class's weights are normalised."""

    def __init__(self, width: int, outputs: int, scale: float) -> None:
        super().__init__(width, outputs, bias=False)
        self.scale = scale

    def forward(self, features: Tensor) -> Tensor:
        """Scaled cosines."""
        return self.scale * F.linear(F.normalize(features), F.normalize(self.weight))


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
        head: str = "linear",
        head_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(1, -1, 1, 1))
        self.features = features
        outputs = num_classes + extra
        if head == "cosine":
            self.head: nn.Linear = CosineHead(width, outputs, head_scale)
        else:
            self.head = nn.Linear(width, outputs)
        if extra:  # idle at first, so that adding slots does not disturb the K classes
            with torch.no_grad():
                self.head.weight[num_classes:] = 0
                if self.head.bias is not None:
                    self.head.bias[num_classes:] = 0

    def outputs(self, images: Images) -> Logits:
        """All K + M outputs."""
        normalised = (images - self.mean) / self.deviation
        found: Logits = self.head(self.features(normalised))
        return found

    def forward(self, images: Images) -> Logits:
        """Return the K class logits."""
        return self.outputs(images)[:, : self.num_classes]


class Around(nn.Module):
    """A model that asks another one and hands its outputs on, those behind the K classes, too."""

    def outputs(self, images: Images) -> Logits:
        """All K + M outputs."""
        raise NotImplementedError


def all_outputs(model: LogitModel, images: Images) -> Logits:
    """K + M outputs of models that have them, plain logits of any other model."""
    if isinstance(model, Classifier | WithExtraOutputs | Around):
        return model.outputs(images)
    return model(images)
