"""Images and labels as people have them at hand: tensors, arrays, lists, torch's own data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler
from torch.utils.data import Dataset as TorchDataset

from classwise.data.dataset import Dataset, check_flag
from classwise.data.view import given_images
from classwise.errors import ClasswiseError

CHANNELS = (1, 3, 4)


def images_and_labels(images: Any, labels: Any, channels_last: bool = False) -> tuple[Tensor, Any]:
    """What was given, read into memory where it comes out of a DataLoader or a data set.

    With `channels_last` images are (n, height, width, channels).
    """
    check_flag("channels_last", channels_last)
    kind = type(images).__name__
    if isinstance(images, Dataset):
        raise ClasswiseError("this is a data set of classwise; give its .images and its .labels")
    if isinstance(images, DataLoader | TorchDataset):
        if labels is not None:
            raise ClasswiseError(f"a {kind} brings its labels; leave out the others")
        return _collected(_pairs(images, kind), kind, channels_last)
    if labels is None:
        raise ClasswiseError(
            "labels are missing; give one class number per image, or a DataLoader of both"
        )
    return given_images(as_pixels(images, channels_last)), labels


def as_pixels(images: Any, channels_last: bool = False) -> Tensor:
    """Images as one tensor (n, channels, height, width), or words about what they are instead."""
    if isinstance(images, list | tuple) and images and hasattr(images[0], "shape"):
        shapes = sorted({tuple(one.shape) for one in images})
        if len(shapes) > 1:
            raise ClasswiseError(
                f"the images have several shapes, such as {shapes[0]} and {shapes[1]}; make them "
                "one size"
            )
        images = torch.stack([torch.as_tensor(one) for one in images])
    try:
        pixels = torch.as_tensor(images)
    except (TypeError, ValueError, RuntimeError) as reason:
        first = images[0] if isinstance(images, Sequence) and len(images) else images
        raise ClasswiseError(
            f"images are given as {type(images).__name__} of {type(first).__name__}, which is no "
            f"tensor ({' '.join(str(reason).split())}); give a tensor or an array (n, channels, "
            "height, width), or a DataLoader"
        ) from None
    if channels_last:
        return _turned(pixels)
    _refuse_channels_last(tuple(pixels.shape), isinstance(images, np.ndarray))
    return pixels


def _turned(pixels: Tensor) -> Tensor:
    """Images whose channels stand last, with their channels first."""
    if pixels.ndim != 4 or pixels.shape[3] not in CHANNELS:
        raise ClasswiseError(
            f"channels_last=True, but images have shape {tuple(pixels.shape)}; they must be (n, "
            "height, width, channels) with 1, 3 or 4 channels"
        )
    return pixels.permute(0, 3, 1, 2).contiguous()


def _refuse_channels_last(shape: tuple[int, ...], array: bool) -> None:
    """Neither order is guessed: a wrong guess would be audited without a word."""
    if len(shape) == 4 and shape[3] in CHANNELS and shape[1] not in CHANNELS:
        turn = "images.transpose(0, 3, 1, 2)" if array else "images.permute(0, 3, 1, 2)"
        raise ClasswiseError(
            f"images have shape {shape}, with their channels last; give (n, channels, height, "
            f"width), that is {turn}, or say channels_last=True"
        )


def _pairs(source: DataLoader[Any] | TorchDataset[Any], kind: str) -> Iterator[Any]:
    """Batches of a loader, or single images of a data set as batches of one."""
    if isinstance(source, DataLoader):
        if isinstance(source.sampler, RandomSampler):
            raise ClasswiseError(
                "the DataLoader shuffles, so that nobody could tell which image is which; make it "
                "with shuffle=False"
            )
        if source.drop_last:
            raise ClasswiseError(
                "the DataLoader leaves out its last images; make it with drop_last=False"
            )
        yield from source
        return
    if not isinstance(source, IterableDataset) and not hasattr(source, "__len__"):
        raise ClasswiseError(f"a {kind} without a length cannot be read; give a DataLoader")
    many: Iterable[Any] = (
        source
        if isinstance(source, IterableDataset)
        else map(source.__getitem__, range(len(source)))
    )
    for entry in many:
        if not isinstance(entry, tuple | list) or len(entry) < 2:
            raise ClasswiseError(_unreadable(kind, entry))
        image, label = _drawn(entry[0]), entry[1]
        if not hasattr(image, "shape"):
            raise ClasswiseError(_unreadable(kind, entry))
        yield torch.as_tensor(image)[None], torch.as_tensor(label).reshape(1)


def _drawn(image: Any) -> Any:
    """A picture of Pillow's as its bytes, channels first; anything else as it is."""
    if not hasattr(image, "getbands"):
        return image
    if image.mode not in ("L", "RGB"):
        raise ClasswiseError(f"a picture is of the mode {image.mode}; convert them all to RGB or L")
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)


def _collected(
    batches: Iterator[Any], kind: str, channels_last: bool = False
) -> tuple[Tensor, Tensor]:
    images, labels = [], []
    for batch in batches:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ClasswiseError(_unreadable(kind, batch))
        if not all(isinstance(part, Tensor) for part in batch):
            raise ClasswiseError(_unreadable(kind, batch))
        images.append(batch[0])
        labels.append(batch[1])
    if not images:
        raise ClasswiseError(f"the {kind} is empty; an audit needs at least one image")
    shapes = sorted({tuple(one.shape[1:]) for one in images})
    if len(shapes) > 1:
        raise ClasswiseError(
            f"the images of the {kind} have several shapes, such as {shapes[0]} and {shapes[1]}; "
            "make them one size"
        )
    return given_images(as_pixels(torch.cat(images), channels_last)), torch.cat(labels)


def _unreadable(kind: str, got: Any) -> str:
    parts = got if isinstance(got, tuple | list) else [got]
    names = ", ".join(type(part).__name__ for part in parts[:4])
    return (
        f"the {kind} gives ({names}); it must give pairs of an image as a tensor (channels, "
        "height, width) in [0, 1] and its class number"
    )
