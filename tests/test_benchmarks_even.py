"""Composing a recipe by validation: the rule, on made-up records whose answer is known."""

import importlib.util
import json
from pathlib import Path

import pytest

from classwise.recipe_text import parse_recipe
from classwise.record.lines import line_of
from classwise.sealed import sealed_text
from classwise.training.config import TrainConfig

PATH = Path(__file__).parents[1] / "benchmarks" / "even.py"
EPOCHS = 6
# What each recipe adds to all classes, and to the lowest two of ten beside that, in points.
GAINS = {"at": (0, 0), "trades": (1, 0), "ema": (2, 0), "ccm": (0, 3), "fairtat": (-1, 0),
         "cfa": (1, 1), "fawa": (1, 1)}  # fmt: skip
RECIPES = ("at", "trades", "at+ema", "trades+ema", "at+ccm", "trades+ccm", "at+fairtat")
DATA = ("pooled(cifar10, by=2)", "pooled(cifar100, by=2)")


@pytest.fixture(scope="module")
def even():
    spec = importlib.util.spec_from_file_location("benchmark_even", PATH)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PATH.parent)
        patch.setitem(importlib.sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        module.classes_of = importlib.import_module("even_records").classes_of
        yield module


def rates(recipe, seed, shift):
    """Ten classes from 20 % to 65 %, their gains, and a little noise that has no mean."""
    names = recipe.split("+")
    every, low = (sum(GAINS.get(name, (0, 0))[place] for name in names) for place in (0, 1))
    noise = (seed - 1) * 0.1 * len(recipe)
    return [(20 + 5 * k + every + (low if k < 2 else 0) + noise + shift) / 100 for k in range(10)]


def write_record(folder, recipe, seed=0, data=DATA[0], epochs=EPOCHS, **told):
    """A record without predictions: nobody may look for them."""
    known = parse_recipe(recipe)
    config = TrainConfig(data=data, seed=seed, epochs=epochs, valid_attack="pgd-5", **told)
    path = folder / f"{recipe}-{seed}-{len(list(folder.glob('*')))}"
    path.mkdir(parents=True)
    about = {"recipe": known.canonical, "recipe_name": known.name, "identity": "0" * 16,
             "config": config.model_dump(mode="json"),
             "data": {"class_names": [str(k) for k in range(10)]}}  # fmt: skip
    (path / "run.json").write_bytes(sealed_text(json.loads(json.dumps(about, default=str))))
    averages = {one.name: epochs for one in known.slots.averages}
    lines, before = b"", 0
    for epoch in range(1, epochs + 1):
        late = rates(recipe, seed, 0) if epoch > epochs * 2 // 3 else [0.9] * 10
        shown = {"clean": {"overall": 1.0, "by_class": [1.0] * 10},
                 "pgd-5": {"overall": sum(late) / 10, "by_class": late}}  # fmt: skip
        live = {"pgd-5": {"overall": 1.0, "by_class": [1.0] * 10}} if averages else shown
        valid = {"live": live, **dict.fromkeys(averages, shown)}
        lines += line_of(
            {
                "epoch": epoch,
                "loss": {"total": 1.0},
                "train": {},
                "settings": {},
                "valid": valid,
                "averages": averages,
            },
            before,
        )
        before = epoch
    (path / "history.jsonl").write_bytes(lines)
    (path / "predictions").mkdir()
    (path / "predictions" / "x.parquet").write_text("nobody may open this")
    return path


@pytest.fixture
def records(tmp_path):
    for data in DATA:
        for recipe in RECIPES:
            for seed in range(3):
                write_record(tmp_path, recipe, seed, data)
    return tmp_path


def chosen(even, folder):
    runs, left_out = even.read_runs(folder)
    return even.choose(runs, even.homes_of(runs, ())), left_out


def names(pieces):
    return {name for name, _ in pieces}


def test_the_composition_has_the_best_base_and_every_good_piece(even, records):
    found, left_out = chosen(even, records)
    assert left_out == {}
    assert names(found.composition) == {"trades", "ema", "ccm"}
    effects = {one.piece[0]: one for one in found.effects}
    # two points on all classes, on the lowest fifth once more; three points on a fifth of them
    assert effects["ema"].mean == pytest.approx(0.04, abs=0.01)
    assert effects["ccm"].mean == pytest.approx(0.036, abs=0.01)
    assert effects["fairtat"].mean < 0
    assert effects["ema"].pairs == effects["ccm"].pairs == 12  # beside at and trades alike
    assert [even.spelled(pieces) for pieces, _ in found.ranking][:2] == ["trades+ema", "trades+ccm"]
    assert len(found.compared) == 5


def test_only_the_last_third_of_validation_under_attack_counts(even, records):
    runs, _ = even.read_runs(records)
    one = next(r for r in runs if names(r.pieces) == {"at"} and r.seed == 1)
    expected = rates("at", 1, 0)
    assert one.score == pytest.approx(sum(expected) / 10 + sum(expected[:2]) / 2)


def test_a_piece_that_lacks_a_home_or_pairs_is_not_taken(even, records):
    for seed in range(3):
        write_record(records, "at+idbh", seed, DATA[0])  # no better, and one home alone
    write_record(records, "at+fawa", 0, DATA[0])
    write_record(records, "at+fawa", 0, DATA[1])  # two pairs
    found, _ = chosen(even, records)
    effects = {one.piece[0]: one for one in found.effects}
    assert not effects["idbh"].everywhere
    assert effects["fawa"].pairs == 2
    assert not effects["idbh"].good
    assert not effects["fawa"].good
    assert "idbh" not in {name for pieces, _ in found.ranking for name in names(pieces)}


def test_runs_of_other_settings_do_not_count(even, records):
    for seed in range(3):
        write_record(records, "at+fairtat", seed, DATA[0], lr=0.3)
        write_record(records, "at", seed, DATA[0], lr=0.3)
    found, _ = chosen(even, records)
    assert {one.piece[0]: one.pairs for one in found.effects}["fairtat"] == 6


def test_what_does_not_compose_or_is_a_second_average_is_left_out_with_its_reason(even, records):
    for recipe in ("at+cfa", "at+fawa"):
        for data in DATA:
            for seed in range(3):
                write_record(records, recipe, seed, data)
    found, _ = chosen(even, records)
    assert {one.piece[0] for one in found.effects if one.good} == {"ema", "ccm", "cfa", "fawa"}
    assert names(found.composition) == {"trades", "ema", "ccm"}
    reasons = {piece[0]: why for piece, why in found.refused.items()}
    assert "'margin'" in reasons["cfa"]
    assert reasons["fawa"] == "the recipe has an average already"


def test_unfinished_clean_and_shut_ones_are_left_out(even, records):
    short = write_record(records, "at", 7)
    text = (short / "history.jsonl").read_bytes().splitlines(keepends=True)
    (short / "history.jsonl").write_bytes(b"".join(text[:-1]))
    write_record(records, "clean", 0)
    _, left_out = chosen(even, records)
    assert sorted(left_out.values()) == [
        "5 of 6 epochs so far",
        "nothing attacks it on validation images",
    ]
    with pytest.raises(even.ClasswiseError, match="never began"):
        even.classes_of([{"averages": {"ema": 0}, "valid": {}}], "pgd-5")
    with pytest.raises(even.ClasswiseError, match="several averages"):
        even.classes_of([{"averages": {"ema": 1, "fawa": 1}, "valid": {}}], "pgd-5")


def test_the_page_says_what_to_freeze_and_what_to_compare_at_equal_cost(even, records, capsys):
    assert even.main(["--records", str(records)]) == 0
    page = capsys.readouterr().out
    assert "To freeze: `trades+ccm+ema`, 6 epochs" in page
    assert "* `trades+ema`, 6 epochs" in page
    assert "* `at+ema`, 7 epochs" in page  # 23 passes an image where trades has 27
    assert even.main(["--records", str(records), "--data", "mnist"]) == 2
    assert "no record is of mnist; there are pooled(cifar10" in capsys.readouterr().err
    assert even.main(["--records", str(records / "none")]) == 2
    assert "has no record that can be scored" in capsys.readouterr().err
