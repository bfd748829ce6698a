"""Scales: what the settings of a study become when there are seconds, minutes or hours for a run.

`paper` is the preset, or the row's own preset, as it stands. The smaller scales keep its spirit
and take data, network, length and attack from `scales.toml`; whatever an axis of a study says, such
as eps, keeps its value at every scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict

from classwise.data.sources import FROM_DATA, read_spec
from classwise.errors import ClasswiseError, unknown
from classwise.recipe import Method, Recipe, compose
from classwise.recipe_text import parse_recipe
from classwise.spelling import parse_value
from classwise.studies.study import SCALES, AtScale, Audit, Study
from classwise.texts import parse_toml
from classwise.training.config import TrainConfig
from classwise.training.presets import apply_preset

ANY = "*"  # a stand-in for whatever has none of its own


class Scale(BaseModel):
    """How a study is run at a scale; `scales.toml` says what each entry means."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    words: str
    seeds: int = 0
    settings: dict[str, Any] = {}
    base: dict[str, Any] = {}
    methods: dict[str, Any] = {}
    data: dict[str, str] = {}
    model: dict[str, str] = {}
    attacks: dict[str, str] = {}
    limits: dict[str, int] = {}
    first: dict[str, int] = {}
    lacks: tuple[str, ...] = ()
    seconds: float = 0.0

    def over(self, own: AtScale) -> Scale:
        """The scale with what one study says of it."""
        merged = {
            part: {**getattr(self, part), **getattr(own, part)}
            for part in ("settings", "base", "methods", "data", "model", "attacks")
        }
        return self.model_copy(update=merged)

    def data_for(self, spec: str) -> str:
        """The data that stand for some, also inside a long tail of them."""
        if spec in self.data:
            return self.data[spec]
        kind, inner, _ = read_spec(spec)
        if kind in FROM_DATA and inner in self.data:
            return spec.replace(inner, self.data[inner], 1)
        return spec

    def model_for(self, spec: str) -> str:
        """The network that stands for one."""
        return self.model.get(spec, self.model.get(ANY, spec))

    def attack_for(self, name: str) -> str:
        """The attack that stands for one."""
        return self.attacks.get(name, name)

    def audits(self, asked: tuple[Audit, ...]) -> tuple[Audit, ...]:
        """The audits at this scale; those of fewer images, or of fewer seeds, stand by themselves.

        >>> few = Scale(name="a", words="", limits={"square": 5}, attacks={"square": "pgd-1"})
        >>> [(one.attacks, one.limit) for one in few.audits((Audit(attacks=("clean", "square")),))]
        [(('clean',), 0), (('pgd-1',), 5)]
        """
        found: dict[tuple[Any, ...], list[str]] = {}
        for audit in asked:
            for attack in audit.attacks:
                most, first = self.limits.get(attack, 0), self.first.get(attack, 0)
                how = (audit.weights, audit.split, _least(audit.limit, most),
                       _least(audit.seeds, first), audit.similarity)  # fmt: skip
                names = found.setdefault(how, [])
                if self.attack_for(attack) not in names:
                    names.append(self.attack_for(attack))
        return tuple(
            Audit(
                attacks=tuple(names),
                weights=weights,
                split=split,
                limit=limit,
                seeds=seeds,
                similarity=similarity,
            )
            for (weights, split, limit, seeds, similarity), names in found.items()
        )

    def resolve(
        self, recipe: Recipe, preset: str, options: Mapping[str, Any]
    ) -> tuple[Recipe, TrainConfig]:
        """The recipe and all training settings of a run; `options` are the study's own words."""
        told, given = self._told(recipe), {**self.settings, **options}
        _, config = apply_preset(preset, told, given)  # which data and model, if nobody says
        given |= {"data": self.data_for(config.data), "model": self.model_for(config.model)}
        return apply_preset(preset, told, given)

    def _told(self, recipe: Recipe) -> Recipe:
        """The recipe with the scale's options of its methods, where it does not write them."""
        methods = recipe.company
        bases = {method.name for method in methods if method.base}
        on_base = {k: v for k, v in self.base.items() if recipe.owners.get(k) in bases}
        told = []
        for method in methods:
            options = dict(on_base) if method.base else {}
            for key, value in self.methods.items():
                name, _, option = key.rpartition(".")
                if name == method.name:
                    options[option] = value
            told.append(_filled(method, options))
        return compose(told)


def scale_named(name: str) -> Scale:
    """One of the scales."""
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    return _scales()[name]


def scale_of(study: Study, name: str) -> Scale:
    """A scale as a study wants it."""
    return scale_named(name).over(study.scale.get(name, AtScale()))


@cache
def _scales() -> dict[str, Scale]:
    text = files("classwise.studies").joinpath("scales.toml").read_text("utf-8")
    tables = parse_toml(text, "scales.toml")
    return {name: Scale(name=name, **table) for name, table in tables.items()}


def read_with(text: str, methods: Mapping[str, Any], imports: tuple[str, ...]) -> Recipe:
    """A recipe of a study file, with options of its methods that stand on axes."""
    try:
        return parse_recipe(text, methods, imports)
    except ClasswiseError as reason:
        words = str(reason).removeprefix("--set ")  # nobody wrote that here
        raise ClasswiseError(f"{text}: {words}") from None


def _filled(method: Method, options: Mapping[str, Any]) -> Method:
    """The method with those options that nobody wrote into the recipe."""
    written = {name: getattr(method, name) for name in method.model_fields_set}
    known = {
        name: parse_value(value) if isinstance(value, str) else value
        for name, value in options.items()
    }
    return type(method)(**{**known, **written})


def _least(one: int, other: int) -> int:
    """The smaller of two bounds, where 0 is none."""
    return min(one or other, other or one)
