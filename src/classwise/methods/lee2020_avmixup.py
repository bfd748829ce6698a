"""AVmixup: mix each image with a point beyond its attacked one (Lee et al., CVPR 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from classwise.attacks.ball import per_image
from classwise.errors import ClasswiseError
from classwise.models.asking import BatchNormMode
from classwise.objective import Attacked
from classwise.recipe import Among, Method
from classwise.script import Script
from classwise.slots import Slots
from classwise.types import Images


@dataclass(frozen=True, slots=True)
class VertexMix:
    """u·x + (1 − u)·v with v = clip(x + γ·(x' − x)); labels are mixed alike, u per sample."""

    reach: float  # γ
    clean_share: float  # λ₁
    vertex_share: float  # λ₂
    weight: float | None = None  # u; None draws it
    concentration: float = 1.0  # a of Beta(a, a)
    pure: bool = False  # nothing that leaves here is an attacked image

    def __call__(self, given: Attacked) -> tuple[dict[str, Images], dict[str, Tensor]]:
        """Mix images and labels."""
        batch, images, num_classes = given.batch, given.batch.images, given.num_classes
        if self.weight is None:
            u = given.moment.draws("mix").beta(batch.index, self.concentration, (), images.dtype)
        else:
            u = images.new_full((len(batch),), self.weight)
        # lerp is exact at both ends: γ = 1 gives x' itself, and u = 0 the vertex.
        vertex = torch.lerp(images, given.views["robust"], self.reach).clamp_(0, 1)
        mixed = torch.lerp(vertex, images, per_image(u))
        on_label = torch.lerp(
            torch.full_like(u, self.vertex_share), torch.full_like(u, self.clean_share), u
        )[:, None]
        soft = torch.zeros(len(batch), given.outputs, dtype=images.dtype, device=images.device)
        soft[:, :num_classes] = (1 - on_label) / (num_classes - 1)
        soft.scatter_(1, batch.labels[:, None], on_label)
        return {**given.views, "robust": mixed}, {"robust": soft}


class AVmixup(Method):
    """Train between the image and the vertex x + γ·(x' − x), with labels softened on the way.

    The label of the image has λ₁ on its class, that of the vertex λ₂, the rest spread evenly.
    The attack uses batch statistics and leaves BatchNorm's running ones alone.
    """

    name: ClassVar[str] = "avmixup"
    paper: ClassVar[str] = "Lee et al., CVPR 2020"
    # Of these only AT trains on attacked images alone; the others are refused for that reason.
    extends: ClassVar[frozenset[str]] = frozenset({"at", "trades", "mart", "absld"})

    reach: Annotated[float, Field(gt=0)] = 2.0  # γ
    clean_share: Annotated[float, Field(ge=0, le=1)] = 1.0  # λ₁
    vertex_share: Annotated[float, Field(ge=0, le=1)] = 0.1  # λ₂
    weight: Annotated[float, Field(ge=0, le=1)] | None = None  # u; None draws Beta(a, a)
    concentration: Annotated[float, Field(gt=0)] = 1.0  # a; 1 is uniform
    batchnorm: BatchNormMode | None = "batch"  # None leaves it to the base

    def suggests(self, among: Among) -> Script:  # noqa: ARG002
        """80 000 steps are 205 passes; its WRN-32-10 has five blocks a stage, as ours of 34."""
        return Script(
            model="wrn-34-10",
            epochs=205,
            drops=(0.5, 0.75),
            eps=8 / 255,
            step=2 / 255,
            crop={"pad": 2, "padding": "zero"},
        )

    def resolve(self, among: Among) -> Method:  # noqa: ARG002
        """Refuse a distribution for a weight that is not drawn."""
        if self.weight is not None and self.concentration != 1:
            raise ClasswiseError(
                f"avmixup(weight={self.weight:g}, concentration={self.concentration:g}): a given "
                "weight is not drawn; leave one of the two out"
            )
        return self

    def fill(self) -> Slots:
        """Fill the mix, and the BatchNorm mode in place of AT's."""
        mix = VertexMix(
            *(self.reach, self.clean_share, self.vertex_share),
            *(self.weight, self.concentration),
        )
        return Slots(mix=mix, batchnorm=self.batchnorm)
