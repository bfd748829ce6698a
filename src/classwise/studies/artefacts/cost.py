"""What methods cost in training, counted in network passes of one image."""

from __future__ import annotations

from typing import Literal

from classwise.errors import unknown
from classwise.methods.xu2021_frl import first_epoch
from classwise.studies.artefact import Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.cells import Setting, cell_over, notes_of, settings_of
from classwise.studies.found import Found, FoundRun, Hole
from classwise.studies.trained_with import epochs_of, slots_of
from classwise.training.passes import passes_of_training


class CostOptions(ArtefactOptions):
    """Training costs side by side.

    Wei, section 4.4: FRL needs a robust model before it begins, CFA does not. `base` is the run
    that the others are multiples of, by its row or recipe.
    """

    kind: Literal["cost"]
    base: str = ""  # the first one without


def cost(found: Found, options: CostOptions) -> Artefact:
    """Passes of every method, those before FRL begins, and multiples of a base."""
    found = found.only(options.where)
    settings = settings_of(found)
    labels = [setting.label for setting in settings]
    if options.base and options.base not in labels:
        raise unknown("base of the costs", options.base, labels)
    base = settings[labels.index(options.base) if options.base else 0]
    rows = tuple(_row(setting, base) for setting in settings)
    costs = tuple(row[3].mean for row in rows)
    return Artefact(
        options.file_name,
        options.title,
        (
            *("run", "epochs", "passes an epoch", "passes in all", "of it pre-training"),
            f"times {base.label}",
        ),
        rows,
        (
            *notes_of(found),
            "Network passes of one training image: a forward is one, a backward to the image "
            "another, a backward to the weights a third. Validation, weights perturbed besides, a "
            "teacher and steps that a policy adds are not counted, and no attack stops early.",
            *_begun(settings),
            *([options.note] if options.note else []),
        ),
        Figure("bars", "run", "passes", (Series("passes", tuple(labels), costs),), unit=""),
    )


def passes(run: FoundRun) -> float:
    """Passes of one training image in the whole run."""
    return float(passes_of_training(slots_of(run), epochs_of(run)))


def pre_training(run: FoundRun) -> float:
    """Those of them in the epochs in which FRL trains the robust model that it then tunes."""
    options = run.record().about.get("recipe", {}).get("frl")
    if options is None or not options.get("start"):
        return 0.0
    epochs, steps = epochs_of(run), slots_of(run).steps
    if steps is not None and not isinstance(steps, int):
        raise Hole("the attack's steps change in the course of the run")
    return passes(run) * first_epoch(options["start"], epochs) / epochs


def _row(setting: Setting, base: Setting) -> tuple[Cell, ...]:
    alone = cell_over(base.runs, passes, unit="").mean

    def multiple(run: FoundRun) -> float:
        if alone is None:
            raise Hole(f"{base.label} is not there")
        return passes(run) / alone

    return (
        Cell(words=setting.label),
        cell_over(setting.runs, lambda run: float(epochs_of(run)), unit=""),
        cell_over(setting.runs, lambda run: passes(run) / epochs_of(run), unit=""),
        cell_over(setting.runs, passes, unit=""),
        cell_over(setting.runs, pre_training, unit=""),
        cell_over(setting.runs, multiple, unit=""),
    )


def _begun(settings: tuple[Setting, ...]) -> list[str]:
    """Runs that began from weights of another run."""
    names = [
        setting.label
        for setting in settings
        if any(run.run and run.run.about.get("config", {}).get("begin") for run in setting.runs)
    ]
    said = f"{', '.join(names)}: begun from other weights, whose own training is not counted."
    return [said] if names else []
