"""Every operator that is translated, beside onnxruntime."""

import numpy as np
import pytest
import torch
from onnx import helper
from onnx_files import answers, model_of, one_node, pictures, translation

from classwise.models.onnx_network import _TABLE

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def whole(*values):
    return np.array(values, np.int64)


def case(operator, *constants, opset=17, shape=(3, 7, 6), positive=False, **options):
    """One node after the images; constants are further inputs, None: left out."""
    names = ["" if one is None else f"c{number}" for number, one in enumerate(constants)]
    given = {name: one for name, one in zip(names, constants, strict=True) if name}
    nodes = [one_node(operator, "a", *names, **options)]
    nodes.insert(0, one_node("Abs" if positive else "Identity", "x", outputs=["a"]))
    return model_of(nodes, shape, given, opset=opset), shape


def several(*nodes, shape=(3, 7, 6), opset=17, **constants):
    return model_of(list(nodes), shape, constants, opset=opset), shape


def same_as_onnxruntime(model, shape, tmp_path):
    network = translation(tmp_path / "net.onnx", model, pictures(2, *shape)).network
    for count in (1, 2, 5):
        images = pictures(count, *shape).requires_grad_()
        found = network(images)
        (wanted,) = answers(model, images.detach())
        assert found.shape == wanted.shape
        torch.testing.assert_close(found, wanted.to(found.dtype), rtol=1e-5, atol=1e-5)
        if found.requires_grad:
            (slope,) = torch.autograd.grad(found.square().sum(), images)
            assert slope.isfinite().all()


PLAIN = [
    *("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "HardSwish", "Mish", "Neg", "Relu", "Round"),
    *("Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Tanh", "Identity", "LeakyRelu", "Elu"),
    *("HardSigmoid", "GlobalAveragePool", "GlobalMaxPool", "Flatten", "Transpose", "Dropout"),
]
BATCHNORM = (floats(3), floats(3), floats(3), np.abs(floats(3)) + 0.5)
CASES = {
    **{name: case(name, opset=18 if name == "Mish" else 17) for name in PLAIN},
    **{name: case(name, positive=True) for name in ("Log", "Sqrt", "Reciprocal")},
    **{name: case(name, floats(3, 1, 1)) for name in ("Add", "Sub", "Mul", "Div", "PRelu")},
    **{name: case(name, floats(3, 7, 6), floats(1)) for name in ("Max", "Min", "Sum", "Mean")},
    "Pow": case("Pow", np.float32(1.7), positive=True),
    "leaky options": case("LeakyRelu", alpha=0.3),
    "elu options": case("Elu", alpha=0.3),
    "hard sigmoid options": case("HardSigmoid", alpha=0.3, beta=0.1),
    "gelu": case("Gelu", opset=20),
    "gelu by tanh": case("Gelu", opset=20, approximate="tanh"),
    "clip": case("Clip", np.float32(-0.5), np.float32(0.5)),
    "clip from below": case("Clip", np.float32(-0.5)),
    "clip from above": case("Clip", None, np.float32(0.5)),
    "relu6": case("Clip", np.float32(0), np.float32(6)),
    "clip of old": case("Clip", opset=10, min=-0.5, max=0.5),
    "softmax": case("Softmax"),
    "softmax over channels": case("Softmax", axis=1),
    "softmax of old": case("Softmax", opset=11),
    "softmax of old, last": case("Softmax", opset=12, axis=3),
    "log softmax": case("LogSoftmax", axis=1),
    "log softmax of old": case("LogSoftmax", opset=11, axis=2),
    "conv": case("Conv", floats(4, 3, 3, 3), floats(4), pads=[1, 1, 1, 1]),
    "conv, no bias, strides": case("Conv", floats(4, 3, 3, 2), strides=[2, 1]),
    "conv, groups": case("Conv", floats(6, 1, 3, 3), group=3),
    "conv, dilations": case("Conv", floats(4, 3, 2, 2), dilations=[3, 2], pads=[1, 2, 1, 2]),
    "conv, other borders": case("Conv", floats(4, 3, 3, 3), pads=[0, 1, 2, 3]),
    "conv, same": case("Conv", floats(4, 3, 3, 2), auto_pad="SAME_UPPER", strides=[2, 3]),
    "conv, same below": case("Conv", floats(4, 3, 4, 2), auto_pad="SAME_LOWER", strides=[2, 1]),
    "conv, valid": case("Conv", floats(4, 3, 3, 3), auto_pad="VALID"),
    "batchnorm": case("BatchNormalization", *BATCHNORM, epsilon=1e-3),
    "batchnorm of old": case("BatchNormalization", *BATCHNORM, opset=9),
    "batchnorm, new": case("BatchNormalization", *BATCHNORM, opset=15),
    "instance norm": case("InstanceNormalization", floats(3), floats(3), epsilon=1e-3),
    "group norm": case(
        "GroupNormalization", floats(4), floats(4), shape=(4, 3, 3), num_groups=2, opset=21
    ),
    "layer norm": case("LayerNormalization", floats(6), floats(6)),
    "layer norm, two axes": case("LayerNormalization", floats(7, 6), axis=2, epsilon=1e-3),
    "layer norm, stretched": case("LayerNormalization", floats(6), floats(1, 6), axis=-2),
    "lrn": case("LRN", shape=(8, 3, 3), size=5, alpha=0.3, beta=0.6, bias=1.5),
    "max pool": case("MaxPool", kernel_shape=[2, 3]),
    "max pool, borders": case("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "max pool, other borders": case(
        "MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 2]
    ),
    "max pool, up": case("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    "max pool, up, borders": case(
        "MaxPool", kernel_shape=[3, 3], strides=[3, 2], pads=[0, 0, 1, 1], ceil_mode=1
    ),
    "max pool, dilations": case("MaxPool", kernel_shape=[2, 2], dilations=[2, 3]),
    "max pool, same": case("MaxPool", kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
    "average": case("AveragePool", kernel_shape=[2, 3]),
    "average, borders": case("AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "average, borders count": case(
        "AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1
    ),
    "average, other borders": case("AveragePool", kernel_shape=[3, 3], pads=[0, 1, 2, 1]),
    "average, other borders count": case(
        "AveragePool", kernel_shape=[3, 3], pads=[0, 1, 2, 1], count_include_pad=1
    ),
    "average, up": case("AveragePool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, opset=19),
    "average, up, borders": case(
        "AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, opset=19
    ),
    "average, up, borders count": case(
        "AveragePool", kernel_shape=[3, 3], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1,
        count_include_pad=1, opset=19,
    ),
    "average, same": case(
        "AveragePool", kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_LOWER"
    ),
    "flatten, 2": case("Flatten", axis=2),
    "flatten, -1": case("Flatten", axis=-1),
    "transpose": case("Transpose", perm=[0, 3, 1, 2]),
    "reshape": case("Reshape", whole(-1, 21, 6)),
    "reshape, as before": case("Reshape", whole(0, -1, 3)),
    "squeeze": case("Squeeze", whole(2), shape=(3, 1, 4)),
    "squeeze of old": case("Squeeze", shape=(3, 1, 4), opset=11, axes=[2]),
    "unsqueeze": case("Unsqueeze", whole(1, -1)),
    "unsqueeze of old": case("Unsqueeze", opset=11, axes=[1, 5]),
    "concat": several(one_node("Concat", "x", "x", axis=1)),
    "slice": case("Slice", whole(1, -4), whole(6, 100), whole(2, 3), whole(2, 1)),
    "slice, backwards": case("Slice", whole(-1, 4), whole(-100, 0), whole(1, 2), whole(-1, -2)),
    "slice of old": case("Slice", opset=9, starts=[1, 0], ends=[3, -1], axes=[1, 3]),
    "gather": case("Gather", whole(2, 0, -1), axis=1),
    "gather, one": case("Gather", np.int64(-2), axis=2),
    "gather, table": case("Gather", np.array([[0, 1], [2, 0]]), axis=1),
    "pad": case("Pad", whole(0, 0, 1, 2, 0, 0, 3, 0), np.float32(0.5)),
    "pad, reflect": case("Pad", whole(0, 0, 1, 2, 0, 0, 3, 0), mode="reflect"),
    "pad, edge": case("Pad", whole(0, 0, 1, 2, 0, 0, 3, 0), mode="edge"),
    "pad of old": case("Pad", opset=10, pads=[0, 1, 0, 0, 0, 0, 2, 2], value=0.5),
    "pad, axes": case("Pad", whole(1, 2), np.float32(0), whole(2), opset=18),
    "tile": case("Tile", whole(1, 2, 1, 1)),
    "expand": case("Expand", whole(1, 3, 7, 6), shape=(1, 7, 6)),
    "matmul": case("MatMul", floats(6, 5)),
    "matmul of many": case("MatMul", floats(3, 6, 5)),
    "matmul of images": several(
        one_node("Transpose", "x", outputs=["t"], perm=[0, 1, 3, 2]), one_node("MatMul", "x", "t")
    ),
    "gemm": several(
        one_node("Flatten", "x", outputs=["f"]),
        one_node("Gemm", "f", "w", "b", alpha=0.5, beta=2.0), w=floats(126, 5), b=floats(5),
    ),
    "gemm, turned": several(
        one_node("Flatten", "x", outputs=["f"]), one_node("Gemm", "f", "w", transB=1),
        w=floats(5, 126),
    ),
    "gemm, one number": several(
        one_node("Flatten", "x", outputs=["f"]), one_node("Gemm", "f", "w", "b", transB=1),
        w=floats(5, 126), b=floats(1),
    ),
    "einsum": several(one_node("Einsum", "x", "w", equation="nchw,cd->ndhw"), w=floats(3, 4)),
    **{
        f"{name}, {keep}": case(name, axes=[2, -1], keepdims=keep)
        for name in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd")
        for keep in (0, 1)
    },
    "reduce sum": case("ReduceSum", whole(1), keepdims=0),
    "reduce mean, new": case("ReduceMean", whole(2, 3), opset=18),
    "reduce nothing": case("ReduceSum", noop_with_empty_axes=1),
    "resize, linear": case(
        "Resize", None, np.array([1, 1, 2, 3], np.float32), mode="linear"
    ),
    "resize, corners": case(
        "Resize", None, np.array([1, 1, 2, 1.5], np.float32), mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "resize to a size": several(
        one_node("Shape", "x", outputs=["s"], end=2),
        one_node("Concat", "s", "to", outputs=["sizes"], axis=0),
        one_node("Resize", "x", "", "", "sizes", mode="linear"), to=whole(10, 11),
    ),
    "resize of old": case("Resize", np.array([1, 1, 2, 3], np.float32), opset=10),
    "upsample": case("Upsample", np.array([1, 1, 2, 3], np.float32), opset=9),
    "upsample of old": case("Upsample", opset=7, scales=[1.0, 1.0, 2.0, 2.0]),
    "resize, nearest": case(
        "Resize", None, np.array([1, 1, 2, 3], np.float32), mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    ),
    "resize, nearest, half": case("Resize", None, np.array([1, 1, 2, 3], np.float32)),
    "cast": several(
        one_node("Cast", "x", outputs=["d"], to=11), one_node("Cast", "d", to=1)
    ),
    "cast like another": several(
        one_node("Size", "w", outputs=["s"]), one_node("CastLike", "s", "x", outputs=["f"]),
        one_node("Div", "x", "f"), w=floats(3, 5),
    ),
    "where": several(
        one_node("Greater", "x", "zero", outputs=["is"]), one_node("Where", "is", "x", "zero"),
        zero=np.float32(0),
    ),
    "where not": several(
        one_node("LessOrEqual", "x", "zero", outputs=["is"]),
        one_node("Not", "is", outputs=["no"]), one_node("Where", "no", "x", "zero"),
        zero=np.float32(0.1),
    ),
    "where both": several(
        one_node("Less", "x", "one", outputs=["a"]),
        one_node("GreaterOrEqual", "x", "zero", outputs=["b"]),
        one_node("And", "a", "b", outputs=["c"]), one_node("Equal", "x", "one", outputs=["d"]),
        one_node("Or", "c", "d", outputs=["e"]), one_node("Where", "e", "x", "zero"),
        zero=np.float32(0.1), one=np.float32(0.7),
    ),
    "by how many": several(
        one_node("Size", "w", outputs=["s"]), one_node("Cast", "s", outputs=["f"], to=1),
        one_node("Div", "x", "f"), w=floats(3, 5),
    ),
    "constants": several(
        one_node("Constant", outputs=["one"], value_float=1.5),
        one_node("Constant", outputs=["two"], value_floats=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        one_node("Add", "x", "one", outputs=["a"]), one_node("Mul", "a", "two"),
    ),
    "flatten by shape": several(
        one_node("Shape", "x", outputs=["s"]),
        one_node("Gather", "s", "zero", outputs=["n"], axis=0),
        one_node("Unsqueeze", "n", "ax", outputs=["n1"]),
        one_node("Concat", "n1", "rest", outputs=["to"], axis=0),
        one_node("Reshape", "x", "to"), zero=np.int64(0), ax=whole(0), rest=whole(-1),
    ),
    "sides by shape": several(
        one_node("Shape", "x", outputs=["s"], start=2), one_node("ReduceProd", "s", outputs=["p"]),
        one_node("Cast", "p", outputs=["f"], to=1), one_node("Div", "x", "f"),
    ),
    "half of a side": several(
        one_node("Shape", "x", outputs=["s"]), one_node("Gather", "s", "one", outputs=["c"]),
        one_node("Div", "c", "two", outputs=["h"]), one_node("Slice", "x", "zero", "h", "one"),
        one=whole(2), two=whole(2), zero=whole(0),
    ),
    "a token for every image": several(
        one_node("Shape", "x", outputs=["s"]), one_node("Gather", "s", "zero", outputs=["n"]),
        one_node("Concat", "n", "rest", outputs=["to"], axis=0),
        one_node("Expand", "token", "to", outputs=["tokens"]),
        one_node("Concat", "x", "tokens", axis=1),
        zero=whole(0), rest=whole(1, 7, 6), token=floats(1, 1, 7, 6),
    ),
    "zeros for every image": several(
        one_node("Shape", "x", outputs=["s"]), one_node("ConstantOfShape", "s", outputs=["z"]),
        one_node("Sub", "z", "x"),
    ),
    "numbers in a row": several(
        one_node("Range", "zero", "six", "one", outputs=["r"]), one_node("Mul", "x", "r"),
        zero=np.float32(0), six=np.float32(6), one=np.float32(1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_answers_are_those_of_onnxruntime(name, tmp_path):
    same_as_onnxruntime(*CASES[name], tmp_path)


@pytest.mark.parametrize("sizes", [None, [2, 4], [5, 1]])
def test_split(sizes, tmp_path):
    shape = (6, 3, 3)
    more = {} if sizes is None else {"sizes": whole(*sizes)}
    nodes = [
        helper.make_node("Split", ["x", *more], ["a", "b"], axis=1),
        one_node("ReduceMean", "a", outputs=["m"], axes=[1, 2, 3]),
        one_node("Mul", "b", "m"),
    ]
    same_as_onnxruntime(model_of(nodes, shape, more), shape, tmp_path)


def test_no_operator_is_left_out():
    used = {node.op_type for model, _ in CASES.values() for node in model.graph.node} | {"Split"}
    missing = set(_TABLE) - used
    assert not missing
