"""Weights under another's name in a run are not taken for what the name says."""

import shutil

from refusals import refused

from classwise.training.run import Run


def test_weights_that_changed_places_are_refused(run):
    shutil.copy(run.weights_path("ema-last"), run.weights_path("last"))
    with refused("last.safetensors holds other weights", "ema-last of run", "not last of"):
        run.model("last")
    run.model("ema-last")


def test_weights_of_another_run_are_refused(run, tmp_path):
    other = Run(shutil.copytree(run.path, tmp_path / "other"))
    card = other.path / "run.json"
    text = card.read_text().replace(other.about["identity"], "another")
    card.write_text(text.replace('"checksum"', '"no longer"'))
    with refused("last.safetensors holds other weights", run.about["identity"], "of another"):
        Run(other.path).model("last")
