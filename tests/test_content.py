"""What a ledger knows a model by: nothing that decides its answers may change unnoticed."""

import argparse
import copy
import functools
import importlib
import io
import linecache
import logging
import os
import subprocess
import sys
import threading
import types
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from classwise.content import content_of
from classwise.models.subject import model_hash

SCALE = 2.0


class Wrapped(nn.Module):
    """A net with something of any kind beside it."""

    def __init__(self, extra):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(2, 2)
        self.extra = extra

    def forward(self, x):
        return self.net(x)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Held:
    def __init__(self, value):
        self.value = value

    def twice(self, x):
        return 2 * x + self.value


class Door:
    """Settings found by name, and an error of its own for any other."""

    def __init__(self, **settings):
        self.__dict__["settings"] = settings

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)  # for copy
        return self.__dict__["settings"][name]


def scaled(by):
    return lambda x: by * x


def with_hook(kind, hook):
    model = Wrapped(None)
    getattr(model.net, f"register_{kind}")(hook)
    return model


def first_hook(*_):
    return None


def second_hook(*_):
    return 1


OTHERS = {
    "functions": (torch.relu, torch.tanh),
    "own functions": (first_hook, second_hook),
    "lambdas on one line": ((lambda x: x + 1), (lambda x: x + 2)),
    "closures": (scaled(1.0), scaled(2.0)),
    "partials": (functools.partial(torch.clamp, min=0), functools.partial(torch.clamp, min=1)),
    "methods": (Held(1).twice, Held(2).twice),
    "objects": (Held(1), Held(2)),
    "objects with slots": (Slotted(1), Slotted(2)),
    "arrays": (np.array([0.5]), np.array([0.25])),
    "lists of tensors": ([torch.zeros(2)], [torch.ones(2)]),
    "dictionaries": ({"a": 1}, {"a": 2}),
    "dictionaries of modules": ({"a": nn.ReLU()}, {"a": nn.Tanh()}),
    "modules in a list": ([nn.ReLU()], [nn.ReLU6()]),
    "sets": ({1, 2}, {1, 3}),
    "classes": (nn.ReLU, nn.Tanh),
    "kinds of numbers": (torch.float32, torch.float64),
    "bags": (types.SimpleNamespace(by=1, f=first_hook), types.SimpleNamespace(by=2, f=first_hook)),
    "arguments": (argparse.Namespace(by=1, at=object()), argparse.Namespace(by=2, at=object())),
    "cached functions": (functools.lru_cache(first_hook), functools.lru_cache(second_hook)),
    "settings behind a door": (Door(by=1), Door(by=2)),
    "order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "sizes": (torch.Size([1, 2]), torch.Size([2, 1])),
}


def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


class Shifted(nn.Module):
    """A constant that tracing writes into the code."""

    def __init__(self, mean):
        super().__init__()
        self.held = [mean]

    def forward(self, x):
        return x - self.held[0]


def everything():
    """A model with something of every kind, and some that differ from process to process."""
    logging.getLogger("some").setLevel(os.getpid() % 50)
    changing = [logging.getLogger("some"), threading.Lock(), io.BytesIO()]
    choice = [lambda x: x in {"alpha", "beta", "gamma"}]
    model = Wrapped([[pair[0] for pair in OTHERS.values()], changing, choice, {"z", "y", "x"}])
    model.net.register_forward_hook(first_hook)
    return model


@pytest.mark.parametrize("kind", OTHERS)
def test_a_part_of_any_kind_counts(kind):
    one, other = OTHERS[kind]
    assert model_hash(Wrapped(one)) == model_hash(copy.deepcopy(Wrapped(one)))
    assert model_hash(Wrapped(one)) != model_hash(Wrapped(other))


@pytest.mark.parametrize(
    "kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"]
)
def test_hooks_count(kind):
    hashes = [model_hash(with_hook(kind, hook)) for hook in (first_hook, first_hook, second_hook)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert model_hash(Wrapped(None)) not in hashes


def test_neither_mode_nor_device_nor_shared_constants_count():
    assert model_hash(Wrapped(None).train()) == model_hash(Wrapped(None).eval())
    assert model_hash(Wrapped(torch.device("cpu"))) == model_hash(Wrapped(torch.device("meta")))
    pair = [1, 2]
    assert model_hash(Wrapped([pair, pair])) == model_hash(Wrapped([[1, 2], [1, 2]]))


def test_cycles_end():
    knot = [1]
    knot.append(knot)
    model = Wrapped(knot)
    model.extra.append(model)
    model.me = model.forward
    assert model_hash(model) == model_hash(copy.deepcopy(model))


def test_what_a_class_inherits_and_mentions_counts(tmp_path, monkeypatch):
    """The same class name, whose base, helper, constant or helping module is another."""
    base = {
        "constant": "SCALE = 1.0",
        "helper": "def helper(x):\n    return SCALE * x",
        "base": "class Base(nn.Module):\n    def forward(self, x):\n        return helper(x)",
        "module": "def beside(x):\n    return x",
    }
    changes = [
        {},
        {"constant": "SCALE = 2.0"},
        {"helper": "def helper(x):\n    return -SCALE * x"},
        {"base": base["base"].replace("helper(x)", "helper(x) + other_module.beside(x)")},
        {"base": base["base"].replace("helper(x)", "other_module.beside(x)")},
    ]
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    hashes = []
    for change in [*changes, {**changes[-1], "module": "def beside(x):\n    return 3 * x"}]:
        text = {**base, **change}
        (tmp_path / "other_module.py").write_text(text.pop("module"))
        parts = ["from torch import nn", "import other_module", *text.values()]
        parts.append("class Net(Base):\n    pass\n")
        (tmp_path / "made_model.py").write_text("\n\n".join(parts))
        for name in ("other_module", "made_model"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        linecache.clearcache()
        hashes.append(model_hash(importlib.import_module("made_model").Net()))
    for name in ("other_module", "made_model"):
        sys.modules.pop(name, None)
    assert len(set(hashes)) == len(hashes)


def test_modules_inside_modules_count(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "made_package").mkdir()
    (tmp_path / "made_package" / "__init__.py").write_text("")
    hashes = []
    for factor in (1, 1, 2):
        (tmp_path / "made_package" / "ops.py").write_text(f"def f(x):\n    return {factor} * x\n")
        (tmp_path / "made_package" / "net.py").write_text(
            "from torch import nn\nimport made_package.ops\n\n"
            "class Net(nn.Module):\n    def forward(self, x):\n"
            "        return made_package.ops.f(x)\n"
        )
        for name in [one for one in sys.modules if one.startswith("made_package")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        linecache.clearcache()
        hashes.append(model_hash(importlib.import_module("made_package.net").Net()))
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_constant_of_the_module_counts(monkeypatch):
    class Scaling(nn.Module):
        def forward(self, x):
            return SCALE * x

    before = model_hash(Scaling())
    assert before == model_hash(Scaling())
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert model_hash(Scaling()) != before


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_compiled_models_are_known_by_code_constants_and_weights():
    def traced(kind=nn.ReLU, mean=0.5):
        torch.manual_seed(0)
        net = nn.Sequential(Shifted(torch.full((2,), mean)), nn.Linear(2, 2), kind())
        return torch.jit.trace(net.eval(), torch.zeros(1, 2))

    assert model_hash(traced()) == model_hash(traced())
    assert len({model_hash(one) for one in (traced(), traced(nn.Tanh), traced(mean=0.25))}) == 3
    first, again, other = (Wrapped(torch.jit.script(f)) for f in (doubled, doubled, halved))
    assert model_hash(first) == model_hash(again) != model_hash(other)
    compiled = [torch.compile(Wrapped(1)) for _ in range(2)]
    assert model_hash(compiled[0]) == model_hash(compiled[1])


def test_the_order_of_parts_counts():
    torch.manual_seed(0)
    layer, ramp = nn.Linear(2, 2), nn.ReLU()
    one = nn.Sequential(OrderedDict(act=ramp, fc=layer))
    other = nn.Sequential(OrderedDict(fc=layer, act=ramp))
    assert model_hash(one) != model_hash(other)


def test_long_chains_and_many_references_are_no_trouble():
    chain = None
    for _ in range(2000):
        chain = [chain]
    tree = [1]
    for _ in range(60):
        tree = [tree, tree]
    crowd = [Held(k) for k in range(30)]
    for one in crowd:
        one.value = list(crowd)
    for extra in (chain, tree, crowd):
        assert model_hash(Wrapped(extra)) == model_hash(Wrapped(extra))


def test_another_process_finds_the_same():
    text = "import test_content as t; print(t.model_hash(t.everything()))"
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"  # another one than ours
    ran = subprocess.run(
        [sys.executable, "-c", text],
        cwd=Path(__file__).parent,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == model_hash(everything())


def test_objects_that_say_nothing_are_known_by_their_kind():
    assert content_of(object()) == content_of(object())
