"""All that changes from epoch to epoch, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from classwise.attacks.carried import CARRIED
from classwise.classes.settings import Chain, ClassSettings, policy_state, restore_policy
from classwise.errors import ClasswiseError
from classwise.record.tensors import (
    pack,
    pack_optimiser,
    read_tensors,
    under_prefix,
    unpack_optimiser,
    with_prefix,
    write_tensors,
)
from classwise.sealed import Damaged
from classwise.slots import Slots
from classwise.training.average import RunningAverage, shut_gates
from classwise.training.scaling import SCALE, first_scale
from classwise.types import Labels


@dataclass(frozen=True)
class Progression:
    """Where a run stands, apart from the model and the optimiser."""

    epoch: int  # finished epochs
    chain: Chain
    settings: ClassSettings
    averages: tuple[RunningAverage, ...]
    # What regularisers remember, by name, and perturbations that are carried on, as `CARRIED`.
    regularisers: Mapping[str, dict[str, Tensor]] = field(default_factory=dict)
    best: Mapping[str, float] = field(default_factory=dict)  # score of each kept choice

    @classmethod
    def beginning(
        cls,
        slots: Slots,
        chain: Chain,
        base: ClassSettings,
        index: Labels,
        scaled: bool = False,
    ) -> Progression:
        """Where every run begins; `index` are the keys of the images that it trains on.

        In a run whose loss is `scaled` the factor is remembered, too.
        """
        num_classes = len(base.margin)
        averages = tuple(RunningAverage(rule) for rule in slots.averages)
        regularisers = {rule.name: rule.begin(num_classes) for rule in slots.regularisers}
        if slots.carry is not None:
            regularisers[CARRIED] = slots.carry.begin(index)
        if scaled:
            regularisers[SCALE] = first_scale()
        return cls(0, chain, base, averages, regularisers)


def remarks(state: Progression, epochs: int) -> Iterator[tuple[str, str]]:
    """What a person must know where a run stands: what it is about, and words."""
    yield from shut_gates(state.averages, state.epoch, epochs)
    for policy in state.chain.policies:
        yield from policy.remarks


def save_state(
    path: Path,
    identity: str,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    state: Progression,
    more: Mapping[str, Tensor],
) -> None:
    """Write all that a resume needs, atomically; `more` is kept beside it."""
    tensors = {**with_prefix("model", model.state_dict()), **more}
    some, momenta = pack_optimiser(optimiser)
    tensors |= some
    tables = {slot.name: getattr(state.settings, slot.name) for slot in fields(ClassSettings)}
    tensors |= {f"settings.{name}": table for name, table in tables.items() if table is not None}
    policies = []
    for number, policy in enumerate(state.chain.policies):
        some, plain = pack(f"policy.{number}", policy_state(policy))
        tensors |= some
        policies.append(plain)
    for name, values in state.regularisers.items():
        tensors |= with_prefix(f"regulariser.{name}", values)
    for average in state.averages:
        tensors |= with_prefix(f"average.{average.rule.name}", average.weights or {})
    about = {
        "identity": identity,
        "epoch": state.epoch,
        "best": dict(state.best),
        "optimiser": momenta,
        "policies": policies,
        "taken": {average.rule.name: average.taken for average in state.averages},
        "best_at_gate": {average.rule.name: average.best for average in state.averages},
    }
    write_tensors(path, tensors, about)


def load_state(
    path: Path,
    identity: str,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    start: Progression,
    device: torch.device,
) -> tuple[Progression, dict[str, Tensor]]:
    """Put a saved state back; `start` says what kinds of things it holds.

    All tensors of the file are given back, too, with what was kept beside the state.
    """
    tensors, about = read_tensors(path)
    if about.get("identity") != identity:
        raise ClasswiseError(f"{path} belongs to another run; choose another folder")
    try:
        return _put_back(tensors, about, model, optimiser, start, device), tensors
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as reason:
        words = " ".join(str(reason).split())[:200]
        raise Damaged(f"{path} is no state of this run ({words})") from None


def _put_back(
    tensors: Mapping[str, Tensor],
    about: Mapping[str, Any],
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    start: Progression,
    device: torch.device,
) -> Progression:
    model.load_state_dict(under_prefix("model", tensors))
    unpack_optimiser(optimiser, tensors, about["optimiser"])
    policies = [
        restore_policy(policy, {**plain, **under_prefix(f"policy.{number}", tensors)})
        for number, (policy, plain) in enumerate(
            zip(start.chain.policies, about["policies"], strict=True)
        )
    ]

    def on_device(prefix: str) -> dict[str, Tensor]:
        return {name: t.to(device) for name, t in under_prefix(prefix, tensors).items()}

    averages = tuple(
        RunningAverage(
            average.rule,
            on_device(f"average.{average.rule.name}") or None,
            about["taken"][average.rule.name],
            about["best_at_gate"][average.rule.name],
        )
        for average in start.averages
    )
    regularisers = {name: on_device(f"regulariser.{name}") for name in start.regularisers}
    settings: dict[str, Any] = under_prefix("settings", tensors)
    return Progression(
        about["epoch"],
        Chain(policies),
        ClassSettings(**settings),
        averages,
        regularisers,
        about["best"],
    )
