"""Who a run is: all that decides its result as one hash, and the card that says so."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import fields
from importlib.metadata import version
from typing import Any

import torch

from classwise.data.dataset import DataSource
from classwise.files import file_hash
from classwise.foreign import is_foreign, source_hash
from classwise.recipe import Recipe
from classwise.record.run_folder import weights_file
from classwise.record.state_dict import file_and_key
from classwise.training.config import TrainConfig

FILES = ("begin", "teacher")  # options that name a file: its content counts, not its path
PASSIVE = (
    "data",
    "watch",
    "watch_every",
    "watch_share",
    "keep_every",
    "compile",  # it changes rounding alone, as another device does
)  # options that decide nothing by themselves


def identity_of(recipe: Recipe, config: TrainConfig, source: DataSource) -> str:
    """Sixteen hex digits over all that decides the result; not device, paths or threads."""
    begin, teacher = config.begin or recipe.slots.begin, recipe.slots.teacher
    named = (begin, teacher)
    files = [weights_file(one) if one else None for one in named]
    keys = [file_and_key(one)[1] for one in named if one]
    facts: dict[str, Any] = {
        "recipe": {
            name: {key: value for key, value in options.items() if key not in FILES}
            for name, options in recipe.canonical.items()
        },
        "config": config.model_dump(mode="json", exclude={*FILES, *PASSIVE}),
        "train": source.train.content_hash,
        "files": [None if path is None else file_hash(path) for path in files],
    }
    if any(keys):  # one file may hold several sets of weights
        facts["keys"] = keys
    if not config.teacher_normalise:  # runs of before there was such an option stay who they are
        del facts["config"]["teacher_normalise"]
    if config.watch and config.watch_every is None:  # then it says when the run is watched
        facts["config"]["watch_share"] = config.watch_share
    kept = source.train.attributes
    if kept is not None and kept.whole:  # decides who validates
        facts["groups"] = kept.digest
    if sources := foreign_sources(recipe):
        facts["sources"] = sources
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=8).hexdigest()


def foreign_sources(recipe: Recipe) -> dict[str, str | None]:
    """A hash of the code behind each method that is not our own: a name alone would not tell it."""
    found = {}
    for method in recipe.methods:
        if is_foreign(type(method)):
            slots = method.fill()
            brought = [getattr(slots, slot.name) for slot in fields(slots)]
            parts = [one for part in brought for one in (part if type(part) is tuple else (part,))]
            found[method.name] = source_hash([method, *parts])
    return found


def describe_run(recipe: Recipe, config: TrainConfig, source: DataSource) -> dict[str, Any]:
    """What run.json says: who the run is, and all that is needed to read it without its data."""
    data, slots = source.train, recipe.slots
    data.find_both()
    mean, deviation = data.channel_statistics
    return {
        "format": 1,
        "identity": identity_of(recipe, config, source),
        "recipe_name": recipe.name,
        "recipe": recipe.canonical,
        "config": config.model_dump(mode="json"),
        "data": {
            "name": source.name,
            "train_hash": data.content_hash,
            "class_names": data.class_names,
            "superclass_of": data.superclass_of,
            "superclass_names": data.superclass_names,
        },
        "network": {
            "spec": config.model,
            "num_classes": data.num_classes,
            "channels": data.channels,
            "mean": mean,
            "deviation": deviation,
            "extra": slots.extra_outputs or 0,
            "head": slots.head or "linear",
            "head_scale": slots.head_scale or 1.0,
            **({} if slots.head_path is None else {"head_path": slots.head_path}),
        },
        "versions": {
            "classwise": version("classwise"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "threads": torch.get_num_threads(),  # another number rounds otherwise
        **({"sources": sources} if (sources := foreign_sources(recipe)) else {}),
    }
