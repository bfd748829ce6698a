"""The benchmarks still speak the package's language; what they measure is for `make bench`."""

import importlib.util
import sysconfig
import time
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
import torch
from torch import nn

from classwise.record.ledger import Ledger
from classwise.record.record import Record
from classwise.types import Batch

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)  # they import one another

    def loaded(name):
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(importlib.sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return loaded


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_what_they_import_is_there(load, name):
    assert load(name).__doc__


def test_none_has_the_name_of_a_library():
    # their folder comes first on the path: numba, which foolbox and imagecorruptions import, would
    # take a `coverage.py` there for the library, installed or not
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert "coverage" not in names
    libraries = [sysconfig.get_path(kind) for kind in ("stdlib", "platlib", "purelib")]
    assert [name for name in names if PathFinder.find_spec(name, libraries) is not None] == []


def test_an_attack_is_run_and_its_images_are_confirmed(load):
    attacks = load("attacks")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    images = torch.rand(200, 3, 4, 4)
    with torch.no_grad():
        labels = model(images).argmax(1)
    batch = Batch(images, labels, torch.arange(200))
    found = attacks.ours(model, batch, "suite(apgd-ce)")
    seen = attacks.verified(model, batch, found)
    assert seen.outside <= 1e-6
    assert seen.fooled == seen.claimed > 0


@pytest.mark.parametrize("way", ["in_one_go", "in_steps"])
def test_both_ways_keep_every_verdict(load, tmp_path, way):
    ledger = load("ledger")
    plan = ledger.plan_of(40, "cnn(width=4)", "clean,pgd-1")
    getattr(ledger, way)(plan, tmp_path)
    facts = {"recipe": "made up", "weights": "given", "split": "test"}
    record = Record.of(tmp_path, plan.subject, plan.data, **facts)
    for condition in plan.conditions:
        found = Ledger.at(tmp_path).read(record.stamped(condition))
        assert found.sample.tolist() == list(range(40))
        assert found.correct.all()


def test_a_method_that_calls_another_is_counted_once(load):
    class Slow:
        @classmethod
        def made(cls):
            time.sleep(0.02)
            return cls()

        @property
        def inner(self):
            time.sleep(0.02)
            return 1

        def outer(self):
            return self.inner + self.inner

    watch = load("ledger").Watch()
    watch.watch(Slow)
    began = time.perf_counter()
    assert Slow.made().outer() == 2
    assert 0.06 <= watch.seconds <= time.perf_counter() - began
