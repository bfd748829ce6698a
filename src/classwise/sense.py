"""What makes no sense in a whole recipe, though every slot has one owner.

Methods refuse company of their own accord where the reason is theirs (`Method.resolve`); here is
what follows from the slots, whoever filled them.
"""

from __future__ import annotations

from collections.abc import Mapping

from classwise.classes.settings import Seen
from classwise.data.augment import Placing
from classwise.errors import ClasswiseError
from classwise.slots import Slots


def check_sense(slots: Slots, owners: Mapping[str, str]) -> None:
    """Refuse compositions that would quietly do nothing, or something else than they say."""
    base = owners["objective"]
    for setting in ("class margin", "class step", "class target_odds", "stop", "steps"):
        if setting in owners and slots.reference is None:
            raise ClasswiseError(
                f"{owners[setting]} steers an attack, but {base} has none; use at or trades instead"
            )
    for policy in slots.policies:
        if slots.reference is None and Seen("valid", "robust") in policy.needs(1):
            raise ClasswiseError(
                f"{owners[f'class {min(policy.writes)}']} looks at the loss under training's own "
                f"attack, but {base} has none; use at or trades instead"
            )
    check_carried(slots, owners)
    if slots.noise is not None and slots.reference is not None:
        raise ClasswiseError(
            f"{owners['noise']} trains on images with Gaussian noise that reach beyond [0, 1], but "
            f"{base} attacks images and keeps them inside, which would cut the noise off; use clean"
        )
    if "class beta" in owners and slots.beta is None:
        raise ClasswiseError(
            f"{owners['class beta']} sets a beta, but {base} has none; use trades instead"
        )
    if (
        slots.mix is not None
        and slots.objective is not None
        and slots.objective.views != ("robust",)
    ):
        raise ClasswiseError(
            f"{owners['mix']} changes the labels of attacked images, but {base} does not train on "
            "those alone; use at instead"
        )
    for average in slots.averages:
        if average.gate is not None and slots.reference is None:
            raise ClasswiseError(
                f"{owners[f'averages {average.name}']} opens on robust accuracy, but {base} has no "
                "attack, so that clean accuracy would decide; use ema instead, or at or trades"
            )


def check_carried(slots: Slots, owners: Mapping[str, str]) -> None:
    """Refuse company in which a perturbation that is carried on would be lost or mistaken."""
    carry = slots.carry
    if carry is None:
        return
    who = owners["carry"]
    for policy in slots.policies:
        if Seen("valid", "robust") in policy.needs(1):
            raise ClasswiseError(
                f"{owners[f'class {min(policy.writes)}']} looks at validation images under "
                f"training's own attack, which {who} has not without the past; leave one of them "
                "out"
            )
    for view in slots.extra_views:
        raise ClasswiseError(
            f"{owners[f'extra_views {view.name}']} attacks every image twice, but {who} carries "
            "one perturbation on; leave one of them out"
        )
    if carry.by_image:
        if slots.sampler is not None:
            raise ClasswiseError(
                f"{who} keeps one perturbation of every image, but {owners['sampler']} visits some "
                "several times in an epoch; leave one of the two out, or weigh classes by cost"
            )
        if slots.augment is not None and not isinstance(slots.augment, Placing):
            raise ClasswiseError(
                f"{who} takes the transform of an image back, and that of {owners['augment']} "
                "cannot be; use crop instead"
            )
    for thing in ("stop", "mix", "class target_odds"):
        if carry.shared and thing in owners:
            raise ClasswiseError(
                f"{owners[thing]} steers an attack or changes its images, but {who} has none "
                "beside the steps of the weights; use at or atta instead"
            )
