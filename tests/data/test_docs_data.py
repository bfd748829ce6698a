"""Every line of the table in docs/data.md: one command each, on small files of those formats."""

import importlib.util
import os
import re
import shlex
import sys
import types

import numpy as np
import pytest
import torch
from official_files import (
    PER_CLASS,
    SYNSETS,
    mnist_files,
    picture,
    put_imagenet,
    put_tiny_imagenet,
    stl10_files,
    svhn_files,
    use_sums,
    write,
)
from places import ROOT
from test_data_cifar import small_cifar10, small_cifar100, use, write_archive
from test_given import Pictures
from typer.testing import CliRunner

from classwise.cli import app
from classwise.data import official
from classwise.data.sources import FROM_DATA, FROM_NAMES, FROM_PATH, NAMED, read_spec

LINES = re.findall(r"^\|[^|]*\| `--data (.*?)` \|", (ROOT / "docs" / "data.md").read_text(), re.M)
SPECS = [shlex.split(line)[0] if line.startswith('"') else line for line in LINES]


def flat_net(num_classes, channels):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * channels, num_classes),
    )


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """All files of the table below `data`, and the sums that belong to them."""
    home = tmp_path_factory.mktemp("table")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("CLASSWISE_DATA", str(home / "data"))
        patch.setenv("CLASSWISE_CACHE", str(home / "cache"))
        patch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
        sets = types.ModuleType("torchvision.datasets")
        sets.CIFAR10, sets.__all__ = Pictures, ("CIFAR10",)
        patch.setitem(sys.modules, "torchvision.datasets", sets)
        sys.modules["torchvision"].datasets = sets
        put_official(home / "data", patch)
        put_own(home / "data")
        yield home


def put_official(data, patch):
    files = {"mnist": mnist_files(), "fashion-mnist": mnist_files(), "svhn": svhn_files()}
    for name, each in files.items():
        use_sums(patch, name, each)
        write(data / name, each, packed=name == "mnist")
    stl = stl10_files()
    use_sums(patch, "stl10", stl)
    write(data / "stl10_binary", stl)
    _, pickles, binary = small_cifar10()
    use(patch, "cifar10", (official.PYTHON_10, pickles), (official.BINARY_10, binary))
    write_archive(data / "cifar-10-python.tar.gz", "cifar-10-batches-py", pickles)
    fine = small_cifar100()
    use(patch, "cifar100", (official.PYTHON_100, fine))
    write(data / "cifar-100-python", fine)
    put_tiny_imagenet(data / "tiny-imagenet-200")
    put_imagenet(data / "imagenet", flat=True)
    write(data / "letters", mnist_files(classes=4))


def put_own(data):
    for k in range(2 * len(SYNSETS)):
        picture(data / "samples" / f"{SYNSETS[k % 3]}_{k}.JPEG", 9 * k)
    lines = ["path,label,track,camera"]
    for name in ("0", "1"):
        for k in range(3 * PER_CLASS):
            picture(data / "photos" / name / f"{k}.png", 9 * k, side=8)
            picture(data / "signs" / name / f"{k // 3:05d}_{k:05d}.ppm.png", 9 * k, side=16)
            lines.append(f"photos/{name}/{k}.png,c{name},t{name}{k // 3},{'ab'[k % 2]}")
    (data / "signs" / "names.txt").write_text("stop\nyield\n")
    (data / "images.csv").write_text("\n".join(lines))
    images, labels = np.zeros((12, 3, 8, 8), np.uint8), np.arange(12) % 3
    np.savez(data / "set.npz", images=images, labels=labels)
    last = {"x_train": images.transpose(0, 2, 3, 1), "x_test": images.transpose(0, 2, 3, 1)}
    np.savez(data / "keras.npz", **last, y_train=labels, y_test=labels)
    (data / "arrays").mkdir()
    np.save(data / "arrays" / "images.npy", images)
    np.save(data / "arrays" / "labels.npy", labels)
    if importlib.util.find_spec("datasets"):
        import datasets

        kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])}
        rows = {"image": [Pictures()[k][0] for k in range(24)], "label": [k % 3 for k in range(24)]}
        made = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
        made.save_to_disk(str(data / "hub"))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.usefixtures("places")
def test_one_command_for_every_line(spec):
    if spec.startswith("hf:") and not importlib.util.find_spec("datasets"):
        pytest.skip("the extra hf is not installed")
    words = ["audit", f"{__name__}:flat_net", "--data", spec, "--attacks", "clean", "--limit", "8"]
    done = CliRunner().invoke(app, [*words, "--quiet"], env=dict(os.environ))
    assert done.exit_code == 0, done.output
    assert "clean" in done.output
    if spec.startswith("csv("):
        assert "camera" in done.output  # a column of the table is a grouping


def test_the_table_has_every_kind():
    """Whatever can be opened has its line."""
    kinds = {read_spec(spec)[0] for spec in SPECS}
    assert kinds == {*NAMED, *FROM_PATH, *FROM_DATA, *FROM_NAMES}
