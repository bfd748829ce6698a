import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cases import CASES
from refusals import refused

from classwise.data.dataset import Dataset, DataSource
from classwise.laws.made_up import write_teacher
from classwise.recipe_text import load_recipe, parse_recipe
from classwise.record.tensors import read_tensors
from classwise.training.config import TrainConfig
from classwise.training.loop import train
from classwise.training.run import Run
from classwise.training.schedule import learning_rate

QUICK = TrainConfig(
    eps=0.2,
    epochs=3,
    batch_size=16,
    lr=0.05,
    valid="0.3",
    model="cnn(width=2)",
    valid_attack="pgd-2",
)
LEARNING = {"epochs": 8, "model": "cnn(width=4)", "optimiser": "adamw", "lr": 0.02, "eps": 0.02}


@pytest.fixture
def go(tmp_path, tiny, monkeypatch):
    """Train on a few digits; the folder is named by the first argument."""

    def run(folder, recipe="at(steps=2)+ccm+ema", *, resume=False, source=None, **options):
        config = TrainConfig(**{**QUICK.model_dump(), **options})
        source = tiny() if source is None else source
        if load_recipe(recipe).slots.teacher:
            monkeypatch.chdir(tmp_path)
            write_teacher(Path("teacher.safetensors"), source)
        return train(
            recipe, config, out=tmp_path / folder, resume=resume, source=source, quiet=True
        )

    return run


def record(run):
    """Everything that must be the same, bit for bit: weights, state, history, card."""
    names = ("run.json", "history.jsonl", "state.safetensors", "weights/*.safetensors")
    files = sorted(file for name in names for file in run.path.glob(name))
    return {str(file.relative_to(run.path)): file.read_bytes() for file in files}


def assert_same_record(one, other):
    first, second = record(one), record(other)
    assert set(first) == set(second)
    assert [name for name in first if first[name] != second[name]] == []
    assert "weights/last.safetensors" in first
    assert "history.jsonl" in first


def weights(run, name="last"):
    return read_tensors(run.weights_path(name))[0]


def same_tensors(one, other):
    return set(one) == set(other) and all(torch.equal(one[n], other[n]) for n in one)


OWN_MODEL = '''
import torch
from torch import nn

forwards, trouble_at, trouble = 0, None, None


class Own(nn.Module):
    """Two layers with BatchNorm and dropout; makes trouble at a training forward of choice."""

    def __init__(self, num_classes, channels=1, hidden=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(64 * channels, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
            nn.Dropout(0.2), nn.Linear(hidden, num_classes),
        )

    def forward(self, images):
        global forwards
        logits = self.net(images)
        if self.training:
            forwards += 1
            if forwards == trouble_at:
                if trouble == "nan":
                    return logits * float("nan")
                raise KeyboardInterrupt
        return logits


def short(num_classes):
    return Own(num_classes - 3)


def words():
    return "no model"


INSTANCE = Own(10)
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module with a model of the user's, in a folder of its own."""
    name = f"own_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / f"{name}.py").write_text(OWN_MODEL)
    monkeypatch.syspath_prepend(folder)
    yield __import__(name)
    del sys.modules[name]


def forwards_of(own, work):
    own.forwards, own.trouble_at = 0, None
    return work(), own.forwards


class TestResume:
    def interrupted_at_forward(self, go, own, number, **options):
        own.forwards, own.trouble_at, own.trouble = 0, number, "interrupt"
        with pytest.raises(KeyboardInterrupt):
            go("broken", **options)
        own.forwards, own.trouble_at = 0, None
        return go("broken", resume=True, **options)

    @pytest.mark.parametrize("moment", ["first batch", "boundary", "mid-epoch", "last batch"])
    @pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
    def test_an_interrupted_run_goes_on_bit_for_bit(self, go, own, moment, optimiser):
        options = {"model": f"{own.__name__}:Own(hidden=7)", "optimiser": optimiser, "lr": 0.01}
        straight, forwards = forwards_of(own, lambda: go("straight", **options))
        per_epoch = forwards // 3
        number = {
            "first batch": 1,
            "boundary": per_epoch + 1,
            "mid-epoch": per_epoch + per_epoch // 2,
            "last batch": forwards,
        }[moment]
        resumed = self.interrupted_at_forward(go, own, number, **options)
        assert_same_record(resumed, straight)

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_every_method_goes_on_bit_for_bit(self, case, go, own):
        options = {"recipe": case.text, "model": f"{own.__name__}:Own", "epochs": 4}
        if case.recipe.slots.head:
            pytest.skip("only built-in models have another head; test_laws.py has those")
        straight, forwards = forwards_of(own, lambda: go("straight", **options))
        assert forwards % 4 == 0
        resumed = self.interrupted_at_forward(go, own, 3 * forwards // 4 + 2, **options)
        assert_same_record(resumed, straight)

    def test_a_crash_at_any_write_loses_nothing(self, go, monkeypatch):
        real, writes, fatal = Path.replace, 0, None

        def counting(self, target):
            nonlocal writes
            writes += 1
            if writes == fatal:
                raise KeyboardInterrupt
            return real(self, target)

        monkeypatch.setattr(Path, "replace", counting)
        straight = go("straight", epochs=2)
        total = writes
        assert total > 8
        for fatal in range(1, total + 1):
            writes = 0
            with pytest.raises(KeyboardInterrupt):
                go(f"broken {fatal}", epochs=2)
            writes = -(10**6)
            assert_same_record(go(f"broken {fatal}", epochs=2, resume=True), straight)

    def test_a_torn_line_of_history_is_written_again(self, go, own):
        options = {"model": f"{own.__name__}:Own"}
        straight, forwards = forwards_of(own, lambda: go("straight", **options))
        own.forwards, own.trouble_at, own.trouble = 0, forwards - 1, "interrupt"
        with pytest.raises(KeyboardInterrupt):
            go("broken", **options)
        own.trouble_at = None
        history = straight.path.parent / "broken" / "history.jsonl"
        with history.open("a") as stream:
            stream.write('{"epoch": 3, "lr": 0.0')
        assert_same_record(go("broken", resume=True, **options), straight)

    def test_what_a_kill_left_of_the_first_write_is_no_obstacle(self, go, tmp_path):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / ".run.json.4242.part").write_text("{")
        assert go("run", epochs=1).finished_epochs == 1

    def test_resuming_a_finished_run_changes_nothing(self, go):
        run = go("run", epochs=2)
        before = record(run)
        assert record(go("run", epochs=2, resume=True)) == before

    @pytest.mark.parametrize("damage", ["pickle", "other run"])
    def test_a_state_that_is_not_ours_is_refused_and_nothing_lost(self, go, damage):
        run = go("run", epochs=1)
        state = run.path / "state.safetensors"
        if damage == "pickle":
            torch.save({}, state)
        else:
            other = go("other", epochs=1, seed=3)
            state.write_bytes((other.path / "state.safetensors").read_bytes())
        before = record(run)
        with refused("state.safetensors"):
            go("run", epochs=1, resume=True)
        assert record(run) == before


class TestFolder:
    def test_training_twice_into_one_folder_is_refused(self, go):
        run = go("run", epochs=1)
        before = record(run)
        with refused("already holds 1 epochs", "--resume"):
            go("run", epochs=1)
        assert record(run) == before

    @pytest.mark.parametrize("resume", [False, True])
    @pytest.mark.parametrize(
        "other",
        [{"recipe": "at(steps=2)"}, {"lr": 0.01}, {"seed": 1}, {"epochs": 2}, {"eps": 0.1}],
        ids=str,
    )
    def test_a_folder_with_another_run_is_refused(self, go, other, resume):
        run = go("run", "at(steps=1)", epochs=1)
        before = record(run)
        with refused("holds another run", "at", "--out"):
            go("run", resume=resume, **{"recipe": "at(steps=1)", "epochs": 1, **other})
        assert record(run) == before

    def test_a_folder_with_other_data_is_refused(self, go, tiny):
        go("run", epochs=1)
        with refused("holds another run"):
            go("run", epochs=1, resume=True, source=tiny(per_class=5))

    def test_data_that_may_be_mirrored_are_other_data(self, go, tiny):
        source = tiny()
        go("run", epochs=1, source=source)
        mirrored = replace(source, train=replace(source.train, mirrored=True))
        with refused("holds another run"):
            go("run", epochs=1, resume=True, source=mirrored)

    def test_a_folder_with_other_files_is_refused(self, go, tmp_path):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "thesis.tex").write_text("years of work")
        with refused("no run of ours"):
            go("run", epochs=1)
        assert [file.name for file in (tmp_path / "run").iterdir()] == ["thesis.tex"]

    @pytest.mark.parametrize(
        "mistake",
        [{"model": "cn"}, {"valid": "first"}, {"norm": "L7"}, {"valid_attack": "pdg-2"}],
        ids=str,
    )
    def test_a_mistake_in_the_options_does_not_block_the_folder(self, go, mistake):
        with refused(*mistake.values()):
            go("run", epochs=1, **mistake)
        assert go("run", epochs=1).finished_epochs == 1

    def test_a_run_can_be_read_back(self, go):
        run = go("run", "trades(steps=1, beta=2)+ccm+ema(start=1)", epochs=2)
        again = Run(run.path)
        assert again.recipe == parse_recipe("trades(steps=1, beta=2)+ccm+ema(start=1)")
        assert again.config.epochs == 2
        assert {"last", "best", "ema-last", "ema-best"} <= set(again.weights)
        assert [epoch["epoch"] for epoch in again.history] == [1, 2]
        assert same_tensors(dict(again.model("last").state_dict()), weights(run))

    def test_moving_a_run_does_not_change_who_it_is(self, go, tmp_path):
        run = go("here", epochs=2)
        moved = run.path.rename(tmp_path / "there")
        before = record(Run(moved))
        assert record(go("there", epochs=2, resume=True)) == before


class TestHistory:
    def test_every_epoch_has_per_class_vectors_and_the_settings_it_was_trained_with(self, go):
        run = go("run", "at(steps=2)+ccm(margin_floor=0.4)", epochs=3)
        first, second, third = run.history
        assert first["settings"]["margin"] == pytest.approx([0.2] * 10)
        for before, after in ((first, second), (second, third)):
            rates = before["train"]["robust"]["by_class"]
            expected = [(0.4 + rate) * 0.2 for rate in rates]
            assert after["settings"]["margin"] == pytest.approx(expected, rel=1e-6)
        for epoch in run.history:
            for condition in ("clean", "pgd-2"):
                assert len(epoch["valid"]["live"][condition]["by_class"]) == 10

    def test_attacks_are_recorded_only_where_there_are_attacks(self, go):
        epoch = go("run", "clean", epochs=1).history[0]
        assert set(epoch["train"]) == set(epoch["valid"]["live"]) == {"clean"}
        assert set(go("other", "at(steps=1)", epochs=1).history[0]["train"]) == {"robust"}

    @pytest.mark.parametrize("recipe", ["clean", "at(steps=2)", "trades(steps=2, beta=1)"])
    def test_training_learns(self, go, tiny, recipe):
        run = go("run", recipe, source=tiny(per_class=30), **LEARNING)
        first, last = run.history[0], run.history[-1]
        assert last["valid"]["live"]["clean"]["overall"] > 0.5
        assert last["loss"]["total"] < 0.7 * first["loss"]["total"]

    def test_without_a_validation_split_training_still_works(self, go):
        run = go("run", valid="0", epochs=2)
        assert run.finished_epochs == 2
        assert "last" in run.weights
        assert "best" not in run.weights  # nothing to choose by

    def test_a_subset_trains_on_so_many_images(self, go):
        run = go("run", "clean", subset=20, epochs=1)
        assert run.finished_epochs == 1
        assert not same_tensors(weights(run), weights(go("all", "clean", epochs=1)))


class TestAverages:
    @pytest.mark.parametrize("start", [1, 2])
    def test_an_average_equals_a_straight_loop(self, go, start):
        common = {"schedule": "constant", "model": "resnet9(width=2)"}
        recipe = f"at(steps=1)+ema(decay=0.7, start={start})"
        live = {
            epochs: weights(go(f"{epochs} epochs", recipe, epochs=epochs, **common))
            for epochs in (1, 2, 3)
        }
        found = weights(go("3 epochs", recipe, epochs=3, resume=True, **common), "ema-last")
        expected = {name: value.double() for name, value in live[start].items()}
        for epoch in range(start + 1, 4):
            for name, value in expected.items():
                if live[epoch][name].is_floating_point():
                    expected[name] = 0.7 * value + 0.3 * live[epoch][name].double()
                else:
                    expected[name] = live[epoch][name].double()
        assert any("running_var" in name for name in found)
        for name, value in found.items():
            torch.testing.assert_close(value.double(), expected[name], rtol=1e-6, atol=1e-7)

    def test_decay_0_is_the_live_model(self, go):
        run = go("run", "at(steps=1)+ema(decay=0, start=0)", model="resnet9(width=2)")
        assert same_tensors(weights(run, "ema-last"), weights(run, "last"))

    def test_an_average_does_not_exist_before_its_start(self, go):
        run = go("run", "clean+ema(start=3)", epochs=2)
        assert not [name for name in run.weights if name.startswith("ema")]
        assert "ema" not in run.history[-1]["valid"]

    def test_an_average_does_not_disturb_training(self, go):
        plain, watched = go("plain", "at(steps=1)"), go("watched", "at(steps=1)+ema(start=0)")
        assert same_tensors(weights(plain), weights(watched))


class TestKeeps:
    def score(self, epoch, name):
        found = epoch["valid"][name]["pgd-2"]
        return found["overall"] + min(rate for rate in found["by_class"] if rate is not None)

    @pytest.mark.parametrize("name", ["live", "ema"])
    def test_best_is_the_first_epoch_with_the_highest_overall_plus_worst(self, go, tiny, name):
        source = tiny(per_class=20)
        run = go("run", "at(steps=2)+ema(start=1)", source=source, **LEARNING)
        scores = [self.score(epoch, name) for epoch in run.history]
        assert len(set(scores)) > 3
        prefix = "" if name == "live" else f"{name}-"
        _, about = read_tensors(run.weights_path(f"{prefix}best"))
        assert about["epoch"] == scores.index(max(scores)) + 1
        assert read_tensors(run.weights_path(f"{prefix}last"))[1]["epoch"] == len(scores)

    def test_best_is_chosen_however_the_attack_is_spelled(self, go):
        run = go("run", valid_attack="pgd-2(step=0.05, start=uniform)", epochs=1)
        assert "best" in run.weights

    def test_the_test_part_is_never_looked_at(self, go, tiny):
        source = tiny()
        blank = replace(source.test, images=torch.zeros_like(source.test.images))
        other = DataSource("tiny", source.train, blank)
        assert_same_record(go("one", source=source), go("two", source=other))


class TestSchedules:
    def rates(self, epochs, **options):
        config = TrainConfig(epochs=epochs, lr=0.1, **options)
        return [learning_rate(config, epoch) for epoch in range(epochs)]

    def test_the_step_schedule_drops_tenfold_at_half_and_three_quarters(self):
        found = self.rates(200)
        assert found == pytest.approx([0.1] * 100 + [0.01] * 50 + [0.001] * 50)
        assert self.rates(20, drops=(5, 0.5)) == pytest.approx([0.1] * 5 + [0.01] * 5 + [1e-3] * 10)

    @pytest.mark.parametrize("epochs", range(1, 12))
    def test_short_runs_begin_at_the_full_rate(self, epochs):
        assert self.rates(epochs)[0] == 0.1

    def test_cosine_falls_from_the_full_rate_to_nothing(self):
        config = TrainConfig(epochs=8, lr=0.1, schedule="cosine")
        for epoch in (0, 0.5, 3, 7.25):
            expected = 0.05 * (1 + math.cos(math.pi * epoch / 8))
            assert learning_rate(config, epoch) == pytest.approx(expected)
        assert learning_rate(config, 8) == pytest.approx(0)

    def test_constant_stays(self):
        assert self.rates(5, schedule="constant") == [0.1] * 5

    def test_the_history_says_which_rate_an_epoch_began_with(self, go):
        run = go("run", "clean", epochs=4, schedule="cosine")
        expected = [learning_rate(run.config, epoch) for epoch in range(4)]
        assert [epoch["lr"] for epoch in run.history] == pytest.approx(expected)

    def test_the_rate_reaches_the_optimiser(self, go):
        one = go("one", "clean", epochs=2, drops=(1,), optimiser="sgd")
        other = go("two", "clean", epochs=2, drops=(), optimiser="sgd")
        assert one.history[0]["loss"] == other.history[0]["loss"]
        assert not same_tensors(weights(one), weights(other))


class TestDivergence:
    @pytest.mark.parametrize("recipe", ["clean", "at(steps=1)", "trades(steps=1)+ccm+ema"])
    def test_a_rate_too_high_stops_with_epoch_and_batch(self, go, tmp_path, recipe):
        with refused("epoch 1", "batch", "lr"):
            go("run", recipe, lr=1e20, epochs=2)
        tensors, about = read_tensors(tmp_path / "run" / "state.safetensors")
        assert about["epoch"] == 0
        assert all(torch.isfinite(t).all() for t in tensors.values() if t.is_floating_point())

    def test_the_last_good_checkpoint_stays(self, go, own):
        options = {"model": f"{own.__name__}:Own", "epochs": 3, "schedule": "constant"}
        straight, forwards = forwards_of(own, lambda: go("straight", "clean", **options))
        batches = forwards // 3
        own.forwards, own.trouble_at, own.trouble = 0, 2 * batches + 2, "nan"
        with refused("epoch 3", f"batch 2 of {batches}", "epoch 2 is kept"):
            go("run", "clean", **options)
        run = Run(straight.path.parent / "run")
        assert run.finished_epochs == 2
        assert read_tensors(run.weights_path("last"))[1]["epoch"] == 2
        assert all(torch.isfinite(t).all() for t in weights(run).values())
        own.trouble_at = None
        assert_same_record(go("run", "clean", resume=True, **options), straight)


class TestOddWorlds:
    @pytest.mark.parametrize("recipe", ["at(steps=1)", "trades(steps=1)"])
    def test_one_leftover_sample_is_no_trouble_for_batchnorm(self, go, tiny, recipe):
        source = tiny(per_class=5)  # 3 of each class train: 30 samples
        run = go("run", recipe, source=source, model="resnet9(width=2)", batch_size=29, epochs=1)
        assert run.finished_epochs == 1
        assert read_tensors(run.weights_path("last"))[0]["features.stem.1.num_batches_tracked"] > 0

    def test_images_of_one_pixel_train(self, go):
        images = torch.arange(12, dtype=torch.uint8).view(12, 1, 1, 1)
        data = Dataset(images, torch.arange(12) % 2, ("even", "odd"))
        run = go("run", "at(steps=1)", source=DataSource("dots", data, data), epochs=1)
        assert run.finished_epochs == 1

    @pytest.mark.parametrize("model", ["cnn(width=2)", "resnet9(width=2)"])
    def test_colour_and_odd_sizes_train(self, go, model):
        rng = torch.Generator().manual_seed(0)
        images = torch.randint(256, (24, 3, 9, 7), generator=rng, dtype=torch.uint8)
        data = Dataset(images, torch.arange(24) % 3, ("a", "b", "c"))
        run = go("run", source=DataSource("noise", data, data), model=model, epochs=1)
        assert run.model()(torch.rand(2, 3, 9, 7)).shape == (2, 3)


class TestOwnModel:
    def test_module_and_callable_serve_as_a_model(self, go, own):
        run = go("run", model=f"{own.__name__}:Own(hidden=5)", epochs=1)
        model = run.model()
        assert isinstance(model, own.Own)
        assert model.net[1].out_features == 5
        assert same_tensors(dict(model.state_dict()), weights(run))

    def test_a_model_object_begins_from_its_own_weights_every_time(self, go, own):
        spec = f"{own.__name__}:INSTANCE"
        before = {name: value.clone() for name, value in own.INSTANCE.state_dict().items()}
        one, two = go("one", model=spec, epochs=1), go("two", model=spec, epochs=1)
        assert same_tensors(weights(one), weights(two))
        assert same_tensors(dict(own.INSTANCE.state_dict()), before)

    def test_two_weights_of_a_run_are_two_models(self, go, own):
        run = go("run", "at(steps=1)+ema(start=1)", model=f"{own.__name__}:INSTANCE", epochs=2)
        last, average = run.model("last"), run.model("ema-last")
        assert same_tensors(dict(last.state_dict()), weights(run, "last"))
        assert same_tensors(dict(average.state_dict()), weights(run, "ema-last"))

    def test_the_wrong_number_of_outputs_is_refused(self, go, own):
        with refused("(2, 7)", "10 classes"):
            go("run", model=f"{own.__name__}:short")

    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ("{}:Onw", ("'Onw'", "did you mean 'Own'")),
            ("{}:words", ("str", "torch.nn.Module")),
            ("{}:forwards", ("must be a model",)),
            ("nowhere_at_all:Own", ("nowhere_at_all",)),
            ("{}:Own(7)", ("Own",)),
            ("{}:Own(hiden=7)", ("hiden",)),
        ],
    )
    def test_what_is_no_model_is_refused(self, go, own, spec, words):
        with refused(*words):
            go("run", model=spec.format(own.__name__), epochs=1)


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"eps": 8}, ("eps is 8.0", "8/255")),
            ({"eps": "eight"}, ("eight",)),
            ({"eps": -0.1}, ("eps", "0 or more")),
            ({"epochs": -1}, ("epochs",)),
            ({"batch_size": 0}, ("batch_size",)),
            ({"lr": 0}, ("lr",)),
            ({"lr": "fast"}, ("lr", "fast")),
            ({"momentum": 1}, ("momentum",)),
            ({"optimiser": "adamax"}, ("optimiser", "sgd")),
            ({"schedule": "steps"}, ("schedule", "cosine")),
            ({"seed": -1}, ("seed",)),
            ({"epoch": 3}, ("'epoch'", "did you mean 'epochs'")),
            ({"data": "digts"}, ("'digts'", "did you mean 'digits'")),
            ({"model": "resnet99"}, ("'resnet99'", "cnn")),
            ({"model": "cnn(wdth=3)"}, ("'wdth'", "did you mean 'width'")),
            ({"model": "cnn(width=0)"}, ("width",)),
            ({"valid_attack": "pdg-10"}, ("pdg-10",)),
            ({"norm": "L9"}, ("L9", "Linf")),
            ({"norm": "L2", "eps": -1}, ("eps", "0 or more")),
        ],
        ids=str,
    )
    def test_options_that_make_no_sense_are_refused(self, tmp_path, options, words):
        with refused(*words):
            train("at", out=tmp_path / "run", quiet=True, **{"eps": 0.1, **options})

    def test_an_unknown_recipe_leaves_no_folder(self, tmp_path):
        with refused("'tradse'", "did you mean 'trades'"):
            train("tradse", out=tmp_path / "run", quiet=True)
        assert not (tmp_path / "run").exists()

    def test_a_device_that_is_not_there_is_refused(self, tmp_path):
        with refused("gpu"):
            train("at", out=tmp_path / "run", device="gpu", quiet=True)


def test_training_leaves_global_random_state_alone(go, own):
    before = torch.get_rng_state()
    go("run", model=f"{own.__name__}:Own", epochs=1)  # with dropout
    assert torch.equal(torch.get_rng_state(), before)


def test_a_killed_run_resumes_bit_for_bit(tmp_path):
    seed = int(os.environ.get("KILL_SEED", random.SystemRandom().randrange(10**6)))
    print(f"repeat with KILL_SEED={seed}")
    chance = random.Random(seed)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    recipe = "at(steps=2)+ccm+ema(start=1)"
    options = ["--data", "digits", "--subset", "200", "--model", "cnn(width=4)", "--eps", "0.2"]
    options += ["--epochs", "14", "--valid", "first:4"]

    def start(folder, *more):
        command = [sys.executable, "-m", "classwise", "train", recipe, *options]
        return subprocess.Popen(
            [*command, "--out", str(tmp_path / folder), *more],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(process):
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output

    def epochs():
        history = tmp_path / "killed" / "history.jsonl"
        return len(history.read_text().splitlines()) if history.exists() else 0

    def wait_for(count, process):
        while epochs() < count and process.poll() is None:
            time.sleep(0.002)
        return time.monotonic()

    straight = start("straight")
    for more in ([], ["--resume"]):
        process, done = start("killed", *more), epochs()
        usual = -wait_for(done + 1, process) + wait_for(done + 2, process)
        time.sleep(chance.uniform(0, 1.5 * usual))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    assert 4 <= epochs() < 14
    finish(start("killed", "--resume"))
    finish(straight)
    assert_same_record(Run(tmp_path / "killed"), Run(tmp_path / "straight"))
