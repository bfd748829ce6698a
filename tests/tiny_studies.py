"""A study of three recipes that takes seconds, and an executor without processes of its own."""

from typer.testing import CliRunner

from classwise.cli import app
from classwise.studies.grid import attempt

TEXT = """
title = "Three recipes"
source = "nothing of a paper"

[[runs]]
recipe = ["clean", "at(steps=1)", "at(steps=1)+ema"]
data = "{data}"
model = "cnn"
seeds = 2

[audit]
attacks = ["clean", "pgd-2"]
weights = ["averaged-last"]

[[artefact]]
kind = "table"
title = "Table 1"
conditions = ["clean", "pgd-2"]
weights = ["averaged-last"]

[scale.smoke]
seeds = 2
settings = {{ epochs = {epochs}, subset = 100 }}
"""
DATA = "madeup(digits, size=6)"


class Here:
    """An executor in this very process, which counts its jobs."""

    def __init__(self):
        self.jobs = []

    def run(self, jobs, done):
        for job in jobs:
            self.jobs.append(job)
            done(job, attempt(job))


def write_study(folder, name="three", epochs=2, data=DATA, more=""):
    path = folder / f"{name}.toml"
    path.write_text(TEXT.format(epochs=epochs, data=data) + more)
    return str(path)


def study(*words, here=None, monkeypatch=None):
    """`classwise study` at scale smoke, without processes if an executor is given."""
    if here is not None:
        monkeypatch.setattr("classwise.cli.studying._executor", lambda *_: here)
    return CliRunner().invoke(app, ["study", *map(str, words), "--scale", "smoke", "--quiet"])
