"""ONNX files that are damaged, absurd or after something: one line, and nothing is allocated."""

import gzip
import os
import resource
import tracemalloc

import numpy as np
import pytest
from onnx import TensorProto
from onnx_files import linear, model_of, one_node, pictures, residual
from refusals import refused

from classwise import limits
from classwise.models import onnx_file
from classwise.models.onnx_network import open_onnx

IMAGES = pictures(2, 1, 8, 8)


@pytest.fixture(autouse=True)
def _little_memory():
    """No test here may take more than a few hundred megabytes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert taken < 300 << 10, f"{taken >> 10} MB were taken"


def opened(path, model):
    content = model if isinstance(model, bytes) else model.SerializeToString()
    path.write_bytes(content)
    return open_onnx(path, IMAGES)


def claiming(shape, raw=b"", kind=TensorProto.FLOAT):
    """A linear network whose weights say that they have a shape."""
    model = linear()
    model.graph.initializer[0].CopyFrom(
        TensorProto(name="w", dims=shape, data_type=kind, raw_data=raw)
    )
    return model


def test_cut_off_anywhere(tmp_path):
    whole = residual()[0].SerializeToString()
    assert opened(tmp_path / "net.onnx", whole)
    for length in range(0, len(whole) - 1, 997):
        with refused("net.onnx"):
            opened(tmp_path / "net.onnx", whole[:length])


@pytest.mark.parametrize("content", [b"", b"\x00", b"hello", b"\xff" * 100, b"PK\x03\x04" * 9])
def test_no_onnx_at_all(tmp_path, content):
    with refused("net.onnx is not an ONNX model that can be read"):
        opened(tmp_path / "net.onnx", content)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (claiming([10, 10**12]), ("'w'", "takes 40000000000000 bytes")),
        (claiming([2**62, 4]), ("'w'", "bytes")),
        (claiming([-1, 64], bytes(2560)), ("'w'", "below 0")),
        (claiming([10, 64], bytes(2560), 99), ("kind 99",)),
        (claiming([10, 64], bytes(2559)), ("takes 2560 bytes",)),
    ],
)
def test_tensors_that_cannot_be(tmp_path, model, words):
    with refused("net.onnx", *words):
        opened(tmp_path / "net.onnx", model)


def test_numbers_that_stand_one_by_one(tmp_path):
    model = linear()
    tensor = TensorProto(name="w", dims=[10, 10**9], data_type=TensorProto.FLOAT)
    tensor.float_data.extend([1.0] * 10)
    model.graph.initializer[0].CopyFrom(tensor)
    with refused("10000000000 numbers"):
        opened(tmp_path / "net.onnx", model)


def test_a_circle_and_what_nobody_makes(tmp_path):
    circle = [one_node("Add", "x", "b", outputs=["a"]), one_node("Relu", "a", outputs=["b"])]
    for nodes in (circle, [one_node("Add", "x", "gone", outputs=["b"])]):
        with refused("is missing, or the graph goes round in a circle"):
            opened(tmp_path / "net.onnx", model_of(nodes, (1, 8, 8), (), ("b",)))
    with refused("no node makes its output 'gone'"):
        opened(tmp_path / "net.onnx", model_of([one_node("Relu", "x")], (1, 8, 8), (), ("gone",)))


@pytest.mark.parametrize(
    ("nodes", "more"),
    [
        ([one_node("Tile", "x", "n")], {"n": np.array([1, 10**4, 10**4, 10**4])}),
        ([one_node("Pad", "x", "n")], {"n": np.array([0, 0, 10**6, 10**6, 0, 0, 0, 0])}),
        ([one_node("Upsample", "x", "n")], {"n": np.array([1, 1, 1e6, 1e6], np.float32)}),
        (
            [one_node("ConstantOfShape", "n", outputs=["z"]), one_node("Add", "x", "z")],
            {"n": np.array([1, 10**5, 10**5, 10**5])},
        ),
        (
            [one_node("Range", "a", "b", "c", outputs=["r"]), one_node("Add", "x", "r")],
            {"a": np.array(0), "b": np.array(10**12), "c": np.array(1)},
        ),
        ([one_node("Conv", "x", "w", pads=[10**7] * 4)], {"w": np.ones((9, 1, 1, 1), np.float32)}),
    ],
)
def test_layers_that_would_fill_the_memory(tmp_path, nodes, more):
    with refused("net.onnx is not an ONNX model that can be read", "numbers"):
        opened(
            tmp_path / "net.onnx",
            model_of(nodes, (1, 8, 8), more, opset=9 if "Upsample" in str(nodes) else 17),
        )


def test_more_nodes_or_tensors_than_any_network(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file, "MOST_ONNX_PARTS", 20)
    names = [f"v{number}" for number in range(30)]
    nodes = [one_node("Relu", a, outputs=[b]) for a, b in zip(["x", *names], names, strict=False)]
    with refused("more than 20 nodes or tensors"):
        opened(tmp_path / "net.onnx", model_of(nodes, (1, 8, 8), (), (names[-1],)))
    with refused("more than 20 nodes or tensors"):
        many = {name: np.zeros(1) for name in names}
        opened(tmp_path / "net.onnx", model_of([one_node("Relu", "x")], (1, 8, 8), many))
    assert limits.MOST_ONNX_PARTS < 10**6


def test_a_packed_file_that_unfolds(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file, "MOST_ONNX_BYTES", 1 << 20)
    path = tmp_path / "net.onnx.gz"
    path.write_bytes(gzip.compress(bytes(8 << 20)))
    with refused("holds more than 1048576 bytes"):
        open_onnx(path, IMAGES)
    for content in (b"no gzip", gzip.compress(linear().SerializeToString())[:-9]):
        path.write_bytes(content)
        with refused("cannot read", "export it again"):
            open_onnx(path, IMAGES)


@pytest.mark.parametrize("name", ["net.onnx", "net.onnx.gz"])
def test_a_small_file_takes_little_memory_even_for_a_moment(tmp_path, name):
    """What is reserved and never touched is seen by a limit on memory only, and by this."""
    content = linear().SerializeToString()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    tracemalloc.start()
    try:
        assert onnx_file.onnx_bytes(tmp_path / name) == content
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("where", ["../secret", "/etc/passwd", "link", "gone", "", "\x00", "."])
def test_weights_are_never_read_outside_the_folder(tmp_path, where):
    (tmp_path / "secret").write_bytes(bytes(2560))
    folder = tmp_path / "net"
    folder.mkdir()
    os.symlink(tmp_path / "secret", folder / "link")
    with refused("net.onnx"):
        opened(folder / "net.onnx", beside(where, 2560))


def beside(where, length, offset=0):
    model = claiming([10, 64])
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", where), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return model


@pytest.mark.parametrize(("length", "offset"), [(2559, 0), (10**15, 0), (2560, 1), (2560, -1)])
def test_weights_beside_the_file_must_be_there(tmp_path, length, offset):
    (tmp_path / "w.bin").write_bytes(bytes(2560))
    assert opened(tmp_path / "net.onnx", beside("w.bin", 2560))
    with refused("do not fit 'w.bin', which has 2560 bytes"):
        opened(tmp_path / "net.onnx", beside("w.bin", length, offset))


def test_no_byte_beside_the_file_is_given_out_twice(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(2560))
    model = beside("w.bin", 2560)
    for number in range(3):
        again = model.graph.initializer.add()
        again.CopyFrom(model.graph.initializer[0])
        again.name = f"again {number}"
    with refused("do not fit 'w.bin'"):
        opened(tmp_path / "net.onnx", model)


def test_names_do_not_speak_to_the_terminal(tmp_path):
    model = model_of([one_node("\x1b[2J", "x")], (1, 8, 8))
    with refused("\\x1b[2J"):
        opened(tmp_path / "net.onnx", model)


def test_layers_whose_weights_do_not_fit(tmp_path):
    norm = one_node("BatchNormalization", "x", "a", "b", "b", "b")
    sizes = {"a": np.ones(3, np.float32), "b": np.ones(2, np.float32)}
    with refused("has a bias of shape (2,)"):
        opened(tmp_path / "net.onnx", model_of([norm], (1, 8, 8), sizes))
