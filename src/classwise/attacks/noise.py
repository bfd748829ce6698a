"""Answers under Gaussian noise: how often each class, and the slope of the mean answer.

The noise of a sample is a function of (seed, purpose, sample index, draw number); it is not clipped
to [0, 1], as the theorem wants it, so a model is asked about images that reach beyond.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from classwise.attacks.search.state import draw_keys
from classwise.draws import Draws
from classwise.models.subject import Subject
from classwise.types import Batch, Images, Labels, LogitModel, Logits


def noisy_counts(subject: Subject, batch: Batch, sigma: float, count: int, draws: Draws) -> Labels:
    """How often the model gives each class to x + σ·z over `count` draws: n×K whole numbers.

    Every pass is full whatever the batch: it goes through all pairs of a sample and a draw.
    """
    answers = torch.zeros(len(batch), subject.num_classes, dtype=torch.int64, device=subject.device)
    pairs = len(batch) * count
    for begin in range(0, pairs, subject.width):
        pair = torch.arange(begin, min(begin + subject.width, pairs), device=subject.device)
        row = pair // count
        images = batch.images[row]
        noise = draws.noise(draw_keys(batch.index[row], pair % count), images.shape[1:])
        noisy = subject.take(images.add_(noise.to(images.dtype), alpha=sigma))
        called = subject.ask(noisy).argmax(1)
        answers.index_put_((row, called), torch.ones_like(called), accumulate=True)
    return answers


@dataclass
class MeanAnswer:
    """log (1/m)·Σ softmax f(x + σ·z) over m draws, new ones at every call.

    As logits its cross-entropy is −log of the mean probability, SmoothAdv's loss (Salman et al.,
    NeurIPS 2019).
    """

    model: LogitModel
    index: Labels
    sigma: float
    count: int  # m
    draws: Draws
    calls: int = 0

    def __call__(self, images: Images) -> Logits:
        """Ask about all draws of all images at once."""
        number = torch.arange(self.count, device=self.index.device).repeat(len(images))
        keys = draw_keys(self.index.repeat_interleave(self.count), number, self.calls)
        self.calls += 1
        noise = self.draws.noise(keys, images.shape[1:]).to(images.dtype)
        logits = self.model(images.repeat_interleave(self.count, 0) + self.sigma * noise)
        each = logits.log_softmax(1).view(len(images), self.count, -1)
        return each.logsumexp(1) - math.log(self.count)
