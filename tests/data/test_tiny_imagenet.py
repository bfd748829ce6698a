"""Tiny ImageNet, whose archive is verified and unpacked: by one process, and once."""

import threading
from dataclasses import replace

import pytest
from official_files import md5, put_tiny_imagenet, zip_folder
from refusals import refused
from test_data_cifar import home
from test_data_download import server

from classwise import locks
from classwise.data import download, official
from classwise.data.sources import open_data

__all__ = ["home", "server"]  # fixtures


@pytest.fixture
def zipped(home, tmp_path, server, monkeypatch):  # noqa: ARG001
    """What the server has to give: an archive that must be unpacked."""
    put_tiny_imagenet(tmp_path / "tiny")
    server.content = zip_folder(tmp_path / "tiny", "tiny-imagenet-200")
    form = replace(official.TINY_IMAGENET, address=server.address, whole=md5(server.content))
    monkeypatch.setitem(official.FORMS, "tiny-imagenet", (form,))


@pytest.mark.usefixtures("zipped")
def test_two_at_once_unpack_it_once(monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.01)
    found, unpacked, unpack = [], [], download.unpack

    def get():
        found.append(download.get("tiny-imagenet", quiet=True))

    second = threading.Thread(target=get)

    def slowly(archive, folder):
        unpacked.append(archive)
        if len(unpacked) == 1:  # the archive is there, its files are not
            second.start()
            second.join(0.5)
        return unpack(archive, folder)

    monkeypatch.setattr(download, "unpack", slowly)
    get()
    second.join(10)
    assert len(set(found)) == 1
    assert len(found) == 2
    assert len(unpacked) == 1
    assert [path.name for path in found[0].parent.iterdir()] == ["tiny-imagenet-200"]


@pytest.mark.usefixtures("zipped")
def test_an_archive_beside_its_files_is_no_obstacle(server):
    place = download.get("tiny-imagenet", quiet=True)
    (place.parent / "tiny-imagenet-200.zip").write_bytes(server.content)  # killed in between
    assert download.get("tiny-imagenet", quiet=True) == place
    assert [path.name for path in place.parent.iterdir()] == ["tiny-imagenet-200"]


@pytest.mark.usefixtures("zipped")
def test_it_is_verified_and_unpacked(home, server):
    place = download.get("tiny-imagenet", quiet=True)
    assert [path.name for path in place.parent.iterdir()] == ["tiny-imagenet-200"]
    assert len(open_data("tiny-imagenet").train) == 12
    assert download.get("tiny-imagenet", quiet=True) == place
    (home / "tiny-imagenet-200.zip").write_bytes(server.content + b"x")
    with refused("has md5"):
        download.get("tiny-imagenet", where=home, quiet=True)
