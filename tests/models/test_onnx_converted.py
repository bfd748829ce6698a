"""Files with operators that our reader lacks, by way of a stand-in for onnx2torch."""

import gzip
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from onnx_files import WEIGHT, boxed, linear, model_of, one_node, pictures, saved
from refusals import refused
from torch import nn
from typer.testing import CliRunner

import classwise
from classwise.cli import app
from classwise.models.blackbox import BlackBox
from classwise.models.onnx_network import open_onnx
from classwise.models.subject import Subject


class Shrunk(nn.Module):
    """What `boxed()` computes."""

    def __init__(self, weight=WEIGHT):
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(weight.copy()))

    def forward(self, images):
        return nn.functional.hardshrink(images.flatten(1) @ self.weight.T, 0.01)


class OtherwiseAbout(Shrunk):
    """Answers as it should, but for one image."""

    def __init__(self, image):
        super().__init__()
        self.image = image

    def forward(self, images):
        odd = (images == self.image).flatten(1).all(1)
        return super().forward(images) + 1e-3 * odd[:, None]


@pytest.fixture
def installed(monkeypatch):
    """Say what `onnx2torch.convert` makes of a file; what it was given is kept."""
    given = []

    def install(made):
        def convert(file):
            given.append(file)
            if isinstance(made, Exception):
                raise made
            return made

        monkeypatch.setitem(sys.modules, "onnx2torch", SimpleNamespace(convert=convert))
        return given

    return install


@pytest.fixture(scope="module")
def digits():
    test = classwise.open_data("digits").test
    return test.images[:60], test.labels[:60]


FACTS = {"eps": 0.02, "attacks": ["clean", "pgd-3"]}


def test_a_conversion_that_agrees_has_gradients(installed, digits, tmp_path):
    path = saved(tmp_path / "net.onnx", boxed())
    without = classwise.audit(str(path), *digits, attacks="clean")
    assert without.about["black_box"]
    given = installed(Shrunk())
    found = classwise.audit(str(path), *digits, batch_size=25, **FACTS)
    expected = classwise.audit(Shrunk(), *digits, **FACTS)
    for condition in FACTS["attacks"]:
        assert np.array_equal(found.confusion[condition], expected.confusion[condition])
    assert np.array_equal(found.confusion["clean"], without.confusion["clean"])
    assert given == [str(path)]
    assert "black_box" not in found.about
    (words,) = [one for one in found.about["asked"] if "net.onnx" in one]
    assert "converted by onnx2torch, with gradients" in words
    assert "answers as onnxruntime does on 60 images (not translated: the operator Shrink)" in words


def test_one_command_compares_the_images_of_the_audit(installed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "net.onnx", boxed())
    installed(Shrunk())
    words = ["audit", "net.onnx", "--data", "digits", "--limit", "20", "--attacks", "clean,pgd-2"]
    told = CliRunner().invoke(app, [*words, "--eps", "0.1", "--out", "kept", "-q"])
    assert told.exit_code == 0, told.output
    assert "answers as onnxruntime does on 20 images" in " ".join(told.output.split())
    again = CliRunner().invoke(app, [*words, "--eps", "0.1", "--out", "kept", "-q"])
    assert again.stdout == told.stdout  # known again by its content


def without_gradients():
    class Still(Shrunk):
        def forward(self, images):
            return super().forward(images.detach()).detach()

    return Still()


def breaking():
    class Breaking(Shrunk):
        def forward(self, images):
            raise RuntimeError(f"no such kernel for {len(images)} images")

    return Breaking()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda images: OtherwiseAbout(images[41]), "answers otherwise than onnxruntime"),
        (lambda _: Shrunk(WEIGHT * np.nan), "answers otherwise than onnxruntime"),
        (lambda _: Shrunk(WEIGHT[:7]), "answers otherwise than onnxruntime"),
        (lambda _: without_gradients(), "has no gradients"),
        (lambda _: breaking(), "cannot be run: RuntimeError: no such kernel for"),
        (lambda _: NotImplementedError("Shrink"), "does not convert it: NotImplementedError"),
    ],
)
def test_otherwise_it_is_a_black_box(installed, digits, tmp_path, made, words):
    images, labels = digits[0].float() / 255, digits[1]
    path = saved(tmp_path / "net.onnx", boxed())
    installed(made(images))
    found = classwise.audit(str(path), images, labels, batch_size=16, attacks="clean")
    assert found.about["black_box"]
    said = " ".join(found.about["asked"])
    assert "is run by onnxruntime, without gradients (not translated: the operator Shrink" in said
    assert words in said
    with refused("pgd-3 needs gradients", "black box", words):
        classwise.audit(str(path), images, labels, **FACTS)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (None, "(not translated: the operator Shrink)"),  # it is not installed
        (RuntimeError("operator torchvision::nms"), "onnx2torch cannot be imported: RuntimeError"),
        (ModuleNotFoundError("no torchvision", name="torchvision"), "cannot be imported"),
    ],
)
def test_where_it_does_not_import(monkeypatch, tmp_path, reason, words):
    class Broken:
        @staticmethod
        def find_spec(name, *_):
            if name == "onnx2torch":
                raise reason or ModuleNotFoundError(name=name)

    monkeypatch.delitem(sys.modules, "onnx2torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken, *sys.meta_path])
    opened = open_onnx(saved(tmp_path / "net.onnx", boxed()), pictures(2, 1, 8, 8))
    assert isinstance(opened.model, BlackBox)
    assert words in opened.words


def test_nobody_asks_it_about_what_our_reader_knows(installed, tmp_path):
    given = installed(RuntimeError("not to be asked"))
    opened = open_onnx(saved(tmp_path / "net.onnx", linear()), pictures(2, 1, 8, 8))
    assert "translated from ONNX" in opened.words
    assert given == []


def test_packed_files_channels_last_and_several_outputs(installed, tmp_path):
    nodes = [
        one_node("Transpose", "x", outputs=["first"], perm=[0, 3, 1, 2]),
        one_node("Flatten", "first", outputs=["flat"]),
        one_node("Gemm", "flat", "w", outputs=["more"], transB=1),
        one_node("Shrink", "more", outputs=["y"], lambd=0.01),
    ]
    model = model_of(nodes, (8, 8, 1), {"w": WEIGHT}, ("more", "y"))
    path = tmp_path / "net.onnx.gz"
    path.write_bytes(gzip.compress(model.SerializeToString()))

    class Both(Shrunk):
        def forward(self, images):
            assert images.shape[1:] == (8, 8, 1)
            flat = images.permute(0, 3, 1, 2).flatten(1) @ self.weight.T
            return flat, nn.functional.hardshrink(flat, 0.01)

    given, images = installed(Both()), pictures(5, 1, 8, 8)
    subject = Subject.of(path, images, output="y")
    assert isinstance(given[0], onnx.ModelProto)
    assert not subject.black_box
    assert torch.equal(subject.ask(subject.take(images)), Shrunk()(images))
    both = open_onnx(path, images).model(images)
    assert list(both) == ["more", "y"]
