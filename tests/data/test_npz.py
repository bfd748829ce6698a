"""Arrays in a file of the user's own."""

import io
import pickle

import numpy as np
import pytest
import torch
from refusals import refused

from classwise.data.dataset import Allowed
from classwise.data.sources import choose_split, open_data


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "images": rng.integers(0, 256, (30, 5, 6, 3), dtype=np.uint8),
        "labels": np.arange(30) % 3,
    }


@pytest.fixture
def npz(tmp_path):
    def save(**arrays):
        path = tmp_path / "data.npz"
        np.savez(path, **arrays)
        return f"npz:{path}"

    return save


class TestNames:
    def test_a_slip_in_a_name_is_told_and_other_arrays_may_stand_there(self, npz, arrays):
        names = np.array(["cat", "dog", "cow"])
        with refused("data.npz holds cLass_names", "is it class_names?"):
            open_data(npz(**arrays, cLass_names=names))
        assert open_data(npz(**arrays, class_names=names, taken_at=np.arange(30)))

    def test_whatever_is_wrong_with_an_array_is_told_with_the_file(self, npz, arrays):
        with refused("data.npz: ", "classes"):
            open_data(
                npz(images=arrays["images"], labels=arrays["labels"] * 10**9, class_names=["a"])
            )


class TestNpz:
    def test_channels_last_first_and_grey_are_the_same_images(self, npz, arrays):
        last = open_data(npz(**arrays))
        turned = arrays["images"].transpose(0, 3, 1, 2)
        first = open_data(npz(images=turned, labels=arrays["labels"]))
        assert last.train.images.shape == (18, 3, 5, 6)
        assert last.train.content_hash == first.train.content_hash
        grey = open_data(npz(images=arrays["images"][..., 0], labels=arrays["labels"]))
        assert torch.equal(grey.train.images[:, 0], last.train.images[:, 0])
        assert grey.train.channels == 1

    def test_a_third_of_each_class_is_held_out_and_no_sample_lost(self, npz, arrays):
        source = open_data(npz(**arrays))
        assert source.test.sizes.tolist() == [4, 4, 4]
        assert source.train.sizes.tolist() == [6, 6, 6]
        pictures = torch.cat([source.train.images, source.test.images])
        assert len(pictures.unique(dim=0)) == 30

    def test_floats_in_the_unit_interval_are_whole_grey_levels(self, npz, arrays):
        plain = open_data(npz(**arrays)).train
        for dtype in (np.float32, np.float64):
            images = (arrays["images"] / 255).astype(dtype)
            assert open_data(npz(images=images, labels=arrays["labels"])).train.content_hash == (
                plain.content_hash
            )

    def test_train_and_test_parts_stay_apart(self, npz, arrays):
        images, labels = arrays["images"], arrays["labels"]
        parts = {"train_images": images[:20], "train_labels": labels[:20]}
        parts |= {"test_images": images[20:], "test_labels": labels[20:]}
        names = {"class_names": ["a", "b", "c", "d"], "superclass_names": ["x", "y"]}
        source = open_data(npz(**parts, **names, superclass_of=[0, 0, 1, 1]))
        assert torch.equal(source.test.images, torch.from_numpy(images[20:]).permute(0, 3, 1, 2))
        assert source.train.class_names == ("a", "b", "c", "d")
        assert source.test.sizes.tolist()[3] == 0
        assert source.train.superclass_of == (0, 0, 1, 1)
        assert source.train.superclass_names == ("x", "y")
        whole = choose_split(source, "all")
        assert len(whole) == 30
        assert choose_split(source, "test") is source.test

    def test_names_cover_the_labels_of_both_parts(self, npz, arrays):
        images = arrays["images"]
        parts = {"train_images": images, "train_labels": np.arange(30) % 4}
        parts |= {"test_images": images, "test_labels": np.full(30, 4)}
        source = open_data(npz(**parts))
        assert source.train.class_names == source.test.class_names == tuple("01234")

    def test_a_file_may_say_what_its_images_allow(self, npz, arrays):
        path = npz(**arrays)
        assert open_data(path).train.allowed == Allowed(5)
        said = f"npz({path.removeprefix('npz:')}, mirrored=false, moved=1)"
        assert open_data(said).train.allowed == Allowed(5, mirrored=False, moved=1)
        for option in ("mirrored=1", "moved=5", "moved=true"):
            with refused(f"{option.split('=')[0]} is"):
                open_data(f"npz({path.removeprefix('npz:')}, {option})")

    def test_labels_in_a_column_are_labels(self, npz, arrays):
        column = npz(images=arrays["images"], labels=arrays["labels"][:, None].astype(np.uint8))
        assert open_data(column).train.sizes.tolist() == [6, 6, 6]

    @pytest.mark.parametrize(
        ("change", "word"),
        [
            ({"labels": np.arange(29) % 3}, "one label per image"),
            ({"labels": np.arange(30) % 3 - 1}, "-1"),
            ({"labels": np.arange(30) / 1.0}, "whole class numbers"),
            ({"labels": np.array(["cat"] * 30)}, "labels"),
            ({"class_names": ["a", "b"]}, "0 to 1"),
            ({"class_names": ["a", "b", "a"]}, "'a' appears twice"),
            ({"images": np.full((30, 4, 4), 1.5)}, "[0, 1]"),
            ({"images": np.full((30, 4, 4), -0.5)}, "[0, 1]"),
            ({"images": np.full((30, 4, 4), 0.123456)}, "1/255"),
            ({"images": np.full((30, 4, 4), np.nan)}, "NaN"),
            ({"images": np.full((30, 4, 4), 300)}, "uint8"),
            ({"images": np.zeros((30, 4), np.uint8)}, "shape"),
            ({"images": np.zeros((0, 4, 4), np.uint8), "labels": np.zeros(0, int)}, ""),
            ({"superclass_of": [0, 1]}, "superclass"),
            ({"superclass_of": [0, 0, 1], "superclass_names": ["x"]}, "superclass"),
        ],
    )
    def test_bad_contents_are_refused(self, npz, arrays, change, word):
        with refused(word):
            open_data(npz(**{**arrays, **change}))

    def test_bad_labels_of_two_parts_are_refused_too(self, npz, arrays):
        images, words = arrays["images"], np.array(["cat"] * 30)
        with refused("labels"):
            open_data(
                npz(train_images=images, train_labels=words, test_images=images, test_labels=words)
            )

    def test_other_arrays_are_named(self, npz, arrays):
        with refused("x, y", "images and labels"):
            open_data(npz(x=arrays["images"], y=arrays["labels"]))

    def test_a_file_that_is_no_npz_is_refused(self, tmp_path, arrays):
        path = tmp_path / "data.npz"
        with refused("no file"):
            open_data(f"npz:{path}")
        path.write_text("no zip")
        with refused("data.npz"):
            open_data(f"npz:{path}")
        path.write_bytes(b"")
        with refused("data.npz"):
            open_data(f"npz:{path}")
        path.write_bytes(pickle.dumps(arrays))
        with refused("data.npz"):
            open_data(f"npz:{path}")
        with path.open("wb") as stream:
            np.save(stream, arrays["images"])
        with refused("data.npz"):
            open_data(f"npz:{path}")
        stream = io.BytesIO()
        np.savez(stream, **arrays)
        path.write_bytes(stream.getvalue()[:-400])
        with refused("data.npz"):
            open_data(f"npz:{path}")

    def test_pickled_arrays_are_never_opened(self, npz, arrays):
        boxed = np.array([{"run": "me"}] * 30, dtype=object)
        with refused("data.npz"):
            open_data(npz(images=arrays["images"], labels=boxed))
