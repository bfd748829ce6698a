"""Ready-made training settings: what the papers do, and what a small machine can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from classwise.errors import unknown
from classwise.recipe import Recipe, compose
from classwise.training.begin import tell_begin
from classwise.training.config import TrainConfig

# `steps` is the length of the attack, an option of the base method; all others are TrainConfig's.
PRESETS: dict[str, dict[str, Any]] = {
    # The protocol of the papers: PGD-10 at 8/255, SGD, 200 epochs with drops at half and three
    # quarters, 2 % of each class for validation.
    "paper": {
        "model": "preactresnet18",
        "eps": 8 / 255,
        "epochs": 200,
        "batch_size": 128,
        "optimiser": "sgd",
        "lr": 0.1,
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "schedule": "step",
        "drops": (0.5, 0.75),
        "valid": "0.02",
        "valid_attack": "pgd-10",
        "steps": 10,
    },
    # A few hours on one modest GPU, or a night on a processor.
    "hours": {
        "model": "resnet9(width=32)",
        "eps": 8 / 255,
        "epochs": 30,
        "batch_size": 128,
        "lr": 0.2,
        "schedule": "one-cycle",
        "valid": "0.02",
        "steps": 7,
    },
    # A few minutes on two cores; docs/presets.md has the measurements behind the choice.
    "minutes": {
        "model": "resnet9(width=8)",
        "eps": 8 / 255,
        "epochs": 10,
        "batch_size": 128,
        "lr": 0.2,
        "schedule": "one-cycle",
        "valid": "0.02",
        "subset": 10_000,
        "valid_attack": "pgd-5",
        "steps": 3,
    },
}


def apply_preset(
    name: str, recipe: Recipe, options: Mapping[str, Any]
) -> tuple[Recipe, TrainConfig]:
    """Fill in what the user left open; `options` win, and so do options written in the recipe.

    The preset `paper` also takes the training settings that the paper of a method suggests.
    """
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    recipe = tell_begin(recipe, options.get("begin"))
    settings = dict(PRESETS[name])
    steps = settings.pop("steps")
    if name == "paper":
        for method in recipe.methods:
            settings |= method.suggests
    methods = [
        method.model_copy(update={"steps": steps})
        if "steps" in type(method).model_fields and "steps" not in method.model_fields_set
        else method
        for method in recipe.company
    ]
    return compose(methods), TrainConfig(**{**settings, **options})
