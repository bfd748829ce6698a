"""Models that only answer: functions of arrays and ONNX files."""

import sys
import types

import numpy as np
import onnx
import pytest
import torch
from asked import judge
from linear_models import Linear
from onnx import TensorProto, helper, numpy_helper
from refusals import refused
from typer.testing import CliRunner

import classwise
from classwise.attacks import BlackBox, Square
from classwise.attacks.ball import LINF
from classwise.cli import app
from classwise.data.sources import open_data
from classwise.judging.audits import read_ledger
from classwise.models.blackbox import as_model, onnx_files, open_onnx
from classwise.types import Batch


class TestBlackBox:
    def numpy_model(self, model):
        weight = model.weight.detach().numpy()

        def scores(x):
            assert isinstance(x, np.ndarray)
            assert x.dtype == np.float32
            return (x - 0.5).reshape(len(x), -1) @ weight.T

        return scores

    def test_a_function_of_arrays_is_audited_with_square(self, model, data):
        report = classwise.audit(self.numpy_model(model), *data, eps=0.05)
        assert list(report) == ["clean", "square"]
        assert report.about["black_box"] is True
        assert report.overall["clean"] == pytest.approx(0.9)
        assert report.overall["square"] < 0.6

    def test_square_needs_no_gradient_and_gives_the_same_verdict(self, model, data):
        images, labels = data
        batch = Batch(images, labels, torch.arange(40))
        facts = {"num_classes": 4, "radius": 0.03, "ball": LINF}
        white = judge(model, batch, "square(queries=50)", **facts)
        black = judge(
            BlackBox(lambda x: model.eval()(x), arrays=False), batch, "square(queries=50)", **facts
        )
        assert np.array_equal(white.predicted, black.predicted)

    def test_a_torch_function_without_gradient(self, model, data):
        def quiet(x):
            with torch.no_grad():
                return model(x)

        report = classwise.audit(quiet, *data, attacks="clean,square(queries=20)", eps=0.03)
        assert report.about["black_box"] is True

    def test_a_differentiable_function_is_no_black_box(self, model, data):
        report = classwise.audit(lambda x: model(x), *data, attacks="pgd-2", eps=0.03)
        assert "black_box" not in report.about

    def test_gradient_attacks_are_refused(self, model, data):
        with refused("pgd-20", "black box", "square"):
            classwise.audit(self.numpy_model(model), *data, attacks="clean,pgd-20,square", eps=0.03)

    def test_scores_that_are_words(self, data):
        with refused("scores"):
            classwise.audit(lambda x: np.array(["cat"] * len(x)), *data)

    def test_a_module_is_never_taken_for_one(self, model, data):
        assert as_model(model, data[0]) is model

    def test_the_object_form(self, model, data):
        images, labels = data
        moved = Square(BlackBox(self.numpy_model(model)), eps=0.05, n_queries=60)(images, labels)
        assert (model.eval()(moved).argmax(1) == labels).double().mean() < 0.6


class Session:
    """Stands for onnxruntime's: a fixed or free batch, and a linear model inside."""

    fixed = 0

    def __init__(self, path, providers):
        assert providers == ["CPUExecutionProvider"]
        if "broken" in path:
            raise RuntimeError("Protobuf parsing failed.\nmore")

    def get_inputs(self):
        return [types.SimpleNamespace(name="image", shape=[self.fixed or "n", 1, 6, 6])]

    def run(self, _, given):
        x = given["image"]
        if self.fixed:
            assert len(x) == self.fixed
        return [(x - 0.5).reshape(len(x), -1) @ Linear().weight.detach().numpy().T, None]


def onnx_file(path, weight, shape, batch, beside=None):
    """A linear model as an ONNX file, for a free or a fixed batch; the weights in it or beside."""
    weights = numpy_helper.from_array(weight.numpy(), "weight")
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["flat"]),
            helper.make_node("Gemm", ["flat", "weight"], ["scores"], transB=1),
        ],
        "linear",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, *shape])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, len(weight)])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    facts = {"location": beside, "size_threshold": 0} if beside else {}
    onnx.save_model(model, path, save_as_external_data=beside is not None, **facts)
    return path


class TestOnnx:
    @pytest.mark.parametrize("fixed", [0, 1, 7])
    def test_a_file_is_a_black_box(self, data, tmp_path, monkeypatch, fixed):
        monkeypatch.setitem(
            sys.modules, "onnxruntime", types.SimpleNamespace(InferenceSession=Session)
        )
        monkeypatch.setattr(Session, "fixed", fixed)
        path = tmp_path / "model.onnx"
        path.write_bytes(b"onnx")
        report = classwise.audit(str(path), *data, attacks="clean,square(queries=40)", eps=0.05)
        assert report.about["black_box"] is True
        assert report.overall["clean"] == pytest.approx(0.9)
        assert report.overall["square(queries=40)"] < 0.7

    @pytest.mark.parametrize("batch", ["n", 1, 7])
    def test_a_real_file_answers_as_the_model_it_was_made_from(self, data, tmp_path, batch):
        weight = Linear().weight.detach()
        box = open_onnx(onnx_file(tmp_path / "net.onnx", weight, (1, 6, 6), batch))
        torch.testing.assert_close(box(data[0]), data[0].flatten(1) @ weight.T, rtol=0, atol=1e-5)

    def test_a_real_file_on_the_command_line(self, tmp_path):
        digits = open_data("digits").train
        x, y = digits.images.float().flatten(1) / 255, digits.labels
        weight = torch.stack([(x[y == k] - x.mean(0)).mean(0) for k in range(10)])
        path = onnx_file(tmp_path / "net.onnx", weight, (1, 8, 8), "n")
        words = f"audit {path} --data digits --limit 100 --eps 0.2 --out {tmp_path / 'kept'} -q"
        attack = "clean,square(queries=100)"
        page = tmp_path / "page.html"
        ran = CliRunner().invoke(app, [*words.split(), "--attacks", attack, "--report", str(page)])
        assert ran.exit_code == 0, ran.output
        said = " ".join(ran.output.split())
        for text in (said, " ".join(page.read_text().split())):
            assert "a black box, so only attacks without gradients were run" in text
        (audited,) = read_ledger(tmp_path / "kept")
        rates = audited.report.overall
        assert rates["clean"] > 0.7
        assert rates["square(queries=100)"] < rates["clean"] - 0.2

    @pytest.mark.parametrize("name", ["net.onnx.data", "w" * 130 + ".bin"])
    def test_weights_beside_the_file_count(self, data, tmp_path, name):
        images, labels = data
        weight = Linear().weight.detach()
        found = []
        for sign in (1, 1, -1):
            (tmp_path / name).unlink(missing_ok=True)
            path = onnx_file(tmp_path / "net.onnx", sign * weight, (1, 6, 6), "n", name)
            assert onnx_files(path) == [path, tmp_path / name]
            facts = {"attacks": "clean", "out": tmp_path / "kept"}
            found.append(classwise.audit(str(path), images, labels, **facts).overall["clean"])
        right = (images.flatten(1) @ weight.T).argmax(1) == labels
        assert found[0] == found[1] == pytest.approx(right.double().mean().item())
        assert found[2] != found[0]
        assert len(read_ledger(tmp_path / "kept")) == 2

    def test_no_file(self, tmp_path):
        with refused("nowhere.onnx", "no file"):
            open_onnx(tmp_path / "nowhere.onnx")

    def test_without_the_extra(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        path = tmp_path / "model.onnx"
        path.write_bytes(b"onnx")
        with refused("onnxruntime", "classwise[onnx]"):
            open_onnx(path)

    def test_a_file_that_is_not_onnx(self, tmp_path, monkeypatch):
        monkeypatch.setitem(
            sys.modules, "onnxruntime", types.SimpleNamespace(InferenceSession=Session)
        )
        path = tmp_path / "broken.onnx"
        path.write_bytes(b"?")
        with refused("broken.onnx", "Protobuf"):
            open_onnx(path)
