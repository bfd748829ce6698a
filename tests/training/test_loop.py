"""History, averages, chosen weights, odd data and models of the user's own."""

from dataclasses import replace

import pytest
import torch
from refusals import refused
from short_runs import same_tensors, weights_of
from training_records import assert_same_record

from classwise.data.dataset import Dataset, DataSource
from classwise.record.tensors import read_tensors

LEARNING = {"epochs": 8, "model": "cnn(width=4)", "optimiser": "adamw", "lr": 0.02, "eps": 0.02}


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
        assert not same_tensors(weights_of(run), weights_of(go("all", "clean", epochs=1)))


class TestAverages:
    @pytest.mark.parametrize("start", [1, 2])
    def test_an_average_equals_a_straight_loop(self, go, start):
        common = {"schedule": "constant", "model": "resnet9(width=2)"}
        recipe = f"at(steps=1)+ema(decay=0.7, start={start})"
        live = {
            epochs: weights_of(go(f"{epochs} epochs", recipe, epochs=epochs, **common))
            for epochs in (1, 2, 3)
        }
        found = weights_of(go("3 epochs", recipe, epochs=3, resume=True, **common), "ema-last")
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
        assert same_tensors(weights_of(run, "ema-last"), weights_of(run, "last"))

    def test_an_average_does_not_exist_before_its_start(self, go):
        run = go("run", "clean+ema(start=3)", epochs=2)
        assert not [name for name in run.weights if name.startswith("ema")]
        assert "ema" not in run.history[-1]["valid"]

    def test_an_average_does_not_disturb_training(self, go):
        plain, watched = go("plain", "at(steps=1)"), go("watched", "at(steps=1)+ema(start=0)")
        assert same_tensors(weights_of(plain), weights_of(watched))


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
        blank = replace(source.test, store=torch.zeros_like(source.test.images))
        other = DataSource("tiny", source.train, blank)
        assert_same_record(go("one", source=source), go("two", source=other))


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
        assert same_tensors(dict(model.state_dict()), weights_of(run))

    def test_a_model_object_begins_from_its_own_weights_every_time(self, go, own):
        spec = f"{own.__name__}:INSTANCE"
        before = {name: value.clone() for name, value in own.INSTANCE.state_dict().items()}
        one, two = go("one", model=spec, epochs=1), go("two", model=spec, epochs=1)
        assert same_tensors(weights_of(one), weights_of(two))
        assert same_tensors(dict(own.INSTANCE.state_dict()), before)

    def test_two_weights_of_a_run_are_two_models(self, go, own):
        run = go("run", "at(steps=1)+ema(start=1)", model=f"{own.__name__}:INSTANCE", epochs=2)
        last, average = run.model("last"), run.model("ema-last")
        assert same_tensors(dict(last.state_dict()), weights_of(run, "last"))
        assert same_tensors(dict(average.state_dict()), weights_of(run, "ema-last"))

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


def test_training_leaves_global_random_state_alone(go, own):
    before = torch.get_rng_state()
    go("run", model=f"{own.__name__}:Own", epochs=1)  # with dropout
    assert torch.equal(torch.get_rng_state(), before)
