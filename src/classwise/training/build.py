"""What a run is made of: its images, the model to train, and the one it may learn from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from classwise.data.dataset import Dataset
from classwise.data.splits import balanced_subset, split_indices
from classwise.errors import ClasswiseError, OwnCodeError
from classwise.models import build_model, names_built_in
from classwise.models.asking import batchnorm_mode
from classwise.models.classifier import all_outputs
from classwise.models.layout import training_layout
from classwise.recipe import Recipe
from classwise.record.opening import TEACHERS, Opening, open_model
from classwise.record.run_folder import weights_file
from classwise.record.state_dict import file_and_key
from classwise.spelling import one_line
from classwise.training.begin import Begun, begin_from
from classwise.training.config import TrainConfig
from classwise.training.parts import freeze
from classwise.types import Labels


def rows_to_use(data: Dataset, config: TrainConfig) -> tuple[Labels, Labels]:
    """Rows of the data that train, and rows that validate; groups go as a whole."""
    labels = data.labels
    train, valid = split_indices(labels, config.valid, config.seed, data.together)
    if not config.subset:
        return train, valid
    classes = int((labels[train].bincount() > 0).sum())
    if config.subset < classes:
        raise ClasswiseError(
            f"subset={config.subset} leaves some of the {classes} classes without a single image; "
            f"take {classes} or more, or 0 for all"
        )
    return train[balanced_subset(labels[train], config.subset, config.seed)], valid


def model_to_train(
    about: Mapping[str, Any], config: TrainConfig, device: torch.device
) -> tuple[nn.Module, Begun | None]:
    """A model with seeded weights, or with those that the run begins from, and its frozen parts."""
    model = build_model(**about["network"], seed=config.seed).to(device)
    model.to(memory_format=training_layout(model, device))  # type: ignore[call-overload]
    begun = None if config.begin is None else begin_from(model, config.begin, about)
    freeze(model, config.freeze)
    if begun is not None:
        still = [name for name, weight in model.named_parameters() if not weight.requires_grad]
        random = sorted({*begun.new, *begun.differing} & {*still})
        if random:
            raise ClasswiseError(
                f"freeze={','.join(config.freeze)} would keep {random[0]} at random values, since "
                f"{config.begin} has none that fit; freeze other parts"
            )
    return model, begun


def frozen_teacher(
    recipe: Recipe, config: TrainConfig, network: Mapping[str, Any], device: torch.device
) -> nn.Module | None:
    """The model that the recipe learns from, if it does."""
    path, num_classes = recipe.slots.teacher, network["num_classes"]
    if path is None:
        for option in ("teacher_model", "teacher_normalise"):
            if value := getattr(config, option):
                raise ClasswiseError(f"{option}={value}, but {recipe.name} has no teacher")
        if recipe.slots.reference == "teacher":
            owner = recipe.owners["reference"]
            raise ClasswiseError(
                f"{owner} needs a teacher; name the weights file of a trained model, as in "
                f"{owner}(teacher='runs/teacher/weights/best.safetensors')"
            )
        return None
    says = config.teacher_normalise or None
    how = Opening(config.teacher_model or None, normalise=says, options=TEACHERS)
    file = path if file_and_key(path)[1] else weights_file(path)
    opened = open_model(file, how, num_classes, network["channels"])
    if opened.about and opened.about["network"]["num_classes"] != num_classes:
        raise ClasswiseError(f"the teacher {path} does not have {num_classes} classes")
    return opened.model.to(device).requires_grad_(False)


def check_outputs(model: nn.Module, network: Mapping[str, Any], shape: torch.Size) -> None:
    """Refuse a model that does not give one logit per class, and one per extra output."""
    name, num_classes, extra = network["spec"], network["num_classes"], network["extra"]
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    images = torch.zeros(2, *shape, device=device)
    try:
        with batchnorm_mode(model, "eval"), torch.no_grad():
            found, whole = tuple(model(images).shape), tuple(all_outputs(model, images).shape)
    except RuntimeError as reason:  # too small for its poolings, for one
        words = f"{name} does not take images of {'×'.join(map(str, shape))}"
        if names_built_in(name):
            raise ClasswiseError(f"{words} ({one_line(str(reason), 200)})") from None
        raise OwnCodeError.of(words, reason) from reason
    if found != (2, num_classes):
        raise ClasswiseError(
            f"{name} gives outputs of shape {found} for 2 images, but the data have {num_classes} "
            f"classes; it must return 2×{num_classes} logits"
        )
    if whole != (2, num_classes + extra):
        head = getattr(model, "head_path", "head")
        raise ClasswiseError(
            f"{name} gives outputs of shape {whole} for 2 images although its layer {head} has "
            f"{num_classes}+{extra} outputs, so that layer is not its head; name the head, as in "
            "labelaug(head='backbone.fc')"
        )
