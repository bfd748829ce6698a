"""What a model hands to its head: the penultimate features of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.models.classifier import Classifier
from classwise.models.extra import WithExtraOutputs, find_head
from classwise.models.same_names import innermost
from classwise.types import Images

FeatureModel: TypeAlias = Callable[[Images], Tensor]  # n images to n×d features


@contextmanager
def penultimate(
    model: nn.Module, num_classes: int, head: str | None = None
) -> Iterator[FeatureModel]:
    """The features g(x) of a model, for as long as it lasts; nothing of the model changes.

    In a model of the user's own the head is found, or named, as for extra outputs.
    """
    layer = _head(model, num_classes, head)
    caught: list[Tensor] = []

    def catch(_: nn.Module, given: tuple[Any, ...]) -> None:
        caught.append(given[0])

    def features(images: Images) -> Tensor:
        caught.clear()
        model(images)
        if len(caught) != 1 or len(caught[0]) != len(images):
            raise ClasswiseError(
                f"the model's head was asked {len(caught)} times in one pass, not once for all "
                "images; name another layer with head=NAME"
            )
        return caught[0].flatten(1)

    hook = layer.register_forward_pre_hook(catch)
    try:
        yield features
    finally:
        hook.remove()


def _head(model: nn.Module, num_classes: int, head: str | None) -> nn.Module:
    if isinstance(model, Classifier):
        if head not in (None, "head"):
            raise ClasswiseError(f"head={head!r}: the head of a model of ours is called head")
        return model.head
    if isinstance(model, WithExtraOutputs):  # its head has more than K outputs
        return innermost(model).get_submodule(model.head_path)
    return innermost(model).get_submodule(find_head(model, num_classes, head))
