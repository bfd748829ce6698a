"""The models of a run: the one to train, and the frozen one it may learn from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from classwise.attacks.pgd import batchnorm_mode
from classwise.errors import ClasswiseError
from classwise.models import build_model, names_own_model
from classwise.recipe import Recipe
from classwise.training.config import TrainConfig
from classwise.training.run import load_model


def model_to_train(
    network: Mapping[str, Any], recipe: Recipe, config: TrainConfig, device: torch.device
) -> nn.Module:
    """A model with seeded weights, or with those that the recipe begins from."""
    model = build_model(**network, seed=config.seed).to(device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    begin = recipe.slots.begin
    if begin is not None:
        own = config.model if names_own_model(config.model) else None
        begun, _ = load_model(Path(begin), own)
        try:
            model.load_state_dict(begun.state_dict())
        except RuntimeError:
            classes = network["num_classes"]
            raise ClasswiseError(
                f"{begin} does not fit {config.model} with {classes} classes"
            ) from None
    return model


def frozen_teacher(
    recipe: Recipe, config: TrainConfig, num_classes: int, device: torch.device
) -> nn.Module | None:
    """The model that the recipe learns from, if it does."""
    path, named = recipe.slots.teacher, config.teacher_model or None
    if path is None:
        if named is not None:
            raise ClasswiseError(f"teacher_model={named}, but {recipe.name} has no teacher")
        if recipe.slots.reference == "teacher":
            owner = recipe.owners["reference"]
            raise ClasswiseError(
                f"{owner} needs a teacher; name the weights file of a trained model, as in "
                f"{owner}(teacher='runs/teacher/weights/best.safetensors')"
            )
        return None
    teacher, about = load_model(Path(path), named)
    if about["network"]["num_classes"] != num_classes:
        raise ClasswiseError(f"the teacher {path} does not have {num_classes} classes")
    return teacher.to(device).requires_grad_(False)


def check_outputs(model: nn.Module, name: str, shape: torch.Size, num_classes: int) -> None:
    """Refuse a model that does not give one logit per class."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    with batchnorm_mode(model, "eval"), torch.no_grad():
        found = tuple(model(torch.zeros(2, *shape, device=device)).shape)
    if found != (2, num_classes):
        raise ClasswiseError(
            f"{name} gives outputs of shape {found} for 2 images, but the data have {num_classes} "
            f"classes; it must return 2×{num_classes} logits"
        )
