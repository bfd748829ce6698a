"""What a run writes down after an epoch, and which weights it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import Seen
from classwise.record.tensors import write_tensors
from classwise.slots import Keep
from classwise.training.run import Run
from classwise.training.state import Progression

OWN = "robust"  # under the attack that the recipe trains with


def epoch_record(
    pace: Mapping[str, float],
    state: Progression,
    counts: Mapping[Seen, ClassCounts],
    losses: Mapping[str, float],
    validated: Mapping[str, Mapping[Seen, ClassCounts]],
) -> dict[str, Any]:
    """One line of the history: per-class vectors, and the settings the epoch was trained with.

    Of settings that were renewed inside the epoch, these are the last.
    """
    settings = {}
    for policy in state.chain.policies:
        for name in sorted(policy.writes):
            table = getattr(state.settings, name)
            if table is not None:  # of a K×K table the mean row says who is aimed at
                settings[name] = (table.mean(0) if table.ndim == 2 else table).tolist()
    return {
        "epoch": state.epoch,
        **pace,
        "loss": dict(losses),
        "train": {seen.attack: value.rates for seen, value in counts.items()},
        "valid": {
            weights: {seen.attack: value.rates for seen, value in conditions.items()}
            for weights, conditions in validated.items()
        },
        "settings": settings,
    }


def headline(record: Mapping[str, Any]) -> tuple[float, float, str]:
    """Overall and worst class of a check of the live model, or of training without one.

    The attack that all recipes are judged by comes first, then the recipe's own, then none.
    """
    checks = record["valid"]["live"] or record["train"]
    judged = [name for name in checks if name not in ("clean", OWN)]
    condition = (judged or list(checks))[-1]
    worst = min(rate for rate in checks[condition]["by_class"] if rate is not None)
    said = "own attack" if condition == OWN else condition
    return checks[condition]["overall"], worst, said


def keep_weights(
    run: Run,
    model: nn.Module,
    prefix: str,
    keeps: Sequence[Keep],
    valid: ClassCounts | None,
    best: dict[str, float],
    epoch: int,
    every: int = 0,
) -> None:
    """Write the weights that some choice wants to keep, and note their score in `best`.

    `every` keeps those of every Nth epoch besides, whatever their score.
    """
    if every and epoch % every == 0:
        write_weights(run, model, f"{prefix}epoch-{epoch:04d}", epoch)
    for choice in keeps:
        if choice.score == "latest":
            score = float(epoch)
        elif valid is None:
            continue  # no validation split, so nothing to choose by
        else:
            score = valid.overall + (valid.worst if choice.score == "overall+worst" else 0.0)
        name = prefix + choice.name
        if name not in best or score > best[name]:
            best[name] = score
            write_weights(run, model, name, epoch)


def write_weights(run: Run, model: nn.Module, name: str, epoch: int) -> None:
    """Write a weights file that says what it is."""
    about = {
        "network": run.about["network"],
        "data": run.about["data"],
        "recipe": run.about["recipe_name"],
        "identity": run.about["identity"],
        "weights": name,
        "epoch": epoch,
    }
    write_tensors(run.weights_path(name), model.state_dict(), about)
