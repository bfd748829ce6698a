"""The models that a user points at: of a run, a weights file, or a callable of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from classwise.auditing.flags import Flag
from classwise.auditing.progress import warn
from classwise.data.dataset import Dataset
from classwise.doors.wish import Wish
from classwise.errors import ClasswiseError, unknown
from classwise.files import given_path
from classwise.models import build_model, names_built_in
from classwise.models.code_files import code_in, open_code
from classwise.models.functions import function_of_images
from classwise.models.onnx_file import is_onnx
from classwise.models.prepared import normalised
from classwise.models.zoo import (
    PRETRAINED,
    asks_for_weights,
    published_classes,
    with_weights,
    zoo_of,
)
from classwise.record.description import check_description
from classwise.record.opening import fit_to, load_whole, open_model
from classwise.record.state_dict import file_and_key, read_state_dict
from classwise.spelling import average_and_keep, parse_call
from classwise.training.run import Run

_RANDOM = (
    "nobody trained this network, its weights are random: give a file of its weights with "
    "--weights, or ask for published ones with NAME(pretrained=true)"
)


class Pointed(NamedTuple):
    """A model to audit: what its weights and its recipe are called, and what to know of it."""

    weights: str
    recipe: str
    model: nn.Module | Path | Callable[[Any], Any]  # or an ONNX file, or a function
    flags: tuple[Flag, ...] = ()


def models_of(wish: Wish, run: Run | None, images: Dataset) -> Iterator[Pointed]:
    """All to audit."""
    target = wish.target
    file = file_and_key(target)[0].is_file() or target.endswith(".safetensors")
    _check_options(wish, run, file)
    if run is not None:
        _same_classes(target, run.about["data"]["class_names"], images)
        for name in _chosen_weights(run, wish.weights):
            model = run.model(name, wish.network)
            yield Pointed(name, run.about.get("recipe_name", run.name), model)
    elif is_onnx(target):
        yield Pointed("given", Path(target).name.partition(".onnx")[0], Path(target))
    elif file and (kind := code_in(Path(target))):
        model = open_code(Path(target), kind, trusted=wish.trust)
        yield Pointed("given", Path(target).stem, model)
    elif file:
        yield _of_file(wish, images)
    elif ":" in target and not zoo_of(target) and (function := function_of_images(target)):
        if wish.weights:
            raise ClasswiseError(
                f"{target} is a function of images, and nobody can give it weights; leave out "
                f"--weights {wish.weights}, or name a function that makes the model"
            )
        yield Pointed("given", target, function)
    elif ":" in target:
        yield _of_spec(wish, images)
    else:
        raise no_target(target)


def _check_options(wish: Wish, run: Run | None, file: bool) -> None:
    """Refuse what was given and would not be used."""
    target, network, arch = wish.target, wish.network, wish.opening.arch
    onnx = is_onnx(target)
    if wish.trust and not code_in(Path(target)):
        raise ClasswiseError(
            f"--trust is for TorchScript and torch.export files; {target} is none, leave it out"
        )
    if network is not None and (onnx or not (run or file)):
        raise ClasswiseError(
            f"--model {network} is for runs and weights files that were made with a model of your "
            f"own; {target} is none"
        )
    if arch is not None and (onnx or not file):
        what = "a run, which says what it is" if run else "no weights file"
        raise ClasswiseError(
            f"--arch {arch} is for weights files of other people; {target} is {what}"
        )
    if arch is not None and network is not None:
        raise ClasswiseError(f"--arch {arch} and --model {network} are the same; give --arch alone")
    if wish.weights and (onnx or file):
        raise ClasswiseError(f"{target} has its weights in it; leave out --weights {wish.weights}")


def _of_file(wish: Wish, images: Dataset) -> Pointed:
    """Weights in a file: of ours, or of other people in the architecture that --arch names."""
    target, how = wish.target, wish.opening
    how = replace(how, arch=how.arch or wish.network)
    if how.arch is not None and names_built_in(how.arch):
        how = replace(how, normalise=wish.normalise)
    opened = open_model(target, how, images.num_classes, images.channels)
    if opened.about:
        _same_classes(
            target, check_description(opened.about, target)["data"]["class_names"], images
        )
    if opened.words and not wish.quiet:
        warn(opened.words)
    name, recipe = opened.about.get("weights", "given"), opened.about.get("recipe", target)
    return Pointed(str(name), str(recipe), opened.model)


def _of_spec(wish: Wish, images: Dataset) -> Pointed:
    """A model that is built: of the user's own, or out of a library."""
    target, zoo = wish.target, zoo_of(wish.target)
    if zoo == "hf" and not wish.weights and PRETRAINED not in parse_call(target).options:
        target = with_weights(target, True)  # who names a snapshot means its weights
    mean, deviation = images.channel_statistics
    model = build_model(
        target,
        num_classes=images.num_classes,
        channels=images.channels,
        mean=mean,
        deviation=deviation,
    )
    asked = bool(zoo) and asks_for_weights(target)
    count = published_classes(model) if asked else None
    if count not in (None, images.num_classes):
        raise ClasswiseError(
            f"the published weights of {target} are for {count} classes, and the data have "
            f"{images.num_classes}: the head would be random; audit data of those classes, or "
            f"train first: classwise train clean --model '{target}'"
        )
    random = bool(zoo) and not asked and not wish.weights
    flags = (Flag("random-weights", _RANDOM),) if random else ()
    if wish.weights:
        path, key = _weights_of(wish)
        fitted = fit_to(model, read_state_dict(path, key)[0], target)
        load_whole(model, fitted, path, target)
        if fitted.normalisation is not None:
            model = normalised(model, fitted.normalisation, images.channels)
    return Pointed("given", wish.target, model, flags)


def normalisation_left(wish: Wish) -> Any:
    """What is still to be put before a model; our own architectures have it inside."""
    arch = wish.opening.arch
    return None if arch is not None and names_built_in(arch) else wish.normalise


def _weights_of(wish: Wish) -> tuple[Path, str]:
    """The file whose weights a model of the user's own is to have."""
    path, key = file_and_key(wish.weights)
    if not path.is_file():
        raise ClasswiseError(
            f"there is no file {wish.weights}; beside {wish.target}, --weights names a file of its "
            "weights, such as model.safetensors or model.pth"
        )
    return path, key


def check_target(target: str) -> None:
    """Refuse files that people point at instead of a model, with what they meant."""
    path = given_path(target)
    if not path.is_file():
        return
    if path.suffix.lower() in (".npz", ".npy"):
        data = f"npz:{target}" if path.suffix.lower() == ".npz" else f"npy:{path.parent}"
        raise ClasswiseError(
            f"{target} holds images, not a model; to audit a model on them: classwise audit MODEL "
            f"--data {data}"
        )
    if path.suffix == ".json":
        raise ClasswiseError(
            f"{target} describes a run; to audit the run, name its folder: classwise audit "
            f"{path.parent}"
        )
    if path.suffix == ".parquet":
        raise ClasswiseError(
            f"{target} holds predictions; to read them: classwise audit --from {path.parent}"
        )


def no_target(target: str) -> ClasswiseError:
    """What to say of something that is no model."""
    there = "" if given_path(target).exists() else " (there is no such file or folder here)"
    return ClasswiseError(
        f"{target} is neither a run folder, nor a weights file, nor an ONNX file, "
        f"nor module:callable, timm:NAME, torchvision:NAME or hf:FOLDER{there}"
    )


def _chosen_weights(run: Run, wanted: str) -> list[str]:
    """By default the final weights of the model and of each of its averages."""
    there = run.weights
    if not there:
        raise ClasswiseError(f"{run.path} has no weights yet; train it for at least one epoch")
    if wanted == "all":
        return there
    names = wanted.split(",") if wanted else [n for n in there if average_and_keep(n)[1] == "last"]
    for name in names:
        if name not in there:
            raise unknown(f"weights of {run.path}", name, there)
    return names


def _same_classes(target: str, trained: list[str], images: Dataset) -> None:
    if tuple(trained) != images.class_names:
        raise ClasswiseError(
            f"{target} was trained on {len(trained)} classes ({', '.join(trained[:3])}, …), but "
            f"the data have {images.num_classes} ({', '.join(images.class_names[:3])}, …)"
        )
