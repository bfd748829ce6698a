"""Fixtures of the record's tests."""

import shutil

import pytest
from boundaries import quick_train
from damages import EPOCHS, judge

from classwise.laws.made_up import few_digits
from classwise.training.run import Run


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder of audits, with a grouping and remarks."""
    folder = tmp_path_factory.mktemp("audits") / "kept"
    judge(folder)
    return folder


@pytest.fixture
def audited(kept, tmp_path):
    return shutil.copytree(kept, tmp_path / "kept")


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A finished run."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    watching = {"watch": "train:clean", "watch_every": 1}
    return quick_train("at(steps=1)+ccm+ema", out, few_digits(), epochs=EPOCHS, **watching)


@pytest.fixture
def run(straight, tmp_path):
    return Run(shutil.copytree(straight.path, tmp_path / "run"))
