"""Made-up images with the class names of real data: small, at once, and the same everywhere.

A class is a pattern of colours, and an image of it that pattern with noise. They are for trying out
whether something runs; no number of theirs says anything about the data they are named after.
"""

from __future__ import annotations

from typing import Any

import torch

from classwise.data.cifar import NAMES_10
from classwise.data.dataset import Dataset, DataSource
from classwise.data.idx import CLOTHES, DIGITS
from classwise.data.stl10 import NAMES as NAMES_STL10
from classwise.draws import Draws
from classwise.errors import ClasswiseError, cut, unknown

MOST_CLASSES, LARGEST_SIDE, MOST_IMAGES = 1000, 64, 1000  # each, of a class
# CIFAR-100: superclass -> classes; both are numbered in the order of their names.
GROUPS_100 = {
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
NAMES_100 = tuple(sorted(word for words in GROUPS_100.values() for word in words.split()))
NAMES = {
    "digits": DIGITS,
    "mnist": DIGITS,
    "fashion-mnist": CLOTHES,
    "svhn": DIGITS,
    "stl10": NAMES_STL10,
    "cifar10": NAMES_10,
    "cifar100": NAMES_100,
}
_GREY = ("digits", "mnist", "fashion-mnist")


def madeup(classes: str, size: int = 8, train: int = 20, test: int = 8) -> DataSource:
    """Made-up images with the classes of a data set, `madeup(cifar100)`, or of so many numbers.

    `train` and `test` are images of each class.

    >>> source = madeup("cifar100", size=4, train=1, test=1)
    >>> source.train.superclass_names[source.train.superclass_of[-1]], len(source.test)
    ('non-insect_invertebrates', 100)
    """
    for name, value, most in (
        ("size", size, LARGEST_SIDE), ("train", train, MOST_IMAGES), ("test", test, MOST_IMAGES),
    ):  # fmt: skip
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ClasswiseError(f"madeup: {name} is {value!r}; give a number from 1 to {most}")
    names, more = _names(classes), dict[str, Any]()
    if classes == "cifar100":
        groups = {word: k for k, words in enumerate(GROUPS_100.values()) for word in words.split()}
        more = {"superclass_of": tuple(groups[name] for name in names)}
        more["superclass_names"] = tuple(GROUPS_100)
    if names == DIGITS:
        more["mirrored"] = False
    channels = 1 if classes in _GREY else 3
    pattern = Draws(0, "made-up classes").uniform(torch.arange(len(names)), (channels, size, size))
    parts = []
    for part, each in (("train", train), ("test", test)):
        labels = torch.arange(len(names)).repeat(each)
        noise = Draws(0, f"made-up {part}").normal(
            torch.arange(len(labels)), (channels, size, size)
        )
        light = 0.5 + 0.5 * (pattern[labels] - 0.5) + 0.15 * noise
        parts.append(Dataset((255 * light.clamp(0, 1)).round().byte(), labels, names, **more))
    name = f"madeup({classes}, size={size}, train={train}, test={test})"
    return DataSource(name, parts[0], parts[1])


def _names(classes: str) -> tuple[str, ...]:
    if classes.isascii() and classes.isdigit():
        if len(classes) > 4 or not 2 <= int(classes) <= MOST_CLASSES:
            raise ClasswiseError(f"madeup({cut(classes, 20)}): give 2 to {MOST_CLASSES} classes")
        return tuple(f"class {k}" for k in range(int(classes)))
    if classes not in NAMES:
        raise unknown("classes to make up", classes, [*NAMES, "a number of them"])
    return NAMES[classes]
