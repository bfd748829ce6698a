"""How the class-wise papers' released code takes a training step, in our own words.

CFA (AT, TRADES and FAT, with and without class-wise radii and β), FAIR-TAT's targeted AT, FAT's own
early stop and BAT. What costs time is as it is there: the weights' gradients are computed in the
attack and thrown away (not in TRADES, which asks for those of the images only), images lie in the
contiguous layout, BatchNorm is in the same mode, the clean batch is forwarded once more after the
step for the log, TRADES computes the clean prediction anew at every step and twice in its loss, FAT
looks at the last iterate once more. What those scripts do sample by sample in Python is written for
the whole batch, which is in their favour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax


class Noise(Protocol):
    """Random numbers for every pixel, or for every sample."""

    def uniform(self, images: Tensor) -> Tensor:
        """Where AT and FAT start, between 0 and 1."""

    def normal(self, images: Tensor, purpose: str) -> Tensor:
        """Where TRADES and BAT start, and what FAT adds at every step."""

    def chances(self, labels: Tensor) -> Tensor:
        """Which target a sample draws, between 0 and 1."""


class Thrown:
    """Noise of torch's own generator, as in the scripts."""

    def uniform(self, images: Tensor) -> Tensor:
        """Throw for every pixel."""
        return torch.rand_like(images)

    def normal(self, images: Tensor, purpose: str) -> Tensor:  # noqa: ARG002  others ask it
        """Throw for every pixel."""
        return torch.randn_like(images)

    def chances(self, labels: Tensor) -> Tensor:
        """Throw for every sample."""
        return torch.rand(len(labels))


@dataclass(frozen=True)
class Script:
    """The numbers of a script; a radius, a share β/(1+β) and odds of targets for every class."""

    eps: Tensor
    share: Tensor
    odds: Tensor
    step: float = 2 / 255
    steps: int = 10
    patience: int = 3
    train_mode: bool = True  # BatchNorm of the attack in AT and FAT
    beta: float = 6.0  # of BAT, which has no share

    @classmethod
    def alike(cls, classes: int, **more: float) -> Script:
        """Every class alike, at the usual radius and β = 6."""
        others = (1 - torch.eye(classes)) / (classes - 1)
        eps, share = torch.full((classes,), 8 / 255), torch.full((classes,), 6 / 7)
        return cls(eps, share, others, **more)  # type: ignore[arg-type]  # counts and switches are numbers, too


class Pupil(NamedTuple):
    """A model on its way, and what moves its weights."""

    model: nn.Module
    optimiser: torch.optim.Optimizer

    def learn(self, loss: Tensor, images: Tensor | None) -> None:
        """Backward, step, and a clean forward for the log where the script has one."""
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
        self.optimiser.step()
        if images is not None:
            self.model(images).detach()

    @contextmanager
    def mode(self, train: bool) -> Iterator[None]:
        """BatchNorm of the attack; afterwards the model trains."""
        self.model.train(train)
        yield
        self.model.train()


Step = Callable[[Pupil, Tensor, Tensor, Script, Noise], list[Tensor]]


def at(pupil: Pupil, images: Tensor, labels: Tensor, script: Script, noise: Noise) -> list[Tensor]:
    """CFA's AT, with the radius of each class; returns the images it trains on."""
    with pupil.mode(script.train_mode):
        delta = _climb(pupil.model, images, labels, script.eps[labels], script, noise)
    robust = images + delta
    pupil.learn(cross_entropy(pupil.model(robust), labels), images)
    return [robust]


def fairtat(
    pupil: Pupil, images: Tensor, labels: Tensor, script: Script, noise: Noise
) -> list[Tensor]:
    """FAIR-TAT's AT: down towards a drawn target, and one more clean forward in the loss."""
    drawn = noise.chances(labels)[:, None]
    targets = (drawn >= script.odds[labels].cumsum(1)).sum(1).clamp_(max=len(script.odds) - 1)
    delta = _climb(pupil.model, images, targets, script.eps[labels], script, noise, sign=-1)
    robust = images + delta
    loss = cross_entropy(pupil.model(robust), labels)
    pupil.model(images)
    pupil.learn(loss, images)
    return [robust]


def fat(pupil: Pupil, images: Tensor, labels: Tensor, script: Script, noise: Noise) -> list[Tensor]:
    """CFA's FAT: all are forwarded, those with lives move, the loop ends when nobody does."""
    eps = script.eps[labels].view(-1, 1, 1, 1)
    lives = torch.full_like(labels, script.patience)
    with pupil.mode(script.train_mode):
        delta = _start(images, eps, noise).requires_grad_()
        logits = pupil.model(images + delta)
        for _ in range(script.steps):
            moving = lives > 0
            lives = lives - (moving & (logits.argmax(1) != labels)).long()
            if not bool(moving.any()):
                break
            cross_entropy(logits, labels).backward()  # type: ignore[no-untyped-call]  # torch gives it no types
            rows = moving.nonzero().squeeze(1)
            slope = delta.grad[rows]  # type: ignore[index]  # there after backward
            delta = delta.detach()
            stepped = _moved(delta[rows], script.step * slope.sign(), images[rows], eps[rows])
            delta[rows] = stepped
            delta.requires_grad_()
            logits = pupil.model(images + delta)
    robust = images + delta.detach()
    pupil.learn(cross_entropy(pupil.model(robust), labels), images)
    return [robust]


def trades(
    pupil: Pupil, images: Tensor, labels: Tensor, script: Script, noise: Noise
) -> list[Tensor]:
    """CFA's TRADES: (1 − s)·CE + s·KL with the share s of each class."""
    model, eps = pupil.model, script.eps[labels].view(-1, 1, 1, 1)
    with pupil.mode(False):
        robust = images + 0.001 * noise.normal(images, "start")
        for _ in range(script.steps):
            robust.requires_grad_()
            height = _divergence(model(robust), model(images)).sum()
            (slope,) = torch.autograd.grad(height, [robust])
            robust = robust.detach() + script.step * slope.sign()
            robust = torch.min(torch.max(robust, images - eps), images + eps).clamp(0, 1)
    share = script.share[labels]
    natural = cross_entropy(model(images), labels, reduction="none")
    apart = _divergence(model(robust), model(images)).sum(1)
    pupil.learn(((1 - share) * natural + share * apart).mean(), images)
    return [images, robust]


def friendly(
    pupil: Pupil, images: Tensor, labels: Tensor, script: Script, noise: Noise
) -> list[Tensor]:
    """FAT's own code on AT: eval mode, a batch that shrinks, noise at every step."""
    eps = script.eps[labels].view(-1, 1, 1, 1)
    start = (images + (2 * noise.uniform(images) - 1) * eps).clamp(0, 1)

    def height(logits: Tensor, going: Tensor) -> Tensor:
        return cross_entropy(logits, labels[going])

    def jitter(number: int) -> Tensor:
        return 0.001 * noise.normal(images, f"jitter {number}")

    with pupil.mode(False):
        pupil.model(images)  # its clean prediction, which only its other losses need
        chase = Chase(pupil.model, images, labels, script, height, jitter)
        robust = chase.until_wrong(start, script.patience)
    pupil.learn(cross_entropy(pupil.model(robust), labels), None)
    return [robust]


def bat(pupil: Pupil, images: Tensor, labels: Tensor, script: Script, noise: Noise) -> list[Tensor]:
    """BAT: last clean and first adversarial iterates, on batches that shrink, in eval mode."""
    model = pupil.model

    def chased(purpose: str, lives: int | None) -> Tensor:
        clean = model(images)  # with its graph: every backward goes through it, as in that code
        start = (images + 0.001 * noise.normal(images, purpose)).clamp(0, 1)

        def height(logits: Tensor, going: Tensor) -> Tensor:
            return _divergence(logits, clean[going]).sum()

        return Chase(model, images, labels, script, height).until_wrong(start, lives)

    with pupil.mode(False):
        last, first = chased("start lastclean", None), chased("start", 1)
    one, other, natural = model(last), model(first), model(images)
    loss = cross_entropy(one, labels) + script.beta * _divergence(other, natural).sum(1).mean()
    even = torch.full_like(one, 1 / one.shape[1])
    for logits in (one, other):
        chances = softmax(logits, 1)
        loss = loss + (chances * (chances.log() - even.log())).sum(1).mean()
    pupil.learn(loss, None)
    return [last, first, images]


@dataclass(frozen=True)
class Chase:
    """FAT's and BAT's attack: a sample that is done leaves the batch."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    script: Script
    height: Callable[[Tensor, Tensor], Tensor]  # of logits, and of whom they are
    jitter: Callable[[int], Tensor] | None = None

    def until_wrong(self, now: Tensor, lives: int | None) -> Tensor:
        """Go `lives` errors beyond the first, or, with None, back to the iterate before it."""
        eps = self.script.eps[self.labels].view(-1, 1, 1, 1)
        emitted, before = now.clone(), now
        left = torch.full_like(self.labels, lives or 0)
        going = torch.arange(len(self.labels))
        for number in range(self.script.steps):
            now, slope, wrong = self._asked(now, going)
            stays = ~(wrong & (left[going] == 0))
            left[going] -= (wrong & stays).long()
            emitted[going[~stays]] = (now if lives is not None else before)[~stays]
            going = going[stays]
            if not len(going):
                return emitted
            before = now[stays]
            by = self.script.step * slope[stays].sign()
            by = by if self.jitter is None else by + self.jitter(number)[going]
            near, reach = self.images[going], eps[going]
            now = torch.min(torch.max(before + by, near - reach), near + reach).clamp(0, 1)
        emitted[going] = now
        return emitted

    def _asked(self, now: Tensor, going: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The iterates, their slopes, and who is wrong; backward goes through all with a graph."""
        now = now.detach().requires_grad_()
        logits = self.model(now)
        self.model.zero_grad()
        self.height(logits, going).backward(retain_graph=True)  # type: ignore[no-untyped-call]  # torch gives it no types
        assert now.grad is not None
        return now.detach(), now.grad, logits.argmax(1) != self.labels[going]


STEPS: dict[str, Step] = {
    "at": at,
    "fairtat": fairtat,
    "fat": fat,
    "friendly": friendly,
    "trades": trades,
    "bat": bat,
}


def _start(images: Tensor, eps: Tensor, noise: Noise) -> Tensor:
    delta = (noise.uniform(images) - 0.5) * 2 * eps
    return torch.max(torch.min(delta, 1 - images), 0 - images)


def _moved(delta: Tensor, by: Tensor, images: Tensor, eps: Tensor) -> Tensor:
    delta = torch.max(torch.min(delta + by, eps), -eps)
    return torch.max(torch.min(delta, 1 - images), 0 - images)


def _climb(
    model: nn.Module,
    images: Tensor,
    aims: Tensor,
    radius: Tensor,
    script: Script,
    noise: Noise,
    sign: int = 1,
) -> Tensor:
    """δ of PGD by `backward`, which leaves gradients in the weights, too."""
    eps = radius.view(-1, 1, 1, 1)
    delta = _start(images, eps, noise).requires_grad_()
    for _ in range(script.steps):
        cross_entropy(model(images + delta), aims).backward()  # type: ignore[no-untyped-call]  # torch gives it no types
        assert delta.grad is not None
        by = sign * script.step * delta.grad.sign()
        delta = _moved(delta.detach(), by, images, eps).requires_grad_()
    return delta.detach()


def _divergence(robust: Tensor, clean: Tensor) -> Tensor:
    """KL(p(x)‖p(x′)) by class."""
    return kl_div(log_softmax(robust, 1), softmax(clean, 1), reduction="none")
