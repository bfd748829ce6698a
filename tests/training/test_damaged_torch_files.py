"""Weights by `torch.save` with anything wrong in them are refused by name."""

import random

import pytest
import torch
from damages import cut_tails, flipped
from hostile import refusal
from refusals import refused

from classwise.models.code_files import code_in
from classwise.record.state_dict import read_state_dict


@pytest.fixture
def path(tmp_path):
    torch.save({"state_dict": {"weight": torch.ones(3, 2)}}, tmp_path / "x.pth")
    return tmp_path / "x.pth"


def test_a_list_of_contents_that_cannot_be_read(path):
    good = path.read_bytes()
    place = good.index(b"PK\x01\x02")  # where the list begins
    for bad in (b"PK\x09\x02", b"\xff\xff\xff\xff"):
        path.write_bytes(good[:place] + bad + good[place + 4 :])
        with refused("x.pth is damaged", "list of contents"):
            read_state_dict(path)


def test_an_archive_that_says_it_goes_on_on_another_disk(path):
    good = path.read_bytes()
    disks = good.index(b"PK\x06\x07") + 16
    path.write_bytes(good[:disks] + b"\x09" + good[disks + 1 :])
    with refused("x.pth is damaged", "multiple disks"):
        read_state_dict(path)
    assert code_in(path) is None


def test_random_damage_is_no_traceback(path):
    good = path.read_bytes()
    draw = random.Random(3)
    doubled = [good[:at] + good[at : at + 30] + good[at:] for at in draw.sample(range(1000), 40)]
    for content in [*flipped(good, 1, 60), *cut_tails(good, 2, 30), *doubled]:
        path.write_bytes(content)
        assert "x.pth" in (refusal(lambda: read_state_dict(path), "damage") or "x.pth")
