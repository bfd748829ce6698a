"""Five recipes on embedded digits: the papers' story in two or three minutes on two cores."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from classwise.doors.targets import audit_target
from classwise.doors.wish import Wish
from classwise.locks import FolderLock
from classwise.report.html import load_runs, write_report
from classwise.report.tables import rich_table
from classwise.spelling import spell_eps
from classwise.training.config import TrainConfig
from classwise.training.loop import train

# Chosen on validation images with five seeds (docs/results.md): where class-wise methods help here.
RECIPES = ("clean", "at", "trades", "trades+wat", "trades+dafa")
CONFIG = TrainConfig(
    data="digits",
    model="cnn",
    eps=0.2,
    epochs=30,
    batch_size=64,
    optimiser="adamw",
    lr=2e-3,
    valid="0.1",
)


def run_quickstart(folder: Path, *, device: str, quiet: bool, console: Console) -> Path:
    """Train, audit, report; runs that are already there are not trained again."""
    paths = [folder / recipe for recipe in RECIPES]
    remedy = "wait for it, or choose another folder"
    with FolderLock(folder, "the quickstart", remedy=remedy) as lock:
        for recipe, path in zip(RECIPES, paths, strict=True):
            train(recipe, CONFIG, out=path, resume=True, device=device, quiet=quiet)
            audit_target(Wish(str(path), device=device, quiet=quiet))
        runs = load_runs(paths)
        report = folder / "report.html"
        lock.check()
        write_report(runs, report)
    console.print(rich_table([entry for run in runs for entry in run.audits]))
    console.print(
        f"digits, {CONFIG.model}, eps {spell_eps(CONFIG.eps)}, {CONFIG.epochs} epochs, one seed: "
        "a demonstration at small scale, not a result of the papers.",
        soft_wrap=True,
    )
    return report
