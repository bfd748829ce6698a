"""What a ledger knows a model by: nothing that decides its answers may change unnoticed."""

import copy
import functools
import importlib
import sys

import numpy as np
import pytest
import torch
from torch import nn

from classwise.auditing.content import content_of
from classwise.auditing.fingerprint import model_hash

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
    "sizes": (torch.Size([1, 2]), torch.Size([2, 1])),
}


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
        import linecache

        linecache.clearcache()
        hashes.append(model_hash(importlib.import_module("made_model").Net()))
    for name in ("other_module", "made_model"):
        sys.modules.pop(name, None)
    assert len(set(hashes)) == len(hashes)


def test_a_constant_of_the_module_counts(monkeypatch):
    class Scaling(nn.Module):
        def forward(self, x):
            return SCALE * x

    before = model_hash(Scaling())
    assert before == model_hash(Scaling())
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert model_hash(Scaling()) != before


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_compiled_models_are_known_by_code_and_weights():
    def scripted(factor):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 2), nn.ReLU() if factor else nn.Tanh())
        return torch.jit.trace(net.eval(), torch.zeros(1, 2))

    assert model_hash(scripted(1)) == model_hash(scripted(1)) != model_hash(scripted(0))


def test_objects_that_say_nothing_are_known_by_their_kind():
    assert b"".join(content_of(object())) == b"".join(content_of(object()))
