"""A data set is a store and an index: parts of it equal copies, and are none."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from classwise.data.batches import Batches
from classwise.data.dataset import Dataset, DataSource
from classwise.data.longtail import longtail
from classwise.data.mapped import Mapped, is_mapped
from classwise.data.sources import choose_split, open_data
from classwise.data.splits import held_out
from classwise.data.store import Stored
from classwise.data.view import View
from classwise.errors import ClasswiseError

COUNT, NAMES = 23, ("a", "b", "c")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Images that tell their number, in memory and in a file."""
    images = np.random.default_rng(0).integers(0, 256, (COUNT, 3, 6, 6), np.uint8)
    images[:, 0, 0, 0] = np.arange(COUNT)
    path = tmp_path_factory.mktemp("store") / "images.npy"
    np.save(path, images)
    return torch.from_numpy(images), np.load(path, mmap_mode="c")


def data_of(pictures, kind):
    memory, file = pictures
    store = {
        "memory": memory,
        "file": Stored.of(Mapped(file)),
        "both": Stored.of(memory[:9], Mapped(file[9:])),
    }[kind]
    return Dataset(store, torch.arange(COUNT) % 3, NAMES)


@st.composite
def nested(draw):
    """Indices within indices: numbers, repeated and from the end, or masks."""
    chain, size = [], COUNT
    for _ in range(draw(st.integers(1, 4))):
        if not size:
            break
        if draw(st.booleans()):
            mask = draw(st.lists(st.booleans(), min_size=size, max_size=size))
            chain.append(torch.tensor(mask))
            size = sum(mask)
        else:
            rows = draw(st.lists(st.integers(-size, size - 1), max_size=30))
            chain.append(torch.tensor(rows).long())
            size = len(rows)
    return chain


@pytest.mark.parametrize("kind", ["memory", "file", "both"])
@settings(max_examples=30)
@given(chain=nested())
def test_views_of_views_equal_copies_of_copies(pictures, kind, chain):
    view = data_of(pictures, kind)
    images, labels = pictures[0], view.labels
    for index in chain:
        view, images, labels = view.subset(index), images[index], labels[index]
    copy = Dataset(images, labels, NAMES)
    assert len(view) == len(copy)
    assert torch.equal(view.labels, copy.labels)
    assert torch.equal(view.images, copy.images)
    assert torch.equal(view.pixels[1:-2], images[1:-2])
    assert view.content_hash == copy.content_hash
    assert view.channel_statistics == copy.channel_statistics
    whole = data_of(pictures, kind)
    assert [type(one) for one in view.pixels.places] == [type(one) for one in whole.pixels.places]
    order = torch.arange(len(view)).flip(0)
    cpu = torch.device("cpu")
    for one, other in zip(
        Batches.of(view, 8, cpu).along(order), Batches.of(copy, 8, cpu).along(order), strict=True
    ):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)
        assert one.images.stride() == other.images.stride()


def test_hashes_are_what_they_were():
    """Runs and ledgers on disk carry them."""
    images = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4)
    data = Dataset(images, torch.tensor([1, 0]), ("a", "b"))
    assert data.content_hash == "f01588e13db0e226"
    assert open_data("digits").train.content_hash == "95576e69c4ae67bd"
    assert choose_split(open_data("digits"), "all").content_hash == "50b2703b11a41d4f"


def places_of(data):
    return [one.data_ptr() for one in data.pixels.places if isinstance(one, torch.Tensor)]


def test_no_part_of_a_data_set_is_a_copy(pictures):
    whole = data_of(pictures, "memory")
    here = [whole.images.data_ptr()]
    source = held_out("x", whole)
    assert places_of(source.train) == places_of(source.test) == here
    assert places_of(choose_split(source, "all")) == here
    assert torch.equal(choose_split(source, "all").images, whole.images)
    assert places_of(longtail(source, 2).train) == here
    assert places_of(source.train.subset(torch.tensor([0]))) == here
    view = View.of(source.train, "x").take(torch.tensor([2, 1]))
    assert view.images.places[0].data_ptr() == here[0]
    assert torch.equal(view.batch(torch.tensor([1])).images[0], source.train.images[1])


def test_two_stores_make_one_data_set(pictures):
    whole = data_of(pictures, "memory")
    one = Dataset(whole.images[:5], whole.labels[:5], NAMES)
    two = Dataset(Stored.of(Mapped(pictures[1][5:])), whole.labels[5:], NAMES)
    both = choose_split(DataSource("x", one, two), "all")
    assert both.content_hash == whole.content_hash
    assert both.pixels.on_disk
    small = Dataset(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 1]), NAMES)
    with pytest.raises(ClasswiseError, match=r"3×4×4 and of 3×6×6 .* one size"):
        choose_split(DataSource("x", one, small), "all")


def test_all_of_a_long_tail_is_what_is_left_of_it():
    tail = longtail(open_data("digits"), 10)
    every = choose_split(tail, "all")
    assert len(every) == len(tail.train) + len(tail.test)
    assert torch.equal(every.images[: len(tail.train)], tail.train.images)


def test_what_is_not_there_is_refused(pictures):
    part = data_of(pictures, "both").subset(torch.tensor([3, 4])).pixels
    for index in (torch.tensor([2]), torch.tensor([-3]), torch.ones(3).bool()):
        with pytest.raises(IndexError):
            part[index]


def test_spare_pixels_are_read_on_request_only(pictures):
    memory, file = pictures
    for place in (memory, Mapped(file)):
        pixels = Stored.of(place, spare=2).take(torch.tensor([4, 2]))
        assert pixels.shape == (2, 3, 4, 4)
        assert torch.equal(pixels[:], memory[[4, 2], :, 1:5, 1:5])
        assert torch.equal(pixels.wide[:], memory[[4, 2]])
    data = Dataset(Stored.of(memory, spare=2), torch.arange(COUNT) % 3, NAMES)
    assert data.allowed.side == 4
    assert data.allowed.reach == 1
    edge = memory.clone()
    edge[0, 0, 0, 0] += 1
    # training sees every pixel that is stored
    assert data.content_hash != Dataset(Stored.of(edge, spare=2), data.labels, NAMES).content_hash
    small = Dataset(memory[:, :, 1:5, 1:5], data.labels, NAMES)
    assert data.content_hash != small.content_hash
    assert data.channel_statistics == small.channel_statistics


def test_npy_folders_stay_in_their_file(tmp_path, pictures):
    np.save(tmp_path / "images.npy", pictures[0].numpy())
    np.save(tmp_path / "labels.npy", np.arange(COUNT) % 3)
    mapped = open_data(f"npy:{tmp_path}").train.pixels
    assert mapped.on_disk
    assert is_mapped(mapped.places[0].array)
    assert is_mapped(pictures[1][2:, :1])
    assert not is_mapped(pictures[0].numpy())
    last = tmp_path / "last"
    last.mkdir()
    np.save(last / "images.npy", pictures[0].permute(0, 2, 3, 1).numpy())
    np.save(last / "labels.npy", np.arange(COUNT) % 3)
    turned = open_data(f"npy:{last}").train
    assert not turned.pixels.on_disk
    assert turned.content_hash == open_data(f"npy:{tmp_path}").train.content_hash


def test_what_was_found_out_about_a_file_is_noted_until_it_changes(tmp_path, pictures, monkeypatch):
    monkeypatch.setenv("CLASSWISE_CACHE", str(tmp_path / "cache"))
    np.save(tmp_path / "images.npy", pictures[0].numpy())
    np.save(tmp_path / "labels.npy", np.arange(COUNT) % 3)
    before = open_data(f"npy:{tmp_path}").train.content_hash
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mapped, "__getitem__", None)
        assert open_data(f"npy:{tmp_path}").train.content_hash == before
    np.save(tmp_path / "images.npy", pictures[0].flip(0).numpy())
    assert open_data(f"npy:{tmp_path}").train.content_hash != before
