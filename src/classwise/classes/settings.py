"""Per-class settings, and the policies that recompute them from class statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor

from classwise.classes.counts import ClassCounts
from classwise.errors import ClasswiseError
from classwise.types import ClassByClass, Labels, PerClass


class Seen(NamedTuple):
    """One source of class statistics: a split under an attack."""

    split: str  # "train" or "valid"; never "test"
    attack: str  # "clean", "robust" (the recipe's own attack) or a named one such as "pgd-10"


TRAIN_ROBUST = Seen("train", "robust")


@dataclass(frozen=True, slots=True)
class ClassSettings:
    """What the next epoch does differently for each class, looked up by the true label.

    >>> ClassSettings.uniform(3, margin=8 / 255, step=2 / 255, beta=6.0).beta.tolist()
    [6.0, 6.0, 6.0]
    """

    margin: PerClass  # ε_k, the attack's radius
    step: PerClass  # α_k, the attack's step
    beta: PerClass  # β_k, weight of the consistency term
    label_weight: PerClass  # multiplies cross-entropy terms, clean or robust
    robust_weight: PerClass  # multiplies KL terms
    logit_margin: PerClass  # taken off the true class's logit
    clean_temperature: PerClass  # of a teacher's soft labels for clean images
    robust_temperature: PerClass  # and for attacked ones
    target_odds: ClassByClass | None = None  # ψ; None: untargeted
    finer: PerClass | None = None  # n > 1: n times the attack's steps, each 2/n as long

    @classmethod
    def uniform(
        cls, num_classes: int, *, margin: float, step: float, beta: float = 0.0
    ) -> ClassSettings:
        """Treat every class alike: where each update begins."""
        one = torch.ones(num_classes)
        return cls(margin * one, step * one, beta * one, one, one, 0 * one, one, one)

    def to(self, device: torch.device | str) -> ClassSettings:
        """Move all tables to another device."""
        return self._each(lambda table: table.to(device))

    def rows(self, labels: Labels) -> ClassSettings:
        """Look every table up by the true labels: settings per sample."""
        return self._each(lambda table: table[labels])

    def weighed(self, weight: PerClass) -> ClassSettings:
        """Multiply both weights of every class."""
        return replace(
            self,
            label_weight=self.label_weight * weight.to(self.label_weight),
            robust_weight=self.robust_weight * weight.to(self.robust_weight),
        )

    def shrunk(self, share: float) -> ClassSettings:
        """Give the attack a share of its radius and step."""
        if share == 1:
            return self
        return replace(self, margin=share * self.margin, step=share * self.step)

    def _each(self, change: Callable[[Tensor], Tensor]) -> ClassSettings:
        tables = {slot.name: getattr(self, slot.name) for slot in fields(self)}
        changed: dict[str, Any] = {n: t if t is None else change(t) for n, t in tables.items()}
        return ClassSettings(**changed)


@dataclass(frozen=True, slots=True)
class Feedback:
    """Everything a policy may look at at an epoch boundary, or inside an epoch if it asks to."""

    epoch: int  # finished epochs; 0 before the first one
    epochs: int  # length of the whole run
    sizes: PerClass  # training samples of each class
    counts: Mapping[Seen, ClassCounts] = field(default_factory=dict)
    batches: int = 0  # of the epoch under way, whose counts these are; 0 at a boundary

    @property
    def trained(self) -> bool:
        """Whether any batch lies behind us, so that there are training statistics."""
        return self.epoch > 0 or self.batches > 0


class ClassPolicy:
    """One rule from class statistics to class settings. Its dataclass fields are its state."""

    writes: ClassVar[frozenset[str]]  # the ClassSettings fields it changes

    def needs(self, epoch: int) -> frozenset[Seen]:
        """Which statistics it wants at the boundary after `epoch` epochs."""
        return frozenset({TRAIN_ROBUST}) if epoch else frozenset()

    def details(self, epoch: int) -> frozenset[str]:  # noqa: ARG002
        """What its statistics must hold beside confusion: `probability`, `losses`."""
        return frozenset()

    def due(self, batches: int) -> bool:  # noqa: ARG002
        """Whether it acts inside an epoch as well, after so many of its batches."""
        return False

    @property
    def remarks(self) -> tuple[tuple[str, str], ...]:
        """What a person must know of its last update: what each is about, said once, and words."""
        return ()

    def bind(self, class_names: Sequence[str]) -> ClassPolicy:  # noqa: ARG002
        """Replace class names among the options by class numbers, once the data are known."""
        return self

    def update(
        self, settings: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, ClassPolicy]:
        """Settings for the next epoch, and the policy that will make the ones after."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RenewedPolicy(ClassPolicy):
    """A policy that may act inside an epoch, from the statistics of that epoch so far."""

    every: int | None = field(default=None, kw_only=True)  # batches; None waits for the boundary

    def due(self, batches: int) -> bool:
        """After every so many batches."""
        return self.every is not None and batches > 0 and batches % self.every == 0


@dataclass(frozen=True, slots=True)
class Chain:
    """Policies with disjoint settings to write, so that their order does not matter."""

    policies: Sequence[ClassPolicy] = ()

    def __post_init__(self) -> None:
        owner: dict[str, ClassPolicy] = {}
        known = {slot.name for slot in fields(ClassSettings)}
        for policy in self.policies:
            _check_policy(policy)
            if stray := policy.writes - known:
                raise ClasswiseError(
                    f"{policy} writes {sorted(stray)}; settings are {sorted(known)}"
                )
            for name in policy.writes:
                if name in owner:
                    raise ClasswiseError(f"{owner[name]} and {policy} both set {name}; keep one")
                owner[name] = policy

    def needs(self, epoch: int) -> frozenset[Seen]:
        """Return all that some policy wants to see; nothing else is computed."""
        return frozenset[Seen]().union(*(policy.needs(epoch) for policy in self.policies))

    def details(self, epoch: int) -> frozenset[str]:
        """Return what the counts must hold beside confusion at the boundary after `epoch`."""
        return frozenset[str]().union(*(policy.details(epoch) for policy in self.policies))

    def bind(self, class_names: Sequence[str]) -> Chain:
        """Let every policy translate class names."""
        return Chain([policy.bind(class_names) for policy in self.policies])

    def update(self, base: ClassSettings, feedback: Feedback) -> tuple[ClassSettings, Chain]:
        """Begin from `base` every time, so that nothing accumulates by accident."""
        settings, after = base, []
        for policy in self.policies:
            try:
                settings, successor = policy.update(settings, feedback)
            except KeyError as reason:
                if reason.args and isinstance(reason.args[0], Seen):
                    raise _not_counted(policy, reason.args[0]) from reason
                raise
            after.append(successor)
        return settings, Chain(after)

    def due(self, batches: int) -> bool:
        """Whether some policy acts after so many batches of an epoch."""
        return any(policy.due(batches) for policy in self.policies)

    def renew(
        self, settings: ClassSettings, base: ClassSettings, feedback: Feedback
    ) -> tuple[ClassSettings, Chain]:
        """Let the policies that are due write anew what is theirs; all else stays as it is."""
        after = []
        for policy in self.policies:
            if policy.due(feedback.batches):
                changed, policy = policy.update(base, feedback)
                own = {name: getattr(changed, name) for name in policy.writes}
                settings = replace(settings, **own)
            after.append(policy)
        return settings, Chain(after)


State: TypeAlias = dict[str, Any]


def policy_state(policy: ClassPolicy) -> State:
    """The fields of a policy by name; tensors and plain values."""
    state = {slot.name: getattr(policy, slot.name) for slot in fields(policy)}  # type: ignore[arg-type]
    for name, value in state.items():
        if not isinstance(value, Tensor) and not _is_plain(value):
            raise ClasswiseError(
                f"{type(policy).__name__} remembers a {type(value).__name__} as {name}; a resumed "
                "run must find it again, so use a tensor, numbers, words, or lists of them"
            )
    return state


def restore_policy(policy: ClassPolicy, state: State) -> ClassPolicy:
    """Make the policy of the same kind with these fields."""
    return type(policy)(**state)


def _check_policy(policy: ClassPolicy) -> None:
    """Refuse what a checkpoint could not hold."""
    if not isinstance(policy, ClassPolicy) or not is_dataclass(policy):
        raise ClasswiseError(
            f"{type(policy).__name__} is no policy; make it a dataclass that inherits from "
            "classwise.ClassPolicy, for its fields are what a resumed run goes on from"
        )
    if not hasattr(policy, "writes"):
        raise ClasswiseError(
            f"{type(policy).__name__} does not say what it sets; give it a class variable such as "
            'writes = frozenset({"label_weight"})'
        )
    if type(policy).update is ClassPolicy.update:
        raise ClasswiseError(
            f"{type(policy).__name__} does nothing; give it a method update(self, settings, "
            "feedback) that returns the new settings and the policy after it"
        )
    policy_state(policy)  # refuses what a file could not hold


def _not_counted(policy: ClassPolicy, seen: Seen) -> ClasswiseError:
    """Say which statistics a policy missed."""
    return ClasswiseError(
        f"{type(policy).__name__} looks at {seen.split}:{seen.attack}, but nothing was counted "
        "there: a base without an attack has no robust images, and valid=0 no validation images"
    )


def _is_plain(value: Any) -> bool:
    """Whether JSON holds a value and gives it back, but for a tuple, which comes back a list."""
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, bool | int | float | str)
