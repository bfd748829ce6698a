"""The models that a user points at: of a run, a weights file, or a callable of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import nn

from classwise.data.dataset import Dataset
from classwise.doors.wish import Wish
from classwise.errors import ClasswiseError, unknown
from classwise.files import given_path
from classwise.models import build_model
from classwise.models.code_files import code_in, open_code
from classwise.models.functions import function_of_images
from classwise.models.onnx_file import is_onnx
from classwise.record.description import check_description
from classwise.record.run_folder import load_model
from classwise.spelling import average_and_keep
from classwise.training.run import Run
from classwise.training.state_dict import load_whole


def models_of(
    wish: Wish, run: Run | None, images: Dataset
) -> Iterator[tuple[str, str, nn.Module | Path | Callable[[Any], Any]]]:
    """(weights name, recipe name, model, ONNX file or function) of all to audit."""
    target, network = wish.target, wish.network
    file = Path(target).is_file() or target.endswith(".safetensors")
    if network is not None and (is_onnx(target) or not (run or file)):
        raise ClasswiseError(
            f"--model {network} is for runs and weights files that were made with a model of your "
            f"own; {target} is none"
        )
    if wish.trust and not code_in(Path(target)):
        raise ClasswiseError(
            f"--trust is for TorchScript and torch.export files; {target} is none, leave it out"
        )
    if wish.weights and (is_onnx(target) or file):
        raise ClasswiseError(f"{target} has its weights in it; leave out --weights {wish.weights}")
    if run is not None:
        _same_classes(target, run.about["data"]["class_names"], images)
        for name in _chosen_weights(run, wish.weights):
            yield name, run.about.get("recipe_name", run.name), run.model(name, network)
    elif is_onnx(target):
        yield "given", Path(target).name.partition(".onnx")[0], Path(target)
    elif file and (kind := code_in(Path(target))):
        yield "given", Path(target).stem, open_code(Path(target), kind, trusted=wish.trust)
    elif file:
        model, about = load_model(Path(target), network)
        names = check_description(about, target)["data"]["class_names"]
        _same_classes(target, names, images)
        yield str(about.get("weights", "given")), str(about.get("recipe", target)), model
    elif ":" in target and (function := function_of_images(target)):
        if wish.weights:
            raise ClasswiseError(
                f"{target} is a function of images, and nobody can give it weights; leave out "
                f"--weights {wish.weights}, or name a function that makes the model"
            )
        yield "given", target, function
    elif ":" in target:
        mean, deviation = images.channel_statistics
        model = build_model(
            target,
            num_classes=images.num_classes,
            channels=images.channels,
            mean=mean,
            deviation=deviation,
        )
        if wish.weights:
            load_whole(model, _weights_of(wish))
        yield "given", target, model
    else:
        raise no_target(target)


def _weights_of(wish: Wish) -> Path:
    """The file whose weights a model of the user's own is to have."""
    path = given_path(wish.weights)
    if not path.is_file():
        raise ClasswiseError(
            f"there is no file {wish.weights}; beside {wish.target}, --weights names a file of its "
            "weights, such as model.safetensors or model.pth"
        )
    return path


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
    return ClasswiseError(
        f"{target} is neither a run folder, nor a weights file, nor an ONNX file, "
        "nor module:callable"
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
