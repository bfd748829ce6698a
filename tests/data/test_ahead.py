"""Batches are read ahead, by threads that are gone whatever happens."""

import threading
import time

import numpy as np
import pytest
import torch

from classwise.data.ahead import read_ahead
from classwise.data.batches import Batches
from classwise.data.dataset import Dataset
from classwise.data.mapped import Mapped
from classwise.data.store import Stored


def readers():
    return [one for one in threading.enumerate() if one.name == "classwise-ahead"]


def gone(seconds=5.0):
    until = time.monotonic() + seconds
    while readers() and time.monotonic() < until:
        time.sleep(0.005)
    return not readers()


def test_results_come_in_order_whoever_is_quicker():
    def make(number):
        time.sleep(0.01 if number % 3 == 0 else 0)
        return number

    assert list(read_ahead(make, range(12), depth=4)) == list(range(12))
    assert gone()


def test_two_are_made_while_one_is_used():
    begun = []
    results = read_ahead(lambda number: begun.append(number) or number, range(9))
    assert begun == []  # nobody has asked yet
    assert next(results) == 0
    assert gone()
    assert begun == [0, 1, 2]
    assert next(results) == 1
    assert gone()
    assert begun == [0, 1, 2, 3]


def test_an_error_comes_where_its_result_would():
    def make(number):
        if number == 2:
            raise OSError("the disk is gone")
        return number

    results = read_ahead(make, range(9))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        next(results)
    assert gone()


@pytest.fixture
def on_disk(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 4, 4), np.uint8)
    np.save(tmp_path / "images.npy", images)
    mapped = Mapped(np.load(tmp_path / "images.npy", mmap_mode="c"))
    return Dataset(Stored.of(mapped), torch.arange(40) % 4, tuple("abcd")), images


@pytest.mark.parametrize("reason", [RuntimeError, KeyboardInterrupt])
def test_no_thread_is_left_when_the_loop_breaks(on_disk, reason):
    batches = Batches.of(on_disk[0], 4, torch.device("cpu"))

    def use(_):
        raise reason

    with pytest.raises(reason):
        list(map(use, batches.in_order()))
    assert gone()


def test_only_files_are_read_by_threads(on_disk, monkeypatch):
    who = []
    real = Stored.__getitem__

    def seen(self, index):
        who.append(threading.current_thread().name)
        return real(self, index)

    monkeypatch.setattr(Stored, "__getitem__", seen)
    data, images = on_disk
    memory = Dataset(torch.from_numpy(images), data.labels, data.class_names)
    cpu = torch.device("cpu")
    from_file = list(Batches.of(data, 8, cpu).in_order())
    assert set(who) == {"classwise-ahead"}
    who.clear()
    from_memory = list(Batches.of(memory, 8, cpu).in_order())
    assert set(who) == {"MainThread"}
    for one, other in zip(from_file, from_memory, strict=True):
        assert torch.equal(one.images, other.images)
