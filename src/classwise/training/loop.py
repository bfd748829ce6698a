"""The training loop, the only one: read it top to bottom as the walk of the data.

load -> split -> batch -> attack -> loss -> step -> counts -> average -> keep -> policies -> record
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from classwise.attacks.ball import parse_norm
from classwise.attacks.named import parse_attack
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import (
    Chain,
    ClassSettings,
    Feedback,
    Seen,
    policy_state,
    restore_policy,
)
from classwise.data.augment import default_augment
from classwise.data.batches import Batches
from classwise.data.dataset import DataSource
from classwise.data.sources import open_data
from classwise.data.splits import balanced_subset, split_indices
from classwise.draws import Draws
from classwise.errors import ClasswiseError
from classwise.models import build_model
from classwise.models.classifier import all_outputs
from classwise.objective import total
from classwise.recipe import KEEPS, Method, Recipe, load_recipe
from classwise.training.average import RunningAverage
from classwise.training.checkpoint import (
    pack,
    pack_optimiser,
    read_tensors,
    under_prefix,
    unpack_optimiser,
    with_prefix,
    write_tensors,
)
from classwise.training.config import TrainConfig, choose_device, learning_rate, make_optimiser
from classwise.training.progress import TrainProgress
from classwise.training.run import Run, append_line, read_lines, rewrite_lines
from classwise.training.validate import counts_under
from classwise.types import Batch


@dataclass(frozen=True)
class Progression:
    """All that changes from epoch to epoch, apart from the model and the optimiser."""

    epoch: int  # finished epochs
    chain: Chain
    settings: ClassSettings
    averages: tuple[RunningAverage, ...]
    best: Mapping[str, float] = field(default_factory=dict)  # score of each kept choice


def train(
    recipe: str | Recipe | Method,
    config: TrainConfig | None = None,
    *,
    out: str | Path,
    resume: bool = False,
    device: str = "auto",
    quiet: bool = False,
    source: DataSource | None = None,
    **options: Any,
) -> Run:
    """Train a recipe and leave a run folder behind.

    Options are those of `TrainConfig`: `train("trades+ccm", data="digits", eps=0.2, out="runs/a")`.
    """
    recipe = load_recipe(recipe)
    if config is None:
        config = TrainConfig(**options)
    elif options:
        config = TrainConfig(**{**config.model_dump(), **options})
    source = open_data(config.data) if source is None else source
    run = Run.create(Path(out), recipe, config, source)
    if run.finished_epochs and not resume:
        raise ClasswiseError(
            f"{out} already holds {run.finished_epochs} epochs of this run; "
            "add --resume to go on, or choose another --out"
        )
    return Trainer(run, recipe, config, source, choose_device(device)).go(quiet)


class Trainer:
    """One run in memory."""

    def __init__(
        self,
        run: Run,
        recipe: Recipe,
        config: TrainConfig,
        source: DataSource,
        device: torch.device,
    ) -> None:
        self.run, self.recipe, self.config, self.device = run, recipe, config, device
        data = source.train
        self.num_classes = data.num_classes
        train_rows, valid_rows = split_indices(data.labels, config.valid, config.seed)
        if config.subset:
            kept = balanced_subset(data.labels[train_rows], config.subset, config.seed)
            train_rows = train_rows[kept]
        size = config.batch_size
        self.train_data = Batches.of(data.subset(train_rows), size, device, train_rows)
        self.valid_data = Batches.of(data.subset(valid_rows), size, device, valid_rows)
        self.sizes = data.subset(train_rows).sizes
        self.augment = recipe.slots.augment or default_augment(
            min(data.images.shape[2:]), data.mirrored
        )
        self.ball = parse_norm(config.norm)
        self.inner = recipe.inner
        # Conditions under which validation looks: clean always, attacked if training attacks.
        names = ["clean", config.valid_attack] if self.inner else ["clean"]
        self.checks = [parse_attack(name) for name in names]
        network = run.about["network"]
        self.model = build_model(**network, seed=config.seed).to(device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._check_outputs(data.images.shape[1:])
        self.shadow = copy.deepcopy(self.model)  # carries the averages when they are evaluated
        self.optimiser = make_optimiser(config, self.model)
        self.base = ClassSettings.uniform(
            self.num_classes,
            margin=config.eps,
            step=config.eps / 4 if recipe.slots.step is None else recipe.slots.step,
            beta=recipe.slots.beta or 0.0,
        )
        self.keeps = recipe.slots.keeps or KEEPS

    def go(self, quiet: bool) -> Run:
        """Train from wherever the run stands to its last epoch."""
        epochs = self.config.epochs
        state = self.resumed() if (self.run.path / "state.safetensors").exists() else None
        if state is None:
            chain = Chain(self.recipe.slots.policies)
            averages = tuple(RunningAverage(rule) for rule in self.recipe.slots.averages)
            state = Progression(0, chain, self.base, averages)
            state = self.apply_policies(state, self.validation(chain.needs(0)))
            self.save(state)
        batches = len(self.train_data)
        with TrainProgress(self.recipe.name, epochs, state.epoch, batches, quiet) as progress:
            while state.epoch < epochs:
                began = time.perf_counter()
                counts, losses = self.run_epoch(state, progress)
                state, record = self.boundary(state, counts, losses)
                append_line(self.run.path / "history.jsonl", record)
                self.save(state)
                seconds = {"epoch": state.epoch, "seconds": round(time.perf_counter() - began, 3)}
                append_line(self.run.path / "times.jsonl", seconds)
                self.tell(progress, record)
        return self.run

    def run_epoch(
        self, state: Progression, progress: TrainProgress
    ) -> tuple[dict[Seen, ClassCounts], dict[str, float]]:
        """One pass over the training data."""
        config, epoch = self.config, state.epoch
        settings = state.settings.to(self.device)
        order = Draws(config.seed, "order", epoch).order(len(self.train_data.labels))
        counts: dict[Seen, ClassCounts] = {}
        sums: dict[str, float] = {}
        self.model.train()
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            # Models with dropout draw from the global generator: tie it to the epoch.
            torch.manual_seed(config.seed * 1_000_003 + epoch)
            for number, batch in enumerate(self.train_data.along(order)):
                rate = learning_rate(config, epoch + number / len(self.train_data))
                for group in self.optimiser.param_groups:
                    group["lr"] = rate
                seen, losses = self.step(batch, settings, epoch, number)
                for key, value in seen.items():
                    counts[key] = counts[key] + value if key in counts else value
                for name, loss in losses.items():
                    sums[name] = sums.get(name, 0.0) + loss * len(batch)
                progress.batch()
        self._check_finite(epoch)
        means = {name: value / len(order) for name, value in sums.items()}
        return {key: value.to("cpu") for key, value in counts.items()}, means

    def step(
        self, batch: Batch, settings: ClassSettings, epoch: int, number: int
    ) -> tuple[dict[Seen, ClassCounts], dict[str, float]]:
        """One batch: augment, attack, loss, optimiser step, counts."""
        slots, seed = self.recipe.slots, self.config.seed
        assert slots.objective is not None
        batch = replace(batch, images=self.augment(batch.images, batch.index, seed, epoch))
        rows = settings.rows(batch.labels)
        views = {"clean": batch.images}
        if self.inner is not None:
            views["robust"] = self.inner.robust_view(
                self.model,
                batch,
                radius=rows.margin,
                step=rows.step,
                target_odds=rows.target_odds,
                ball=self.ball,
                seed=seed,
                epoch=epoch,
            )
        outputs = {name: all_outputs(self.model, views[name]) for name in slots.objective.views}
        terms = slots.objective.terms(outputs, batch.labels, rows)
        loss = total(terms, slots.reduction or "mean")
        value = loss.item()
        if not math.isfinite(value):
            raise self._diverged(epoch, f"batch {number + 1} of {len(self.train_data)}", value)
        self.optimiser.zero_grad(set_to_none=True)  # after the attack, before the outer backward
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        seen = {
            Seen("train", name): ClassCounts.of(
                batch.labels,
                logits[:, : self.num_classes].argmax(1),
                num_classes=self.num_classes,
            )
            for name, logits in outputs.items()
        }
        return seen, {"total": value} | {t.name: float(t.values.detach().mean()) for t in terms}

    def boundary(
        self, state: Progression, counts: Mapping[Seen, ClassCounts], losses: Mapping[str, float]
    ) -> tuple[Progression, dict[str, Any]]:
        """After an epoch: validation statistics, averages, keeps, policies, in this order."""
        epoch, epochs = state.epoch + 1, self.config.epochs
        state = replace(state, epoch=epoch)
        live = self.validation(state.chain.needs(epoch) | self._keep_needs())
        averages = tuple(a.update(self.model, epoch, epochs) for a in state.averages)
        state = replace(state, averages=averages)
        validated = {"live": live}
        best = self.keep("", self.model, live, state.best, epoch)
        for average in averages:
            if average.weights is not None:
                self.shadow.load_state_dict(average.weights)
                name = average.rule.name
                validated[name] = self.validation(self._keep_needs(), self.shadow)
                best = self.keep(f"{name}-", self.shadow, validated[name], best, epoch)
        trained_with = state.settings
        state = self.apply_policies(replace(state, best=best), {**counts, **live})
        record = {
            "epoch": epoch,
            "lr": learning_rate(self.config, epoch - 1),
            "loss": dict(losses),
            "train": {seen.attack: _rates(value) for seen, value in counts.items()},
            "valid": {
                weights: {seen.attack: _rates(value) for seen, value in conditions.items()}
                for weights, conditions in validated.items()
            },
            "settings": {
                name: getattr(trained_with, name).tolist()
                for policy in state.chain.policies
                for name in sorted(policy.writes)
                if getattr(trained_with, name) is not None
            },
        }
        return state, record

    def apply_policies(self, state: Progression, counts: Mapping[Seen, ClassCounts]) -> Progression:
        """Let the chain set the next epoch's class settings."""
        feedback = Feedback(state.epoch, self.config.epochs, self.sizes, counts)
        settings, chain = state.chain.update(self.base, feedback)
        return replace(state, settings=settings, chain=chain)

    def validation(
        self, needs: frozenset[Seen], model: nn.Module | None = None
    ) -> dict[Seen, ClassCounts]:
        """Statistics on the validation split, for those conditions that somebody needs."""
        if not len(self.valid_data.labels):
            return {}
        wanted = sorted({seen.attack for seen in needs if seen.split == "valid"})
        return {
            Seen("valid", name): counts_under(
                self.model if model is None else model,
                self.valid_data,
                parse_attack(name),
                num_classes=self.num_classes,
                eps=self.config.eps,
                ball=self.ball,
                seed=self.config.seed,
            )
            for name in wanted
        }

    def keep(
        self,
        prefix: str,
        model: nn.Module,
        valid: Mapping[Seen, ClassCounts],
        best: Mapping[str, float],
        epoch: int,
    ) -> dict[str, float]:
        """Write the weights that some choice wants to keep."""
        scores = dict(best)
        for choice in self.keeps:
            name = prefix + choice.name
            counts = valid.get(Seen("valid", self.checks[-1].name))
            if choice.score == "latest":
                score = float(epoch)
            elif counts is None:
                continue  # no validation split, so nothing to choose by
            else:
                score = counts.overall + (counts.worst if "worst" in choice.score else 0.0)
            if name not in scores or score > scores[name]:
                scores[name] = score
                about = {
                    "network": self.run.about["network"],
                    "data": self.run.about["data"],
                    "recipe": self.recipe.name,
                    "identity": self.run.about["identity"],
                    "weights": name,
                    "epoch": epoch,
                }
                write_tensors(self.run.weights_path(name), model.state_dict(), about)
        return scores

    def save(self, state: Progression) -> None:
        """Write all that a resume needs; a crash in between repeats one epoch exactly."""
        tensors = with_prefix("model", self.model.state_dict())
        some, optimiser = pack_optimiser(self.optimiser)
        tensors |= some
        tables = {n: getattr(state.settings, n) for n in ClassSettings.__dataclass_fields__}
        tensors |= {f"settings.{n}": t for n, t in tables.items() if t is not None}
        policies = []
        for number, policy in enumerate(state.chain.policies):
            some, plain = pack(f"policy.{number}", policy_state(policy))
            tensors |= some
            policies.append(plain)
        for average in state.averages:
            if average.weights is not None:
                tensors |= with_prefix(f"average.{average.rule.name}", average.weights)
        about = {
            "identity": self.run.about["identity"],
            "epoch": state.epoch,
            "best": dict(state.best),
            "optimiser": optimiser,
            "policies": policies,
        }
        write_tensors(self.run.path / "state.safetensors", tensors, about)

    def resumed(self) -> Progression:
        """Read the state back, and drop history beyond it."""
        tensors, about = read_tensors(self.run.path / "state.safetensors")
        if about["identity"] != self.run.about["identity"]:
            raise ClasswiseError(f"{self.run.path}/state.safetensors belongs to another run")
        self.model.load_state_dict(under_prefix("model", tensors))
        unpack_optimiser(self.optimiser, tensors, about["optimiser"])
        policies = [
            restore_policy(policy, {**plain, **under_prefix(f"policy.{number}", tensors)})
            for number, (policy, plain) in enumerate(
                zip(self.recipe.slots.policies, about["policies"], strict=True)
            )
        ]
        averages = tuple(
            RunningAverage(rule, under_prefix(f"average.{rule.name}", tensors) or None)
            for rule in self.recipe.slots.averages
        )
        averages = tuple(
            replace(a, weights=a.weights and {n: t.to(self.device) for n, t in a.weights.items()})
            for a in averages
        )
        for name in ("history.jsonl", "times.jsonl"):
            path = self.run.path / name
            rewrite_lines(path, read_lines(path)[: about["epoch"]])
        settings = ClassSettings(**under_prefix("settings", tensors))
        return Progression(about["epoch"], Chain(policies), settings, averages, about["best"])

    def tell(self, progress: TrainProgress, record: Mapping[str, Any]) -> None:
        """Show the last check of the live model, or the training accuracy without one."""
        found = record["valid"]["live"] or record["train"]
        condition, rates = list(found.items())[-1]
        seen = [rate for rate in rates["by_class"] if rate is not None]
        progress.epoch(
            record["epoch"], record["loss"]["total"], rates["overall"], min(seen), condition
        )

    def _keep_needs(self) -> frozenset[Seen]:
        return frozenset(Seen("valid", check.name) for check in self.checks)

    def _check_outputs(self, shape: torch.Size) -> None:
        with torch.no_grad():
            blank = torch.zeros(2, *shape, device=self.device)
            found = tuple(self.model.eval()(blank).shape)
        if found != (2, self.num_classes):
            raise ClasswiseError(
                f"{self.config.model} gives outputs of shape {found} for 2 images, but the data "
                f"have {self.num_classes} classes; it must return 2×{self.num_classes} logits"
            )

    def _check_finite(self, epoch: int) -> None:
        if not all(bool(torch.isfinite(p).all()) for p in self.model.parameters()):
            raise self._diverged(epoch, "its last batch", float("nan"))

    def _diverged(self, epoch: int, where: str, value: float) -> ClasswiseError:
        return ClasswiseError(
            f"training diverged: loss {value} in epoch {epoch + 1}, {where}; the checkpoint after "
            f"epoch {epoch} is kept in {self.run.path}; try a lower lr"
        )


def _rates(counts: ClassCounts) -> dict[str, Any]:
    """Overall and per-class accuracy for the history; None marks a class without samples."""
    by_class = [None if math.isnan(rate) else rate for rate in counts.accuracy.tolist()]
    return {"overall": counts.overall, "by_class": by_class}
