"""Whole ONNX files: translated with gradients, or run as a black box, and always known again."""

import gzip
import sys

import numpy as np
import onnx
import pytest
import torch
from onnx_files import (
    WEIGHT,
    Residual,
    answers,
    boxed,
    linear,
    model_of,
    nearest_mean,
    one_node,
    pictures,
    residual,
    saved,
)
from refusals import refused
from torch import nn
from typer.testing import CliRunner

import classwise
from classwise import cli
from classwise.judging.audits import read_ledger
from classwise.models import onnx_network
from classwise.models.blackbox import BlackBox
from classwise.models.onnx_network import open_onnx
from classwise.models.preparation import Preparation
from classwise.models.subject import Subject


@pytest.fixture(scope="module")
def digits():
    test = classwise.open_data("digits").test
    return test.images[:120], test.labels[:120]


class TestResidualNetwork:
    def test_clean_and_robust_verdicts_are_those_of_torch(self, digits, tmp_path):
        images, labels = digits
        head = nearest_mean((images / 255 - 0.1307) / 0.3081, labels)
        model, made = residual(head=head)
        path = saved(tmp_path / "net.onnx", model)
        facts = {
            "attacks": ["clean", "pgd-5", "apgd-ce(steps=5)"],
            "eps": 0.03,
            "normalise": "mnist",
        }
        found = classwise.audit(str(path), images, labels, **facts)
        expected = classwise.audit(Residual(made), images, labels, **facts)
        for condition in facts["attacks"]:
            assert np.array_equal(found.confusion[condition], expected.confusion[condition])
        assert found.overall["clean"] > 0.4 > found.overall["pgd-5"] > 0
        assert "black_box" not in found.about
        assert "net.onnx is translated from ONNX, with gradients" in found.about["asked"]

    def test_answers_and_slopes(self, tmp_path):
        model, made = residual()
        images = pictures(6, 1, 8, 8)
        opened = open_onnx(saved(tmp_path / "net.onnx", model), images)
        torch.testing.assert_close(opened.model(images), *answers(model, images), rtol=0, atol=1e-5)
        slopes = []
        for network in (opened.model, Residual(made)):
            points = images.clone().requires_grad_()
            slopes += torch.autograd.grad(network(points).square().sum(), points)
        torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-4)

    def test_weights_are_parameters_and_the_twin_folds_norms(self, tmp_path):
        path = saved(tmp_path / "net.onnx", residual()[0])
        images = pictures(4, 1, 8, 8)
        subject = Subject.of(path, images, wants=Preparation.of(normalise="mnist"))
        counts = {
            kind: sum(isinstance(part, kind) for part in subject.model.modules())
            for kind in (nn.Conv2d, nn.BatchNorm2d, nn.Linear)
        }
        assert counts == {nn.Conv2d: 4, nn.BatchNorm2d: 4, nn.Linear: 1}
        assert sum(weight.numel() for weight in subject.model.parameters()) > 3000
        with subject.asked():
            twin = subject.quick(subject.take(images))
        assert twin is not subject.model
        assert not any(isinstance(part, nn.BatchNorm2d) for part in twin.modules())

    @pytest.mark.parametrize("batch", ["n", 1, 7])
    def test_any_number_of_images(self, tmp_path, batch):
        made = residual()[1]
        images = pictures(9, 1, 8, 8)
        opened = open_onnx(saved(tmp_path / "net.onnx", residual(batch)[0]), images)
        torch.testing.assert_close(opened.model(images), Residual(made)(images), rtol=0, atol=1e-5)


class TestSoftmaxAtTheEnd:
    @pytest.mark.parametrize("output", [None, "probabilities"])
    def test_logits_are_taken_before_it(self, digits, tmp_path, output):
        path = saved(tmp_path / "soft.onnx", residual(softmax=True)[0])
        plain = saved(tmp_path / "plain.onnx", residual()[0])
        facts = {"attacks": ["clean", "pgd-5"], "eps": 0.05}
        found = classwise.audit(str(path), *digits, output=output, **facts)
        expected = classwise.audit(str(plain), *digits, **facts)
        assert np.array_equal(found.confusion["pgd-5"], expected.confusion["pgd-5"])
        assert "before the softmax at its end" in found.about["asked"][0]
        assert not [flag for flag in found.about.get("flags", []) if "probabilities" in flag]

    def test_beside_the_logits_it_is_left_out(self, tmp_path):
        nodes = [one_node("Flatten", "x", outputs=["f"]), one_node("Softmax", "f", outputs=["p"])]
        path = saved(tmp_path / "net.onnx", model_of(nodes, (1, 2, 2), (), ("p", "f")))
        images = pictures(2, 1, 2, 2)
        assert torch.equal(open_onnx(path, images).model(images), images.flatten(1))

    def test_a_black_box_gives_logarithms(self, tmp_path, digits):
        nodes = (
            one_node("Shrink", "logits", outputs=["s"], lambd=0.01),
            one_node("Softmax", "s", outputs=["p"]),
        )
        path = saved(tmp_path / "net.onnx", linear(*nodes, end="p"))
        facts = {"attacks": ["clean"]}
        found = classwise.audit(str(path), *digits, **facts, output="probabilities")
        assert not [flag for flag in found.about.get("flags", []) if "probabilities" in flag]
        said = classwise.audit(str(path), *digits, **facts).about["flags"]
        assert any("--output probabilities" in flag for flag in said)


class TestBlackBox:
    def test_the_operator_is_named_first(self, digits, tmp_path):
        path = saved(tmp_path / "net.onnx", boxed())
        report = classwise.audit(str(path), *digits, eps=0.1)
        assert list(report) == ["clean", "square"]
        assert report.about["black_box"] is True
        assert "without gradients (not translated: the operator Shrink)" in report.about["asked"][0]
        with refused("pgd-20", "black box", "the operator Shrink"):
            classwise.audit(str(path), *digits, attacks=["pgd-20"])

    def test_so_it_is_on_the_command_line(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        saved(tmp_path / "net.onnx", boxed())
        words = "audit net.onnx --data digits --limit 50 --attacks clean --out kept"
        done = CliRunner().invoke(cli.app, words.split())
        assert done.exit_code == 0, done.output
        first = done.stdout.splitlines()[0]
        assert "the operator Shrink" in first
        assert done.stdout.count("the operator Shrink") == 1
        page = CliRunner().invoke(cli.app, ["report", "kept", "--out", "page.html"])
        assert page.exit_code == 0, page.output
        assert "the operator Shrink" in (tmp_path / "page.html").read_text()

    @pytest.mark.parametrize("batch", ["n", 1, 7])
    def test_it_answers_for_any_number_of_images(self, tmp_path, batch):
        model = linear(one_node("Shrink", "logits", outputs=["y"], lambd=0.0), end="y", batch=batch)
        images = pictures(9, 1, 8, 8)
        box = open_onnx(saved(tmp_path / "net.onnx", model), images).model
        assert isinstance(box, BlackBox)
        wanted = images.flatten(1) @ torch.from_numpy(WEIGHT).T
        torch.testing.assert_close(box(images), wanted, rtol=1e-5, atol=1e-5)

    def test_without_onnxruntime_only_what_is_translated_opens(self, tmp_path, monkeypatch, digits):
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        with refused("the operator Shrink is not translated", "classwise[onnx]"):
            open_onnx(saved(tmp_path / "box.onnx", boxed()), pictures(2, 1, 8, 8))
        path = saved(tmp_path / "net.onnx", linear())
        assert classwise.audit(str(path), *digits, attacks=["pgd-2"]).overall["pgd-2"] < 0.5

    def test_a_translation_that_differs_is_not_believed(self, tmp_path, monkeypatch):
        wrong = {
            **onnx_network._TABLE,
            "Flatten": lambda step: step.emit(torch.flatten, step.emit(torch.neg, step.value()), 1),
        }
        monkeypatch.setattr(onnx_network, "_TABLE", wrong)
        opened = open_onnx(saved(tmp_path / "net.onnx", linear()), pictures(2, 1, 8, 8))
        assert isinstance(opened.model, BlackBox)
        assert "answers differently" in opened.words


class TestKnownByContent:
    def test_a_packed_file_is_the_same_model(self, digits, tmp_path):
        model, _ = residual()
        path = saved(tmp_path / "net.onnx", model)
        packed = tmp_path / "net.onnx.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        again = saved(tmp_path / "again.onnx", model)
        other = saved(tmp_path / "other.onnx", residual(seed=1)[0])
        facts = {"attacks": ["clean"], "out": tmp_path / "kept", "name": "net"}
        for file in (path, packed, again, other):
            classwise.audit(str(file), *digits, **facts)
        assert len(read_ledger(tmp_path / "kept")) == 2

    @pytest.mark.parametrize("name", ["net.onnx.data", "w" * 130 + ".bin"])
    def test_weights_beside_the_file_count(self, digits, tmp_path, name):
        found = []
        for sign in (1, 1, -1):
            (tmp_path / name).unlink(missing_ok=True)
            model = linear()
            model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(sign * WEIGHT, "w"))
            facts = {"save_as_external_data": True, "location": name, "size_threshold": 0}
            onnx.save_model(model, tmp_path / "net.onnx", **facts)
            facts = {"attacks": ["clean"], "out": tmp_path / "kept"}
            found.append(classwise.audit(str(tmp_path / "net.onnx"), *digits, **facts))
        images, labels = digits
        right = (images.flatten(1) / 255 @ torch.from_numpy(WEIGHT).T).argmax(1) == labels
        assert found[0].overall["clean"] == pytest.approx(right.double().mean().item())
        assert found[0].overall == found[1].overall
        assert len(read_ledger(tmp_path / "kept")) == 2
