"""What a study file may name as data and networks: nothing that is fetched, nothing of others."""

from __future__ import annotations

from classwise.data.sources import FROM_DATA, FROM_NAMES, FROM_PATH, NAMED, fetches, read_spec
from classwise.errors import ClasswiseError, unknown
from classwise.models import MODELS, names_built_in, names_own_model
from classwise.spelling import parse_call
from classwise.studies.feature_sets import Features
from classwise.training.config import TrainConfig


def check_names(config: TrainConfig) -> None:
    """Refuse names that lead to nothing, to the network, or to code; nothing is opened here."""
    check_data(config.data)
    for spec in filter(None, (config.model, config.teacher_model)):
        if names_own_model(spec):
            raise ClasswiseError(
                f"the model {spec} is code of its own, or fetched, which a study file cannot name; "
                "train and audit it by itself: classwise train --model"
            )
        if ":" not in spec.partition("(")[0] and not names_built_in(spec):
            raise unknown("model", parse_call(spec).name, MODELS)


def check_data(spec: str) -> None:
    """Refuse data of a kind that there is not, or that may come from the network.

    >>> check_data("pooled(cifra10, by=2)")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    classwise.errors.ClasswiseError: unknown data set 'cifra10'; did you mean 'cifar10'? ...
    """
    kind, inner, _ = read_spec(spec)
    if Features.of(spec) is not None:
        return  # made by a run of the study
    if fetches(spec):
        raise ClasswiseError(
            f"{spec} may come from the network, which a study file cannot ask for; name a folder"
        )
    if kind in FROM_DATA and inner is not None:
        check_data(inner)
    elif kind not in NAMED and kind not in FROM_PATH and kind not in FROM_NAMES:
        raise unknown("data set", kind, [*NAMED, *FROM_PATH, *FROM_DATA, *FROM_NAMES])
