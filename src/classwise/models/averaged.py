"""A model that draws random numbers, as the steadier one that is the mean of some answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.models.blackbox import BlackBox
from classwise.models.classifier import Around, all_outputs
from classwise.types import Images, LogitModel, Logits


class Averaged(Around):
    """z̄(x) = 1/n Σᵢ zᵢ(x) over n passes; its gradient is the mean gradient.

    >>> Averaged(nn.Flatten(), 3)(torch.ones(1, 1, 1, 2))
    tensor([[1., 1.]])
    """

    def __init__(self, model: nn.Module, passes: int) -> None:
        super().__init__()
        self.model = model
        self.passes = passes  # a plain setting, so the ledger takes this for another model

    def forward(self, images: Images) -> Logits:
        """Mean logits."""
        mean: Logits = _mean(self.model, self.passes, images)
        return mean

    def outputs(self, images: Images) -> Logits:
        """Mean outputs, those behind the K classes, too."""
        mean: Logits = _mean(partial(all_outputs, self.model), self.passes, images)
        return mean


def mean_of_passes(model: LogitModel, passes: int) -> LogitModel:
    """The model itself for one pass, else the mean of so many."""
    if passes < 1:
        raise ClasswiseError(f"repeat is {passes}; give the number of passes to average, 1 or more")
    if passes == 1:
        return model
    if isinstance(model, nn.Module):
        averaged = Averaged(model, passes)
        averaged.training = model.training  # not train(): the parts keep their modes
        return averaged
    if isinstance(model, BlackBox):
        return replace(model, function=partial(_mean, model.function, passes))
    return partial(_mean, model, passes)


def _mean(function: Callable[[Any], Any], passes: int, images: Any) -> Any:
    answers = [function(images) for _ in range(passes)]
    if isinstance(answers[0], Tensor):
        return torch.stack(answers).mean(0)
    return np.mean(answers, axis=0)
