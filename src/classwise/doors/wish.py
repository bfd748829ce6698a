"""What an audit was asked for, in the words of the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from classwise.record.opening import Opening


@dataclass(frozen=True)
class Wish:
    """What an audit of a target was asked for, in the user's words; nothing is parsed yet."""

    target: str  # a run folder, a weights file, module:callable, or an .onnx file
    network: str | None = None  # module:callable of a run or file that was made with one
    data: str | None = None
    attacks: str | None = None
    eps: float | str | None = None
    norm: str | None = None
    weights: str = ""
    split: str = ""  # test, train or all; where nothing is said, what the model has not seen
    limit: int = 0  # so many images, balanced; 0 is all
    batch_size: int = 256
    seed: int = 0
    minutes: float | None = None  # audit as much as fits
    question: str | None = None  # stop as soon as it is settled
    health: bool = False  # probe for signs of a broken evaluation
    repeat: int = 1  # audit the mean of so many passes
    normalise: Any = None  # what the model expects and does not do itself
    opening: Opening = field(default_factory=Opening)  # how to open weights of other people
    resize: str | None = None
    crop: str | None = None
    channels: str | None = None
    output: str | None = None  # where the logits are, or what kind of numbers they are
    trust: bool = False  # run the code that a file holds
    groups: Path | None = None  # a table of attributes of the split's images
    real: str | None = None  # labels of which any is right: a JSON file, or `imagenet`
    folder: Path | None = None  # where to keep the audits of what is no run
    device: str = "auto"
    quiet: bool = False
