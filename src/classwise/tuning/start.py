"""Where a search begins: a recipe and settings as the user wrote them, some of which may vary."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError
from classwise.recipe import Recipe
from classwise.recipe_text import load_recipe
from classwise.training.config import TrainConfig
from classwise.training.presets import apply_preset

# Options of `classwise train`; whatever else there is goes by --set.
_FLAGS = ("data", "model", "begin", "freeze", "eps", "judge_eps", "epochs", "batch_size", "lr",
          "valid", "subset", "seed")  # fmt: skip


@dataclass(frozen=True)
class Start:
    """What `classwise train` would be told."""

    recipe: str  # as written, or a file
    methods: Mapping[str, Any] = field(default_factory=dict)  # METHOD.OPTION -> value
    training: Mapping[str, Any] = field(default_factory=dict)  # options of TrainConfig
    preset: str | None = None
    imports: tuple[str, ...] = ()

    def made(self, values: Mapping[str, Any]) -> tuple[Recipe, TrainConfig]:
        """The recipe and settings with some options at these values.

        >>> recipe, config = Start("trades").made({"trades.beta": 3.0, "lr": 0.05})
        >>> recipe.canonical["trades"]["beta"], config.lr
        (3.0, 0.05)
        """
        told = self.with_values(values)
        recipe = load_recipe(told.recipe, told.methods, told.imports)
        if told.preset is None:
            return recipe, TrainConfig(**told.training)
        return apply_preset(told.preset, recipe, told.training)

    def with_values(self, values: Mapping[str, Any]) -> Start:
        """The same with some options said; those of methods have a dot in their name."""
        methods = {name: value for name, value in values.items() if "." in name}
        training = {name: value for name, value in values.items() if "." not in name}
        return Start(
            self.recipe,
            {**self.methods, **methods},
            {**self.training, **training},
            self.preset,
            self.imports,
        )

    def value_of(self, option: str) -> Any:
        """What an option is where nothing varies; None where it has no single value."""
        recipe, config = self.made({})
        if "." not in option:
            return getattr(config, option, None)
        name, _, own = option.rpartition(".")
        return recipe.canonical.get(name, {}).get(own)

    def command(self, values: Mapping[str, Any], out: Path) -> str:
        """The command line that trains this; a shell reads every word of it as it is.

        >>> print(Start("trades+ema").command({"trades.beta": 3.5, "lr": 0.1}, Path("runs/a b")))
        classwise train trades+ema --lr 0.1 --set trades.beta=3.5 --out 'runs/a b'
        """
        told = self.with_values(values)
        words = ["classwise", "train", told.recipe]
        words += ["--preset", told.preset] if told.preset else []
        flags = [n for n in _FLAGS if isinstance(told.training.get(n), str | int | float)]
        for name in flags:
            words += [f"--{name.replace('_', '-')}", _written(told.training[name])]
        others = {n: v for n, v in told.training.items() if n not in flags}  # lists among them
        for name, value in (others | dict(told.methods)).items():
            words += ["--set", f"{name}={_written(value)}"]
        for module in told.imports:
            words += ["--import", module]
        return shlex.join([*words, "--out", str(out)])


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else repr(value)


def check_attacks(recipe: Recipe) -> None:
    """Refuse a recipe that trains, and so is validated, without an attack."""
    if not recipe.attacks:
        raise ClasswiseError(
            f"{recipe.name} trains without an attack, so validation has no robust accuracy to "
            "search by; take a recipe with one, such as at or trades"
        )
