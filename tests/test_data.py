import io
import math
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from classwise.data.augment import CropFlip, fit_augment
from classwise.data.batches import Batches
from classwise.data.dataset import Allowed, Dataset, DataSource, dataset_from_arrays
from classwise.data.sources import choose_split, open_data
from classwise.data.splits import rank_within_class, split_indices
from classwise.draws import Draws

EVEN = [("0.15", 100, 15), ("0.02", 5000, 100), ("0.1", 30, 3)]
CPU = torch.device("cpu")


def labels_of(*sizes, seed=0):
    """So many labels of each class, shuffled."""
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]


class TestSplits:
    unbalanced = labels_of(50, 7, 2, 1, 0, 100)

    @pytest.mark.parametrize("rule", ["0.02", "0.3", "0", "first:1", "last:1", 0.1])
    @pytest.mark.usefixtures("untouched_random_state")
    def test_every_sample_is_on_one_side_in_data_set_order(self, rule):
        train, valid = split_indices(self.unbalanced, rule, seed=4)
        both = torch.cat([train, valid])
        assert torch.equal(both.sort().values, torch.arange(len(self.unbalanced)))
        assert torch.equal(train, train.sort().values)
        assert torch.equal(valid, valid.sort().values)

    def test_a_split_is_a_pure_function_of_labels_and_seed(self):
        one, again = (split_indices(self.unbalanced, 0.3, seed=4)[1] for _ in range(2))
        assert torch.equal(one, again)
        assert not torch.equal(one, split_indices(self.unbalanced, 0.3, seed=5)[1])

    @settings(max_examples=60)
    @given(
        sizes=st.lists(st.integers(0, 120), min_size=1, max_size=6),
        fraction=st.sampled_from(["0.01", "0.02", "0.05", "0.1", "0.15", "0.3", "0.5", "0.9"]),
        seed=st.integers(0, 5),
    )
    def test_a_fraction_takes_its_share_of_every_class_and_empties_none(
        self, sizes, fraction, seed
    ):
        labels = labels_of(*sizes)
        train, valid = split_indices(labels, fraction, seed)
        found = torch.bincount(labels[valid], minlength=len(sizes)).tolist()
        exact = [math.ceil(Fraction(fraction) * size) for size in sizes]
        assert found == [min(n, max(size - 1, 0)) for n, size in zip(exact, sizes, strict=True)]
        left = torch.bincount(labels[train], minlength=len(sizes)).tolist()
        assert all(n >= 1 for n, size in zip(left, sizes, strict=True) if size)

    @pytest.mark.parametrize(
        ("fraction", "size", "share"), [("0.15", 100, 15), ("0.02", 5000, 100)]
    )
    def test_a_share_that_comes_out_even_is_not_rounded_up(self, fraction, size, share):
        assert len(split_indices(torch.zeros(size, dtype=torch.int64), fraction)[1]) == share

    def test_a_random_share_is_not_just_the_first_ones(self):
        labels = torch.zeros(1000, dtype=torch.int64)
        valid = split_indices(labels, 0.3)[1]
        assert 400 < valid.double().mean() < 600

    @pytest.mark.parametrize("seed", [0, 1])
    def test_first_and_last_take_so_many_of_each_class_in_order(self, seed):
        labels = labels_of(9, 5, 30, seed=seed)
        for rule, part in (("first:4", slice(None, 4)), ("last:4", slice(-4, None))):
            expected = []
            for k in range(3):
                expected += (labels == k).nonzero().squeeze(1)[part].tolist()
            assert split_indices(labels, rule, seed)[1].tolist() == sorted(expected)

    @pytest.mark.parametrize(("share", "counts"), [(0.06, (300, 30, 1)), (0.02, (100, 10, 1))])
    def test_first_and_last_may_take_a_share_of_each_class(self, share, counts):
        labels = labels_of(5000, 500, 12)  # CIFAR-10's classes, CIFAR-100's, and a small one
        for kind, part in (("first", slice), ("last", lambda n: slice(-n, None))):
            expected = []
            for k, count in enumerate(counts):
                expected += (labels == k).nonzero().squeeze(1)[part(count)].tolist()
            assert split_indices(labels, f"{kind}:{share}", 1)[1].tolist() == sorted(expected)

    @pytest.mark.parametrize("rule", ["first:3", "last:3"])
    def test_first_and_last_never_empty_a_class_in_silence(self, rule):
        with refused("3"):
            split_indices(labels_of(9, 3, 30), rule)

    @pytest.mark.parametrize("rule", ["first:1", "last:1"])
    def test_a_class_without_samples_does_not_matter_to_first_and_last(self, rule):
        train, valid = split_indices(labels_of(9, 0, 30), rule)
        assert (len(train), len(valid)) == (37, 2)

    @pytest.mark.parametrize(
        "rule", ["1", "1.0", "-0.1", "nan", "half", "", "first", "first:", "first:0", "last:-2",
                 "last:2.5", "last:1.0", "first:.", "middle:3"],
    )  # fmt: skip
    def test_rules_that_make_no_sense_are_refused(self, rule):
        with refused(repr(rule)):
            split_indices(self.unbalanced, rule)

    def test_ranks_are_places_within_the_class(self):
        labels = labels_of(5, 3, 0, 8)
        key = torch.randperm(16, generator=torch.Generator().manual_seed(1))
        found = rank_within_class(labels, key)
        for n in range(16):
            before = [m for m in range(16) if labels[m] == labels[n] and key[m] < key[n]]
            assert found[n] == len(before)


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
        parts = {"train_images": images, "train_labels": np.zeros(30, int)}
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


class TestSources:
    def test_digits_are_the_ones_of_scikit_learn(self):
        source = open_data("digits")
        assert len(source.train) + len(source.test) == 1797
        assert source.train.images.shape[1:] == (1, 8, 8)
        assert source.train.num_classes == 10
        assert source.train.images.max() == 255
        assert int(source.test.sizes.min()) > 50
        assert not source.train.mirrored

    def test_an_unknown_name_lists_the_known_ones(self):
        with refused("'digts'", "did you mean 'digits'", "npz:PATH"):
            open_data("digts")
        with refused("split", "'tset'", "test"):
            choose_split(open_data("digits"), "tset")

    def test_train_and_test_need_the_same_classes(self):
        images, labels = torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1])
        one, two = Dataset(images, labels, ("a", "b")), Dataset(images, labels, ("a", "c"))
        with refused("b, c"):
            DataSource("mixed", one, two)


class TestContentHash:
    def data(self):
        images = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4)
        return Dataset(images, torch.tensor([0, 1]), ("a", "b"), (0, 0), ("x",))

    def test_it_is_the_same_for_the_same_content(self):
        strided = self.data().images.permute(1, 0, 2, 3).contiguous().permute(1, 0, 2, 3)
        assert not strided.is_contiguous()
        assert replace(self.data(), images=strided).content_hash == self.data().content_hash

    @pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 2, 3, 3)])
    def test_any_pixel_changes_it(self, place):
        images = self.data().images.clone()
        images[place] += 1
        assert replace(self.data(), images=images).content_hash != self.data().content_hash

    @pytest.mark.parametrize(
        "change",
        [
            {"labels": torch.tensor([0, 0])},
            {"class_names": ("a", "c")},
            {"class_names": ("a", "b", "c"), "superclass_of": (0, 0, 0)},
            {"superclass_of": (0, 1), "superclass_names": ("x", "y")},
            {"superclass_names": ("z",)},
            {"images": torch.arange(96, dtype=torch.uint8).view(2, 3, 8, 2)},
        ],
        ids=["label", "name", "one more name", "group", "name of a group", "shape"],
    )
    def test_anything_else_changes_it(self, change):
        assert replace(self.data(), **change).content_hash != self.data().content_hash


def test_channel_statistics_are_the_mean_and_deviation_of_the_pixels(tiny):
    data = dataset_from_arrays(
        np.random.default_rng(0).integers(0, 256, (9, 5, 5, 3), dtype=np.uint8), np.arange(9)
    )
    mean, deviation = data.channel_statistics
    pixels = data.images.double() / 255
    assert mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=1e-4)
    assert deviation == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), abs=1e-4)
    blank = replace(tiny().train, images=torch.zeros_like(tiny().train.images))
    assert blank.channel_statistics[1][0] > 0  # something to divide by


class TestBatches:
    def batches(self, count, size):
        images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(count, 1, 2, 2)
        data = Dataset(images, torch.arange(count) % 3, ("a", "b", "c"))
        return Batches.of(data, size, CPU, torch.arange(count) + 1000)

    @pytest.mark.parametrize(
        ("count", "size", "lengths"),
        [
            (10, 4, [4, 4, 2]),
            (9, 4, [4, 5]),  # nobody is left alone
            (8, 4, [4, 4]),
            (3, 4, [3]),
            (1, 4, [1]),
            (5, 4, [5]),
            (4, 1, [1, 1, 2]),
        ],
    )
    def test_every_sample_comes_once_and_none_alone_at_the_end(self, count, size, lengths):
        batches = self.batches(count, size)
        found = list(batches.in_order())
        assert [len(batch) for batch in found] == lengths
        assert len(batches) == len(lengths)
        assert torch.cat([b.index for b in found]).tolist() == list(range(1000, 1000 + count))

    def test_no_sample_makes_no_batch(self):
        assert list(self.batches(0, 4).in_order()) == []
        assert len(self.batches(0, 4)) == 0

    def test_images_labels_and_index_travel_together(self):
        order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
        batches = self.batches(20, 6)
        found = list(batches.along(order))
        index = torch.cat([b.index for b in found]) - 1000
        images = torch.cat([b.images for b in found])
        assert torch.equal(index, order)
        assert torch.equal(torch.cat([b.labels for b in found]), order % 3)
        assert images.dtype == torch.float32
        assert torch.equal((images[:, 0, 0, 0] * 255).round().long(), order)

    def test_float_images_pass_as_they_are(self):
        images = torch.rand(5, 1, 2, 2, dtype=torch.float64)
        batches = Batches(images, torch.zeros(5, dtype=torch.int64), torch.arange(5), 8)
        assert torch.equal(next(iter(batches.in_order())).images, images)


def straight_crop(image, top, left, flip, pad, padding):
    """Look every pixel up in the padded image."""
    channels, height, width = image.shape
    out = torch.zeros_like(image)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                row = i + top - pad
                column = (width - 1 - j if flip else j) + left - pad
                if padding == "zero":
                    if 0 <= row < height and 0 <= column < width:
                        out[c, i, j] = image[c, row, column]
                    continue
                row = -row if row < 0 else row
                row = 2 * (height - 1) - row if row >= height else row
                column = -column if column < 0 else column
                column = 2 * (width - 1) - column if column >= width else column
                out[c, i, j] = image[c, row, column]
    return out


class TestCropFlip:
    @pytest.mark.parametrize("padding", ["reflect", "zero"])
    @pytest.mark.parametrize("flip", [True, False])
    @pytest.mark.parametrize("pad", [0, 1, 3])
    def test_it_equals_a_straight_loop(self, padding, flip, pad):
        images = torch.rand(12, 3, 5, 7, generator=torch.Generator().manual_seed(0))
        index = torch.arange(12) * 7
        found = CropFlip(pad, flip, padding)(images, index, seed=2, epoch=3)
        top, left, coin = Draws(2, "augment", 3).uniform(index, (3,), torch.float64).unbind(1)
        for n in range(12):
            place = [int(draw[n] * (2 * pad + 1)) for draw in (top, left)]
            mirror = flip and coin[n].item() < 0.5
            expected = straight_crop(images[n], *place, mirror, pad, padding)
            assert torch.equal(found[n], expected)

    def test_every_window_and_both_sides_occur(self):
        images = torch.arange(25.0).view(1, 1, 5, 5).expand(2000, 1, 5, 5)
        found = CropFlip(1, padding="zero")(images, torch.arange(2000), 0, 0)
        assert len(found.unique(dim=0)) == 18

    def test_another_epoch_is_another_view(self):
        images, index = torch.rand(20, 1, 6, 6), torch.arange(20)
        crop = CropFlip(2)
        assert torch.equal(crop(images, index, 0, 1), crop(images, index, 0, 1))
        assert not torch.equal(crop(images, index, 0, 1), crop(images, index, 0, 2))

    @pytest.mark.parametrize("side", [1, 2, 8, 32])
    def test_the_default_works_on_images_of_any_size(self, side):
        images = torch.rand(4, 1, side, side)
        found = fit_augment(None, Allowed(side))(images, torch.arange(4), 0, 0)
        assert found.shape == images.shape

    def test_the_default_at_32_pads_4_pixels_by_reflection(self):
        assert fit_augment(None, Allowed(32)) == CropFlip(4, True, "reflect")
        assert fit_augment(None, Allowed(8, False)) == CropFlip(1, False, "reflect")
