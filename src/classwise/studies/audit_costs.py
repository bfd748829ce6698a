"""What the audits of a run will cost: a few images under every attack, timed and multiplied.

The network is untrained, so an attack would break every image at once. Searches, which leave an
image as soon as it is broken, are therefore timed at a radius at which nothing breaks, to their
end, and counted for the share of images that stands to the end of a search with a trained network.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from classwise.attacks.features import FeatureSettings
from classwise.attacks.fixed_steps import FixedSteps
from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.data.dataset import Dataset
from classwise.data.sources import choose_split, open_data
from classwise.data.view import View
from classwise.errors import ClasswiseError
from classwise.models import build_model
from classwise.models.subject import Subject
from classwise.spelling import average_and_keep
from classwise.studies.feature_sets import ORIGINAL
from classwise.studies.grid import weights_meant
from classwise.studies.planned import PlannedRun
from classwise.studies.study import Audit
from classwise.studies.theirs_planned import PlannedNetwork
from classwise.training.config import TrainConfig

STANDING = 0.4  # images that stand to the end of a search, of a robust network of a small scale
HARMLESS = 1e-6  # a radius at which nothing breaks
FEW, FEW_OF_A_SEARCH = 64, 16  # images that are timed


class Timing(Protocol):
    """How long an image takes."""

    def per_image(self, config: TrainConfig, attack: str) -> float:
        """Seconds of one image under an attack, with this network and these data."""

    def images(self, config: TrainConfig, split: str) -> int:
        """How many images there are to audit."""


def seconds_of_audits(run: PlannedRun, timing: Timing) -> float:
    """All audits of a run, each of as many weights and images as are asked for."""
    config = data_of(run)
    total = 0.0
    for audit in run.audits:
        there = timing.images(config, audit.split)
        many = min(audit.limit or there, there) * weights_of(run, audit)
        total += many * sum(timing.per_image(config, name) for name in audit.attacks)
    return total


def seconds_of_network(planned: PlannedNetwork, timing: Timing) -> float:
    """All audits of a network of other people, by its architecture."""
    network, stand = planned.network, planned.stand
    if network.arch is None:
        raise ClasswiseError(f"{network.path.name} names no architecture that could be timed")
    config = TrainConfig(data=stand.data, model=network.arch, eps=stand.eps, norm=stand.norm)
    total = 0.0
    for audit in planned.audits:
        there = timing.images(config, audit.split)
        each = sum(timing.per_image(config, name) for name in audit.attacks)
        total += min(audit.limit or there, there) * each
    return total


def seconds_of_features(run: PlannedRun, timing: Timing) -> float:
    """Making the features that a run learns from; each step is about one of PGD."""
    if run.features is None or run.features.kind == ORIGINAL:
        return 0.0
    config = data_of(run)
    images = run.features.images or timing.images(config, "train")
    steps = FeatureSettings.of(run.features.kind, **run.features.how).steps
    return images * steps * timing.per_image(config, "pgd-10") / 10


def weights_of(run: PlannedRun, audit: Audit) -> int:
    """How many weights an audit names, of those that the recipe has or may have."""
    averages = [average.name for average in run.recipe.slots.averages]
    keeps = [average_and_keep(name)[1] for name in audit.weights]
    there = dict.fromkeys([*keeps, *(f"{name}-{keep}" for name in averages for keep in keeps)])
    return len(weights_meant(list(there), audit.weights))


def data_of(run: PlannedRun) -> TrainConfig:
    """The settings of a run, with data that are there: of features, those they are made of."""
    if run.maker is None or run.features is None:
        return run.config
    known = {"data": run.maker.config.data, "subset": run.features.images}
    return run.config.model_copy(update=known)


@dataclass(frozen=True)
class Stopwatch:
    """Times every attack on every network once."""

    clock: Callable[[], float] = time.perf_counter
    _data: dict[tuple[str, str], Dataset] = field(default_factory=dict, repr=False)
    _seconds: dict[tuple[object, ...], float] = field(default_factory=dict, repr=False)

    def images(self, config: TrainConfig, split: str) -> int:
        """How many images there are to audit."""
        return len(self._images(config.data, split))

    def per_image(self, config: TrainConfig, attack: str) -> float:
        """Seconds of one image under an attack, with this network and these data."""
        key = (config.data, config.model, config.norm, attack)
        if key not in self._seconds:
            self._seconds[key] = self._timed(config, attack)
        return self._seconds[key]

    def _images(self, data: str, split: str) -> Dataset:
        if (data, split) not in self._data:
            self._data[data, split] = choose_split(open_data(data), split)
        return self._data[data, split]

    def _timed(self, config: TrainConfig, attack: str) -> float:
        import torch

        threat = Threat.of(config.eps_of_judge, config.norm)
        (condition,) = parse_conditions(attack, threat, own=False)
        search = condition.attack is not None and not isinstance(condition.attack, FixedSteps)
        if search and condition.threat is not None:
            condition = replace(condition, threat=Threat.of(HARMLESS, config.norm))
        data = self._images(config.data, "test")
        rows = torch.arange(min(FEW_OF_A_SEARCH if search else FEW, len(data)))
        batch = View.of(data, "costs").batch(rows)
        plain = [0.5] * data.channels
        model = build_model(config.model, num_classes=data.num_classes, channels=data.channels,
                            mean=plain, deviation=plain)  # fmt: skip
        subject = Subject.of(model, batch.images, data.num_classes, width=len(rows))
        with subject.asked():
            with torch.no_grad():
                seen = subject.logits(subject.take(batch.images)).argmax(1).cpu()
            began = self.clock()
            condition.judge(subject, replace(batch, labels=seen))
            seconds = self.clock() - began
        return seconds * (STANDING if search else 1.0) / len(rows)
