"""Folders of images: odd sizes, all kinds of pixels, and everything that can be wrong."""

import io
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from classwise.data.dataset import Allowed
from classwise.data.sources import choose_split, data_to_train_on, open_data
from classwise.errors import ClasswiseError


def paint(path, colour=(200, 30, 60), size=(8, 8), mode="RGB", **how):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **how)


def encoded(picture, kind, **how):
    stream = io.BytesIO()
    picture.save(stream, kind, **how)
    return stream.getvalue()


@pytest.fixture
def plain(tmp_path):
    """Two classes of four 8×8 images; image i of class k is filled with (k, i, 0)."""
    for k, name in enumerate(("cat", "dog")):
        for i in range(4):
            paint(tmp_path / "pets" / name / f"{i}.png", (k, i, 0))
    return tmp_path / "pets"


def refused(spec, *words):
    with pytest.raises(ClasswiseError) as reason:
        open_data(spec)
    for word in words:
        assert word in str(reason.value)
    assert "\n" not in str(reason.value)


def test_classes_are_the_sorted_folders_and_a_third_is_held_out(plain):
    source = open_data(f"folder:{plain}")
    assert source.name == "folder:pets"
    assert source.train.class_names == ("cat", "dog")
    assert source.train.sizes.tolist() == [2, 2]
    assert source.test.sizes.tolist() == [2, 2]
    both = torch.cat([source.train.images, source.test.images])[:, :, 0, 0]
    assert sorted(both.tolist()) == [[k, i, 0] for k in range(2) for i in range(4)]
    assert open_data(f"folder:{plain}").train.content_hash == source.train.content_hash


def test_43_unbalanced_classes_of_odd_sizes(tmp_path):
    random = np.random.default_rng(0)
    counts = [2 + 7 * k % 11 for k in range(43)]
    for k, count in enumerate(counts):
        for i in range(count):
            height, width = random.integers(5, 60, 2)
            pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
            path = tmp_path / "signs" / f"{k:05d}" / f"{i}{('.png', '.jpg', '.ppm')[i % 3]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    refused(f"folder:{tmp_path / 'signs'}", "different sizes, from 5×", "size=32", "fit=crop")
    for fit in ("resize", "crop"):
        source = open_data(f"folder({tmp_path / 'signs'}, size=32, fit={fit})")
        assert source.train.num_classes == 43
        assert source.train.images.shape[1:] == (3, 32, 32)
        assert (source.train.sizes + source.test.sizes).tolist() == counts
        assert int(source.test.sizes.min()) >= 1


def test_train_and_test_folders_are_taken_as_they_are(tmp_path):
    for part, count in (("train", 3), ("test", 1)):
        for name in ("b", "a"):
            for i in range(count):
                paint(tmp_path / part / name / f"{i}.png")
    source = open_data(f"folder:{tmp_path}")
    assert source.train.sizes.tolist() == [3, 3]
    assert source.test.sizes.tolist() == [1, 1]
    assert source.test.class_names == ("a", "b")


def test_a_class_may_be_called_train(tmp_path):
    for name in ("bus", "train"):
        for i in range(2):
            paint(tmp_path / name / f"{i}.png")
    assert open_data(f"folder:{tmp_path}").train.class_names == ("bus", "train")


def test_hidden_files_are_ignored_and_others_counted(plain, capsys):
    (plain / "cat" / ".DS_Store").write_text("x")
    (plain / ".git").mkdir()
    (plain / "cat" / "labels.csv").write_text("x")
    (plain / "readme.txt").write_text("x")
    source = open_data(f"folder:{plain}")
    assert source.train.num_classes == 2
    assert "ignored 2 other files: readme.txt, cat/labels.csv" in capsys.readouterr().err


def test_images_in_deeper_folders_count(plain):
    paint(plain / "cat" / "more" / "x.PNG")
    source = open_data(f"folder:{plain}")
    assert (source.train.sizes + source.test.sizes).tolist() == [5, 4]


def test_resize_and_crop_and_sides(tmp_path):
    left_red = Image.new("RGB", (40, 20), (0, 0, 255))
    left_red.paste((255, 0, 0), (0, 0, 10, 20))
    for name in "ab":
        for i in range(2):
            path = tmp_path / "x" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            left_red.save(path)
    whole = open_data(f"folder({tmp_path / 'x'}, size=10)").train.images[0]
    middle = open_data(f"folder({tmp_path / 'x'}, size=10, fit=crop)").train.images[0]
    assert whole[:, 5, 0].tolist() == [255, 0, 0]  # the red edge is still there
    assert middle[0].max() < 130  # it is cut off
    assert middle[:, 5, 5].tolist() == [0, 0, 255]
    wide = open_data(f"folder('{tmp_path / 'x'}', size=[20, 40])").train.images
    assert wide.shape[1:] == (3, 20, 40)
    assert torch.equal(wide[0], open_data(f"folder:{tmp_path / 'x'}").train.images[0])


def break_some(plain):
    whole = encoded(Image.effect_noise((8, 8), 50).convert("RGB"), "PNG")
    (plain / "cat" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (plain / "dog" / "empty.jpg").write_bytes(b"")
    (plain / "dog" / "text.png").write_text("no image")
    jpeg = encoded(Image.effect_noise((8, 8), 50).convert("RGB"), "JPEG")
    (plain / "dog" / "short.jpg").write_bytes(jpeg[:-100])
    (plain / "dog" / "script.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")
    Image.new("F", (8, 8), 0.5).save(plain / "dog" / "float.tif")


def test_bad_images_are_named_and_counted(plain):
    break_some(plain)
    refused(
        f"folder:{plain}",
        "6 of 14 images",
        "cat/cut.png (",
        "dog/empty.jpg (no known image format)",
        "dog/float.tif (it has floating-point pixels",
        "and 1 more",
        "--skip-bad",
    )


def test_bad_images_are_skipped_only_on_request(plain, capsys):
    before = open_data(f"folder:{plain}")
    break_some(plain)
    after = open_data(f"folder({plain}, skip_bad=true)")
    assert len(after.train) + len(after.test) == 8
    assert after.train.content_hash == before.train.content_hash
    assert "skipped 6 bad images: cat/cut.png (" in capsys.readouterr().err


def test_a_class_of_bad_images_only(plain):
    (plain / "eel").mkdir()
    (plain / "eel" / "x.png").write_text("no image")
    refused(f"folder({plain}, skip_bad=true)", "class 'eel'", "no readable images")


def test_nothing_but_bad_images(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.png").write_text("no image")
    refused(f"folder:{tmp_path}", "none of the 2 image files", "a/x.png (no known image format)")


def test_a_decompression_bomb_is_a_bad_image(plain, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    paint(plain / "cat" / "bomb.png", size=(40, 40))
    refused(f"folder({plain}, size=8)", "cat/bomb.png (", "1 of 9 images")


def test_empty_class_folder_is_refused_by_name(plain):
    (plain / "eel").mkdir()
    refused(f"folder:{plain}", f"class folder {plain / 'eel'} has no image (it holds nothing)")
    (plain / "eel" / "notes.txt").write_text("x")
    refused(f"folder:{plain}", "only notes.txt")


def test_one_image_cannot_be_held_out_but_audited(plain):
    paint(plain / "eel" / "x.png")
    source = open_data(f"folder:{plain}")
    assert len(source.train) + len(source.test) == len(choose_split(source, "all"))
    with pytest.raises(ClasswiseError, match=r"class 'eel'.* has 1 image; .* at least 2"):
        data_to_train_on(f"folder:{plain}")


def test_different_classes_in_train_and_test(tmp_path):
    for path in ("train/a", "train/b", "train/c", "test/a", "test/b", "test/d"):
        paint(tmp_path / path / "x.png")
    refused(f"folder:{tmp_path}", "only in train: c; only in test: d")


def test_train_without_test(tmp_path):
    for path in ("train/a", "train/b"):
        paint(tmp_path / path / "x.png")
    refused(f"folder:{tmp_path}", "has train but no test", str(tmp_path / "train"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("size=0", "size is 0; write size=32"),
        ("size=big", "size is 'big'"),
        ("size=2.5", "size is 2.5"),
        ("size=true", "size is True"),
        ("size=[1, 2, 3]", "size is [1, 2, 3]"),
        ("fit=stretch", "unknown fit 'stretch'"),
        ("sise=3", "unknown option of folder 'sise'; did you mean 'size'?"),
        ("skip_bad=7", "skip_bad is 7; write true or false"),
        ("mirrored=no", "mirrored is 'no'"),
        ("moved=9", "moved is 9"),
    ],
)
def test_options_that_make_no_sense(plain, options, words):
    refused(f"folder({plain}, {options})", words)


def test_paths_that_hold_no_classes(tmp_path):
    refused(f"folder:{tmp_path / 'none'}", "is not there")
    paint(tmp_path / "x.png")
    refused(f"folder:{tmp_path / 'x.png'}", "is a file, not a folder")
    refused(f"folder:{tmp_path}", "holds no folders; it needs one folder per class")


def test_pillow_is_named_when_it_is_missing(plain, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    refused(f"folder:{plain}", 'pip install "classwise[images]"')


def test_mirroring_and_moving_can_be_switched_off(plain):
    assert open_data(f"folder:{plain}").train.allowed == Allowed(8)
    said = open_data(f"folder({plain}, mirrored=false, moved=0)")
    assert said.train.allowed == said.test.allowed == Allowed(8, mirrored=False, moved=0)
