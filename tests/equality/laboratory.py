"""One tiny world in float64 where our training step meets a transcription of a released one.

Ours goes the package's own way: recipe, policies in their chain, `Step`, optimiser. The same
starting noise, taken from the package's keyed draws, is handed to both sides.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from classwise.attacks.ball import LINF
from classwise.attacks.inner import Moment
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import Chain, ClassSettings, Feedback, Seen
from classwise.data.augment import Noisy
from classwise.models.classifier import Classifier
from classwise.recipe_text import parse_recipe
from classwise.spelling import Share
from classwise.training.config import TrainConfig
from classwise.training.schedule import make_optimiser
from classwise.training.step import Step
from classwise.types import Batch
from equality.comparison import largest

SIZES = (4, 10)  # numbers of classes
RATE, DECAY = 0.1, 5e-4  # of SGD
SEED, EPOCHS = 3, 40
QUANTITIES = ("examples", "loss", "gradients", "weights", "running statistics")


@contextmanager
def float64() -> Iterator[None]:
    """Let the package compute in float64: new tensors are wide, and `.float()` keeps them so."""
    usual, narrow = torch.get_default_dtype(), torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.Tensor.float = narrow
        torch.set_default_dtype(usual)


@dataclass(frozen=True)
class Outcome:
    """What a training step did: the images trained on, in order, and what came of them."""

    examples: list[Tensor]
    loss: float
    gradients: list[Tensor]
    weights: list[Tensor]
    statistics: list[Tensor]  # running BatchNorm statistics

    def beside(self, other: Outcome) -> dict[str, float]:
        """Largest differences by quantity."""
        pairs = (
            zip(self.examples, other.examples, strict=True),
            [tuple(torch.tensor(one.loss, dtype=torch.float64) for one in (self, other))],
            zip(self.gradients, other.gradients, strict=True),
            zip(self.weights, other.weights, strict=True),
            zip(self.statistics, other.statistics, strict=True),
        )
        return dict(zip(QUANTITIES, map(largest, pairs), strict=True))


@dataclass(frozen=True)
class World:
    """A network that is right about most of a batch, but not by much."""

    num_classes: int
    network: nn.Module
    images: Tensor
    labels: Tensor
    eps: float = 8 / 255
    step: float = 2 / 255
    epoch: int = 0  # finished ones
    keys: Sequence[int] | None = None  # of the samples' draws, where not the usual ones

    @property
    def index(self) -> Tensor:
        usual = torch.arange(len(self.labels)) * 3 + 5
        return usual if self.keys is None else torch.tensor(self.keys)

    @property
    def moment(self) -> Moment:
        return Moment(SEED, self.epoch, EPOCHS)

    def fresh(self) -> nn.Module:
        """The network as it is before the step, in train mode."""
        return copy.deepcopy(self.network).train()

    def uniform(self, purpose: str = "start", shape: Sequence[int] | None = None) -> Tensor:
        """The package's draws between 0 and 1 for every pixel, or for every sample."""
        shape = self.images.shape[1:] if shape is None else shape
        return self.moment.draws(purpose).uniform(self.index, shape, torch.float64)

    def normal(self, purpose: str = "start") -> Tensor:
        """The package's normal draws for every pixel."""
        return self.moment.draws(purpose).normal(self.index, self.images.shape[1:], torch.float64)

    def for_each(self, table: Sequence[float]) -> Tensor:
        """A class table looked up by the labels, shaped for images."""
        values = [float(table[label]) for label in self.labels.tolist()]
        return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1, 1)


def world(
    num_classes: int,
    *,
    shape: tuple[int, int, int] = (1, 6, 6),
    count: int = 16,
    extra: int = 0,
    head: str = "linear",
    eps: float = 8 / 255,
    step: float = 2 / 255,
    seed: int = 0,
) -> World:
    """Random images, some pixels black or white, and a network that has begun to learn them."""
    with torch.random.fork_rng(devices=[]), float64():
        torch.manual_seed(seed + num_classes)
        images = (1.2 * torch.rand(count, *shape) - 0.1).clamp(0, 1)
        labels = torch.cat([torch.arange(num_classes), torch.randint(num_classes, (count,))])
        labels = labels[:count][torch.randperm(count)]
        network = network_of(shape, num_classes, extra, head)
        learn(network, images, labels)
        network.features[1].running_mean += 0.1 * torch.randn(4)
        network.features[1].running_var *= 0.5 + torch.rand(4)
    return World(num_classes, network, images, labels, eps, step)


def network_of(
    shape: tuple[int, int, int], num_classes: int, extra: int = 0, head: str = "linear"
) -> Classifier:
    """A convolution, BatchNorm, a smooth bend and a head: images are not normalised."""
    features = nn.Sequential(
        nn.Conv2d(shape[0], 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
    )
    return Classifier(
        *(features, 36, num_classes),
        mean=[0.0] * shape[0],
        deviation=[1.0] * shape[0],
        extra=extra,
        head=head,
        head_scale=30.0,
    )


def learn(network: nn.Module, images: Tensor, labels: Tensor) -> None:
    """A few steps, until four fifths of the batch are right."""
    optimiser = torch.optim.SGD(network.parameters(), 0.5)
    for _ in range(2000):
        logits = network(images)
        if (logits.argmax(1) == labels).double().mean() > 0.8:
            return
        optimiser.zero_grad()
        nn.functional.cross_entropy(logits, labels).backward()
        optimiser.step()
    raise AssertionError("the network does not learn its batch")


Boundaries = Sequence[Mapping[Seen, ClassCounts]]  # class statistics, from before the first epoch


def settings_along(
    text: str,
    here: World,
    boundaries: Boundaries,
    epochs: int = EPOCHS,
    sizes: Tensor | None = None,
) -> list[ClassSettings]:
    """Our class settings after every boundary, by the recipe's policies in their chain."""
    with float64():
        slots = parse_recipe(text).slots
        chain = Chain(slots.policies)
        # a step that the recipe states as a share of eps is the one of this world
        step = here.step if isinstance(slots.step, Share | None) else slots.step
        base = ClassSettings.uniform(
            here.num_classes, margin=here.eps, step=step, beta=slots.beta or 0.0
        )
        if sizes is None:
            sizes = torch.bincount(here.labels, minlength=here.num_classes)
        found = []
        for epoch, counts in enumerate(boundaries):
            assert chain.needs(epoch) <= counts.keys()
            settings, chain = chain.update(base, Feedback(epoch, epochs, sizes, counts))
            found.append(settings)
    return found


def ours(
    text: str,
    here: World,
    boundaries: Boundaries = ({},),
    teacher: nn.Module | None = None,
    sizes: Tensor | None = None,
) -> Outcome:
    """One batch through `classwise.training.step`, in the epoch after the last boundary."""
    settings = settings_along(text, here, boundaries, sizes=sizes)[-1]
    with float64():
        slots, model = parse_recipe(text).slots, here.fresh()
        config = TrainConfig(eps=here.eps, lr=RATE, weight_decay=DECAY, epochs=EPOCHS)
        seen: list[Tensor] = []

        def note(module: nn.Module, inputs: tuple[Tensor]) -> None:  # noqa: ARG001
            # The outer forwards: attacks ask for the gradient of their input, or for none at all.
            if torch.is_grad_enabled() and not inputs[0].requires_grad:
                seen.append(inputs[0].clone())

        model.features.register_forward_pre_hook(note)
        step = Step(
            model,
            make_optimiser(config, model),
            slots,
            config,
            still if slots.noise is None else Noisy(still, slots.noise),
            LINF,
            teacher,
            here.num_classes,
            torch.device("cpu"),
        )
        batch = Batch(here.images, here.labels, here.index)
        moment = replace(here.moment, epoch=len(boundaries) - 1)
        assert moment.epoch == here.epoch, "the noise is keyed by the epoch"
        kept = {rule.name: rule.begin(here.num_classes) for rule in slots.regularisers}
        _, losses = step(batch, settings, kept, moment, frozenset(), count_robust=False)
    views = len(slots.objective.views)
    return outcome_of(model, seen[-views:], losses["total"].item())


def still(images: Tensor, *_: object) -> Tensor:
    """No augmentation."""
    return images


def trained(
    model: nn.Module, examples: list[Tensor], loss: Tensor, after: Callable[[], None] | None = None
) -> Outcome:
    """Backward and one step of SGD, written out; `after` is what a released loop does then."""
    for weight in model.parameters():
        weight.grad = None
    loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight -= RATE * (weight.grad + DECAY * weight)
    if after is not None:
        after()
    return outcome_of(model, examples, loss.item())


def outcome_of(model: nn.Module, examples: list[Tensor], loss: float) -> Outcome:
    norm = model.features[1]
    return Outcome(
        examples,
        loss,
        [weight.grad for weight in model.parameters()],
        [weight.detach().clone() for weight in model.parameters()],
        [norm.running_mean, norm.running_var],
    )
