"""Hostile words for everything that reads text: taken, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch
from hostile import JSON, PARSERS, PIECES, TEXT_FILES, refusal, words

from classwise.attacks.ball import parse_norm
from classwise.attacks.threat import Threat
from classwise.cli.app import divide_sets
from classwise.cli.printing import normalisation
from classwise.data.download import get
from classwise.judging.groups import check_name
from classwise.models import build_model, names_own_model
from classwise.models.preparation import Normalisation
from classwise.models.small import cnn
from classwise.recipe_text import load_recipe
from classwise.record.lines import parse_lines
from classwise.record.run_folder import weights_file
from classwise.training.parts import freeze
from classwise.training.presets import apply_preset
from soak.fault import GIGABYTE, Attempt, Fault

SECTION = "words"
COUNT = 100_000
ROOM = 2 * GIGABYTE
PATIENCE = 60.0  # seconds for one text on a busy machine
Texts = list[str]
MODELS = [
    "cnn",
    "resnet9",
    "resnet18",
    "wrn-28-10",
    "preactresnet18",
    "(width=2)",
    "(width=8",
    "wrn(depth=",
    "(width=9999)",
    "(width=4096)",
    "wrn(depth=16, widen=4096)",
]
NORMS = ["Linf", "L2", "linf", "inf", "L", "2", "L1"]
MEANS = ["0.5,0.5,0.5", "0.5", "cifar10", "imagenet", "0", "-0.1", "1e-30"]
PRESETS = ["minutes", "hours", "paper", "paper:", "paper:wat", "wat", "cfa"]
SETS = ["ccm.margin_floor=", "weight_decay=", "2e-4", "trades.", "beta=6"]
WEIGHTS = ["@best", "@last", "@", "runs/mine", "/dev/null", "/", "weights/last.safetensors"]
LINES = ['{"epoch": 1}\n', '{"epoch": 2, "after": 1}\n', '{"epoch"', "\n", '"checksum": ', "}\n"]
PARTS = ["features", "features.0*", "head", "*", "?", "[", "features.1.weight"]


def _model(text: str) -> None:
    if not names_own_model(text):  # a module of the user's is the user's to trust
        with torch.device("meta"):  # without filling it with numbers: most are too large for that
            build_model(text, num_classes=2, channels=1, mean=(0.5,), deviation=(0.5,))


def _norms(text: str) -> None:
    parse_norm(text)
    Threat.of("0.1", text)


def _means(text: str) -> None:
    for name, mean, std in ((text, None, None), (None, text, text)):
        found = normalisation(name, mean, std)
        if found is not None:
            Normalisation.of(found)


def _freezing() -> Callable[[str], None]:
    model, _ = cnn(1, width=2)
    return lambda text: freeze(model, text.split(","))


MORE: dict[str, tuple[Texts, Callable[[str], Any]]] = {
    "model": ([*PIECES, *MODELS * 3], _model),
    "norm": ([*PIECES, *NORMS * 3], _norms),
    "radius": (PIECES, lambda text: Threat.of(text, "L2")),
    "normalisation": ([*PIECES, *MEANS * 3], _means),
    "preset": (
        [*PIECES, *PRESETS * 5],
        lambda text: apply_preset(text, load_recipe("trades+wat"), {}),
    ),
    "settings": ([*PIECES, *SETS * 3], lambda text: divide_sets([text])),
    "option of a method": (PIECES, lambda text: load_recipe("trades", {"trades.beta": text})),
    "weights": ([*PIECES, *WEIGHTS * 3], weights_file),
    "frozen parts": ([*PIECES, *PARTS * 3], _freezing()),
    "data to get": (PIECES, lambda text: get(f"{text} ", offline=True, quiet=True)),
    "name of a group": (PIECES, lambda text: check_name("group", text)),
    "lines of a log": (
        [*JSON, *LINES * 3],
        lambda text: parse_lines(text.encode("utf-8", "surrogatepass")),
    ),
}
PLAIN = {
    "parse_call": "name with options in brackets",
    "parse_value": "value of an option",
    "parse_eps": "radius in image units",
    "split": "list",
    "attacks": "attacks and conditions",
    "watch": "looks in training",
    "meant": "name of a kept condition",
    "data": "path of data",
    "share": "share in a contract",
    "valid": "validation split",
    "config": "training option",
    "json": "JSON",
    "toml": "TOML",
    "contract": "contract file",
}


def _reading(texts: Texts, parse: Callable[[str], Any]) -> Attempt:
    def attempt(rng: Random) -> str | None:
        text = words(rng, texts)
        said = refusal(lambda: parse(text), repr(text[:300]))
        return said and f"classwise: {said}"

    return attempt


def _of_text(name: str) -> Fault:
    texts, parse = {**PARSERS, **MORE}[name]
    return _fault(name, COUNT, lambda _: _reading(texts, parse))


def _of_file(name: str) -> Fault:
    texts, parse = TEXT_FILES[name]
    return _fault(name, COUNT, lambda place: _reading(texts, lambda text: parse(text, place)))


def _fault(name: str, count: int, prepare: Callable[[Path], Attempt]) -> Fault:
    return Fault(SECTION, PLAIN.get(name, name), count, prepare, PATIENCE, room=ROOM)


FAULTS = (*map(_of_text, {**PARSERS, **MORE}), *map(_of_file, TEXT_FILES))
