"""Ready-made training settings: what the papers do, and what a small machine can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from classwise.attacks.ball import LINF
from classwise.errors import ClasswiseError, unknown
from classwise.methods import METHODS
from classwise.methods.crop import Crop
from classwise.recipe import Among, Method, Recipe, compose
from classwise.script import Drop, Script
from classwise.stages import largest
from classwise.training.begin import tell_begin
from classwise.training.config import TrainConfig

# `steps` is the length of the attack, or its schedule, an option of the base method; all others are
# TrainConfig's.
PRESETS: dict[str, dict[str, Any]] = {
    # The protocol that the papers share, for every recipe: PGD-10 at 8/255, SGD, 200 epochs with
    # drops at half and three quarters, 2 % of each class for validation.
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
        "step": 2 / 255,  # also where eps is another one, as in the papers' sweeps
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
        "steps": ((0.0, 1), (0.4, 3)),
    },
}


def apply_preset(
    name: str, recipe: Recipe, options: Mapping[str, Any]
) -> tuple[Recipe, TrainConfig]:
    """Fill in what the user left open; `options` win, and so do options written in the recipe.

    `paper` is what the papers share, for every recipe. `paper:wat` is WAT's released script, for
    recipes that hold `wat`: besides its training settings it brings the options of its attack
    and its cropping into the recipe.
    """
    if name not in preset_names():
        raise unknown("preset", name, preset_names())
    recipe = tell_begin(recipe, options.get("begin"))
    shared, _, own = name.partition(":")
    settings = dict(PRESETS[shared])
    on_base: dict[str, Any] = {
        key: settings.pop(key) for key in ("steps", "step") if key in settings
    }
    methods = recipe.company
    if own:
        script = _script(own, recipe)
        settings |= script.training
        on_base |= {"step": script.step, **script.base}
        methods = [_fill(m, script.own) if m.name == own else m for m in methods]
        methods = _cropped(methods, recipe, script)
        if "epochs" in options:
            settings["drops"] = _stretched(script, int(options["epochs"]))
    bases = {method.name for method in methods if method.base}
    for key in ("steps", "step"):
        if recipe.owners.get(key) not in bases:  # such as `fast`, which has its own
            on_base.pop(key, None)
    config = TrainConfig(**_without_idle({**settings, **options}, options))
    methods = [_fill(m, _reaching(_known(m, on_base), m, config)) if m.base else m for m in methods]
    return compose(methods), config


def _without_idle(settings: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what a preset says of a schedule or optimiser that the user has replaced."""
    for name, owner, needed in (
        ("drops", "schedule", "step"),
        ("momentum", "optimiser", "sgd"),
        ("nesterov", "optimiser", "sgd"),
    ):
        if name not in given and given.get(owner, needed) != needed:
            settings.pop(name, None)
    return settings


def preset_names() -> list[str]:
    """Every preset there is: `minutes`, `hours`, `paper`, and one per released script."""
    scripted = (name for name, kind in METHODS.items() if kind.suggests is not Method.suggests)
    return [*PRESETS, *(f"paper:{name}" for name in scripted)]


def scripts_of(recipe: Recipe) -> dict[str, Script]:
    """The released scripts that a recipe may be trained by, under the names of their methods."""
    among = Among({method.name: method for method in recipe.methods})
    besides = [kind() for kind in METHODS.values() if recipe.name in kind.baselines]
    found = {method.name: method.suggests(among) for method in (*recipe.methods, *besides)}
    return {name: script for name, script in found.items() if script is not None}


def _script(own: str, recipe: Recipe) -> Script:
    scripts = scripts_of(recipe)
    if own not in scripts:
        allowed = ", ".join([*PRESETS, *(f"paper:{name}" for name in scripts)])
        raise ClasswiseError(
            f"paper:{own} is the script of {own}, which is not in {recipe.name}; "
            f"allowed here: {allowed}"
        )
    return scripts[own]


def _cropped(methods: list[Method], recipe: Recipe, script: Script) -> list[Method]:
    """The methods with the script's crop, unless the recipe transforms its images otherwise."""
    if script.crop and "augment" not in recipe.owners:
        return [*methods, Crop(**script.crop)]
    return [_fill(m, script.crop) if m.name == Crop.name else m for m in methods]


def _fill(method: Method, options: Mapping[str, Any]) -> Method:
    """The method with those options that nobody wrote into the recipe."""
    written = {name: getattr(method, name) for name in method.model_fields_set}
    return type(method)(**{**options, **written})


def _stretched(script: Script, epochs: int) -> tuple[Drop, ...]:
    """The script's drops in a run of another length: at the same shares of it."""
    pairs = [drop if isinstance(drop, tuple) else (drop, 0.1) for drop in script.drops]
    shares = [(when / script.epochs if when >= 1 else when, factor) for when, factor in pairs]
    return tuple((share if share < 1 else share * epochs, factor) for share, factor in shares)


def _reaching(options: dict[str, Any], base: Method, config: TrainConfig) -> dict[str, Any]:
    """Without a step in pixels that was made for another norm, or never leads to the ball's rim."""
    step, steps = options.get("step"), getattr(base, "steps", 0)
    if "steps" not in base.model_fields_set:
        steps = options.get("steps", steps)
    short = isinstance(step, float) and (
        config.norm != LINF.name or largest(steps) * step < config.eps
    )
    return {k: v for k, v in options.items() if not (k == "step" and short)}


def _known(method: Method, options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in type(method).model_fields}
