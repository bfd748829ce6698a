"""Which samples an epoch visits, in which order, and by which key each visit draws."""

from __future__ import annotations

import torch

from classwise.attacks.inner import Moment
from classwise.data.batches import Batches
from classwise.data.splits import rank_within_class
from classwise.slots import Sampler
from classwise.types import Labels


def visits(
    data: Batches, labels: Labels, sampler: Sampler | None, moment: Moment
) -> tuple[Labels, Labels]:
    """Rows to visit, and the key of each visit's random draws; without a sampler all of them."""
    draws, home = moment.draws("order"), data.origin.device
    if sampler is None:
        order = draws.order(len(labels))
        return order, data.origin[order.to(home)]
    order = sampler.order(labels, draws)
    visit = rank_within_class(order, torch.arange(len(order)))  # a repeated image differs
    return order, data.origin[order.to(home)] + (visit << 32).to(home)
