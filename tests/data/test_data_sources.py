"""How data sources are spelled, the long tail, mapped arrays, and where batches live."""

import errno
import sys

import numpy as np
import pytest
import torch

from classwise.data import batches as batches_module
from classwise.data import memory
from classwise.data.arrays import map_npy
from classwise.data.batches import Batches
from classwise.data.dataset import Dataset, DataSource
from classwise.data.longtail import longtail, profile
from classwise.data.sources import choose_split, open_data, read_spec, with_option
from classwise.errors import ClasswiseError


@pytest.mark.parametrize(
    ("spec", "read"),
    [
        ("digits", ("digits", None, {})),
        (" digits ", ("digits", None, {})),
        ("digits()", ("digits", None, {})),
        ("npz:a.npz", ("npz", "a.npz", {})),
        ("npz('a,b.npz')", ("npz", "a,b.npz", {})),
        ("folder:/a b/c, d (1)='x'", ("folder", "/a b/c, d (1)='x'", {})),
        ("folder:C:\\pics", ("folder", "C:\\pics", {})),
        ("folder(C:\\pics, size=32)", ("folder", "C:\\pics", {"size": 32})),
        ("folder(data/signs-43, size=32)", ("folder", "data/signs-43", {"size": 32})),
        ("folder(~/my pics,fit=crop)", ("folder", "~/my pics", {"fit": "crop"})),
        ('folder("a=b, c", size=[3, 4])', ("folder", "a=b, c", {"size": [3, 4]})),
        ("longtail(cifar10, factor=1/50)", ("longtail", "cifar10", {"factor": 0.02})),
        (
            "longtail(folder('a, b', size=8), factor=9)",
            ("longtail", "folder('a, b', size=8)", {"factor": 9}),
        ),
        ("longtail(folder:/my pics, seed=1)", ("longtail", "folder:/my pics", {"seed": 1})),
    ],
)
def test_spelling(spec, read):
    assert read_spec(spec) == read


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("digit", "did you mean 'digits'"),
        ("none", "Known: cifar10, cifar100, cifar100:PATH, cifar10:PATH, csv:PATH, digits, "),
        ("", "unknown data set ''"),
        ("digits(size=3)", "digits takes no options"),
        ("digits(3)", "digits takes no options"),
        ("folder", "write folder:PATH"),
        ("folder:", "write folder:PATH"),
        ("folder(size=3)", "write folder:PATH"),
        ("longtail", "write longtail(NAME, option=value)"),
        ("longtail(factor=3)", "write longtail(NAME, option=value)"),
        ("longtail(digits, 3)", "options are written option=value"),
        ("longtail(digits, facto=3)", "did you mean 'factor'"),
        ("longtail(none)", "unknown data set 'none'"),
        ("npz(x.npz, size=3)", "unknown option of npz 'size'"),
        ("folder(x, size=", "unknown data set"),
        ("folder(x, size==3)", "cannot read a value in 'folder(size==3)'"),
        ("folder(x, size=__import__('os'))", "size is"),
        ("npy:/no/where", "no folder /no/where"),
    ],
)
def test_spellings_that_are_refused(spec, words):
    with pytest.raises(ClasswiseError) as reason:
        open_data(spec)
    assert words in str(reason.value)


def test_skip_bad_is_added_to_the_folder_wherever_it_stands():
    assert with_option("folder(x)", "skip_bad=true") == "folder(x, skip_bad=true)"
    quoted = with_option("folder:it's", "skip_bad=true")
    assert quoted == 'folder("it\'s", skip_bad=true)'
    assert read_spec(quoted) == ("folder", "it's", {"skip_bad": True})
    inner = with_option("longtail(folder:/a b, factor=9)", "skip_bad=true")
    assert inner == "longtail(folder('/a b', skip_bad=true), factor=9)"
    deep = "folder:/a (1)"
    assert read_spec(with_option(deep, "skip_bad=true"))[1] == "/a (1)"
    with pytest.raises(ClasswiseError, match="only, not for 'digits'"):
        with_option("digits", "skip_bad=true")
    with pytest.raises(ClasswiseError, match="both kinds of quotes"):
        with_option("folder:a'b\"c", "skip_bad=true")


# --- the long tail -------------------------------------------------------------------------------


def balanced(per_class=50, classes=5):
    labels = torch.arange(per_class * classes) % classes
    images = torch.arange(per_class * classes).to(torch.uint8)[:, None, None, None]
    data = Dataset(images, labels, tuple("abcdefghij"[:classes]))
    return DataSource("set", data, data)


def test_profile_is_that_of_the_published_long_tails():
    assert int(profile(5000, 10, 100).sum()) == 12406
    assert int(profile(500, 100, 100).sum()) == 10847
    assert profile(500, 100, 100)[-1] == 5
    assert profile(7, 2, 1).tolist() == [7, 7]


def test_longtail_leaves_test_and_order_alone():
    source = balanced()
    tail = longtail(source, factor=10)
    assert tail.train.sizes.tolist() == [50, 28, 15, 8, 5]
    assert tail.test is source.test
    assert tail.name == "longtail(set, factor=10)"
    rows = tail.train.images.flatten()
    assert bool((rows[1:].int() > rows[:-1].int()).all())


def test_longtail_follows_from_its_seed():
    first, again, other = (longtail(balanced(), 10, seed).train for seed in (0, 0, 1))
    assert first.content_hash == again.content_hash
    assert first.content_hash != other.content_hash
    assert longtail(balanced(), 0.1).train.content_hash == first.content_hash
    smaller = longtail(balanced(), 20).train.images.flatten().tolist()
    assert set(smaller) <= set(first.images.flatten().tolist())  # a stronger tail only removes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("factor=0", "factor is 0"),
        ("factor=-3", "factor is -3"),
        ("factor=big", "factor is 'big'"),
        ("factor=true", "factor is True"),
        ("factor=1000", "leaves no image of class 'nine'; give at most 122"),
        ("seed=x", "seed is 'x'"),
    ],
)
def test_longtail_options_that_make_no_sense(options, words):
    with pytest.raises(ClasswiseError) as reason:
        open_data(f"longtail(digits, {options})")
    assert words in str(reason.value)


# --- memory --------------------------------------------------------------------------------------


@pytest.fixture
def full_host(monkeypatch, tmp_path):
    monkeypatch.setenv("CLASSWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(memory, "_free_on_host", lambda: 0)
    monkeypatch.setattr(memory, "CHUNK", 100)


def test_npy_folder_is_mapped_not_read(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (30, 3, 4, 4), dtype=np.uint8)
    labels = np.arange(30) % 3
    for part in ("train", "test"):
        np.save(tmp_path / f"{part}_images.npy", images)
        np.save(tmp_path / f"{part}_labels.npy", labels)
    np.save(tmp_path / "class_names.npy", np.array(["x", "y", "z"]))
    source = open_data(f"npy:{tmp_path}")
    assert source.train.class_names == ("x", "y", "z")
    assert (source.train.images.numpy() == images).all()
    same = Dataset(torch.from_numpy(images), torch.from_numpy(labels), ("x", "y", "z"))
    assert source.train.content_hash == same.content_hash
    assert source.train.channel_statistics == same.channel_statistics
    source.train.images[0] = 0  # stays in memory
    assert (np.load(tmp_path / "train_images.npy") == images).all()


@pytest.mark.skipif(sys.platform != "linux", reason="others may show changes later")
def test_npy_images_are_looked_up_in_the_file(tmp_path):
    np.save(tmp_path / "images.npy", np.zeros((9, 3, 4, 4), np.uint8))
    np.save(tmp_path / "labels.npy", np.zeros(9, np.int64))
    found = map_npy(tmp_path)["images"]
    with (tmp_path / "images.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x07")
    assert int(found[-1, -1, -1, -1]) == 7


def test_npy_folder_with_pickled_objects_is_refused(tmp_path):
    np.save(tmp_path / "images.npy", np.array([object()]), allow_pickle=True)
    np.save(tmp_path / "labels.npy", np.zeros(1, np.int64))
    with pytest.raises(ClasswiseError, match=r"images.npy holds object; only numbers and text"):
        open_data(f"npy:{tmp_path}")


@pytest.mark.usefixtures("full_host")
def test_subsets_and_splits_are_the_same_in_a_mapped_file():
    source = balanced()
    index = torch.tensor([3, 1, 100, 7])
    part = source.train.subset(index)
    assert part.images.flatten().tolist() == [3, 1, 100, 7]
    half = part.subset(torch.tensor([True, False, True, False]))
    assert half.images.flatten().tolist() == [3, 100]
    assert len(choose_split(source, "all").images) == 500
    assert source.train.subset(torch.arange(0)).images.shape == (0, 1, 1, 1)


@pytest.mark.usefixtures("full_host")
def test_no_room_anywhere_is_said(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(memory.os, "posix_fallocate", full)
    with pytest.raises(ClasswiseError, match=r"fit neither in memory nor in .*CLASSWISE_CACHE"):
        memory.empty_images((10, 3, 4, 4))


def test_free_memory_is_known_here():
    free = memory.free_bytes(torch.device("cpu"))
    assert free is None or free > 0
    assert memory.fits(1, torch.device("cpu"))


@pytest.mark.parametrize("roomy", [True, False])
def test_batches_move_images_only_where_they_fit(monkeypatch, roomy):
    """The device `meta` stands in for an accelerator: it takes tensors and holds no bytes."""
    monkeypatch.setattr(batches_module, "fits", lambda *_: roomy)
    data = balanced().train
    made = Batches.of(data, 16, torch.device("meta"))
    assert made.images.device.type == ("meta" if roomy else "cpu")
    assert made.labels.device.type == "meta"
    if not roomy:
        with_host = Batches(made.images, data.labels, torch.arange(len(data)), 16)
        plain = Batches.of(data, 16, torch.device("cpu"))
        for one, other in zip(with_host.in_order(), plain.in_order(), strict=True):
            assert torch.equal(one.images, other.images)


def test_batches_of_a_mapped_set_are_channels_last_floats(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (21, 3, 4, 4), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", np.arange(21) % 3)
    train = open_data(f"npy:{tmp_path}").train
    made = Batches.of(train, 4, torch.device("cpu"))
    order = torch.arange(len(train)).flip(0)
    seen = list(made.along(order))
    assert all(batch.images.is_contiguous(memory_format=torch.channels_last) for batch in seen)
    together = torch.cat([batch.images for batch in seen]).flip(0)
    assert torch.equal((together * 255).round().to(torch.uint8), train.images)
    assert torch.cat([batch.index for batch in seen]).tolist() == order.tolist()
