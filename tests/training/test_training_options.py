"""Options of training that are no method: schedules, precision, clipping, watching, presets."""

import json
import math

import pytest
import torch

from classwise.data.splits import split_indices
from classwise.errors import ClasswiseError
from classwise.recipe_text import parse_recipe
from classwise.training.config import TrainConfig
from classwise.training.loop import train
from classwise.training.presets import PRESETS, apply_preset
from classwise.training.schedule import learning_rate, make_optimiser

QUICK = {"model": "cnn(width=2)", "eps": 0.1, "epochs": 2, "batch_size": 16, "valid": "0.2"}


def go(path, source, recipe="at(steps=1)", **options):
    return train(recipe, out=path, source=source, quiet=True, **{"lr": 0.01, **QUICK, **options})


def weights(run, name="last"):
    return (run.path / "weights" / f"{name}.safetensors").read_bytes()


def tensors(run):
    return run.model("last").state_dict()


@pytest.mark.parametrize("schedule", ["step", "cosine", "cyclic", "one-cycle", "constant"])
def test_every_schedule_stays_between_zero_and_the_rate(schedule):
    config = TrainConfig(schedule=schedule, lr=0.3, epochs=10)
    rates = [learning_rate(config, n / 7) for n in range(71)]
    assert all(0 <= rate <= 0.3 + 1e-12 for rate in rates)
    assert max(rates) == pytest.approx(0.3, rel=0.01)


def test_cyclic_goes_straight_up_and_straight_down():
    config = TrainConfig(schedule="cyclic", lr=1.0, epochs=10)
    found = [learning_rate(config, epoch) for epoch in (0, 2, 4, 7, 10)]
    assert found == pytest.approx([0, 0.5, 1, 0.5, 0])


def test_one_cycle_begins_low_and_ends_at_nothing():
    config = TrainConfig(schedule="one-cycle", lr=1.0, epochs=10)
    found = [learning_rate(config, epoch) for epoch in (0, 1.5, 3, 6.5, 10)]
    assert found == pytest.approx([0.04, 0.52, 1, 0.5, 0], abs=1e-9)


def test_nesterov_reaches_the_optimiser():
    model = torch.nn.Linear(2, 2)
    assert make_optimiser(TrainConfig(nesterov=True), model).defaults["nesterov"]
    assert not make_optimiser(TrainConfig(), model).defaults["nesterov"]


def test_a_clipped_step_is_no_longer_than_the_rate_times_the_clip(tiny, tmp_path):
    options = {
        "clip": 0.01,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "epochs": 1,
        "schedule": "constant",
    }
    before = tensors(go(tmp_path / "none", tiny(), **{**options, "lr": 1e-12}))
    run = go(tmp_path / "run", tiny(), **{**options, "lr": 1.0})
    moved = [(after - before[name]).flatten() for name, after in tensors(run).items()]
    trained = len(split_indices(tiny().train.labels, QUICK["valid"], 0)[0])
    steps = math.ceil(trained / QUICK["batch_size"])
    assert 0 < torch.cat(moved).norm().item() <= 0.01 * steps * 1.001


def test_bfloat16_learns_something_else_but_stays_finite_and_repeats(tiny, tmp_path):
    half = go(tmp_path / "half", tiny(), precision="bfloat16")
    again = go(tmp_path / "again", tiny(), precision="bfloat16")
    full = go(tmp_path / "full", tiny())
    assert weights(half) == weights(again) != weights(full)
    assert all(bool(torch.isfinite(value).all()) for value in tensors(half).values())
    assert half.history[0]["loss"]["total"] == pytest.approx(
        full.history[0]["loss"]["total"], rel=0.1
    )


def test_training_in_the_l2_ball(tiny, tmp_path):
    run = go(tmp_path / "run", tiny(), norm="L2", eps="1.5")
    assert run.finished_epochs == 2
    assert run.config.eps == 1.5
    assert weights(run) != weights(go(tmp_path / "smaller", tiny(), norm="L2", eps=0.5))
    other = go(tmp_path / "another", tiny(), norm=2, eps=1.5)
    assert other.about["identity"] == run.about["identity"]


def test_watching_changes_nothing_and_names_its_splits(tiny, tmp_path):
    plain = go(tmp_path / "plain", tiny())
    looks = {"watch": "test:clean,test:pgd-2,train:clean", "watch_every": 1}
    watched = go(tmp_path / "watched", tiny(), **looks)
    assert weights(plain) == weights(watched)
    assert (plain.path / "history.jsonl").read_bytes() == (
        watched.path / "history.jsonl"
    ).read_bytes()
    assert plain.about["identity"] == watched.about["identity"]
    lines = [json.loads(line) for line in (watched.path / "watch.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert set(lines[0]) == {
        "epoch",
        "test:clean",
        "test:pgd-2",
        "train:clean",
        "after",
        "checksum",
    }


def test_watching_every_second_epoch_and_the_last(tiny, tmp_path):
    run = go(tmp_path / "run", tiny(), watch="test:clean", watch_every=2, epochs=3)
    lines = [json.loads(line) for line in (run.path / "watch.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [2, 3]


class TestPresets:
    @pytest.mark.parametrize("name", PRESETS)
    def test_what_the_user_gives_wins(self, name):
        recipe, config = apply_preset(name, parse_recipe("trades(steps=4)"), {"epochs": 3})
        assert config.epochs == 3
        assert recipe.slots.steps == 4

    def test_the_length_of_the_attack_reaches_an_implied_base(self):
        recipe, _ = apply_preset("minutes", parse_recipe("fat"), {})
        assert recipe.slots.steps == PRESETS["minutes"]["steps"]

    def test_the_papers_protocol(self):
        recipe, config = apply_preset("paper", parse_recipe("at"), {})
        assert (config.epochs, config.lr, config.weight_decay) == (200, 0.1, 5e-4)
        assert (config.batch_size, config.momentum, recipe.slots.steps) == (128, 0.9, 10)
        assert [learning_rate(config, e) for e in (0, 100, 150)] == pytest.approx([0.1, 0.01, 1e-3])

    def test_a_methods_own_settings_are_taken_by_its_preset_only(self):
        wat = parse_recipe("trades+wat")
        assert apply_preset("paper:wat", wat, {})[1].weight_decay == 2e-4
        for name in PRESETS:
            assert apply_preset(name, wat, {})[1].weight_decay == 5e-4

    def test_an_unknown_one_is_refused(self):
        with pytest.raises(ClasswiseError, match="did you mean 'paper'"):
            apply_preset("papers", parse_recipe("at"), {})
