"""ONNX files as other people's tools write them, made by the package `onnx`."""

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper

from classwise.models.onnx_file import read_onnx
from classwise.models.onnx_network import entrance_of, translated


def model_of(nodes, shape, constants=(), outputs=("y",), *, opset=17, batch="n", kind=np.float32):
    """A graph from `x` (batch, *shape) to its outputs; `constants` are arrays by name."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", number, [batch, *shape])],
        [helper.make_tensor_value_info(name, number, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(one), name) for name, one in dict(constants).items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=min(10, onnx.IR_VERSION)
    )


def one_node(operator, *inputs, outputs=("y",), **attributes):
    return helper.make_node(operator, list(inputs), list(outputs), **attributes)


def saved(path, model):
    path.write_bytes(model.SerializeToString())
    return path


def translation(path, model, images):
    """Our network of a graph."""
    graph = read_onnx(path, model.SerializeToString())
    return translated(graph, entrance_of(graph, "net.onnx", images), tuple(images.shape[1:]))


def answers(model, images):
    """What onnxruntime says."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return [torch.from_numpy(np.asarray(one)) for one in session.run(None, {"x": images.numpy()})]


def pictures(count, *shape):
    rng = torch.Generator().manual_seed(count)
    return torch.randn(count, *shape, generator=rng)


WEIGHT = np.random.default_rng(0).normal(size=(10, 64)).astype(np.float32)


def linear(*more, batch="n", end="logits", **facts):
    nodes = [one_node("Flatten", "x", outputs=["flat"]), *more]
    nodes.insert(1, one_node("Gemm", "flat", "w", outputs=["logits"], transB=1))
    return model_of(nodes, (1, 8, 8), {"w": WEIGHT}, (end,), batch=batch, **facts)


def boxed():
    """A network with an operator that is not translated."""
    return linear(one_node("Shrink", "logits", outputs=["y"], lambd=0.01), end="y")


def residual(batch="n", softmax=False, seed=0, head=()):
    """A small residual network, and its weights: random, but for a head that is given."""
    rng = np.random.default_rng(seed)
    made = {}

    def weight(name, *shape, scale=None, positive=False):
        fan = int(np.prod(shape[1:])) or 1
        values = rng.normal(size=shape) * (scale or (2 / fan) ** 0.5)
        made[name] = (np.abs(values) + 0.5 if positive else values).astype(np.float32)
        return name

    def norm(at, into, width):
        names = [
            weight(f"{into}.{part}", width, scale=0.3, positive=part in "gv") for part in "gbmv"
        ]
        return helper.make_node("BatchNormalization", [at, *names], [into])

    def conv(at, into, given, out, side, **more):
        names = [weight(f"{into}.w", out, given, side, side)]
        return helper.make_node("Conv", [at, *names], [into], **more)

    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        conv("x", "c1", 1, 8, 3, **pads), norm("c1", "n1", 8),
        one_node("Relu", "n1", outputs=["r1"]),
        conv("r1", "c2", 8, 16, 3, strides=[2, 2], **pads), norm("c2", "n2", 16),
        one_node("Relu", "n2", outputs=["r2"]),
        conv("r2", "c3", 16, 16, 3, **pads), norm("c3", "n3", 16),
        conv("r1", "c4", 8, 16, 1, strides=[2, 2]), norm("c4", "n4", 16),
        one_node("Add", "n3", "n4", outputs=["sum"]), one_node("Relu", "sum", outputs=["r3"]),
        one_node("GlobalAveragePool", "r3", outputs=["pooled"]),
        one_node("Flatten", "pooled", outputs=["flat"]),
        helper.make_node(
            "Gemm", ["flat", weight("head.w", 10, 16), weight("head.b", 10, scale=0.1)],
            ["logits"], transB=1,
        ),
    ]  # fmt: skip
    made |= dict(head)
    if softmax:
        nodes.append(one_node("Softmax", "logits", outputs=["probabilities"]))
    end = "probabilities" if softmax else "logits"
    return model_of(nodes, (1, 8, 8), made, (end,), batch=batch), made


class Residual(torch.nn.Module):
    """The same network, written by hand in torch."""

    def __init__(self, made):
        super().__init__()
        for name, value in made.items():
            self.register_buffer(name.replace(".", "_"), torch.from_numpy(value.copy()))

    def norm(self, name, x):
        g, b, m, v = (getattr(self, f"{name}_{part}") for part in "gbmv")
        return torch.nn.functional.batch_norm(x, m, v, g, b, eps=1e-5)

    def features(self, x):
        conv = torch.nn.functional.conv2d
        first = self.norm("n1", conv(x, self.c1_w, padding=1)).relu()
        x = self.norm("n2", conv(first, self.c2_w, stride=2, padding=1)).relu()
        x = self.norm("n3", conv(x, self.c3_w, padding=1))
        x = (x + self.norm("n4", conv(first, self.c4_w, stride=2))).relu()
        return x.mean((2, 3))

    def forward(self, x):
        return self.features(x) @ self.head_w.T + self.head_b


def nearest_mean(images, labels):
    """A head for the residual network that calls the class whose mean features are nearest."""
    features = Residual(residual()[1]).features(images)
    means = torch.stack([features[labels == k].mean(0) for k in range(10)])
    return {"head.w": means.numpy(), "head.b": (-means.square().sum(1) / 2).numpy()}
