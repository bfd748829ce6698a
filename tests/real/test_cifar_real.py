"""The real CIFAR-10 and CIFAR-100: pixels, labels, names, superclasses."""

import hashlib

import pytest
import torch

from classwise.data.cifar import NAMES_10
from classwise.data.official import BINARY_10, FORMS, find
from classwise.data.sources import open_data

# Superclass by superclass, from the table on the page of CIFAR-100's author.
SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}


def binary_rows(data, begin, end):
    """The bytes of an official binary file: one label and 3072 pixels per image."""
    labels = data.labels[begin:end, None].to(torch.uint8)
    return torch.cat([labels, data.images[begin:end].flatten(1)], 1).numpy().tobytes()


def test_cifar10_has_its_classes_and_counts(cifar10):
    assert cifar10.train.class_names == NAMES_10
    assert cifar10.train.images.shape == (50000, 3, 32, 32)
    assert cifar10.train.sizes.tolist() == [5000] * 10
    assert cifar10.test.sizes.tolist() == [1000] * 10
    assert cifar10.train.images.dtype == torch.uint8
    assert [NAMES_10[k] for k in cifar10.train.labels[:3]] == ["frog", "truck", "truck"]
    assert [NAMES_10[k] for k in cifar10.test.labels[:3]] == ["cat", "ship", "ship"]


def test_cifar10_is_bit_by_bit_the_official_one_whatever_it_was_read_from(cifar10):
    for i, name in enumerate(sorted(BINARY_10.md5)):
        part, i = (cifar10.test, 0) if name.startswith("test") else (cifar10.train, i)
        content = binary_rows(part, 10000 * i, 10000 * (i + 1))
        assert hashlib.md5(content).hexdigest() == BINARY_10.md5[name]


def test_channel_statistics_are_the_published_ones(cifar10, cifar100):
    assert cifar10.train.channel_statistics == (
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
    )
    assert cifar100.train.channel_statistics == (
        (0.5071, 0.4865, 0.4409),
        (0.2673, 0.2564, 0.2762),
    )


def test_cifar100_has_its_classes_and_counts(cifar100):
    assert cifar100.train.num_classes == 100
    assert cifar100.train.class_names == tuple(
        sorted(" ".join(SUPERCLASSES.values()).split())
    )  # official order is that of the alphabet
    assert cifar100.train.sizes.tolist() == [500] * 100
    assert cifar100.test.sizes.tolist() == [100] * 100


@pytest.mark.parametrize("part", ["train", "test"])
def test_cifar100_superclasses_are_the_published_ones(cifar100, part):
    data = getattr(cifar100, part)
    assert data.superclass_names == tuple(SUPERCLASSES)
    found = {name: [] for name in SUPERCLASSES}
    for name, group in zip(data.class_names, data.superclass_of, strict=True):
        found[data.superclass_names[group]].append(name)
    assert {name: " ".join(members) for name, members in found.items()} == SUPERCLASSES


def test_long_tails_have_the_published_sizes(cifar10, cifar100):
    assert cifar10.name, cifar100.name
    assert len(open_data("longtail(cifar10, factor=100)").train) == 12406
    assert len(open_data("longtail(cifar100, factor=100)").train) == 10847


@pytest.mark.usefixtures("cifar10", "cifar100")
def test_a_real_file_with_one_bit_changed_is_refused(tmp_path):
    from classwise.errors import ClasswiseError

    place = find("cifar10")
    if not place.is_dir():
        pytest.skip("read from an archive here")
    form = next(form for form in FORMS["cifar10"] if form.folder == place.name)
    for name in form.md5:
        (tmp_path / name).write_bytes((place / name).read_bytes())
    changed = bytearray((tmp_path / name).read_bytes())
    changed[12345] ^= 1
    (tmp_path / name).write_bytes(changed)
    with pytest.raises(ClasswiseError, match=f"{name} has md5"):
        open_data(f"cifar10:{tmp_path}")
