import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from short_runs import QUICK, short_run, weights_of

from classwise.laws.made_up import write_teacher
from classwise.recipe_text import load_recipe
from classwise.record.tensors import read_tensors
from classwise.training.config import TrainConfig
from classwise.training.loop import train
from classwise.training.run import Run
from classwise.training.step import Step


@pytest.fixture
def first(tmp_path, tiny):
    return short_run(tmp_path / "first", "at(steps=1)", tiny(), seed=3)


@pytest.fixture
def stopped(monkeypatch):
    """Training stops before its first step; `with stopped():` is where it may."""

    def stop(*_):
        raise KeyboardInterrupt

    @contextmanager
    def stopped():
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(Step, "__call__", stop)
            yield

    return stopped


@pytest.fixture
def begun(tmp_path, tiny, stopped):
    """The model's tensors at the beginning of a run that begins from something."""
    number = 0

    def begin(words, recipe="at(steps=1)", source=None, **options):
        nonlocal number
        number += 1
        run = Run(tmp_path / f"begun {number}")
        with stopped():
            short_run(run.path, recipe, source or tiny(), begin=words, **options)
        state = read_tensors(run.path / "state.safetensors")[0]
        return run, {n[6:]: value for n, value in state.items() if n.startswith("model.")}

    return begin


@pytest.fixture(scope="module")
def first_tensors(tiny, tmp_path_factory):
    return weights_of(short_run(tmp_path_factory.mktemp("a") / "a", "at(steps=1)", tiny(), seed=3))


@pytest.fixture
def steps(monkeypatch):
    """What every step of a run was given: learning rates by group, radius, step; may interrupt."""
    seen, real = [], Step.__call__
    seen_at = {"fatal": None}

    def recording(self, batch, settings, *rest):
        if len(seen) == seen_at["fatal"]:
            raise KeyboardInterrupt
        lrs = [group["lr"] for group in self.optimiser.param_groups]
        seen.append((lrs, settings.margin.tolist(), settings.step.tolist()))
        return real(self, batch, settings, *rest)

    monkeypatch.setattr(Step, "__call__", recording)
    recording.seen, recording.control = seen, seen_at
    return recording


THREE_EPOCHS = TrainConfig(**{**QUICK, "epochs": 3})


@pytest.fixture
def go(tmp_path, tiny, monkeypatch):
    """Train on a few digits; the folder is named by the first argument."""

    def run(folder, recipe="at(steps=2)+ccm+ema", *, resume=False, source=None, **options):
        config = TrainConfig(**{**THREE_EPOCHS.model_dump(), **options})
        source = tiny() if source is None else source
        if load_recipe(recipe).slots.teacher:
            monkeypatch.chdir(tmp_path)
            write_teacher(Path("teacher.safetensors"), source)
        return train(
            recipe, config, out=tmp_path / folder, resume=resume, source=source, quiet=True
        )

    return run


OWN_MODEL = '''
import torch
from torch import nn

forwards, trouble_at, trouble = 0, None, None


class Own(nn.Module):
    """Two layers with BatchNorm and dropout; makes trouble at a training forward of choice."""

    def __init__(self, num_classes, channels=1, hidden=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(64 * channels, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
            nn.Dropout(0.2), nn.Linear(hidden, num_classes),
        )

    def forward(self, images):
        global forwards
        logits = self.net(images)
        if self.training:
            forwards += 1
            if forwards == trouble_at:
                if trouble == "nan":
                    return logits * float("nan")
                raise KeyboardInterrupt
        return logits


def short(num_classes):
    return Own(num_classes - 3)


def words():
    return "no model"


INSTANCE = Own(10)
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module with a model of the user's, in a folder of its own."""
    name = f"own_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / f"{name}.py").write_text(OWN_MODEL)
    monkeypatch.syspath_prepend(folder)
    yield __import__(name)
    del sys.modules[name]
