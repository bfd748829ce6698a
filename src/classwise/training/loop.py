"""The training loop, the only one: read it top to bottom as the walk of the data.

load -> split -> batch -> attack -> mix -> loss -> step -> counts -> average -> keep -> policies
-> record, where `step.py` has the part from the attack to the counts
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from classwise.attacks.ball import parse_norm
from classwise.attacks.inner import Moment
from classwise.attacks.named import parse_attack
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import Chain, ClassSettings, Feedback, Seen
from classwise.data.augment import fit_augment
from classwise.data.batches import Batches
from classwise.data.dataset import DataSource
from classwise.data.sources import open_data
from classwise.data.splits import balanced_subset, rank_within_class, split_indices
from classwise.errors import ClasswiseError
from classwise.memory import keep_freed_memory
from classwise.recipe import Method, Recipe, load_recipe
from classwise.slots import KEEPS
from classwise.training.build import check_outputs, frozen_teacher, model_to_train
from classwise.training.config import TrainConfig, choose_device, learning_rate, make_optimiser
from classwise.training.progress import TrainProgress
from classwise.training.record import epoch_record, headline, keep_weights
from classwise.training.run import (
    Run,
    append_line,
    describe_run,
    read_lines,
    rewrite_lines,
)
from classwise.training.state import Progression, load_state, save_state
from classwise.training.step import Step
from classwise.training.validate import Checker

TRAIN_LOGS = ("history.jsonl", "times.jsonl", "watch.jsonl")


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
    # Everything is checked before the folder is touched: a typo must not occupy it.
    trainer = Trainer(Run(Path(out)), recipe, config, source, choose_device(device))
    trainer.run.claim(trainer.about)
    if trainer.run.finished_epochs and not resume:
        raise ClasswiseError(
            f"{out} already holds {trainer.run.finished_epochs} epochs of this run; "
            "add --resume to go on, or choose another --out"
        )
    keep_freed_memory()
    return trainer.go(quiet)


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
        self.about = describe_run(recipe, config, source)
        self.slots, data = recipe.slots, source.train
        self.num_classes = data.num_classes
        train_rows, valid_rows = split_indices(data.labels, config.valid, config.seed)
        if config.subset:
            kept = balanced_subset(data.labels[train_rows], config.subset, config.seed)
            train_rows = train_rows[kept]
        size = config.batch_size
        training = data.subset(train_rows)
        self.train_data = Batches.of(training, size, device, train_rows)
        self.train_labels, self.sizes = training.labels, training.sizes
        side = min(data.images.shape[2:])
        ball = parse_norm(config.norm)
        # Conditions under which validation looks: clean always, attacked if training attacks.
        attack = parse_attack(config.valid_attack).name if self.slots.inner else "clean"
        self.chosen_by = Seen("valid", attack)
        self.checks = frozenset({Seen("valid", "clean"), self.chosen_by})
        self.model = model_to_train(self.about["network"], recipe, config, device)
        check_outputs(self.model, config.model, data.images.shape[1:], self.num_classes)
        self.teacher = frozen_teacher(recipe, self.num_classes, device)
        self.shadow = copy.deepcopy(self.model)  # carries the averages when they are evaluated
        self.optimiser = make_optimiser(config, self.model)
        self.step = Step(
            self.model,
            self.optimiser,
            self.slots,
            config,
            fit_augment(self.slots.augment, side, data.mirrored),
            ball,
            self.teacher,
            self.num_classes,
            device,
        )
        self.base = ClassSettings.uniform(
            self.num_classes,
            margin=config.eps,
            step=config.eps / 4 if self.slots.step is None else self.slots.step,
            beta=self.slots.beta or 0.0,
        )
        splits = {"valid": Batches.of(data.subset(valid_rows), size, device, valid_rows)}
        for split in {watched.split for watched in config.watched}:
            splits[split] = Batches.of(source.test if split == "test" else training, size, device)
        self.checker = Checker(
            splits,
            self.num_classes,
            config.eps,
            ball,
            config.seed,
            self.slots,
            self.base,
            self.teacher,
        )
        self.chain = Chain(self.slots.policies).bind(data.class_names)
        self.keeps = self.slots.keeps or KEEPS

    def go(self, quiet: bool) -> Run:
        """Train from wherever the run stands to its last epoch."""
        config, path = self.config, self.run.path
        identity = self.about["identity"]
        state = Progression.beginning(self.slots, self.chain, self.base, self.num_classes)
        saved = path / "state.safetensors"
        if saved.exists():
            state = load_state(saved, identity, self.model, self.optimiser, state, self.device)
            self.chain = state.chain
            for name in TRAIN_LOGS:  # what was written after the state is trained again
                lines = [line for line in read_lines(path / name) if line["epoch"] <= state.epoch]
                rewrite_lines(path / name, lines)
        else:
            before = self.checker.look(self.model, self.chain.needs(0), self._moment(0))
            state = self.apply_policies(state, before)
            save_state(saved, identity, self.model, self.optimiser, state)
        batches = len(self.train_data)
        with TrainProgress(
            self.recipe.name, config.epochs, state.epoch, batches, quiet
        ) as progress:
            while state.epoch < config.epochs:
                began = time.perf_counter()
                state, counts, losses = self.run_epoch(state, progress)
                state, record = self.boundary(state, counts, losses)
                append_line(path / "history.jsonl", record)
                self.watch(state.epoch)
                save_state(saved, identity, self.model, self.optimiser, state)
                seconds = round(time.perf_counter() - began, 3)
                append_line(path / "times.jsonl", {"epoch": state.epoch, "seconds": seconds})
                progress.epoch(state.epoch, record["loss"]["total"], *headline(record))
        return self.run

    def run_epoch(
        self, state: Progression, progress: TrainProgress
    ) -> tuple[Progression, dict[Seen, ClassCounts], dict[str, float]]:
        """One pass over the training data."""
        config, moment = self.config, self._moment(state.epoch)
        settings = state.settings.to(self.device)
        order, keys = self._order(moment)
        counts: dict[Seen, ClassCounts] = {}
        sums: dict[str, float] = {}
        kept = {name: dict(values) for name, values in state.regularisers.items()}
        details = self.chain.details(state.epoch + 1)
        extra_look = Seen("train", "robust") in self.chain.needs(state.epoch + 1)
        done = 0
        self.model.train()
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            # Models with dropout draw from the global generator: tie it to the epoch.
            torch.manual_seed(config.seed * 1_000_003 + state.epoch)
            for number, batch in enumerate(self.train_data.along(order)):
                if self.chain.due(number):  # somebody does not wait for the boundary
                    state = self.renew_policies(state, counts, number)
                    settings = state.settings.to(self.device)
                batch = replace(batch, index=keys[done : done + len(batch)])
                done += len(batch)
                rate = learning_rate(config, state.epoch + number / len(self.train_data))
                for group in self.optimiser.param_groups:
                    group["lr"] = rate
                seen, losses = self.step(batch, settings, kept, moment, details, extra_look)
                if not math.isfinite(losses["total"]):
                    where = f"batch {number + 1} of {len(self.train_data)}"
                    raise self._diverged(state.epoch, where, losses["total"])
                for key, value in seen.items():
                    counts[key] = counts[key] + value if key in counts else value
                for name, loss in losses.items():
                    sums[name] = sums.get(name, 0.0) + loss * len(batch)
                progress.batch()
        if not all(bool(torch.isfinite(p).all()) for p in self.model.parameters()):
            raise self._diverged(state.epoch, "its last batch", float("nan"))
        means = {name: value / done for name, value in sums.items()}
        on_host = {key: value.to("cpu") for key, value in counts.items()}
        return replace(state, regularisers=kept), on_host, means

    def boundary(
        self, state: Progression, counts: Mapping[Seen, ClassCounts], losses: Mapping[str, float]
    ) -> tuple[Progression, dict[str, Any]]:
        """After an epoch: validation statistics, averages, keeps, policies, in this order."""
        epoch, epochs = state.epoch + 1, self.config.epochs
        moment = self._moment(epoch)
        live = self.checker.look(self.model, self.chain.needs(epoch) | self.checks, moment)
        gate = live.get(self.chosen_by)
        averages = tuple(a.update(self.model, epoch, epochs, gate) for a in state.averages)
        validated, best = {"live": live}, dict(state.best)
        keep_weights(self.run, self.model, "", self.keeps, live.get(self.chosen_by), best, epoch)
        for average in averages:
            if average.weights is None:
                continue
            name = average.rule.name
            self.shadow.load_state_dict(average.weights)
            validated[name] = self.checker.look(self.shadow, self.checks, moment)
            found = validated[name].get(self.chosen_by)
            keep_weights(self.run, self.shadow, f"{name}-", self.keeps, found, best, epoch)
        record = epoch_record(self.config, replace(state, epoch=epoch), counts, losses, validated)
        record["averages"] = {a.rule.name: a.taken for a in averages}
        state = replace(state, epoch=epoch, averages=averages, best=best)
        return self.apply_policies(state, {**counts, **live}), record

    def apply_policies(self, state: Progression, counts: Mapping[Seen, ClassCounts]) -> Progression:
        """Let the chain set the next epoch's class settings."""
        feedback = Feedback(state.epoch, self.config.epochs, self.sizes, counts)
        settings, self.chain = state.chain.update(self.base, feedback)
        return replace(state, settings=settings, chain=self.chain)

    def renew_policies(
        self, state: Progression, counts: Mapping[Seen, ClassCounts], batches: int
    ) -> Progression:
        """Let the policies that are due set what the next batches use, from the epoch so far."""
        so_far = {key: value.to("cpu") for key, value in counts.items()}
        feedback = Feedback(state.epoch, self.config.epochs, self.sizes, so_far, batches)
        settings, self.chain = state.chain.renew(state.settings, self.base, feedback)
        return replace(state, settings=settings, chain=self.chain)

    def watch(self, epoch: int) -> None:
        """Passive looks for the papers' curves; no slot can read what is written here."""
        watched = self.config.watched
        if not watched or (epoch % self.config.watch_every and epoch != self.config.epochs):
            return
        found = self.checker.look(self.model, frozenset(watched), self._moment(epoch))
        rates = {f"{seen.split}:{seen.attack}": counts.rates for seen, counts in found.items()}
        append_line(self.run.path / "watch.jsonl", {"epoch": epoch, **rates})

    def _order(self, moment: Moment) -> tuple[Tensor, Tensor]:
        """Rows to visit, and the key of each visit's random draws."""
        draws = moment.draws("order")
        if self.slots.sampler is None:
            order = draws.order(len(self.train_labels))
            return order, self.train_data.origin[order.to(self.device)]
        order = self.slots.sampler.order(self.train_labels, draws)
        visit = rank_within_class(order, torch.arange(len(order)))  # a repeated image differs
        return order, self.train_data.origin[order.to(self.device)] + (visit << 32).to(self.device)

    def _moment(self, epoch: int) -> Moment:
        return Moment(self.config.seed, epoch, self.config.epochs)

    def _diverged(self, epoch: int, where: str, value: float) -> ClasswiseError:
        return ClasswiseError(
            f"training diverged: loss {value} in epoch {epoch + 1}, {where}; the checkpoint after "
            f"epoch {epoch} is kept in {self.run.path}; try a lower lr"
        )
