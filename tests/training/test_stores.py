"""Training out of a file gives what training out of memory gives, bit for bit."""

import threading

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from classwise.data.cache import NoCache
from classwise.data.sources import open_data
from classwise.training.loop import Trainer, train

FACTS = {"epochs": 2, "batch_size": 8, "model": "cnn(width=4)", "valid": 0.2, "quiet": True}


@pytest.fixture
def pets(tmp_path, monkeypatch):
    monkeypatch.setenv("CLASSWISE_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    for i in range(40):
        path = tmp_path / "pets" / "cd"[i % 2] / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (12, 12, 3), np.uint8) // 2 + 120 * (i % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return tmp_path / "pets"


def weights(run):
    return load_file(run.path / "weights" / "last.safetensors")


@pytest.mark.parametrize("more", ["", ", spare=4"])
def test_files_and_memory_train_the_same(pets, tmp_path, monkeypatch, more):
    spec = f"folder({pets}, size=8{more})"
    assert open_data(spec).train.pixels.on_disk
    from_file = train("at", data=spec, out=tmp_path / "file", **FACTS)

    def full(*_):
        raise NoCache("no room")

    monkeypatch.setattr("classwise.data.decoded._kept", full)
    assert not open_data(spec).train.pixels.on_disk
    from_memory = train("at", data=spec, out=tmp_path / "memory", **FACTS)
    assert from_file.about["identity"] == from_memory.about["identity"]
    one, other = weights(from_file), weights(from_memory)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_resumed_run_reads_what_the_whole_one_read(pets, tmp_path, monkeypatch):
    spec = f"folder({pets}, size=8, spare=4)"
    whole = train("at", data=spec, out=tmp_path / "whole", **FACTS)
    real, calls = Trainer.boundary, []

    def stopped(self, *given):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, *given)

    monkeypatch.setattr(Trainer, "boundary", stopped)
    with pytest.raises(KeyboardInterrupt):
        train("at", data=spec, out=tmp_path / "part", **FACTS)
    part = train("at", data=spec, out=tmp_path / "part", resume=True, **FACTS)
    one, other = weights(whole), weights(part)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert "classwise-ahead" not in {thread.name for thread in threading.enumerate()}


def test_windows_differ_from_epoch_to_epoch_and_models_see_the_small_size(
    pets, monkeypatch, tmp_path
):
    seen = []
    real = Trainer.run_epoch

    def watched(self, state, progress):
        augment = self.step.augment
        object.__setattr__(
            self.step,
            "augment",
            lambda images, *key: seen.append((images.shape, augment(images, *key))) or seen[-1][1],
        )
        found = real(self, state, progress)
        object.__setattr__(self.step, "augment", augment)
        return found

    monkeypatch.setattr(Trainer, "run_epoch", watched)
    train("clean", data=f"folder({pets}, size=8, spare=4)", out=tmp_path / "run", **FACTS)
    assert {tuple(shape[1:]) for shape, _ in seen} == {(3, 12, 12)}
    assert {tuple(images.shape[1:]) for _, images in seen} == {(3, 8, 8)}
    source = open_data(f"folder({pets}, size=8, spare=4)")
    assert source.test.images.shape[1:] == (3, 8, 8)
