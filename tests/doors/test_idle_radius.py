"""A radius or a norm that nothing attacks within is refused, not forgotten."""

import pytest
from asked import audit_target
from refusals import refused

NET = """
from torch import nn

def net(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))
"""
FEW = {"data": "digits", "limit": 10, "quiet": True}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "idle_net.py").write_text(NET)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"attacks": "clean", "eps": 0.1}, ("--eps 0.1", "clean attacks nothing")),
        ({"attacks": "clean", "norm": "L2"}, ("--norm L2", "attacks nothing")),
        ({"attacks": "clean,fgsm(eps=0.2)", "eps": 0.1}, ("--eps 0.1", "states its own")),
    ],
)
def test_it_is_refused(given, words):
    with refused(*words):
        audit_target("idle_net:net", **FEW, **given)


def test_one_condition_that_uses_it_is_enough():
    (found,) = audit_target("idle_net:net", attacks="clean,fgsm,fgsm(eps=0.2)", eps=0.1, **FEW)
    assert list(found.report) == ["clean", "fgsm", "fgsm(eps=51/255)"]
