"""Corruptions as conditions: `corruption:fog-3` made here, or read from a published set."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from classwise.attacks.condition import Traits
from classwise.content import tensor_bytes
from classwise.corruptions.corrupting import VERSIONS, check_images, corrupt
from classwise.corruptions.files import PublishedSet
from classwise.corruptions.severities import (
    C19,
    check_name,
    check_severity,
    chosen_names,
    chosen_severities,
)
from classwise.data.view import View
from classwise.errors import ClasswiseError, unknown
from classwise.spelling import parse_call
from classwise.types import Batch

PREFIX = "corruption:"
_NAMED = re.compile(r"(?P<name>\w+)-(?P<severity>\d+)")


@dataclass(frozen=True, eq=False)
class Corruption:
    """One of the nineteen corruptions at one severity; an image's draws are keyed by its number.

    >>> Corruption("fog", 3).name, Corruption("fog", 3).traits.strength
    ('corruption:fog-3', 3.0)
    """

    corruption: str
    severity: int
    textures: tuple[Tensor, ...] | None = None  # of frost; None: procedural

    def __post_init__(self) -> None:
        check_name(self.corruption)
        check_severity(self.severity)

    @property
    def name(self) -> str:
        """The one spelling of it."""
        return f"{PREFIX}{self.corruption}-{self.severity}"

    @cached_property
    def identity(self) -> str:
        """Changes with the version of the corruptions and with a texture."""
        version = VERSIONS.get(self.corruption, 1)
        digest = hashlib.blake2b(f"{self.name} {version}".encode(), digest_size=8)
        for texture in self.textures or ():
            for piece in tensor_bytes(texture):
                digest.update(piece)
        return digest.hexdigest()

    @property
    def traits(self) -> Traits:
        """The corruption and how severe it is."""
        return Traits(f"{PREFIX}{self.corruption}", float(self.severity))

    def check(self, data: View) -> None:
        """Refuse images that it has no meaning for."""
        check_images(data.images[:1], self.corruption)

    def images(self, batch: Batch, seed: int) -> Batch:
        """Corrupted images."""
        made = corrupt(
            batch.images,
            self.corruption,
            self.severity,
            batch.index,
            seed,
            textures=self.textures,
        )
        return replace(batch, images=made)


@dataclass(frozen=True, eq=False)
class PublishedCorruption:
    """A corruption read from a set that somebody published; nothing is opened before it is used."""

    corruption: str
    severity: int
    path: str

    @property
    def name(self) -> str:
        """The one spelling of it."""
        return f'{PREFIX}{self.corruption}-{self.severity}(files="{self.path}")'

    @cached_property
    def part(self) -> PublishedSet:
        """The images themselves."""
        return PublishedSet.of(self.path, self.corruption, self.severity)

    @property
    def identity(self) -> str:
        """Over the files."""
        return self.part.identity

    @property
    def traits(self) -> Traits:
        """The corruption, how severe it is, and that it was read."""
        family = f"{PREFIX}{self.corruption}"
        return Traits(family, float(self.severity), f"files={self.path}")

    def check(self, data: View) -> None:
        """Refuse a set of other images: as many of other labels, sizes or classes."""
        self.part.check(data)

    def images(self, batch: Batch, seed: int) -> Batch:  # noqa: ARG002
        """The images of the set at the same numbers."""
        return replace(batch, images=self.part.images(batch.index).to(batch.images))


def parse_corruption(text: str, *, own: bool = False) -> Corruption | PublishedCorruption:
    """Read `corruption:fog-3`, or `corruption:fog-3(files="CIFAR-10-C")`.

    Files are read only where the user named them just now (`own`).

    >>> parse_corruption("corruption:fog-3").severity
    3
    """
    call = parse_call(text)
    found = _NAMED.fullmatch(call.name.removeprefix(PREFIX))
    if found is None:
        raise ClasswiseError(
            f"{text}: write corruption:NAME-SEVERITY, such as corruption:fog-3; names: "
            f"{', '.join(C19)}"
        )
    name, severity = found["name"], int(found["severity"])
    check_name(name)
    check_severity(severity)
    if call.args:
        raise ClasswiseError(f'{text}: write {call.name}(files="PATH")')
    for option in call.options:
        if option != "files":
            raise unknown(f"option of {call.name}", option, ["files"])
    if not call.options:
        return Corruption(name, severity)
    if not own:
        raise ClasswiseError(
            f"{text} reads files; name it with classwise audit --attacks, or in Python"
        )
    return PublishedCorruption(name, severity, str(call.options["files"]))


def with_corruptions(
    attacks: str | None, wanted: str | None, severity: str | None, files: str | None
) -> str | None:
    """A list of conditions with corruptions behind it; clean images stand for a list not given.

    >>> with_corruptions(None, "fog,snow", "2-3", None)
    'clean,corruption:fog-2,corruption:fog-3,corruption:snow-2,corruption:snow-3'
    """
    if wanted is None:
        for option, value in (("--severity", severity), ("--corrupted", files)):
            if value is not None:
                raise ClasswiseError(f"{option} {value} is for --corruptions, such as c15 or fog")
        return attacks
    names, levels = chosen_names(wanted), chosen_severities(severity or "1-5")
    end = "" if files is None else f'(files="{files}")'
    made = [f"{PREFIX}{name}-{level}{end}" for name in names for level in levels]
    return ",".join([attacks or "clean", *made])
