"""What an ONNX file takes and gives, and what is said where that does not fit."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from onnx_files import WEIGHT, linear, model_of, one_node, pictures, saved
from refusals import refused
from torch import nn
from typer.testing import CliRunner

import classwise
from classwise import cli
from classwise.judging.audits import read_ledger
from classwise.models.onnx_network import open_onnx


@pytest.fixture(scope="module")
def digits():
    test = classwise.open_data("digits").test
    return test.images[:120], test.labels[:120]


class TestInputsAndOutputs:
    def test_channels_last(self, tmp_path):
        nodes = [
            one_node("Transpose", "x", outputs=["t"], perm=[0, 3, 1, 2]),
            one_node("Flatten", "t"),
        ]
        path = saved(tmp_path / "net.onnx", model_of(nodes, (5, 4, 3)))
        images = pictures(3, 3, 5, 4)
        assert torch.equal(open_onnx(path, images).model(images), images.flatten(1))

    def test_another_size_is_told_with_the_remedy_which_works(self, tmp_path):
        test = classwise.open_data("digits").test
        images = test.images[:20].repeat_interleave(2, 2).repeat_interleave(2, 3)
        path = saved(tmp_path / "net.onnx", linear())
        with refused("takes images of 1×8×8", "the data are 1×16×16", "--resize 8x8"):
            classwise.audit(str(path), images, test.labels[:20], attacks=["clean"])
        found = classwise.audit(
            str(path), images, test.labels[:20], attacks=["clean"], resize="8x8"
        )
        small = nn.functional.interpolate(images / 255, (8, 8), mode="bilinear", antialias=True)
        plain = classwise.audit(str(path), small, test.labels[:20], attacks=["clean"])
        assert np.array_equal(found.confusion["clean"], plain.confusion["clean"])
        assert "resized to 8×8 (bilinear)" in found.about["asked"][0]

    def test_bytes_several_inputs_and_odd_shapes_are_refused(self, tmp_path):
        images = pictures(1, 1, 8, 8)
        graph = linear().graph
        graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
        with refused("uint8", "floats"):
            open_onnx(saved(tmp_path / "a.onnx", helper.make_model(graph)), images)
        graph = linear().graph
        graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, [1]))
        with refused("2 inputs (x, more)"):
            open_onnx(saved(tmp_path / "b.onnx", helper.make_model(graph)), images)
        with refused("2 axes"):
            flat = model_of([one_node("Relu", "x")], (3,))
            open_onnx(saved(tmp_path / "c.onnx", flat), images)

    def test_one_of_several_outputs(self, digits, tmp_path):
        nodes = [
            one_node("Flatten", "x", outputs=["flat"]),
            one_node("Gemm", "flat", "w", outputs=["main"], transB=1),
            one_node("Neg", "main", outputs=["aux"]),
        ]
        model = model_of(nodes, (1, 8, 8), {"w": WEIGHT}, ("aux", "main"))
        path = str(saved(tmp_path / "net.onnx", model))
        with refused("nobody can tell", "aux (1, 10)", "main (1, 10)", "--output aux"):
            classwise.audit(path, *digits, attacks=["clean"])
        by_name = classwise.audit(path, *digits, attacks=["clean"], output="main")
        plain = classwise.audit(
            str(saved(tmp_path / "p.onnx", linear())), *digits, attacks=["clean"]
        )
        assert np.array_equal(by_name.confusion["clean"], plain.confusion["clean"])
        by_number = classwise.audit(path, *digits, attacks=["clean"], output=1)
        assert np.array_equal(by_number.confusion["clean"], plain.confusion["clean"])
        with refused("unknown output 'mian'", "'main'"):
            classwise.audit(path, *digits, output="mian")

    @pytest.mark.parametrize(("batch", "to"), [(1, [1, 64]), (7, [7, -1]), ("n", [1, 64])])
    def test_a_batch_in_a_reshape(self, tmp_path, batch, to):
        nodes = [one_node("Reshape", "x", "to")]
        model = model_of(nodes, (1, 8, 8), {"to": np.array(to)}, batch=batch)
        images = pictures(5, 1, 8, 8)
        opened = open_onnx(saved(tmp_path / "net.onnx", model), images)
        assert torch.equal(opened.model(images), images.flatten(1))
        assert "with gradients" in opened.words


def test_a_missing_normalisation_is_named_and_the_remedy_works_on_the_command_line(
    tmp_path, monkeypatch
):
    """The number that came out wrong: 24.6 % in the place of 80.0 %, with exit code 0."""
    monkeypatch.chdir(tmp_path)
    train = classwise.open_data("digits").train
    x = ((train.images.float() / 255 - 0.5) / 0.25).flatten(1)
    means = torch.stack([x[train.labels == k].mean(0) for k in range(10)])
    bias = -means.square().sum(1) / 2
    nodes = [one_node("Flatten", "x", outputs=["f"]), one_node("Gemm", "f", "w", "b", transB=1)]
    given = {"w": means.numpy(), "b": bias.numpy()}
    saved(tmp_path / "net.onnx", model_of(nodes, (1, 8, 8), given))
    words = "audit net.onnx --data digits --limit 200 --attacks clean,pgd-5 --eps 0.05"
    without = CliRunner().invoke(cli.app, words.split())
    assert without.exit_code == 0
    said = " ".join(without.output.split())
    assert "missing-normalisation" in said
    assert "--mean and --std" in said
    more = [*words.split(), "--mean", "0.5", "--std", "0.25", "--out", "kept"]
    done = CliRunner().invoke(cli.app, more)
    assert done.exit_code == 0, done.output
    assert "missing-normalisation" not in done.output
    assert "images are normalised by mean 0.5, deviation 0.25" in done.stdout.splitlines()[0]
    (kept,) = read_ledger(tmp_path / "kept")
    assert kept.report.overall["clean"] > 0.85
    assert kept.report.overall["pgd-5"] < kept.report.overall["clean"]
    assert "mean 0.5, deviation 0.25" in kept.report.about["asked"][0]
