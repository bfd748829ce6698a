"""Hash and statistics are found while pictures are decoded, and are those of all images."""

import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from pets import COUNT, SIDE
from PIL import Image

from classwise.data import decoded as decoded_module
from classwise.data import decoding, notes
from classwise.data.mapped import Abandoned, Growing, Mapped
from classwise.data.sources import open_data
from classwise.errors import ClasswiseError

pytestmark = pytest.mark.usefixtures("home")


def found_unread(source, monkeypatch):
    """What is known of a data set although no image can be read any more."""
    with monkeypatch.context() as patch:
        patch.setattr(Mapped, "__getitem__", None)
        train = source.train
        return train.content_hash, train.channel_statistics, source.test.content_hash


def in_memory(data):
    """The same data without a file, so without notes: all is found anew."""
    return replace(data, store=data.images)


def same_as_anew(source, found):
    train, test = in_memory(source.train), in_memory(source.test)
    expected = train.content_hash, train.channel_statistics, test.content_hash
    assert found == expected


@pytest.mark.parametrize("by_processes", [False, True])
def test_nothing_is_read_once_pictures_are_decoded(pets, monkeypatch, by_processes):
    if by_processes:
        monkeypatch.setattr(decoded_module, "MANY", 1)
    source = open_data(f"folder({pets}, moved=1)")
    same_as_anew(source, found_unread(source, monkeypatch))
    assert open_data(f"folder({pets}, moved=1)").train.content_hash == source.train.content_hash


def test_of_a_training_and_a_test_part_and_of_a_table(pets, tmp_path, monkeypatch):
    shutil.copytree(pets, tmp_path / "two" / "train")
    shutil.copytree(pets / "c", tmp_path / "two" / "test" / "c")
    shutil.copytree(pets / "d", tmp_path / "two" / "test" / "d")
    source = open_data(f"folder:{tmp_path / 'two'}")
    same_as_anew(source, found_unread(source, monkeypatch))
    files = sorted(pets.rglob("*.png"), reverse=True)
    lines = ["path,label", *(f"{one.relative_to(pets)},{one.parent.name}" for one in files)]
    (pets / "images.csv").write_text("\n".join(lines) + "\n")
    source = open_data(f"csv:{pets / 'images.csv'}")
    same_as_anew(source, found_unread(source, monkeypatch))


def test_of_imagenet_by_the_names_of_its_classes_and_with_spare_pixels(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    for part in ("train", "val"):
        for synset in ("n01440764", "n01443537"):
            (tmp_path / part / synset).mkdir(parents=True)
            for i in range(3):
                pixels = random.integers(0, 256, (20, 20, 3), np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / synset / f"{synset}_{i}.JPEG")
    words = "n01440764 tench, Tinca tinca\nn01443537 goldfish\n"
    (tmp_path / "LOC_synset_mapping.txt").write_text(words)
    source = open_data(f"imagenet({tmp_path}, size=8, spare=4)")
    assert source.train.class_names[0].startswith("tench")
    found = found_unread(source, monkeypatch)
    monkeypatch.setattr(notes, "_read", lambda _path: {})  # what is noted is forgotten
    again = open_data(f"imagenet({tmp_path}, size=8, spare=4)")
    assert again.train.content_hash == found[0]
    assert again.train.channel_statistics == found[1]
    assert again.test.content_hash == found[2]
    middle = again.train.images.double() / 255
    assert found[1][0] == pytest.approx(middle.mean((0, 2, 3)).tolist(), abs=1e-4)


def test_what_was_broken_off_goes_on_with_the_images_of_before(pets, monkeypatch):
    real, lucky = decoding.read_picture, [12]

    def unlucky(*how):
        lucky[0] -= 1
        if lucky[0] < 0:
            raise RuntimeError("out of luck")
        return real(*how)

    monkeypatch.setattr(decoding, "read_picture", unlucky)
    monkeypatch.setattr(decoded_module, "workers_for", lambda _count: 1)
    with pytest.raises(RuntimeError, match="out of luck"):
        open_data(f"folder:{pets}")
    waiting = [one for one in threading.enumerate() if one.name == "classwise-ahead"]
    assert waiting == []  # whoever waited for images has gone
    monkeypatch.setattr(decoding, "read_picture", real)
    source = open_data(f"folder:{pets}")
    same_as_anew(source, found_unread(source, monkeypatch))


def test_bad_pictures_are_left_out_of_both(pets, monkeypatch):
    (pets / "c" / "04.png").write_text("no image")
    with pytest.raises(ClasswiseError, match="cannot be decoded"):
        open_data(f"folder:{pets}")
    source = open_data(f"folder({pets}, skip_bad=true)")
    facts = source.train.content_hash, source.train.channel_statistics, source.test.content_hash
    same_as_anew(source, facts)
    same_as_anew(source, found_unread(open_data(f"folder({pets}, skip_bad=true)"), monkeypatch))


def test_a_changed_picture_changes_what_is_known(pets, monkeypatch):
    before = found_unread(open_data(f"folder:{pets}"), monkeypatch)
    for file in pets.rglob("*.png"):
        Image.new("RGB", (SIDE, SIDE), "red").save(file)
    source = open_data(f"folder:{pets}")
    after = found_unread(source, monkeypatch)
    same_as_anew(source, after)
    assert all(one != two for one, two in zip(before, after, strict=True))
    assert after[1][0] == (1.0, 0.0, 0.0)


def test_reading_waits_for_what_is_being_written():
    growing, read = Growing(COUNT), []
    images = Mapped(np.arange(COUNT * 12, dtype=np.uint8).reshape(COUNT, 3, 2, 2), growing=growing)

    def look(*rows):
        try:
            read.append(images[torch.tensor(rows)])
        except Abandoned:
            read.append(None)

    one = threading.Thread(target=look, args=(2, 5))
    one.start()
    growing.reach(0, [7] * 3)
    one.join(0.05)
    assert (read, growing.whole) == ([], False)
    growing.reach(3, [8] * 3)
    one.join(5)
    assert torch.equal(read[0], torch.from_numpy(images.array[[2, 5]]))
    assert growing.sums[:7].tolist() == [7, 7, 7, 8, 8, 8, 0]
    again = threading.Thread(target=look, args=(5, 9))
    again.start()
    growing.abandon()
    again.join(5)
    assert read[1:] == [None]
