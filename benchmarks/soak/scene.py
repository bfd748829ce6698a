"""What is broken again and again: a short training, an audit by a full suite, and what is equal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from classwise.judging.audits import read_ledger
from soak.command import run
from soak.fault import must

QUIET = ("--device", "cpu", "--quiet")
RADIUS = "0.1"  # of an audit: one image stands, some fall to the first search, some before
TRAIN = (
    *("train", "at(steps=1)+ccm+ema", "--data", "digits", "--model", "cnn(width=2)"),
    *("--subset", "60", "--valid", "0.3", "--eps", "0.2", "--epochs", "4", "--batch-size", "16"),
    *("--set", "valid_attack=pgd-1", "--watch", "train:clean", *QUIET),
)
# Learns enough for an image to stand against all four searches, which takes seconds.
LEARNS = (
    *("train", "clean", "--data", "digits", "--model", "cnn(width=2)", "--eps", RADIUS),
    *("--set", "optimiser=adamw", "--lr", "0.02", "--epochs", "2", "--batch-size", "64"),
    *("--set", "valid_attack=pgd-1", *QUIET),
)
ATTACKS = "clean,autoattack"
IMAGES = 6


def train_words(folder: Path) -> list[str]:
    """The training into a folder."""
    return [*TRAIN, "--out", str(folder)]


def audit_words(weights: Path, folder: Path) -> list[str]:
    """The audit of a weights file, kept in a folder."""
    given = ("--data", "digits", "--attacks", ATTACKS, "--eps", RADIUS, "--limit", str(IMAGES))
    return ["audit", str(weights), *given, "--batch-size", "1", *QUIET, "--out", str(folder)]


def go_on(words: Sequence[str], folder: Path, log: Path) -> None:
    """Repeat a command as its user would: a training that has begun with --resume."""
    begun = words[0] == "train" and (folder / "run.json").exists()
    run([*words, *["--resume"] * begun], log)


def learnt(place: Path) -> Path:
    """Weights of a model that is worth an audit."""
    folder = place / "learnt"
    run([*LEARNS, "--out", str(folder)], place / "learnt.log")
    return folder / "weights" / "last.safetensors"


def result_of(words: Sequence[str], folder: Path) -> Any:
    """All of a command's result that must be the same, bit for bit."""
    return trained(folder) if words[0] == "train" else rows(folder)


def trained(folder: Path) -> dict[str, bytes]:
    """The files of a training by name; seconds differ from run to run."""
    names = ("run.json", "history.jsonl", "watch.jsonl", "*.safetensors", "weights/*.safetensors")
    found = sorted(file for name in names for file in folder.glob(name))
    return {str(file.relative_to(folder)): file.read_bytes() for file in found}


def rows(folder: Path) -> list[tuple[Any, ...]]:
    """Every row of a ledger, also twice; it must be readable as a report reads it."""
    (audit,) = read_ledger(folder)
    right = [audit.report[name].tally.hits.sum() for name in ATTACKS.split(",")]
    # where all images are wrong to begin with, no search ever runs, and nothing is interrupted
    must(0 < right[1] < right[0], f"of the images {right} stand; some must, and some must fall")
    return duckdb.execute(
        f"SELECT * EXCLUDE (run) FROM '{folder}/predictions/*.parquet' ORDER BY ALL"
    ).fetchall()
