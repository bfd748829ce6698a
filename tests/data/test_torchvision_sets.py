"""Data sets of the real torchvision, out of small files in their official forms."""

import hashlib
import pickle

import numpy as np
import pytest
from official_files import mnist_files, write
from refusals import refused
from zoo_libraries import library

from classwise import open_data


@pytest.fixture(scope="module")
def sets():
    return library("torchvision").datasets


@pytest.mark.usefixtures("sets")
def test_mnist(tmp_path):
    write(tmp_path / "MNIST" / "raw", mnist_files())
    found = open_data(f'torchvision(MNIST, root="{tmp_path}", mirrored=false)')
    ours = open_data(f"idx:{tmp_path / 'MNIST' / 'raw'}")
    assert found.name == "torchvision:MNIST"
    for part, same in ((found.train, ours.train), (found.test, ours.test)):
        assert part.images.equal(same.images)
        assert part.labels.equal(same.labels)
    assert found.train.class_names[3] == "3 - three"
    assert not found.test.mirrored


def test_cifar10(sets, tmp_path, monkeypatch):
    home, draw = tmp_path / "cifar-10-batches-py", np.random.default_rng(0)
    home.mkdir()
    rows = draw.integers(0, 256, (2, 6, 3072), dtype=np.uint8)
    labels = [[0, 1, 2, 2, 1, 0], [2, 1, 0, 0, 1, 2]]

    def put(name, held):
        content = pickle.dumps(held)
        (home / name).write_bytes(content)
        return name, hashlib.md5(content).hexdigest()

    for name, part, k in (("data_batch_1", "train_list", 0), ("test_batch", "test_list", 1)):
        listed = [list(put(name, {"data": rows[k], "labels": labels[k]}))]
        monkeypatch.setattr(sets.CIFAR10, part, listed)
    name, md5 = put("batches.meta", {"label_names": ["a", "b", "c"]})
    about = {"filename": name, "key": "label_names", "md5": md5}
    monkeypatch.setattr(sets.CIFAR10, "meta", about)
    source = open_data(f'torchvision(CIFAR10, root="{tmp_path}")')
    for k, part in enumerate((source.train, source.test)):
        assert (part.images.numpy().reshape(6, 3072) == rows[k]).all()
        assert part.labels.tolist() == labels[k]
        assert part.class_names == ("a", "b", "c")


@pytest.mark.usefixtures("sets")
def test_what_is_refused(tmp_path):
    with refused("Dataset not found", "root=FOLDER"):
        open_data(f'torchvision(CIFAR10, root="{tmp_path}")')
    with refused("FakeData has neither train= nor split="):
        open_data(f'torchvision(FakeData, root="{tmp_path}")')
    with refused("unknown data set of torchvision 'CIFAR11'", "did you mean 'CIFAR10'"):
        open_data("torchvision:CIFAR11")


def test_one_that_was_made_in_python(sets):
    data = sets.FakeData(size=12, image_size=(3, 8, 8), num_classes=3)
    source = open_data(data)
    assert source.train.images.shape[1:] == (3, 8, 8)
    assert len(source.train.labels) + len(source.test.labels) == 12
