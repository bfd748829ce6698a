"""Extra outputs behind the K classes of a user's own model: its head grows by M rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.models.same_names import SameNames, innermost
from classwise.types import Images, Logits

HEAD_NAMES = ("head", "fc", "classifier", "linear")  # what people call the last layer


class WithExtraOutputs(SameNames):
    """A model whose head has M more rows than there are classes; the world sees K logits.

    The extra rows begin at zero.
    """

    def __init__(self, model: nn.Module, head_path: str, num_classes: int, extra: int) -> None:
        super().__init__()
        self.model = copy.deepcopy(model)  # a function may return the same model every time
        self.head_path, self.num_classes = head_path, num_classes
        head = innermost(self).get_submodule(head_path)
        assert isinstance(head, nn.Linear)
        head.weight = _with_zero_rows(head.weight, extra)
        if head.bias is not None:
            head.bias = _with_zero_rows(head.bias, extra)
        head.out_features += extra

    def outputs(self, images: Images) -> Logits:
        """All K + M outputs."""
        found: Logits = self.model(images)
        return found

    def forward(self, images: Images) -> Logits:
        """Return the K class logits."""
        return self.outputs(images)[:, : self.num_classes]


def with_extra_outputs(
    model: nn.Module, head_path: str | None, num_classes: int, extra: int
) -> nn.Module:
    """Give the head M more outputs; it is found by name or size unless it is named."""
    return WithExtraOutputs(model, find_head(model, num_classes, head_path), num_classes, extra)


def named_parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules under the names that their parameters have in the state dict."""
    found: Iterator[tuple[str, nn.Module]] = innermost(model).named_modules()
    return found


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Plain linear layers by name; subclasses may compute something else from their weights."""
    return {
        name: part
        for name, part in named_parts(model)
        if type(part) is nn.Linear and isinstance(part._parameters.get("weight"), nn.Parameter)
    }


def find_head(model: nn.Module, num_classes: int, head_path: str | None = None) -> str:
    """The name of the linear layer that gives the K logits.

    It is the one that was named; else the only one with K outputs among the model's attributes
    head, fc, classifier and linear; else the only one anywhere.

    >>> find_head(nn.Sequential(nn.Linear(2, 8), nn.Linear(8, 3)), 3)
    '1'
    """
    layers = linear_layers(model)
    sizes = [f"{name} ({layer.out_features} outputs)" for name, layer in layers.items()]
    there = f"its plain linear layers: {', '.join(sizes) or 'none'}"
    if head_path is not None:
        if head_path not in layers or layers[head_path].out_features != num_classes:
            raise ClasswiseError(
                f"head={head_path!r} is no torch.nn.Linear with {num_classes} outputs; {there}"
            )
        return head_path
    fitting = [name for name, layer in layers.items() if layer.out_features == num_classes]
    found = [name for name in fitting if name in HEAD_NAMES] or fitting
    if len(found) == 1:
        return found[0]
    if not found:
        raise ClasswiseError(
            f"the model has no torch.nn.Linear with {num_classes} outputs to add more to; {there}"
        )
    raise ClasswiseError(
        f"several layers of the model could be its head: {', '.join(found)}; "
        f"name one, as in labelaug(head={found[-1]!r})"
    )


def _with_zero_rows(values: Tensor, rows: int) -> nn.Parameter:
    idle = torch.zeros(rows, *values.shape[1:], dtype=values.dtype, device=values.device)
    return nn.Parameter(torch.cat([values.detach(), idle]), requires_grad=values.requires_grad)
