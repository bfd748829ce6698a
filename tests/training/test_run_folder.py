"""The folder of a run, and what it refuses."""

from dataclasses import replace

import pytest
from refusals import refused
from short_runs import same_tensors, weights_of
from training_records import record

from classwise.recipe_text import parse_recipe
from classwise.training.loop import train
from classwise.training.run import Run


class TestFolder:
    def test_training_twice_into_one_folder_is_refused(self, go):
        run = go("run", epochs=1)
        before = record(run)
        with refused("already holds 1 epochs", "resume=True"):
            go("run", epochs=1)
        assert record(run) == before

    @pytest.mark.parametrize("resume", [False, True])
    @pytest.mark.parametrize(
        "other",
        [{"recipe": "at(steps=2)"}, {"lr": 0.01}, {"seed": 1}, {"epochs": 2}, {"eps": 0.1}],
        ids=str,
    )
    def test_a_folder_with_another_run_is_refused(self, go, other, resume):
        named = {"recipe": "at.steps is 1 there and 2 here", "epochs": "epochs is 1 there and 2"}
        run = go("run", "at(steps=1)", epochs=1)
        before = record(run)
        (setting,) = other
        words = named.get(setting, f"; {setting} is ")
        with refused("holds another run", "at", "another folder", words):
            go("run", resume=resume, **{"recipe": "at(steps=1)", "epochs": 1, **other})
        assert record(run) == before

    def test_a_folder_with_other_data_is_refused(self, go, tiny):
        go("run", epochs=1)
        with refused("holds another run", "its data differ"):
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
        assert same_tensors(dict(again.model("last").state_dict()), weights_of(run))

    def test_moving_a_run_does_not_change_who_it_is(self, go, tmp_path):
        run = go("here", epochs=2)
        moved = run.path.rename(tmp_path / "there")
        before = record(Run(moved))
        assert record(go("there", epochs=2, resume=True)) == before


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
