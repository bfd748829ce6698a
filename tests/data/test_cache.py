"""Pictures are decoded once, and what has changed or is damaged is noticed."""

import shutil

import pytest
import torch
from pets import COUNT, SIDE, images_of, plain, same_as_plain
from PIL import Image

from classwise.data.cache import entries
from classwise.data.mapped import Mapped
from classwise.data.sources import open_data
from classwise.errors import ClasswiseError

pytestmark = pytest.mark.usefixtures("home")


def test_the_second_command_decodes_nothing_and_opens_no_file(pets, counted, home, capsys):
    first = open_data(f"folder:{pets}")
    same_as_plain(first, pets)
    assert len(counted) == COUNT
    said = capsys.readouterr().err
    assert f"24 images are to be decoded, once: 4.6 kB in {home}" in said
    counted.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image, "open", None)
        again = open_data(f"folder:{pets}")
    assert counted == []
    assert capsys.readouterr().err == ""
    assert torch.equal(images_of(again), images_of(first))
    assert again.train.content_hash == first.train.content_hash
    assert isinstance(again.train.pixels.places[0], Mapped)
    assert again.train.pixels.places[0] is again.test.pixels.places[0]


def test_hash_and_statistics_are_found_once(pets, monkeypatch):
    first = open_data(f"folder:{pets}").train
    facts = first.content_hash, first.channel_statistics
    other = open_data(f"folder({pets}, mirrored=false)").train.content_hash
    monkeypatch.setattr(Mapped, "__getitem__", None)  # nothing is read any more
    again = open_data(f"folder:{pets}").train
    assert (again.content_hash, again.channel_statistics) == facts
    assert open_data(f"folder({pets}, mirrored=false)").train.content_hash == other != facts[0]
    with pytest.raises(TypeError):
        _ = again.subset(torch.arange(3)).content_hash


def test_hash_in_the_cache_is_that_of_memory(pets, home, capsys):
    kept = open_data(f"folder:{pets}")
    shutil.rmtree(home)
    home.parent.joinpath("pictures").write_text("a file where the folder should be")
    capsys.readouterr()
    memory = open_data(f"folder:{pets}")
    assert "cannot be kept" in capsys.readouterr().err
    assert not memory.train.pixels.on_disk
    assert memory.train.content_hash == kept.train.content_hash
    assert memory.train.channel_statistics == kept.train.channel_statistics
    assert torch.equal(images_of(memory), images_of(kept))


def test_every_way_of_decoding_has_a_place_of_its_own(pets, home):
    open_data(f"folder:{pets}")
    small = open_data(f"folder({pets}, size=4)").train
    crop = open_data(f"folder({pets}, size=4, fit=crop)").train
    assert small.images.shape[1:] == crop.images.shape[1:] == (3, 4, 4)
    assert len(list(home.iterdir())) == 3
    assert sorted(one.box for one in entries()) == [(4, 4), (4, 4), (8, 8)]


@pytest.mark.parametrize("change", ["content", "one more", "one less", "name", "decoder"])
def test_what_has_changed_is_decoded_again(pets, counted, change, monkeypatch):
    before = open_data(f"folder:{pets}").train.content_hash
    counted.clear()
    file = pets / "c" / "00.png"
    if change == "content":  # as many bytes as before
        size = file.stat().st_size
        Image.new("RGB", (SIDE, SIDE), "red").save(file)
        file.write_bytes(file.read_bytes().ljust(size, b"\0"))
        assert file.stat().st_size == size
    elif change == "one more":
        shutil.copy(file, pets / "c" / "99.png")
    elif change == "one less":
        file.unlink()
    elif change == "name":
        file.rename(pets / "c" / "99.png")
    else:
        monkeypatch.setattr(Image, "__version__", "99.0")
    after = open_data(f"folder:{pets}")
    assert len(counted) == len(list(pets.rglob("*.png")))
    same_as_plain(after, pets)
    assert (after.train.content_hash == before) == (change == "decoder")
    assert len(entries()) == 1


def test_whoever_has_the_old_file_mapped_keeps_it(pets):
    old = open_data(f"folder:{pets}")
    Image.new("RGB", (SIDE, SIDE), "red").save(pets / "c" / "00.png")
    wanted = [one.tobytes() for one in plain(pets)]
    new = open_data(f"folder:{pets}")
    assert sorted(one.numpy().tobytes() for one in images_of(new)) == sorted(wanted)
    assert sorted(one.numpy().tobytes() for one in images_of(old)) != sorted(wanted)


def test_a_damaged_image_is_noticed_when_it_is_read_and_made_again(pets, home, counted, capsys):
    open_data(f"folder:{pets}")
    (place,) = home.iterdir()
    content = bytearray((place / "images.bin").read_bytes())
    content[5 * 3 * SIDE * SIDE + 17] ^= 1
    (place / "images.bin").write_bytes(content)
    counted.clear()
    capsys.readouterr()
    source = open_data(f"folder:{pets}")
    assert counted == []  # nobody has looked yet
    same_as_plain(source, pets)
    assert counted == [sorted(pets.rglob("*.png"))[5]]
    assert "was damaged in" in capsys.readouterr().err
    same_as_plain(open_data(f"folder:{pets}"), pets)
    assert len(counted) == 1  # it was put right on the disk


def test_a_damaged_image_whose_file_is_gone_is_no_image(pets, home):
    source = open_data(f"folder:{pets}")
    (place,) = home.iterdir()
    (place / "images.bin").write_bytes(bytes(COUNT * 3 * SIDE * SIDE))
    source = open_data(f"folder:{pets}")
    shutil.rmtree(pets)
    with pytest.raises(ClasswiseError, match=r"is damaged and cannot be decoded again .*--clear"):
        _ = source.train.images


@pytest.mark.parametrize("name", ["images.bin", "about.json", "shards.jsonl"])
@pytest.mark.parametrize("how", ["cut", "gone", "nonsense"])
def test_a_damaged_cache_is_made_again(pets, home, name, how):
    open_data(f"folder:{pets}")
    (place,) = home.iterdir()
    file = place / name
    content = file.read_bytes()
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(content[:-9] if how == "cut" else b"\xff\n{}\n[]\n" + b"7" * 99)
    same_as_plain(open_data(f"folder:{pets}"), pets)


def test_notes_that_are_damaged_are_found_again(pets, home):
    before = open_data(f"folder:{pets}").train.content_hash
    (place,) = home.iterdir()
    notes = (place / "notes.json").read_text()
    (place / "notes.json").write_text(notes.replace(before, before[::-1]))
    assert open_data(f"folder:{pets}").train.content_hash == before


def test_bad_images_are_told_again_by_the_second_command(pets, counted, capsys):
    (pets / "c" / "bad.png").write_text("no image")
    Image.new("L", (SIDE, SIDE)).save(pets / "d" / "grey.png")
    said = []
    for _ in range(2):
        source = open_data(f"folder({pets}, skip_bad=true)")
        assert len(source.train) + len(source.test) == COUNT + 1
        said.append(capsys.readouterr().err.splitlines()[-1])
        with pytest.raises(ClasswiseError, match=r"1 of 26 images .* c/bad.png \(no known image"):
            open_data(f"folder:{pets}")
    assert said[0] == said[1]
    assert "converted to RGB: 1 grey; skipped 1 bad image: c/bad.png" in said[0]
    assert len(counted) == COUNT + 2
