"""The model under audit, ready to be asked: device, precision, layout and identity, found once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from classwise.content import content_of
from classwise.data.store import Stored
from classwise.errors import ClasswiseError, OwnCodeError
from classwise.memory import keep_freed_memory
from classwise.models.asking import ask, check_logits, eval_mode
from classwise.models.at_once import FEW, images_at_once, largest_layer
from classwise.models.averaged import mean_of_passes
from classwise.models.blackbox import BlackBox, as_model
from classwise.models.classifier import Around, all_outputs
from classwise.models.onnx_network import open_onnx
from classwise.models.outputs import Output
from classwise.models.preparation import Normalisation, Preparation
from classwise.models.prepared import Front, behind, refuse_twice
from classwise.models.twin import Following
from classwise.types import Images, LogitModel, Logits


@dataclass(frozen=True, eq=False)
class Subject:
    """A model that answers for images in [0, 1]; every part of an audit asks this one.

    `known_by` tells a model without weights from others. The weights must not move while a subject
    is in use: make another one afterwards (`moved`).
    """

    model: LogitModel
    num_classes: int  # K; a model may have more outputs behind these
    width: int = 256  # images it is asked about at a time
    passes: int = 1  # answers that each answer is the mean of
    known_by: str | None = None
    words: tuple[str, ...] = ()  # what was put before and behind it, and how it is run
    normalisation: Normalisation | None = None  # put in front of it
    epoch: int = 0  # of training, where the weights move
    _found: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        model: Any,
        images: Tensor | Stored,
        num_classes: int | None = None,
        *,
        width: int = 256,
        passes: int = 1,
        name: str = "",
        wants: Preparation | None = None,
        output: Any = None,
    ) -> Subject:
        """What the user gave: a module, a function, or the path of an ONNX file.

        `images` are those that it will be asked about, or a few like them. A function is known by
        its `name`, a file by its content. `wants` is what becomes of images before the model sees
        them, `output` which part of its answer are the logits (`Output.of`), where that must be
        said.
        """
        if width < 1:
            raise ClasswiseError(f"batch_size is {width}; it must be at least 1")
        wants, chosen = wants or Preparation(), Output.of(output)
        refuse_twice(model, wants)
        front = Front(wants, tuple(images.shape[1:]), _first_tensor(model)) if wants else None
        words = [f"images are {wants}"] if wants else []
        few = as_floats(images[:2].to(device_of(model)))
        seen = few if front is None else front(few)
        known_by = None
        if isinstance(model, str | Path):
            audited = partial(_batches, images, width, front)
            opened = open_onnx(Path(model), seen, chosen.which, audited)
            known, known_by = opened.model, opened.known_by
            front = front and Front(wants, tuple(images.shape[1:]), _first_tensor(known))
            words.append(opened.words)
            softened = opened.softmax_left_out and chosen.kind == "probabilities"
            chosen = Output(None, "" if softened else chosen.kind)
        else:
            known = as_model(model, seen)
            known_by = None if isinstance(known, nn.Module) else name
        answer = _answer(known, seen[:1])
        chosen = chosen.found_in(answer, len(seen[:1]), num_classes)
        words += [f"logits are {chosen}"] if str(chosen) else []
        known = behind(known, front, chosen)
        count = num_classes or _width(known, chosen(answer), seen[:1])
        if known_by:
            more = (wants and f"behind {wants}", str(chosen))
            known_by = " ".join([known_by, *(str(one) for one in more if one)])
        if known_by and passes > 1:
            known_by = f"{known_by} mean of {passes}"
        asked = mean_of_passes(known, passes)
        return cls(asked, count, width, passes, known_by, tuple(words), wants.normalisation)

    def moved(self, epoch: int) -> Subject:
        """The same model with the weights of now; what depends on its shape alone stays known.

        The twin follows, and is compared with the model again in another epoch.
        """
        stays = {name: found for name, found in self._found.items() if name != "twin"}
        return replace(self, epoch=epoch, _found=stays)

    @property
    def black_box(self) -> bool:
        """Whether it only answers, without gradients."""
        return isinstance(self.model, BlackBox)

    @cached_property
    def device(self) -> torch.device:
        """Where its weights are."""
        return device_of(self.model)

    @cached_property
    def logits(self) -> LogitModel:
        """What attacks ask: the model, from and to float32 where it computes in half of that."""
        kind = _dtype_of(self.model)
        if kind is None or kind not in (torch.float16, torch.bfloat16):
            return self.model
        return _Short(self.model, kind)

    @cached_property
    def identity(self) -> str:
        """Sixteen hex digits over all that decides its answers."""
        return model_hash(self.model, self.known_by)

    def asked(self) -> AbstractContextManager[None]:
        """Eval mode for a while; whatever mode its parts were in comes back."""
        keep_freed_memory()
        return eval_mode(self.logits)

    def take(self, images: Tensor) -> Images:
        """Images as it wants them: on its device, in its precision and layout.

        Convolutions like channels last; a model that asks for views of its input does not take it.
        The first two images also show what is wrong with a model before any attack starts.
        """
        kind = _dtype_of(self.logits) if self.logits is self.model else torch.float32
        home = self.device
        if images.device != home and home.type == "cuda":
            images = images.pin_memory()  # so that the copy need not be waited for
        images = as_floats(images.to(home, non_blocking=home.type == "cuda"))
        images = images if kind is None else images.to(kind)
        if "layout" not in self._found:
            with eval_mode(self.logits):
                self._look_at(images[:2])
        return images.contiguous(memory_format=self._found["layout"])

    def ask(self, images: Images) -> Logits:
        """Logits of images that it has taken, checked, without gradients."""
        return ask(self.logits, images, self.asked_at_once, self.num_classes)

    @property
    def asked_at_once(self) -> int:
        """How many images it is best asked about without gradients, once it has taken some."""
        return int(self._found.get("asked at once", self.width))

    def quick(self, images: Images) -> LogitModel:
        """A quicker twin to search on, or the model itself; built and compared with it once."""
        if not isinstance(self.logits, nn.Module):
            return self.logits
        if "twin" not in self._found:
            following = self._found.setdefault("following", Following(self.logits))
            self._found["twin"] = following.now(images[:4], self.epoch)
        twin: LogitModel = self._found["twin"]
        return twin

    def at_once(self, images: Images) -> int:
        """How many images it is best asked about in one pass with gradients, found once."""
        if self.black_box or len(images) <= FEW:
            return self.asked_at_once
        if "at once" not in self._found:
            self._found["at once"] = images_at_once(self.quick(images), images, self.width)
        return int(self._found["at once"])

    def _look_at(self, few: Images) -> None:
        """Find the layout it takes, and how many images are best asked about without gradients."""
        if self.black_box or few.device.type != "cpu":
            self._found["layout"] = self._layout(few)
            return
        with largest_layer(self.logits) as seen:
            self._found["layout"] = self._layout(few)
        self._found["asked at once"] = seen.at_once(len(few), self.width)

    def _layout(self, few: Images) -> torch.memory_format:
        last, plain = torch.channels_last, torch.contiguous_format
        try:
            ask(self.logits, few.contiguous(memory_format=last), 2, self.num_classes)
        except RuntimeError:
            ask(self.logits, few.contiguous(), 2, self.num_classes)
            return plain
        return last


class _Short(Around):
    """A model in half precision: radii and steps need more digits than its images have."""

    def __init__(self, model: LogitModel, kind: torch.dtype) -> None:
        super().__init__()
        self.model: Callable[[Tensor], Tensor] = model
        self.kind = kind
        self.training = getattr(model, "training", False)

    def forward(self, images: Tensor) -> Tensor:
        """Ask in its own precision."""
        return self.model(images.to(self.kind)).float()

    def outputs(self, images: Tensor) -> Tensor:
        """Ask for those behind the K classes, too."""
        return all_outputs(self.model, images.to(self.kind)).float()


def model_hash(model: LogitModel, known_by: Any = None) -> str:
    """Sixteen hex digits over a model's tensors and its architecture, wherever it lies.

    h = H(known_by, part₁, part₂, …), where a part is all that decides what it computes
    (`classwise.content`). A function has no weights to look at: `known_by` must name it.

    >>> one, two = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> _ = two.load_state_dict(one.state_dict())
    >>> model_hash(one) == model_hash(two), model_hash(one) == model_hash(one.double())
    (True, False)
    """
    digest = hashlib.blake2b(digest_size=8)
    digest.update(json.dumps(known_by, sort_keys=True, default=str).encode())
    if not isinstance(model, nn.Module):
        if not known_by:
            raise ClasswiseError(
                "a ledger must know a model again, and a plain function cannot be told from "
                "another; give it a name of its own that changes with its weights (name=…)"
            )
        return digest.hexdigest()
    digest.update(content_of(model))
    return digest.hexdigest()


def device_of(model: LogitModel) -> torch.device:
    """Return where a model's weights are; the processor for a plain function."""
    first = _first_tensor(model)
    return torch.device("cpu") if first is None else first.device


def as_floats(images: Tensor) -> Tensor:
    """Bytes to [0, 1]; floats stay as they are."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images


def _batches(images: Tensor | Stored, width: int, front: Front | None) -> Iterator[Images]:
    """Images as the model will see them, some at a time."""
    for begin in range(0, len(images), width):
        some = as_floats(images[begin : begin + width])
        yield some if front is None else front(some)


def _answer(model: LogitModel, images: Images) -> Any:
    """Whatever a model says of images; nobody's random draws are used up."""
    kind = _dtype_of(model)
    with torch.random.fork_rng(devices=[]), eval_mode(model), torch.no_grad():
        if isinstance(model, BlackBox):
            return model.raw(images)
        try:
            return model(images if kind is None else images.to(kind))
        except RuntimeError as reason:
            shape = "×".join(map(str, images.shape[1:]))
            raise OwnCodeError.of(
                f"the model cannot be asked about images of {shape}; if it takes another size, say "
                "so with --resize or --crop (in Python: resize=, crop=)",
                reason,
            ) from reason


def _width(model: LogitModel, logits: Any, images: Images) -> int:
    """How many logits there are for each image."""
    if isinstance(model, BlackBox):
        logits = model.scores(logits, images)
    check_logits(logits, len(images), None)
    return int(logits.shape[1])


def _first_tensor(model: LogitModel) -> Tensor | None:
    """The first floating-point weight or buffer of a module."""
    if not isinstance(model, nn.Module):
        return None
    tensors = (*model.parameters(), *model.buffers())
    return next((one for one in tensors if one.is_floating_point()), None)


def _dtype_of(model: LogitModel) -> torch.dtype | None:
    """The precision a model computes in; None for one that takes images as they are."""
    first = _first_tensor(model)
    return None if first is None else first.dtype
