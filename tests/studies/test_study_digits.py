"""What the study of digits stands on: its base recipes do learn."""

import math

import pytest

from classwise.studies.digits import CONFIG
from classwise.training.loop import train

CHANCE = math.log(10)  # the loss of a network that says nothing about ten classes


def losses(recipe, folder):
    # The beginning of a longer run: the rate must not fall within these two epochs.
    config = CONFIG.model_copy(update={"epochs": 2, "schedule": "constant"})
    run = train(recipe, config, out=folder, device="cpu", quiet=True)
    return [record["loss"]["total"] for record in run.history]


@pytest.mark.parametrize("recipe", ["at", "at+awp"])
def test_two_epochs_lead_away_from_chance(recipe, tmp_path):
    assert losses(recipe, tmp_path / "run")[-1] < CHANCE - 0.25


def test_a_pixel_of_movement_would_keep_them_there(tmp_path):
    # The control: the customary crop of an eighth of the side, which digits do not allow.
    assert losses("at+crop(pad=1)", tmp_path / "run")[-1] > CHANCE - 0.05
