"""The cache of decoded pictures under kills, in crowds, by processes and on full disks."""

import shutil
import time

import forked
import pytest
import torch
from pets import COUNT, images_of, same_as_plain

from classwise.data import cache as cache_module
from classwise.data import decoded as decoded_module
from classwise.data import decoding
from classwise.data.cache import entries
from classwise.data.sources import open_data
from classwise.errors import ClasswiseError

pytestmark = pytest.mark.usefixtures("home")

SLOW = """
import sys, time
from classwise.data import cache, decoding
from classwise.data.sources import open_data
cache.ROWS = 5
real = decoding.read_picture
def slow(file, *how):
    time.sleep(float(sys.argv[2]))
    print(file, flush=True)
    return real(file, *how)
decoding.read_picture = slow
print("hash", open_data("folder:" + sys.argv[1]).train.content_hash, flush=True)
"""


def start(pets, seconds):
    return forked.start(pets, seconds, code=SLOW)


def test_a_kill_costs_only_what_was_being_decoded(pets, counted, home, capsys):
    one = start(pets, 0.05)
    while not list(home.glob("*/shards.jsonl")):
        assert one.poll() is None, one.said("err")
        time.sleep(0.01)
    one.kill()
    same_as_plain(open_data(f"folder:{pets}"), pets)
    assert 0 < len(counted) <= COUNT - 5
    assert f"{len(counted)} of 24 images are still to be decoded" in capsys.readouterr().err


def test_two_at_once_decode_once(pets, counted, home):
    other = start(pets, 0.05)
    while not list(home.glob("*/shards.jsonl")):
        assert other.poll() is None, other.said("err")
        time.sleep(0.01)
    source = open_data(f"folder:{pets}")
    assert counted == []  # we have waited for it
    said = other.end()[1].splitlines()
    assert said[-1] == f"hash {source.train.content_hash}"
    assert len(said) == COUNT + 1


def test_processes_decode_what_threads_do(pets, monkeypatch, counted):
    (pets / "c" / "bad é\udcff.png").write_text("no image")
    by_threads = open_data(f"folder({pets}, skip_bad=true)")
    shutil.rmtree(entries()[0].place)
    counted.clear()
    monkeypatch.setattr(decoded_module, "MANY", 1)
    by_processes = open_data(f"folder({pets}, skip_bad=true)")
    assert counted == []  # it was not this process
    assert torch.equal(images_of(by_processes), images_of(by_threads))
    assert by_processes.train.content_hash == by_threads.train.content_hash


def test_a_process_that_dies_is_named_and_the_rest_is_kept(pets, monkeypatch):
    monkeypatch.setattr(decoded_module, "MANY", 1)
    worker = decoding._WORKER
    monkeypatch.setattr(decoding, "_WORKER", "import sys; sys.exit(3)")
    with pytest.raises(ClasswiseError, match=r"[cd]/\d\d.png and \d more .* ended with code 3"):
        open_data(f"folder:{pets}")
    monkeypatch.setattr(decoding, "_WORKER", worker)
    same_as_plain(open_data(f"folder:{pets}"), pets)


def test_a_full_disk_is_told_before_anything_is_decoded(pets, counted, monkeypatch, capsys):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    same_as_plain(open_data(f"folder:{pets}"), pets)
    assert "0.0 GB free" in capsys.readouterr().err
    counted.clear()
    monkeypatch.setattr("classwise.data.memory._free_on_host", lambda: 10)
    with pytest.raises(
        ClasswiseError, match=r"4.6 kB .* neither into memory nor .*CLASSWISE_CACHE"
    ):
        open_data(f"folder:{pets}")
    assert counted == []


def test_a_disk_that_fills_meanwhile_is_told_too(pets, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module.os, "posix_fallocate", full)
    same_as_plain(open_data(f"folder:{pets}"), pets)
    assert "No space left on device), so the next command" in capsys.readouterr().err
