"""The road of an audit: names are read once, few calls lead to the search, a column is one line."""

import importlib
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import duckdb
import numpy as np
import pytest
from conditions import Scene, same_verdicts
from doors_in import data_file
from ledgers import stamp, verdicts
from typer.testing import CliRunner

import classwise
from classwise.attacks import names
from classwise.attacks.condition import Condition
from classwise.attacks.search import engine, suite
from classwise.cli import app
from classwise.judging.audits import read_ledger
from classwise.record import ledger, rows
from classwise.record.card import audit_facts
from classwise.record.rows import Predictions, per_sample

PACKAGE = Path(rows.__file__).parents[1]


def command(*words):
    done = CliRunner().invoke(app, ["audit", *words, "--device", "cpu", "--quiet"])
    assert done.exit_code == 0, done.output


def test_a_name_is_read_once(tmp_path, monkeypatch):
    read = Counter()

    def counting(function):
        def counted(text, *more, **facts):
            read[f"{function.__name__} {text}"] += 1
            return function(text, *more, **facts)

        return counted

    for name in ("parse_attack", "parse_condition"):
        original = getattr(names, name)
        for module in [m for key, m in list(sys.modules.items()) if key.startswith("classwise")]:
            if vars(module).get(name) is original:
                monkeypatch.setattr(module, name, counting(original))
    scene = Scene()
    attacks = "clean,pgd-2,suite(apgd-ce(steps=2),square(queries=5)),conditions:Blur>pgd-3"
    words = ["doors_in:held", "--data", data_file(scene, tmp_path), "--attacks", attacks]
    command(*words, "--batch-size", "5", "--out", str(tmp_path / "kept"))
    assert read == {
        "parse_condition clean": 1,
        "parse_condition pgd-2": 1,
        "parse_attack pgd-2": 1,
        "parse_condition suite(apgd-ce(steps=2),square(queries=5))": 1,
        "parse_attack suite(apgd-ce(steps=2),square(queries=5))": 1,
        "parse_attack apgd-ce(steps=2)": 1,  # the members of a suite, inside it
        "parse_attack square(queries=5)": 1,
        "parse_condition conditions:Blur>pgd-3": 1,
        "parse_attack pgd-3": 1,
    }
    read.clear()
    done = CliRunner().invoke(app, ["audit", "--from", str(tmp_path / "kept")])
    assert done.exit_code == 0, done.output
    assert not read  # rows say what they are


def test_six_calls_lead_from_the_command_to_the_search(tmp_path, monkeypatch):
    walks, search = [], engine.run_search

    class EnoughError(Exception):
        pass

    def looking(*given):  # noqa: ARG001
        frame, walk = sys._getframe(), []
        while frame is not None:
            code = frame.f_code
            if PACKAGE in Path(code.co_filename).parents:
                walk.append((Path(code.co_filename).stem, code.co_name))
            frame = frame.f_back
        walks.append(walk)
        raise EnoughError

    assert suite.run_search is search
    monkeypatch.setattr(suite, "run_search", looking)
    scene = Scene()
    words = ["audit", "doors_in:held", "--data", data_file(scene, tmp_path), "--quiet"]
    words += ["--attacks", "autoattack", "--device", "cpu"]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, EnoughError)
    (walk,) = walks
    here = walk.index(("auditing", "audit"))  # outside it are only the command line's decorators
    assert {name for name, _ in walk[here + 1 :]} <= {"app"}
    assert [name for _, name in reversed(walk[: here + 1])] == [
        "audit", "audit_target", "run_audit", "_complete", "judge", "judge",
    ]  # fmt: skip
    calls = len(walk[: here + 1])  # the last of them calls run_search
    assert calls <= 6


@pytest.mark.parametrize("name", classwise.__all__)
def test_a_public_name_stays_what_it_is_when_all_is_imported(name):
    first = getattr(classwise, name)
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        if module.partition(".")[2].partition(".")[0] == name:
            importlib.import_module(module.removesuffix(".__init__"))
    assert getattr(classwise, name) == first
    assert not isinstance(first, ModuleType)


def widened(monkeypatch):
    """The long table with one more line."""
    old = Predictions

    @dataclass(frozen=True)
    class Wider(Predictions):
        light: np.ndarray = per_sample("DOUBLE", lambda v: v.batch.images.double().mean((1, 2, 3)) / 255, default=None)  # fmt: skip  # noqa: E501, RUF009

    for module in [m for key, m in list(sys.modules.items()) if key.startswith("classwise")]:
        if vars(module).get("Predictions") is old:
            monkeypatch.setattr(module, "Predictions", Wider)
    return Wider


class TestColumn:
    """One line makes a column: written, compacted, read back, and absent from old files."""

    def audit(self, folder, attacks="pgd-2"):
        words = ["doors_in:held", "--data", data_file(Scene(), folder), "--attacks", attacks]
        command(*words, "--batch-size", "5", "--out", str(folder / "kept"))
        (one,) = [one for one in audit_facts(folder / "kept") if one["condition"] == attacks]
        owner = {key: one[key] for key in ("model_hash", "data_hash", "attack_key")}
        return ledger.Ledger.at(folder / "kept"), rows.Stamp("run", "given", "test", **owner)

    def test_it_is_written_compacted_and_read_back(self, tmp_path, monkeypatch):
        wider = widened(monkeypatch)
        book, whose = self.audit(tmp_path)
        (path,) = book.folder.glob("*.parquet")
        light = (Scene().pixels / 255.0).mean((1, 2, 3)).tolist()
        written = duckdb.sql(f"SELECT light FROM '{path}' ORDER BY sample").fetchnumpy()["light"]
        assert written.tolist() == pytest.approx(light, abs=1e-6)
        found = book.read(whose)
        assert isinstance(found, wider)
        assert found.light.tolist() == pytest.approx(light, abs=1e-6)

    def test_files_without_it_do_no_harm(self, tmp_path, monkeypatch):
        book, whose = self.audit(tmp_path)
        (path,) = book.folder.glob("*.parquet")
        assert "light" not in duckdb.sql(f"SELECT * FROM '{path}'").columns
        before = book.read(whose)
        wider, judge = widened(monkeypatch), Condition.judge
        monkeypatch.setattr(Condition, "judge", None)  # nothing is judged again
        book, whose = self.audit(tmp_path)
        found = book.read(whose)
        assert isinstance(found, wider)
        assert found.light is None
        same_verdicts(found, before)
        monkeypatch.setattr(Condition, "judge", judge)
        self.audit(tmp_path, "fgsm")  # old and new side by side
        (audited,) = read_ledger(tmp_path / "kept")
        assert list(audited.report) == ["fgsm", "pgd-2"]

    def test_rows_with_and_without_it_are_one_condition(self, tmp_path, monkeypatch):
        book = ledger.Ledger(tmp_path)
        book.append(verdicts([0, 1, 2]), stamp())
        wider = widened(monkeypatch)
        more = verdicts([3, 4])
        facts = {name: getattr(more, name) for name in rows.columns(Predictions)}
        book.append(wider(**facts, light=np.array([0.5, 0.25])), stamp())
        book.compact(stamp())
        found = ledger.Ledger(tmp_path).read(stamp())
        assert np.isnan(found.light[:3]).all()
        assert found.light[3:].tolist() == [0.5, 0.25]
