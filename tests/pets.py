"""What the pictures of `tests/data/conftest.py` must become."""

import numpy as np
import torch
from PIL import Image

COUNT, SIDE = 24, 8  # pictures, and pixels of their sides


def images_of(source):
    return torch.cat([source.train.images, source.test.images])


def plain(pets, size=(SIDE, SIDE)):
    """The same images without any cache, by Pillow alone, in the order of the classes."""
    files = sorted(pets.rglob("*.png"))
    return [np.asarray(Image.open(file).resize(size, 2)).transpose(2, 0, 1) for file in files]


def same_as_plain(source, pets):
    found = sorted(image.numpy().tobytes() for image in images_of(source))
    assert found == sorted(one.tobytes() for one in plain(pets))
