"""Functions of images, TorchScript and torch.export files as targets of an audit."""

import sys
import zipfile

import pytest
import torch
from asked import audit_target
from refusals import refused

import classwise
from classwise.judging.audits import read_ledger

MODULE = """
import torch
from torch import nn

WEIGHT = torch.randn(10, 64, generator=torch.Generator().manual_seed(0))

def predict(images):
    return images.flatten(1) @ WEIGHT.T

def quiet(images):
    return predict(images.detach())

def make(num_classes=10):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))

def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
    )

def wrong(num_classes):
    return torch.zeros(3)

def broken(images):
    raise KeyError("width")
"""
FACTS = {"data": "digits", "limit": 60, "quiet": True}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    (tmp_path / "code_target.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "code_target", raising=False)


class TestFunctions:
    def test_one_of_images_is_audited_as_it_is(self, tmp_path):
        (found,) = audit_target(
            "code_target:predict", attacks="clean,pgd-3", folder=tmp_path / "kept", **FACTS
        )
        assert "black_box" not in found.report.about
        import code_target

        test = classwise.open_data("digits").test
        right = code_target.predict(test.images.float() / 255).argmax(1) == test.labels
        assert abs(found.report.overall["clean"] - float(right.double().mean())) < 0.1
        assert found.report.overall["pgd-3"] <= found.report.overall["clean"]
        assert len(read_ledger(tmp_path / "kept")) == 1

    def test_one_without_gradients_is_a_black_box(self):
        (found,) = audit_target("code_target:quiet", attacks="clean", **FACTS)
        assert found.report.about["black_box"] is True

    def test_it_is_told_from_one_that_makes_a_model(self):
        (found,) = audit_target("code_target:make", attacks="clean", **FACTS)
        assert "black_box" not in found.report.about
        with refused("returned Tensor", "function from images to logits", "no default"):
            audit_target("code_target:wrong", attacks="clean", **FACTS)

    def test_what_it_says_itself_and_what_it_cannot_use(self):
        with refused("broken", "KeyError: 'width'"):
            audit_target("code_target:broken", attacks="clean", **FACTS)
        with refused("function of images", "--weights x.pth"):
            audit_target("code_target:predict", weights="x.pth", attacks="clean", **FACTS)
        with refused("--trust", "code_target:predict is none"):
            audit_target("code_target:predict", trust=True, attacks="clean", **FACTS)


def network():
    import code_target

    return code_target.net().eval()


def scripted(path):
    torch.jit.save(torch.jit.trace(network(), torch.rand(2, 1, 8, 8)), path)


def exported(path, free=True):
    shapes = ({0: torch.export.Dim("n", max=4096)},) if free else None
    program = torch.export.export(network(), (torch.rand(3, 1, 8, 8),), dynamic_shapes=shapes)
    torch.export.save(program, path)


WRITERS = {
    "net.pt": scripted,
    "net.pt2": exported,
    "fixed.pt2": lambda path: exported(path, free=False),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRITERS)
def test_files_of_code_are_opened_only_by_those_who_trust_them(name, tmp_path):
    WRITERS[name](tmp_path / name)
    with refused(name, "that is code", "--trust"):
        audit_target(name, attacks="clean", **FACTS)
    facts = {"attacks": "clean,pgd-3", **FACTS}
    (found,) = audit_target(name, trust=True, folder=tmp_path / "kept", **facts)
    (expected,) = audit_target("code_target:net", **facts)
    for condition in ("clean", "pgd-3"):
        both = [one.report.confusion[condition].tolist() for one in (found, expected)]
        assert both[0] == both[1]
    assert found.report.overall["pgd-3"] <= found.report.overall["clean"]
    assert len(read_ledger(tmp_path / "kept")) == 1


def test_a_damaged_file_of_code(tmp_path):
    with zipfile.ZipFile(tmp_path / "net.pt", "w") as archive:
        for name in ("net/constants.pkl", "net/code/a.py"):
            archive.writestr(name, b"?")
    with refused("cannot be opened as a TorchScript file"):
        audit_target("net.pt", trust=True, attacks="clean", **FACTS)
