"""Parts of a model that learn at a rate of their own, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from classwise.errors import ClasswiseError, unknown
from classwise.models.asking import hold_statistics
from classwise.models.extra import named_parts


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern names a parameter, a module that holds it, or both with wildcards.

    >>> [matches("features.conv1.bias", p) for p in ("features", "features.c*", "feat", "conv1")]
    [True, True, False, False]
    """
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)


def parts_of(names: Iterable[str]) -> list[str]:
    """The modules that hold these parameters, and parameters that no module holds.

    >>> parts_of(["token", "features.conv1.weight", "features.conv1.bias"])
    ['features', 'features.conv1', 'token']
    """
    found = set()
    for name in names:
        pieces = name.split(".")
        found |= {".".join(pieces[:depth]) for depth in range(1, max(2, len(pieces)))}
    return sorted(found)


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Take parameters out of training, and hold the statistics of their BatchNorm layers."""
    parameters = dict(model.named_parameters())
    for pattern in patterns:
        if not any(matches(name, pattern) for name in parameters):
            raise unknown("part to freeze", pattern, parts_of(parameters))

    def frozen(name: str) -> bool:
        return any(matches(name, pattern) for pattern in patterns)

    for name, parameter in parameters.items():
        if frozen(name):
            parameter.requires_grad_(False)
    if patterns and not any(parameter.requires_grad for parameter in parameters.values()):
        raise ClasswiseError(
            f"freeze={','.join(patterns)} leaves nothing to train; spare one of "
            f"{', '.join(parts_of(parameters))}"
        )
    for name, part in named_parts(model):
        if isinstance(part, nn.modules.batchnorm._NormBase):
            # a layer without parameters of its own goes by the names of its statistics
            inside = [key for key, _ in part.named_parameters()]
            inside = inside or [key for key, _ in part.named_buffers()]
            if inside and all(frozen(f"{name}.{key}") for key in inside):
                hold_statistics(part)


def parameter_groups(model: nn.Module, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Trainable parameters for an optimiser, in groups with a `multiple` of the learning rate."""
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    if not trainable:
        raise ClasswiseError("the model has no parameter that could be trained")
    owners: dict[str, str] = {}
    groups = []
    for pattern in sorted(rates):  # the order they were written in must not matter to a resume
        named = [name for name in trainable if matches(name, pattern)]
        if not named:
            raise unknown("part to train in rates", pattern, parts_of(trainable))
        for name in named:
            if name in owners:
                raise ClasswiseError(
                    f"rates: {owners[name]!r} and {pattern!r} both name {name}; keep one of them"
                )
            owners[name] = pattern
        groups.append({"params": [trainable[n] for n in named], "multiple": rates[pattern]})
    others = [parameter for name, parameter in trainable.items() if name not in owners]
    return [{"params": others, "multiple": 1.0}, *groups] if others else groups
