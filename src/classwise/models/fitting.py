"""Tensors of other people under the names that a model has for them.

Prefixes of wrappers come off, a normalisation that the file carries is recognised, and known
layouts of the same network are renamed. Nothing is dropped but what a file holds twice, or what its
own network never asks; all of it is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from classwise.errors import ClasswiseError, unknown
from classwise.models.layouts import Layout
from classwise.models.misfits import shown
from classwise.models.preparation import Normalisation

_WRAPPERS = re.compile(r"^((module|_orig_mod|model|net)\.)+")
_TWINS = "attacker."  # MadryLab's robustness keeps its model a second time under this name
_COUNTERS = ("n_averaged",)  # of torch's AveragedModel: how many, not what
# Normalisation among the weights: RobustBench's mu and sigma, or normalize.mean and normalize.std;
# MadryLab's normalizer.new_mean and new_std; 0.mean of a Sequential; mean and deviation of ours.
_NORMALISER = re.compile(
    r"^(?P<of>(?:(?:normali[sz]er?|normali[sz]ation|norm|0)\.)?)"
    r"(?P<what>mu|mean|new_mean|sigma|std|new_std|deviation)$"
)
_MEANS = ("mu", "mean", "new_mean")


@dataclass(frozen=True)
class Fitted:
    """Tensors under a model's names, as far as they are known, and what was done to get there."""

    tensors: dict[str, Tensor]
    normalisation: Normalisation | None = None  # that the file carries
    layout: Layout | None = None
    left_out: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def words(self) -> str:
        """What was done, for people."""
        parts = [f"prefix {self.prefix} taken off"] if self.prefix else []
        if self.layout is not None:
            parts.append(f"in the layout of {self.layout.whose}")
        if self.normalisation is not None:
            parts.append(f"normalised as the file says ({self.normalisation})")
        if self.left_out:
            parts.append(
                f"{len(self.left_out)} tensors that are never asked are left out "
                f"({shown(self.left_out, 2)})"
            )
        return "; ".join(parts)


def fit(
    tensors: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    layouts: Sequence[Layout] = (),
    rename: Mapping[str, str] | None = None,
) -> Fitted:
    """Give a file's tensors the names of a model's, as far as that can be known."""
    tensors = _single(tensors)
    bare = _unwrapped(tensors, wanted)
    prefix = _prefix(tensors, bare)
    bare, normalisation = _normaliser(bare, wanted)
    bare = _renamed(bare, rename or {})
    best = _Named(bare)
    for named in _candidates(bare, wanted, layouts):
        if _hits(named.tensors, wanted) > _hits(best.tensors, wanted):
            best = named
    found = dict(best.tensors)
    if normalisation is not None and {"mean", "deviation"} <= wanted.keys():
        for name in ("mean", "deviation"):
            values = torch.tensor(getattr(normalisation, name), dtype=wanted[name].dtype)
            values = values.view(1, -1, 1, 1)  # of other channels: told as a misfit
            fits = values.shape[1] in (1, wanted[name].shape[1])
            found[name] = values.expand(wanted[name].shape).clone() if fits else values
    return Fitted(found, normalisation, best.layout, tuple(best.left_out), prefix)


def _single(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without counters, and without what is there a second time."""

    def doubled(name: str) -> bool:
        head, twin, rest = name.partition(_TWINS)
        bare = rest.replace("normalize.", "normalizer.", 1)
        other = tensors.get(f"{head}{bare}")
        return bool(twin) and other is not None and torch.equal(tensors[name], other)

    return {n: t for n, t in tensors.items() if n not in _COUNTERS and not doubled(n)}


def _renamed(tensors: dict[str, Tensor], rename: Mapping[str, str]) -> dict[str, Tensor]:
    """What the user calls otherwise; a name for nothing leaves the part out."""
    for old, new in rename.items():
        touched = {n for n in tensors if n == old or n.startswith(f"{old}.")}
        if not touched:
            parts = {n.rpartition(".")[0] or n for n in tensors}
            raise unknown("part to rename", old, parts)
        kept = {n: t for n, t in tensors.items() if n not in touched}
        moved = {new + n[len(old) :]: tensors[n] for n in touched} if new else {}
        if clash := kept.keys() & moved.keys():
            raise ClasswiseError(
                f"{old}={new}: the file has {shown(sorted(clash), 2)} already; rename that, too"
            )
        tensors = kept | moved
    return tensors


def _unwrapped(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors without the prefixes of wrappers, unless the model has such names itself."""
    found = {name: tensor for name, tensor in tensors.items() if name in wanted}
    for name, tensor in tensors.items():
        bare = _WRAPPERS.sub("", name)
        if name not in found:
            found[name if bare in found else bare] = tensor
    return found


def _prefix(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> str:
    gone = {_WRAPPERS.match(name) for name in before if name not in after}
    return ", ".join(sorted({match[0] for match in gone if match is not None}))


def _normaliser(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], Normalisation | None]:
    """The normalisation among the tensors, if there is one that the model has no name for."""
    own = {"mean", "deviation"} <= wanted.keys()
    pairs: dict[str, dict[bool, str]] = {}
    for name, tensor in tensors.items():
        match = _NORMALISER.match(name)
        small = tensor.is_floating_point() and tensor.numel() <= 16
        if match and small and (own or name not in wanted):
            pairs.setdefault(match["of"], {})[match["what"] in _MEANS] = name
    whole = [pair for pair in pairs.values() if len(pair) == 2]
    if len(whole) != 1:
        return dict(tensors), None
    mean, deviation = (tensors[whole[0][which]].flatten().tolist() for which in (True, False))
    rest = {name: t for name, t in tensors.items() if name not in whole[0].values()}
    if whole[0][True].startswith("0."):  # torch.nn.Sequential(normalisation, network)
        rest = {name.removeprefix("1."): t for name, t in rest.items()}
    return rest, Normalisation.of((mean, deviation))


@dataclass(frozen=True)
class _Named:
    """Tensors under names of one layout."""

    tensors: Mapping[str, Tensor]
    layout: Layout | None = None
    left_out: list[str] = field(default_factory=list)


def _candidates(
    bare: Mapping[str, Tensor], wanted: Mapping[str, Tensor], layouts: Sequence[Layout]
) -> list[_Named]:
    found = []
    firsts = {name.partition(".")[0] for name in wanted}
    if len(firsts) == 1:  # the user's model holds the network that was saved as its only part
        found.append(_Named({f"{next(iter(firsts))}.{name}": t for name, t in bare.items()}))
    for layout in layouts:
        named, left = layout.applied(bare)
        found.append(_Named(named, layout, left))
    return found


def _hits(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> int:
    return sum(name in wanted and wanted[name].shape == t.shape for name, t in tensors.items())
