"""Weights of other people in an architecture that the user names: the one way to open them.

Audits, teachers and `classwise.load_model` come here. The file gives tensors and nothing else; all
of them must fit, and what does not is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from classwise.errors import ClasswiseError
from classwise.models import build_model, names_built_in
from classwise.models.extra import HEAD_NAMES
from classwise.models.fitting import Fitted, fit
from classwise.models.layouts import architectures_of, layouts_of
from classwise.models.logits_of import LogitsOf
from classwise.models.misfits import Misfits, shown
from classwise.models.preparation import Normalisation
from classwise.models.prepared import normalised
from classwise.record.run_folder import load_model
from classwise.record.state_dict import file_and_key, read_state_dict
from classwise.record.tensors import written_here
from classwise.spelling import parse_call


class Options(NamedTuple):
    """What the user calls the options, where a file is opened."""

    arch: str = "--arch {} (in Python: classwise.load_model({}, arch=…))"
    normalise: str = (
        "--normalise none, cifar10 or imagenet, or --mean and --std (in Python: normalise=…)"
    )
    instead: str = "--normalise, --mean and --std"
    rename: str = "--rename {}={}"
    renamed: str = "add {}"
    left_out: str = "add --rename {}="


_OPTIONS = Options()
TEACHERS = Options(
    "teacher_model={}",
    "teacher_normalise=none, cifar10 or imagenet, or a pair of means and deviations, as in "
    "teacher_normalise=[[0.5, 0.5, 0.5], [0.2, 0.2, 0.2]]",
    "teacher_normalise",
    "{} called {}",
    "write the teacher's file anew with {}",
    "write the teacher's file anew without {}",
)


@dataclass(frozen=True)
class Opening:
    """How the user wants a file of somebody's opened."""

    arch: str | None = None  # whose tensors they are: resnet18, timm:NAME, module:callable, …
    rename: Mapping[str, str] = field(default_factory=dict)  # parts that have other names there
    normalise: Any = None  # what an architecture of ours is to do; a file may carry it
    options: Options = _OPTIONS

    @classmethod
    def of(cls, arch: str | None, rename: list[str] | None, normalise: Any) -> Opening:
        """Read OLD=NEW pairs."""
        pairs = [words.partition("=") for words in rename or ()]
        for (old, equals, new), words in zip(pairs, rename or (), strict=True):
            if not old or not equals:
                raise ClasswiseError(
                    f"--rename {words}: write OLD=NEW, such as classifier=head; OLD= leaves out"
                )
            if arch is None:
                raise ClasswiseError(f"--rename {old}={new} is for a weights file with --arch")
        return cls(arch, {old: new for old, _, new in pairs}, normalise)


@dataclass(frozen=True)
class Opened:
    """A model with the weights of a file, in eval mode."""

    model: nn.Module
    about: dict[str, Any]  # what a file of classwise says of itself; empty for others
    words: str = ""  # what was done to make it fit


def open_model(
    words: str | Path, how: Opening, num_classes: int | None = None, channels: int = 3
) -> Opened:
    """Build the architecture with the weights of `FILE` or `FILE@KEY`.

    A file of classwise knows its architecture; for any other, `how.arch` names it. Without a number
    of classes the file's head says how many there are.
    """
    path, key = file_and_key(words)
    if written_here(path) and not key:
        return _own(path, how)
    tensors, _ = read_state_dict(path, key)  # what is wrong with the file itself comes first
    if how.arch is None:
        raise no_architecture(path, tensors, how.options)
    count = _outputs(tensors, path) if num_classes is None else num_classes
    said = None if how.normalise is None else Normalisation.of(how.normalise)
    plain = [0.0] * channels, [1.0] * channels
    model = build_model(
        how.arch, num_classes=count, channels=channels, mean=plain[0], deviation=plain[1]
    )
    fitted = fit_to(model, tensors, how.arch, how.rename)
    ours = names_built_in(how.arch)
    if said is not None and fitted.normalisation is not None:
        raise ClasswiseError(
            f"{path} carries its normalisation ({fitted.normalisation}); leave out "
            f"{how.options.instead}"
        )
    if ours and fitted.normalisation is None:
        fitted.tensors.update(_normalisation(said, model.state_dict(), path, how))
    load_whole(model, fitted, path, how.arch, how.options)
    outside = fitted.normalisation or said
    if not ours and outside is not None:
        model = normalised(model, outside, channels)
    return Opened(model.eval(), {}, f"{path}: {fitted.words}" if fitted.words else "")


def fit_to(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    spec: str,
    rename: Mapping[str, str] | None = None,
) -> Fitted:
    """Give a file's tensors the names that a model of this spec has for them."""
    wanted = {name: t for name, t in model.state_dict().items() if isinstance(t, Tensor)}
    fitted = fit(tensors, wanted, layouts_of(spec), rename)
    if isinstance(model, LogitsOf) and Misfits.of(wanted, fitted.tensors):
        return replace(fitted, tensors=model.renamed(fitted.tensors))
    return fitted


def load_whole(
    model: nn.Module, fitted: Fitted, path: Path, spec: str, options: Options = _OPTIONS
) -> None:
    """Give a model fitted tensors, all that it wants and nothing else."""
    state = model.state_dict()
    wanted = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    found = dict(fitted.tensors)
    for name, value in wanted.items():
        if name.endswith("num_batches_tracked"):  # older files have none, and nothing asks it
            found.setdefault(name, value)
    misfits = Misfits.of(wanted, found)
    if misfits:
        raise ClasswiseError(
            f"{path} does not fit {spec} ({len(found)} tensors, {len(wanted)} wanted): "
            f"{misfits.words}; {_way_out(misfits, path, spec, fitted, options)}"
        )
    odd = [n for n, t in found.items() if t.is_floating_point() and not bool(t.isfinite().all())]
    if odd:
        raise ClasswiseError(f"{path}: {shown(odd)} holds values that are not finite")
    model.load_state_dict({**state, **found})


def no_architecture(path: Path, tensors: Mapping[str, Tensor], options: Options) -> ClasswiseError:
    """What to say of weights that do not say whose they are."""
    likely = ", ".join(architectures_of(fit(tensors, {}).tensors))
    hint = "docs/models.md lists what there is"
    hint = f"by their names they may be {likely}" if likely else hint
    names = "resnet18, timm:NAME, torchvision:NAME, hf:FOLDER or MODULE:CALLABLE"
    return ClasswiseError(
        f"{path} holds plain tensors (of a pickle nothing else is read) and does not say what "
        f"network they belong to; name it: {options.arch.format(names, repr(str(path)))}; {hint}"
    )


def _own(path: Path, how: Opening) -> Opened:
    """A file of classwise, which says all of itself."""
    if how.rename:
        raise ClasswiseError(f"{path} was written by classwise; leave out --rename")
    model, about = load_model(path, how.arch)
    if how.normalise is not None:
        if names_built_in(about["network"]["spec"]):
            raise ClasswiseError(
                f"{path} normalises its images itself; leave out {how.options.instead}"
            )
        channels = about["network"]["channels"]
        model = normalised(model, Normalisation.of(how.normalise), channels)
    return Opened(model.eval(), about)


def _outputs(tensors: Mapping[str, Tensor], path: Path) -> int:
    """How many rows the head of a file has: the last matrix of a usual name, or of all."""
    matrices = {name: t for name, t in tensors.items() if t.ndim == 2}
    named = [t for n, t in matrices.items() if {*n.split(".")[:-1]} & {*HEAD_NAMES, "logits"}]
    last = [*matrices.values(), *named][-1:]
    if not last:
        raise ClasswiseError(f"{path} does not show how many classes it has; give num_classes")
    return last[0].shape[0]


def _normalisation(
    said: Normalisation | None, wanted: Mapping[str, Tensor], path: Path, how: Opening
) -> dict[str, Tensor]:
    """The buffers of a classifier of ours, where the user said what they are."""
    if said is None:
        raise ClasswiseError(
            f"{path} does not say how its images are normalised; say it: {how.options.normalise}"
        )
    channels = wanted["mean"].shape[1]
    if len(said.mean) not in (1, channels):
        raise ClasswiseError(
            f"the normalisation is for {len(said.mean)} channels, but {how.arch} is built for "
            f"{channels}; give one mean and deviation per channel"
        )
    return {
        name: torch.tensor(getattr(said, name)).view(1, -1, 1, 1).expand(wanted[name].shape).clone()
        for name in ("mean", "deviation")
    }


def _way_out(misfits: Misfits, path: Path, spec: str, fitted: Fitted, options: Options) -> str:
    """What the user can do about tensors that do not fit."""
    if not misfits.missing and not misfits.left and len(misfits.shapes) <= 2:
        parts = {name.rpartition(".")[0] for name in misfits.shapes}
        if len(parts) == 1:
            return (
                f"is {parts.pop()} its head, for other classes? Audit it on data of its own "
                f"classes, or train a new head first: classwise train clean --begin {path} "
                f"--model {spec}"
            )
    if misfits.pairs and len(misfits.pairs) <= 3:
        rename = [options.rename.format(old, new) for old, new in misfits.pairs.items()]
        words = options.renamed.format(" ".join(rename))
        return f"are these the same under other names? Then {words}"
    if misfits.left and not misfits.missing and not misfits.shapes:
        part = misfits.left[0].partition(".")[0]
        without = options.left_out.format(part)
        return f"if the network gives the same answers without them, {without}"
    if parse_call(spec).name.startswith("preactresnet18") and "features.norm.bias" in (
        *misfits.missing,
        *misfits.left,
    ):
        return (
            "preactresnet18 has a BatchNorm before the pooling, preactresnet18-nobn and "
            "preactresnet18-raw have none: take the one that made it (docs/models.md)"
        )
    likely = ", ".join(architectures_of(fitted.tensors))
    by_name = f"; by their names they may be {likely}" if likely else ""
    return f"name the architecture that these weights were trained in{by_name}"
