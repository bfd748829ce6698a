"""One row per method. A row here subscribes the method to every law in this folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from classwise.laws.made_up import Subject
from classwise.recipe import Method, Recipe, compose
from classwise.recipe_text import make_method, parse_recipe


@dataclass(frozen=True)
class Case:
    name: str
    options: dict[str, Any] = field(default_factory=dict)  # legal, and none of them a default
    needs: str = ""  # what else a recipe with it must hold, quick to train

    @property
    def method(self) -> Method:
        return make_method(self.name, self.options)

    @property
    def call(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"

    @property
    def subject(self) -> Subject:
        return Subject(self.method, self.needs)

    @property
    def text(self) -> str:
        return "+".join(filter(None, [self.needs, self.call]))

    @property
    def recipe(self) -> Recipe:
        company = parse_recipe(self.needs).given if self.needs else ()
        return compose([*company, self.method])

    def __str__(self) -> str:
        return self.name


CASES = [
    Case("clean"),
    Case("at", {"steps": 2, "start": "gaussian", "batchnorm": "batch"}),
    Case("trades", {"beta": 3.0, "normalised": True, "steps": 2}),
    Case("mart", {"beta": 2.0, "steps": 2}),
    Case("absld", {"teacher": "teacher.safetensors", "average": "sample", "steps": 2}),
    Case("fat", {"rule": "original", "patience": 1, "noise": 0.01}, needs="at(steps=3)"),
    Case("bat", {"uniformity": 0.5, "patience": 0}, needs="trades(steps=3)"),
    Case("fast", {"step": 0.1, "drop": 0.3, "rescue": 3}, needs="trades"),
    Case("free", {"replays": 2, "step": 0.1}, needs="trades"),
    Case("atta", {"steps": 2, "step": 0.1, "reset": 2}, needs="trades"),
    Case("labelaug", {"share": 0.2, "clean": 0.3}, needs="at(steps=2)"),
    Case("avmixup", {"reach": 1.5, "vertex_share": 0.3, "concentration": 0.5}, needs="at(steps=2)"),
    Case("cosine", {"strength": 0.3, "memory": 0.5}, needs="trades(steps=2)"),
    Case("awp", {"size": 0.02, "start": 0.0}, needs="at(steps=2)"),
    Case("crop", {"pad": 2, "padding": "zero"}, needs="at(steps=2)"),
    Case("idbh", {"strength": "weak"}, needs="at(steps=2)"),
    Case("noise", {"sigma": 0.1}, needs="clean"),
    Case("ccm", {"margin_floor": 0.4, "start": 0, "every": 1}, needs="at(steps=2)"),
    Case("ccr", {"beta_floor": 0.3}, needs="trades(steps=2)"),
    Case("cfa", {"threshold": 0.0, "start": 2, "on": "tail"}, needs="trades(steps=2)"),
    Case("frl", {"start": 1, "halve_every": 2, "warmup_beta": 4.0}, needs="trades(steps=2)"),
    Case("dafa", {"strength": 1.5, "start": 2}, needs="trades(steps=2)"),
    Case("wat", {"rate": 0.3}, needs="trades(steps=2)"),
    Case("fairtat", {"odds": "softmax", "every": 2}, needs="at(steps=2)"),
    Case("target", {"to": "1"}, needs="at(steps=2)"),
    Case("cost", {"equalise": 2.0}, needs="trades(steps=2)"),
    Case("protect", {"to": "0", "weight": 3.0}, needs="at(steps=2)"),
    Case("balanced", {"smoothing": 0.9}, needs="at(steps=2)"),
    Case("resample", needs="at(steps=2)"),
    Case("ldam", {"largest": 0.3, "reweight": 1}, needs="at(steps=2)"),
    Case("ema", {"decay": 0.5, "start": 2}, needs="at(steps=2)"),
    Case("fawa", {"threshold": 0.0, "start": 2}, needs="at(steps=2)"),
    Case("swa", {"start": 1}, needs="at(steps=2)"),
]

# Recipes as people will write them; what holds for one method must hold for these.
RECIPES = [
    "clean",
    "at(steps=2)",
    "trades(steps=2)",
    "fat(patience=1)+ccm",
    "mart(steps=2)+fat",
    "at(steps=2)+avmixup+idbh+ccm",
    "trades(steps=2)+bat+awp",
    "at(steps=2)+labelaug+cosine",
    "at(steps=2)+ccm",
    "at(steps=2)+ccm(start=0, every=1)+fairtat(every=1)",
    "trades(steps=2)+frl(variant=remargin, start=1)",
    "mart(steps=3)+fat(rule=original)",
    "trades(steps=2)+ccm+ema",
    "trades(steps=2)+cfa",
    "at(steps=2)+cfa+fairtat",
    "trades(steps=2)+frl(start=1)+ema",
    "trades(steps=2)+ccm+fairtat+wat",
    "at(steps={0: 1, 0.5: 2})",
    "fast+ccm",
    "free(replays=2)+ccm+ema",
    "atta(reset=2)+cfa+crop(padding=zero)",
    "clean+noise(sigma=0.1)+crop(pad=1)+balanced+ema",
]
