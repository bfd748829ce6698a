"""Laws of class policies: sound settings for any classes, and no memory but their fields."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import (
    Chain,
    ClassSettings,
    Feedback,
    policy_state,
    restore_policy,
)
from classwise.laws.made_up import (
    CLASS_NUMBERS,
    WORLDS,
    Subject,
    World,
    base_settings,
    class_counts,
    each_table,
    must,
    renamed,
)
from classwise.recipe import Recipe
from classwise.record.tensors import pack, read_tensors, under_prefix, write_tensors

EPOCHS = 4


def _same(counts: ClassCounts) -> ClassCounts:
    return counts


def _as_it_was(chain: Chain) -> Chain:
    return chain


def play(
    recipe: Recipe,
    num_classes: int,
    world: World,
    *,
    change: Callable[[ClassCounts], ClassCounts] = _same,
    called: Tensor | None = None,
    between: Callable[[Chain], Chain] = _as_it_was,
) -> list[ClassSettings]:
    """Settings of every epoch boundary, 0 included.

    `change` is done to all statistics, `called` are the classes' names, and `between` is done to
    the policies after each boundary.
    """
    numbers = range(num_classes) if called is None else called.tolist()
    chain = Chain(recipe.slots.policies).bind([str(k) for k in numbers])
    base, found = base_settings(num_classes), []
    sizes = change(class_counts(recipe, num_classes, 999, world)).sizes
    for epoch in range(EPOCHS + 1):
        counts = {
            seen: change(class_counts(recipe, num_classes, 10 * epoch + n, world))
            for n, seen in enumerate(sorted(chain.needs(epoch)))
        }
        settings, chain = chain.update(base, Feedback(epoch, EPOCHS, sizes.clone(), counts))
        chain = between(chain)
        found.append(settings)
    return found


def _worlds(subject: Subject) -> list[tuple[int, World]]:
    """Every number of classes in every world, where there is a policy at all."""
    if not subject.recipe.slots.policies:
        return []
    return [(num_classes, world) for num_classes in CLASS_NUMBERS for world in WORLDS]


def renaming_classes_renames_the_settings(subject: Subject, folder: Path) -> None:  # noqa: ARG001
    """Settings do not depend on what the classes are called, for any number of them."""
    for num_classes, world in _worlds(subject):
        names = torch.randperm(num_classes, generator=torch.Generator().manual_seed(5))
        back = names.argsort()

        def rename(counts: ClassCounts, names: Tensor = names) -> ClassCounts:
            return renamed(counts, names)

        plain = play(subject.recipe, num_classes, world)
        other = play(subject.recipe, num_classes, world, change=rename, called=back)
        for one, two in zip(plain, other, strict=True):
            expected, found = each_table(one), each_table(two)
            must(set(expected) == set(found), f"{num_classes} classes: other settings are set")
            for name, table in expected.items():
                moved = table[back][:, back] if table.ndim == 2 else table[back]
                close = torch.allclose(found[name], moved, rtol=0, atol=1e-12)
                must(close, f"{name} of {num_classes} classes depends on their order")


def settings_are_sound(subject: Subject, folder: Path) -> None:  # noqa: ARG001
    """Settings are one finite number from 0 up per class, also where a class is empty."""
    for num_classes, world in _worlds(subject):
        where = f"with {num_classes} classes ({world.name})"
        for settings in play(subject.recipe, num_classes, world):
            for name, table in each_table(settings).items():
                must(table.shape[0] == num_classes, f"{name} has {table.shape[0]} rows {where}")
                must(torch.isfinite(table).all(), f"{name} is not finite {where}")
                must((table >= 0).all(), f"{name} is negative {where}")
            odds = settings.target_odds
            if odds is not None:
                must(odds.shape == (num_classes, num_classes), f"target_odds is no square {where}")
                must((odds.diagonal() == 0).all(), f"a class is its own target {where}")
                torch.testing.assert_close(odds.sum(1), torch.ones(num_classes).double())


def only_declared_settings_change(subject: Subject, folder: Path) -> None:  # noqa: ARG001
    """A policy changes what it says it writes, and nothing else."""
    for num_classes, world in _worlds(subject):
        policies = subject.recipe.slots.policies
        written = frozenset[str]().union(*(policy.writes for policy in policies))
        base = each_table(base_settings(num_classes))
        found = [each_table(s) for s in play(subject.recipe, num_classes, world)]
        for tables in found:
            for name in (set(base) | set(tables)) - written:
                kept = name in base and name in tables and torch.equal(base[name], tables[name])
                must(kept, f"{name} changes, but is not among writes={sorted(written)}")
        # With no mistake, or an empty class, there may be nothing to tell the classes apart by.
        for name in written if world is WORLDS[0] else ():
            moved = [
                not (name in t and name in base and torch.equal(t[name], base[name])) for t in found
            ]
            must(any(moved), f"{name} is among writes, but never changes")


def policies_go_on_from_their_fields(subject: Subject, folder: Path) -> None:
    """A policy that is written to a checkpoint and read back goes on as if nothing had been."""
    for num_classes, world in _worlds(subject):
        first = subject.recipe.slots.policies

        def through_a_file(chain: Chain, first: tuple[object, ...] = first) -> Chain:
            restored = []
            for fresh, policy in zip(first, chain.policies, strict=True):
                must(type(policy) is type(fresh), f"{fresh} turns into {policy}")
                tensors, plain = pack("policy", policy_state(policy))
                tensors["never"] = torch.zeros(1)  # a file cannot be empty
                write_tensors(folder / "state", tensors, {"plain": plain})
                tensors, about = read_tensors(folder / "state")
                state = {**about["plain"], **under_prefix("policy", tensors)}
                restored.append(restore_policy(policy, state))
            return Chain(restored)

        straight = play(subject.recipe, num_classes, world)
        resumed = play(subject.recipe, num_classes, world, between=through_a_file)
        for epoch, (one, two) in enumerate(zip(straight, resumed, strict=True)):
            expected, found = each_table(one), each_table(two)
            for name, table in expected.items():
                kept = name in found and torch.equal(found[name], table)
                must(kept, f"{name} after epoch {epoch} differs: some memory is in no field")
