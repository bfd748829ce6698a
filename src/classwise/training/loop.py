"""The training loop, the only one: read it top to bottom as the walk of the data.

load -> split -> batch -> attack -> mix -> loss -> step -> counts -> average -> keep -> policies
-> record, where `step.py` has the part from the attack to the counts
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from classwise.attacks.ball import parse_norm
from classwise.attacks.inner import Moment
from classwise.attacks.threat import Threat
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import Chain, Feedback, Seen
from classwise.data.augment import fit_augment
from classwise.data.batches import Batches
from classwise.data.dataset import DataSource
from classwise.data.sources import data_to_train_on
from classwise.errors import ClasswiseError
from classwise.locks import FolderLock
from classwise.memory import keep_freed_memory
from classwise.models import names_own_model
from classwise.models.asking import set_training
from classwise.recipe import Method, Recipe
from classwise.recipe_text import load_recipe
from classwise.slots import KEEPS
from classwise.training.average import RunningAverage
from classwise.training.begin import agree_on_begin
from classwise.training.build import check_outputs, frozen_teacher, model_to_train, rows_to_use
from classwise.training.cadence import choose_cadence
from classwise.training.config import TrainConfig, choose_device, configured
from classwise.training.fluctuation import fluctuations
from classwise.training.identity import describe_run
from classwise.training.progress import TrainProgress, tell
from classwise.training.record import epoch_record, headline, keep_weights
from classwise.training.resume import Checkpoints, Logs
from classwise.training.run import Run
from classwise.training.schedule import Pace, make_optimiser, set_rate
from classwise.training.state import Progression, remarks
from classwise.training.step import Step
from classwise.training.tally import Tally, all_finite, diverged
from classwise.training.validate import Checker, judged_under
from classwise.training.visits import visits
from classwise.training.watched import check_averages, rates

GO_ON = "add resume=True to go on, or choose another folder"
IN_USE = "wait for it (wait=True), or choose another folder"


def train(
    recipe: str | Recipe | Method,
    config: TrainConfig | None = None,
    *,
    out: str | Path,
    resume: bool = False,
    wait: bool = False,
    device: str = "auto",
    quiet: bool = False,
    source: DataSource | None = None,
    imports: Sequence[str] = (),
    **options: Any,
) -> Run:
    """Train a recipe and leave a run folder behind.

    Options are those of `TrainConfig`: `train("trades+ccm", data="digits", eps=0.2, out="runs/a")`.
    `data` may also be what `open_data` takes: a data set of torch, a pair (train, test), ...
    With `resume` a run that is there goes on where it stopped, and one that is not begins; with
    `wait` it waits until nobody else trains there. A recipe file may name methods of the modules in
    `imports`.
    """
    recipe = load_recipe(recipe, imports=imports)
    config = configured(config, options)
    source = data_to_train_on(options.get("data", config.data), source)
    # Everything is checked before the folder is touched: a typo must not occupy it.
    own = config.model if names_own_model(config.model) else None
    trainer = Trainer(Run(Path(out), own), recipe, config, source, choose_device(device))
    trainer.run.check_place()
    with FolderLock(trainer.run.path, "training", wait=wait, remedy=IN_USE) as lock:
        trainer.run.claim(trainer.about)
        done = trainer.run.finished_epochs
        if done and not resume:
            raise ClasswiseError(f"{out} already holds {done} epochs of this run; {GO_ON}")
        if trainer.begun is not None and not done:
            begun = trainer.begun  # what stayed random is worth a line even where nothing is wanted
            tell(f"{recipe.spelled} {begun.words}", quiet and not (begun.new or begun.differing))
        trainer.cadence = often = trainer.cadence.kept_in(trainer.run.about)
        if often.share is not None:
            tell(f"{recipe.spelled} {often.words(config)}", quiet and not often.exceeds(config))
        keep_freed_memory()
        return trainer.go(quiet, lock)


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
        recipe, config = agree_on_begin(recipe, config)
        self.run, self.recipe, self.config, self.device = run, recipe, config, device
        self.about = describe_run(recipe, config, source)
        self.slots, data = recipe.slots, source.train
        self.num_classes = data.num_classes
        train_rows, valid_rows = rows_to_use(data, config)
        size, training = config.batch_size, data.subset(train_rows)
        self.train_data = Batches.of(training, size, device, train_rows, wide=True)
        self.train_labels, self.sizes = training.labels, training.sizes
        ball = parse_norm(config.norm)
        self.chosen_by = judged_under(config, recipe, len(valid_rows))
        self.checks = frozenset({Seen("valid", "clean"), self.chosen_by})
        self.model, self.begun = model_to_train(self.about, config, device)
        self.about |= {} if self.begun is None else {"begin": self.begun.card}
        check_outputs(self.model, self.about["network"], data.pixels.shape[1:])
        self.teacher = frozen_teacher(recipe, config, self.about["network"], device)
        self.shadow = copy.deepcopy(self.model)  # carries the averages when they are evaluated
        self.optimiser = make_optimiser(config, self.model)
        self.pace = Pace(config, len(self.train_data))
        self.step = Step(
            self.model,
            self.optimiser,
            self.slots,
            config,
            fit_augment(self.slots.augment, data.allowed, self.slots.noise),
            ball,
            self.teacher,
            self.num_classes,
            device,
        )
        self.base = self.slots.alike(self.num_classes, config.eps)
        splits = {"valid": Batches.of(data.subset(valid_rows), size, device, valid_rows)}
        self.watched = config.watched
        check_averages(self.watched, self.slots.averages)
        for split in {watched.seen.split for watched in self.watched}:
            splits[split] = Batches.of(source.test if split == "test" else training, size, device)
        self.cadence = choose_cadence(config, self.slots, self.sizes, splits)
        self.about |= self.cadence.card
        self.checker = Checker(
            splits,
            self.num_classes,
            Threat(ball, config.eps_of_judge),
            config.seed,
            self.slots,
            self.slots.alike(self.num_classes, config.eps_of_judge),
            self.teacher,
        )
        self.chain = Chain(self.slots.policies).bind(data.class_names)
        self.keeps = self.slots.keeps or KEEPS

    def go(self, quiet: bool, lock: FolderLock) -> Run:
        """Train from wherever the run stands to its last epoch."""
        config = self.config
        begin = self.beginning()
        whose = self.about["identity"]
        saved = Checkpoints(self.run, whose, self.model, self.optimiser, self.device, lock)
        found = saved.resume(begin)
        if found is None:
            before = self.checker.look(self.model, self.chain.needs(0), self._moment(0))
            state, logs = self.apply_policies(begin, before), Logs(self.run.path)
            saved.save(state, logs)
        else:
            (state, logs), self.chain = found, found[0].chain
        previous, title, batches = logs.previous, self.recipe.spelled, len(self.train_data)
        with TrainProgress(title, config.epochs, state.epoch, batches, quiet) as progress:
            while state.epoch < config.epochs:
                began = time.perf_counter()
                for about, words in remarks(state, config.epochs):
                    progress.warn_once(about, words)
                state, counts, losses = self.run_epoch(state, progress)
                lock.check()
                state, record = self.boundary(state, counts, losses)
                record["fluctuation"] = fluctuations(previous, record)
                previous = record
                lock.check()  # validation takes its time, too
                logs.add("history.jsonl", record)
                self.watch(state, logs)
                saved.save(state, logs)
                seconds = round(time.perf_counter() - began, 3)
                logs.add("times.jsonl", {"epoch": state.epoch, "seconds": seconds})
                progress.epoch(state.epoch, record["loss"]["total"], *headline(record))
        return self.run

    def beginning(self) -> Progression:
        """Where the run begins."""
        keys, scaled = self.train_data.origin, self.config.precision == "float16"
        return Progression.beginning(self.slots, self.chain, self.base, keys, scaled)

    def run_epoch(
        self, state: Progression, progress: TrainProgress
    ) -> tuple[Progression, dict[Seen, ClassCounts], dict[str, float]]:
        """One pass over the training data."""
        config, moment, batches = self.config, self._moment(state.epoch), len(self.train_data)
        settings = state.settings.to(self.device)
        order, keys = visits(self.train_data, self.train_labels, self.slots.sampler, moment)
        tally = Tally(self.device, partial(diverged, self.run.path, state.epoch, batches))
        kept = {name: dict(values) for name, values in state.regularisers.items()}
        details = self.chain.details(state.epoch + 1)
        extra_look = Seen("train", "robust") in self.chain.needs(state.epoch + 1)
        done = 0
        set_training(self.model, True)
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            # Models with dropout draw from the global generator: tie it to the epoch.
            torch.manual_seed(config.seed * 1_000_003 + state.epoch)
            for number, batch in enumerate(self.train_data.along(order)):
                if self.chain.due(number):  # somebody does not wait for the boundary
                    tally.check()
                    state = self.renew_policies(state, tally.counts, number)
                    settings = state.settings.to(self.device)
                batch = replace(batch, index=keys[done : done + len(batch)])
                done += len(batch)
                set_rate(self.optimiser, self.pace.rate(state.epoch, number))
                now = settings.shrunk(self.pace.eps_share(state.epoch, number))
                seen, losses = self.step(batch, now, kept, moment, details, extra_look)
                tally.add(seen, losses, len(batch))
                if tally.due:
                    tally.check()
                progress.batch()
        tally.check()
        if not all_finite(self.model.parameters()):
            raise diverged(self.run.path, state.epoch, 0, 0, float("nan"))
        on_host = {key: value.to("cpu") for key, value in tally.counts.items()}
        return replace(state, regularisers=kept), on_host, tally.means()

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
        every = self.config.keep_every
        keep_weights(self.run, self.model, "", self.keeps, gate, best, epoch, every)
        for average in averages:
            model = self._carry(average)
            if model is None:
                continue
            name = average.rule.name
            validated[name] = self.checker.look(model, self.checks, moment)
            found = validated[name].get(self.chosen_by)
            keep_weights(self.run, model, f"{name}-", self.keeps, found, best, epoch, every)
        pace = self.pace.record(state.epoch)
        record = epoch_record(pace, replace(state, epoch=epoch), counts, losses, validated)
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

    def watch(self, state: Progression, logs: Logs) -> None:
        """Passive looks for the papers' curves; no slot can read what is written here."""
        epoch = state.epoch
        if not self.watched or not self.cadence.due(epoch, self.config.epochs):
            return
        record: dict[str, Any] = {"epoch": epoch}
        for average in (None, *state.averages):
            name = "" if average is None else average.rule.name
            needs = frozenset(one.seen for one in self.watched if one.average == name)
            model = self.model if average is None else self._carry(average)
            if needs and model is not None:
                record |= rates(self.checker.look(model, needs, self._moment(epoch)), name)
        logs.add("watch.jsonl", record)

    def _carry(self, average: RunningAverage) -> nn.Module | None:
        """The shadow with an average's weights; None while there are none."""
        if average.weights is not None:
            self.shadow.load_state_dict(average.weights)
        return None if average.weights is None else self.shadow

    def _moment(self, epoch: int) -> Moment:
        return Moment(self.config.seed, epoch, self.config.epochs)
