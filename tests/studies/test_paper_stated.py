"""Every row of the papers resolves to what its paper states, option by option.

`paper_rows_stated.csv` was typed from the papers and the code that made their rows, not from what
the rows resolve to. An empty cell means that nobody states the value; then the default that the
documentation names counts (`SHARED`, `DOCUMENTED` and the methods' own).
"""

import csv
from fractions import Fraction

import pytest
from places import TESTS

from classwise.data.sources import read_spec
from classwise.models import build_model
from classwise.spelling import Share
from classwise.studies.papers import paper_rows
from classwise.training.config import TrainConfig

KEYS = ("paper", "row", "data", "variant")
TEXT = (TESTS / "paper_rows_stated.csv").read_text()
TABLE = list(csv.DictReader(TEXT.splitlines()))
STATED = {tuple(line[key] for key in KEYS): line for line in TABLE}
ROWS = {tuple(getattr(row, key) for key in KEYS): row for row in paper_rows()}

# docs/presets.md, the column `paper`.
SHARED = {
    "model": "preactresnet18",
    "norm": "Linf",
    "eps": 8 / 255,
    "epochs": 200,
    "batch_size": 128,
    "optimiser": "sgd",
    "lr": 0.1,
    "final_lr": 0.0,
    "momentum": 0.9,
    "nesterov": False,
    "weight_decay": 5e-4,
    "clip": None,
    "schedule": "step",
    "drops": (100.0, 150.0),
    "valid": "0.02",
    "valid_attack": "pgd-10",
    "subset": 0,
    "seed": 0,
}

# Column of the table for an option; options of several methods may share one.
COLUMNS = {
    **{f"{base}.{option}": option for base in ("at", "trades") for option in ("steps", "step")},
    **{f"{base}.batchnorm": "batchnorm" for base in ("at", "trades")},
    "trades.beta": "beta",
    "trades.normalised": "normalised",
    **{f"{part}.margin_floor": "margin_floor" for part in ("ccm", "cfa")},
    **{f"{part}.beta_floor": "beta_floor" for part in ("ccr", "cfa")},
    "ccm.start": "calibrated_from",
    "ccr.start": "calibrated_from",
    "cfa.calibrate": "calibrated_from",
    **{f"{part}.threshold": "threshold" for part in ("fawa", "cfa")},
    **{f"{part}.on": "gate" for part in ("fawa", "cfa")},
    **{f"{part}.decay": "decay" for part in ("ema", "fawa", "cfa")},
    **{f"{part}.start": "average_start" for part in ("ema", "fawa", "cfa")},
    "fat.rule": "stop_rule",
    "fat.patience": "patience",
    "fat.noise": "noise",
    "bat.patience": "patience",
    "bat.uniformity": "uniformity",
    "wat.rate": "weight_rate",
    "fairtat.odds": "odds",
    "frl.variant": "frl_variant",
    "frl.start": "frl_start",
    "frl.slack": "frl_slack",
    "crop.padding": "padding",
    "labelaug.share": "share",
    "labelaug.slots": "slots",
}
WHEN = {"calibrated_from", "average_start", "frl_start"}  # epochs, or fractions of the run


def documented(names):
    """Defaults that docs/methods and docs/deviations.md name, beside these methods."""
    base_floor = 0.7 if "fat" in names else 0.3 if "trades" in names else 0.5
    return {
        "at.steps": 10,
        "trades.steps": 10,
        "at.batchnorm": "train",
        "trades.batchnorm": "eval",
        "trades.beta": 1.5 if "frl" in names else 6.0,
        "trades.normalised": bool(names & {"ccr", "cfa"}),
        "ccm.margin_floor": base_floor,
        "cfa.margin_floor": base_floor,
        "cfa.beta_floor": 0.5 if "trades" in names else None,
        "cfa.calibrate": 1,
        **{f"{part}.start": 0.25 for part in ("ema", "fawa", "cfa")},
        **{f"{part}.decay": 0.85 for part in ("ema", "fawa", "cfa")},
        **{f"{part}.threshold": 0.2 for part in ("fawa", "cfa")},
        **{f"{part}.on": "worst" for part in ("fawa", "cfa")},
        "idbh.strength": "strong",
        "cost.equalise": 1.0,
        "cost.attack": "pgd-10",
        "frl.variant": "both",
        "frl.start": 0.75,
        "frl.warmup_beta": 6.0,  # TRADES' own, where the rows name none
        "frl.slack": 0.07,
        "frl.rate": 0.05,
        "frl.margin_rate": 0.2,
        "frl.bound": 0.5,
        "frl.halve_every": 40,
        "frl.narrowest": 0.98,
        "frl.widest": 3.0,
        "avmixup.reach": 2.0,
        "avmixup.clean_share": 1.0,
        "avmixup.vertex_share": 0.1,
        "avmixup.batchnorm": "batch",
    }


def read(cell, like):
    """A cell as a value of the kind that it is compared with."""
    if isinstance(like, bool):
        return {"true": True, "false": False}[cell]
    return cell if isinstance(like, str) else float(Fraction(cell))


def parts_of(recipe):
    """Names of the methods; `cfa` is those of its parts that it brings to this base."""
    names = {method.name for method in recipe.methods} - {"crop"}  # the column `padding` has it
    if "cfa" in names:
        calibrated = recipe.canonical["cfa"]["beta_floor"] is not None
        names = names - {"cfa"} | {"ccm", "fawa"} | ({"ccr"} if calibrated else set())
    return names


def epochs_of(when, epochs):
    return when * epochs if when < 1 else when


def expected_training(stated, field, found, config):
    cell = stated.get(field, "")
    if field == "data":
        return stated["data"]
    if field == "drops" and config.schedule != "step":
        return found  # no drops in a cosine
    if field == "drops" and cell:
        return tuple(epochs_of(float(drop), config.epochs) for drop in cell.split())
    if cell:
        return read(cell, found)
    return SHARED.get(field, TrainConfig.model_fields[field].default)


@pytest.mark.parametrize("key", ROWS, ids=lambda key: " / ".join(key))
def test_the_training_settings_are_the_stated_ones(key):
    _, config = ROWS[key].resolve()
    for field in TrainConfig.model_fields:
        found = getattr(config, field)
        expected = expected_training(STATED[key], field, found, config)
        if field == "drops":
            found = tuple(epochs_of(drop, config.epochs) for drop in found)
        if isinstance(found, float | tuple) and not isinstance(expected, str):
            expected = pytest.approx(expected)
        assert found == expected, field


@pytest.mark.parametrize("key", ROWS, ids=lambda key: " / ".join(key))
def test_the_methods_are_the_stated_ones(key):
    recipe, _ = ROWS[key].resolve()
    assert parts_of(recipe) == set(STATED[key]["methods"].split())
    assert ("crop" in {method.name for method in recipe.methods}) == bool(STATED[key]["padding"])


@pytest.mark.parametrize("key", ROWS, ids=lambda key: " / ".join(key))
def test_the_options_of_every_method_are_the_stated_ones(key):
    recipe, config = ROWS[key].resolve()
    stated, defaults = STATED[key], documented({method.name for method in recipe.methods})
    told = {column for column in set(COLUMNS.values()) if stated[column]}
    for method in recipe.methods:
        for option, field in type(method).model_fields.items():
            name, found = f"{method.name}.{option}", getattr(method, option)
            column = COLUMNS.get(name)
            if column == "step":
                found = config.eps / found.parts if isinstance(found, Share) else found
            if column is not None and stated[column]:
                told.discard(column)
                expected = read(stated[column], found)
            elif column == "step":
                expected = config.eps / 4
            else:
                expected = defaults.get(name, field.default)
            if column in WHEN:
                found, expected = (epochs_of(when, config.epochs) for when in (found, expected))
            if isinstance(expected, float):
                expected = pytest.approx(expected)
            assert found == expected, name
    assert not told, f"the paper states {told}, but no method of {recipe.name} has it"


def test_the_table_has_every_row_and_states_all_it_could():
    assert len(STATED) == len(TABLE)
    assert STATED.keys() == ROWS.keys()
    known = {*COLUMNS.values(), *TrainConfig.model_fields, *KEYS, "methods"}
    assert known >= set(TABLE[0])


@pytest.mark.parametrize("spec", sorted({row.model for row in paper_rows()}))
def test_every_model_builds(spec):
    statistics = {"mean": [0.5] * 3, "deviation": [0.2] * 3}
    assert build_model(spec, num_classes=10, channels=3, **statistics)


def test_the_data_can_be_read_by_their_spelling():
    kinds = {read_spec(row.data)[0] for row in paper_rows()}
    assert kinds == {"cifar10", "cifar100", "folder"}


def test_options_win_over_the_row():
    row = ROWS["medi", "WAT + TRADES", "cifar10", ""]
    recipe, config = row.resolve(epochs=2, seed=5)
    assert (config.epochs, config.seed, config.weight_decay) == (2, 5, 2e-4)
    assert recipe.slots.step == 0.007


def test_the_rows_of_one_paper_differ_only_in_beta_from_their_variant():
    for key, row in ROWS.items():
        if row.variant:
            paper, code = ROWS[*key[:3], ""].resolve(), row.resolve()
            assert paper[1] == code[1]
            assert (paper[0].slots.beta, code[0].slots.beta) == (2, 6)
            methods = [
                {**recipe.canonical, "trades": {**recipe.canonical["trades"], "beta": None}}
                for recipe, _ in (paper, code)
            ]
            assert methods[0] == methods[1]
