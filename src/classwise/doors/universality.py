"""What can be asked of several audited runs: do they agree on the classes?

Only `similarity` asks a model, once; what it finds is kept in the run's folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from classwise.auditing.means import class_means
from classwise.auditing.progress import Bar
from classwise.data.sources import choose_split, open_data
from classwise.data.splits import balanced_subset
from classwise.data.view import View
from classwise.errors import ClasswiseError
from classwise.judging.samples import read_samples
from classwise.judging.universal import SAME_FROM, Agreement, agreement, shared_conditions
from classwise.models.subject import Subject
from classwise.record.means import ClassMeans, read_means, write_means
from classwise.training.config import choose_device
from classwise.training.run import Run


def agree(
    runs: Sequence[str | Path],
    *,
    condition: str = "",
    weights: str | Sequence[str] = "",
    split: str = "",
    top: int | None = None,
    level: float = 0.95,
    draws: int = 2000,
    same_from: float = SAME_FROM,
    seed: int = 0,
) -> list[Agreement]:
    """Compare the order of the classes between audited runs, one `Agreement` per condition.

    Without a `condition` every one that all runs were audited under. `weights` are those of all
    runs, or one name for each.
    """
    paths = [Path(run) for run in runs]
    named = [weights] * len(paths) if isinstance(weights, str) else list(weights)
    if len(named) != len(paths):
        raise ClasswiseError(
            f"{len(named)} names of weights for {len(paths)} runs; give one for all, or one each"
        )
    read = [
        read_samples(path, weights=name, split=split)
        for path, name in zip(paths, named, strict=True)
    ]
    return [
        agreement(
            *(paths, read, one),
            same_from=same_from,
            top=top,
            level=level,
            draws=draws,
            seed=seed,
        )
        for one in ([condition] if condition else shared_conditions(read))
    ]


def similarity(
    run: str | Path,
    *,
    weights: str = "last",
    network: str | None = None,
    split: str = "test",
    limit: int = 0,
    batch_size: int = 256,
    device: str = "auto",
    quiet: bool = True,
) -> ClassMeans:
    """Mean logits of every class, made by one pass over images as they are and kept in the run.

    What is there already for the same model and data, over as many images or more, is returned as
    it is. `limit` chooses so many images, balanced.
    """
    trained = Run(Path(run))
    images = choose_split(open_data(trained.config.data), split)
    home = choose_device(device)
    data = View.of(images, trained.config.data)
    model = trained.model(weights, network).to(home)
    subject = Subject.of(model, images.images, images.num_classes, width=batch_size)
    known = read_means(trained.path, subject.identity, data.identity)
    chosen = data.take(balanced_subset(images.labels, limit, seed=0)) if limit else data
    if known is not None and int(known.sizes.sum()) >= len(chosen):
        return known
    with Bar(quiet, f"{trained.name} {weights}") as bar:
        found = class_means(subject, chosen.on(home), weights=weights, split=split, listener=bar)
    write_means(trained.path, found)
    return found
