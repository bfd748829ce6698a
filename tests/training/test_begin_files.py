"""Runs that begin from other weights: which files are taken, and which are never opened."""

import os
import pickle
import zipfile
from collections import OrderedDict

import pytest
import torch
from refusals import refused
from safetensors.torch import save_file
from short_runs import QUICK, same_tensors, short_run, weights_of
from torch import nn
from typer.testing import CliRunner

from classwise import cli
from classwise.recipe_text import parse_recipe
from classwise.record.tensors import read_tensors, write_tensors
from classwise.training.loop import train
from classwise.training.presets import apply_preset


class TestFiles:
    def test_a_run_is_its_last_weights_and_a_name_says_otherwise(self, first, begun, tmp_path):
        better = {n: t + 1 for n, t in weights_of(first).items()}
        about = read_tensors(first.weights_path("best"))[1]
        write_tensors(first.weights_path("best"), better, about)
        assert same_tensors(begun(str(first.path))[1], weights_of(first))
        assert same_tensors(begun(first.path)[1], weights_of(first))
        assert same_tensors(begun(f"{first.path}@best")[1], better)
        with refused("'bets'", "did you mean 'best'"):
            begun(f"{first.path}@bets")
        with refused("nowhere", "RUN@best"):
            begun(str(tmp_path / "nowhere"))
        with refused("nowhere", "RUN@best"):
            begun(f"{tmp_path / 'nowhere'}@best")

    def test_safetensors_with_and_without_our_header(self, first, begun, tmp_path):
        plain = tmp_path / "plain.safetensors"
        save_file(weights_of(first), plain)
        assert same_tensors(begun(str(first.weights_path("last")))[1], weights_of(first))
        run, found = begun(str(plain))
        assert same_tensors(found, weights_of(first))
        assert run.about["begin"]["taken"] == run.about["begin"]["tensors"] == len(found)

    @pytest.mark.parametrize("nest", [(), ("state_dict",), ("model",), ("net",), ("net", "model")])
    @pytest.mark.parametrize("prefix", ["", "module.", "module._orig_mod."])
    @pytest.mark.parametrize("zipped", [True, False])
    def test_pth_files(self, tmp_path, begun, nest, prefix, zipped, first_tensors):
        held = OrderedDict((prefix + n, nn.Parameter(t)) for n, t in first_tensors.items())
        for key in reversed(nest):
            held = {key: held, "epoch": 7, "accuracy": torch.tensor(0.5)}
        path = tmp_path / "theirs.pth"
        torch.save(held, path, _use_new_zipfile_serialization=zipped)
        assert same_tensors(begun(str(path))[1], first_tensors)

    def test_two_sets_of_weights_in_one_file_are_refused(self, begun, tmp_path, first_tensors):
        torch.save({"net": first_tensors, "model": first_tensors}, tmp_path / "two.pth")
        with refused("two.pth", "model and net"):
            begun(str(tmp_path / "two.pth"))

    @pytest.mark.parametrize("held", [{}, {"epoch": 3}, [torch.zeros(2)], {"net": {"lr": 1}}])
    def test_a_file_without_tensors_by_name_is_refused(self, begun, tmp_path, held):
        torch.save(held, tmp_path / "odd.pth")
        with refused("odd.pth", "state_dict"):
            begun(str(tmp_path / "odd.pth"))

    def test_half_precision_is_taken(self, begun, tmp_path, first_tensors):
        torch.save({n: t.half() for n, t in first_tensors.items()}, tmp_path / "half.pth")
        _, found = begun(str(tmp_path / "half.pth"))
        assert same_tensors(found, {n: t.half().float() for n, t in first_tensors.items()})

    def test_a_training_state_is_refused(self, first, begun):
        with refused("state.safetensors", "weights/"):
            begun(str(first.path / "state.safetensors"))


class Bomb:
    def __reduce__(self):
        return os.mkdir, (str(Bomb.target),)


@pytest.mark.parametrize("how", ["pickle 0", "pickle 2", "pickle 4", "zip", "legacy", "nested"])
def test_a_hostile_pickle_is_refused_and_never_run(begun, tmp_path, how):
    path, Bomb.target = tmp_path / "evil.pth", tmp_path / "boom"
    if how.startswith("pickle"):
        path.write_bytes(pickle.dumps(Bomb(), protocol=int(how[-1])))
    elif how == "nested":
        torch.save({"state_dict": {"head.weight": torch.zeros(2)}, "hook": Bomb()}, path)
    else:
        torch.save(Bomb(), path, _use_new_zipfile_serialization=how == "zip")
    with refused("evil.pth"):
        begun(str(path))
    assert not Bomb.target.exists()
    if how.startswith("pickle"):
        pickle.loads(path.read_bytes())
    else:
        torch.load(path, weights_only=False)
    assert Bomb.target.exists()  # it would have


def test_a_whole_pickled_model_is_refused(begun, tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "whole.pt")
    with refused("whole.pt", "state_dict"):
        begun(str(tmp_path / "whole.pt"))


class TestIdentity:
    def test_content_counts_not_the_path(self, first, begun, tmp_path):
        copy = tmp_path / "copy.safetensors"
        copy.write_bytes(first.weights_path("last").read_bytes())
        identities = {
            begun(words)[0].about["identity"]
            for words in (str(first.path), f"{first.path}@last", str(copy))
        }
        assert len(identities) == 1
        other = {n: t + 1 for n, t in weights_of(first).items()}
        save_file(other, copy)
        assert begun(str(copy))[0].about["identity"] not in identities
        assert begun(None)[0].about["identity"] not in identities

    def test_a_run_goes_on_only_from_the_same_weights(self, first, tmp_path, tiny):
        file = tmp_path / "a.safetensors"
        save_file(weights_of(first), file)
        options = {**QUICK, "begin": str(file), "out": tmp_path / "run", "source": tiny()}
        run = train("at(steps=1)", quiet=True, **options)
        before = weights_of(run)
        resumed = train("at(steps=1)", quiet=True, resume=True, **options)
        assert same_tensors(weights_of(resumed), before)
        save_file({n: t + 1 for n, t in weights_of(first).items()}, file)
        with refused("holds another run"):
            train("at(steps=1)", quiet=True, resume=True, **options)


class TestBesideFRL:
    def test_both_spellings_are_one_run(self, first, begun):
        base = "trades(steps=1)+frl"
        one, tensors = begun(str(first.path), base)
        other, others = begun(None, f"{base}(begin='{first.path}')")
        third, _ = begun(str(first.weights_path("last")), f"{base}(begin='{first.path}')")
        assert one.about["identity"] == other.about["identity"] == third.about["identity"]
        assert same_tensors(tensors, others)
        assert one.recipe.canonical["frl"]["start"] == 0
        assert one.config.begin == other.config.begin == str(first.path)

    def test_two_different_ones_are_refused(self, first, begun, tmp_path):
        save_file(weights_of(first), tmp_path / "b.safetensors")
        with refused("frl(begin=", "differ", "b.safetensors"):
            begun(str(tmp_path / "b.safetensors"), f"trades+frl(begin='{first.path}')")

    def test_the_paper_preset_fine_tunes_gently(self):
        recipe, config = apply_preset("paper:frl", parse_recipe("trades+frl"), {"begin": "a.pth"})
        assert (config.lr, config.epochs, config.begin) == (0.001, 40, "a.pth")
        assert recipe.canonical["frl"]["start"] == 0


def test_through_the_command_line(tmp_path):
    quick = ["--eps", "0.2", "--epochs", "1", "--valid", "0.1", "--subset", "60", "--seed", "1"]
    quick += ["--model", "cnn(width=2)"]

    def run(*words):
        return CliRunner().invoke(cli.app, list(words))

    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert run("train", "clean", *quick, "--quiet", "--out", first).exit_code == 0
    tune = [
        "train",
        "at(steps=1)",
        *quick,
        "--begin",
        f"{first}@best",
        "--freeze",
        "features.conv*",
    ]
    tune += ["--set", "rates={'head': 10}", "--set", "optimiser=adam", "--set", "lr=0.001"]
    done = run(*tune, "--out", second)
    assert done.exit_code == 0, done.output
    assert "at(steps=1) begins from" in done.stderr
    assert "12 of 12 tensors fit" in done.stderr
    before, after = (
        read_tensors(tmp_path / p)[0]
        for p in ("first/weights/best.safetensors", "second/weights/last.safetensors")
    )
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"features.hidden.weight", "features.hidden.bias", "head.weight", "head.bias"}
    missing = run("train", "at", *quick, "--begin", str(tmp_path / "no"), "--out", second + "x")
    assert missing.exit_code == 2
    assert "RUN@best" in missing.stderr
    assert run("audit", second, "--limit", "20", "--quiet").exit_code == 0


class TestStrangers:
    @pytest.fixture
    def without_bias(self, first, tmp_path):
        """A file that lacks one tensor of the model."""
        tensors, about = read_tensors(first.weights_path("last"))
        del tensors["head.bias"]
        write_tensors(tmp_path / "less.safetensors", tensors, about)
        return str(tmp_path / "less.safetensors")

    def test_a_compressed_archive_is_refused_unopened(self, tiny, tmp_path):
        plain, packed = tmp_path / "plain.pth", tmp_path / "packed.pth"
        torch.save({"big": torch.zeros(1_000_000)}, plain)
        with zipfile.ZipFile(plain) as old, zipfile.ZipFile(packed, "w", 8) as new:
            for name in old.namelist():
                new.writestr(name, old.read(name))
        assert packed.stat().st_size < plain.stat().st_size / 100
        with refused("packed.pth", "compressed"):
            short_run(tmp_path / "run", "at(steps=1)", tiny(), begin=str(packed))

    def test_a_mapping_within_itself_ends(self, tiny, tmp_path):
        nested = {}
        nested["model"] = nested
        torch.save(nested, tmp_path / "loop.pth")
        with refused("loop.pth", "no tensors"):
            short_run(tmp_path / "run", "at(steps=1)", tiny(), begin=str(tmp_path / "loop.pth"))

    def test_a_head_with_fewer_rows_than_its_header_says_is_not_taken(self, first, tiny, tmp_path):
        tensors, about = read_tensors(first.weights_path("last"))
        for name in ("head.weight", "head.bias"):
            tensors[name] = tensors[name][:3]
        write_tensors(tmp_path / "few.safetensors", tensors, about)
        few = str(tmp_path / "few.safetensors")
        run = short_run(tmp_path / "run", "at(steps=1)", tiny(), begin=few)
        assert set(run.about["begin"]["differing"]) == {"head.weight", "head.bias"}

    def test_what_stayed_random_is_told_even_when_quiet(self, without_bias, tiny, tmp_path, capfd):
        short_run(tmp_path / "run", "at(steps=1)", tiny(), begin=without_bias)
        assert "head.bias" in capfd.readouterr().err

    def test_a_layer_that_is_new_cannot_be_frozen(self, without_bias, tiny, tmp_path):
        with refused("head.bias", "random"):
            short_run(tmp_path / "run", "at(steps=1)", tiny(), begin=without_bias, freeze="head")
