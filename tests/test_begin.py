"""Runs that begin from other weights: which files, which tensors, and what is told of them."""

import os
import pickle
import zipfile
from collections import OrderedDict
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from cases import CASES
from refusals import refused
from safetensors.torch import save_file
from short_runs import QUICK, short_run, weights_of
from torch import nn
from typer.testing import CliRunner

from classwise import cli
from classwise.laws.made_up import write_teacher
from classwise.methods import at
from classwise.recipe import Method, compose
from classwise.recipe_text import parse_recipe
from classwise.record.tensors import read_tensors, write_tensors
from classwise.slots import Slots
from classwise.training.begin import begin_from
from classwise.training.loop import train
from classwise.training.presets import apply_preset
from classwise.training.run import Run
from classwise.training.step import Step


@pytest.fixture
def first(tmp_path, tiny):
    return short_run(tmp_path / "first", "at(steps=1)", tiny(), seed=3)


@pytest.fixture
def stopped(monkeypatch):
    """Training stops before its first step; `with stopped():` is where it may."""

    def stop(*_):
        raise KeyboardInterrupt

    @contextmanager
    def stopped():
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(Step, "__call__", stop)
            yield

    return stopped


@pytest.fixture
def begun(tmp_path, tiny, stopped):
    """The model's tensors at the beginning of a run that begins from something."""
    number = 0

    def begin(words, recipe="at(steps=1)", source=None, **options):
        nonlocal number
        number += 1
        run = Run(tmp_path / f"begun {number}")
        with stopped():
            short_run(run.path, recipe, source or tiny(), begin=words, **options)
        state = read_tensors(run.path / "state.safetensors")[0]
        return run, {n[6:]: value for n, value in state.items() if n.startswith("model.")}

    return begin


def same(one, other):
    return set(one) == set(other) and all(torch.equal(one[n], other[n]) for n in one)


class TestFiles:
    def test_a_run_is_its_last_weights_and_a_name_says_otherwise(self, first, begun, tmp_path):
        better = {n: t + 1 for n, t in weights_of(first).items()}
        about = read_tensors(first.weights_path("best"))[1]
        write_tensors(first.weights_path("best"), better, about)
        assert same(begun(str(first.path))[1], weights_of(first))
        assert same(begun(first.path)[1], weights_of(first))
        assert same(begun(f"{first.path}@best")[1], better)
        with refused("'bets'", "did you mean 'best'"):
            begun(f"{first.path}@bets")
        with refused("nowhere", "RUN@best"):
            begun(str(tmp_path / "nowhere"))
        with refused("nowhere", "RUN@best"):
            begun(f"{tmp_path / 'nowhere'}@best")

    def test_safetensors_with_and_without_our_header(self, first, begun, tmp_path):
        plain = tmp_path / "plain.safetensors"
        save_file(weights_of(first), plain)
        assert same(begun(str(first.weights_path("last")))[1], weights_of(first))
        run, found = begun(str(plain))
        assert same(found, weights_of(first))
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
        assert same(begun(str(path))[1], first_tensors)

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
        assert same(found, {n: t.half().float() for n, t in first_tensors.items()})

    def test_a_training_state_is_refused(self, first, begun):
        with refused("state.safetensors", "weights/"):
            begun(str(first.path / "state.safetensors"))


@pytest.fixture(scope="module")
def first_tensors(tiny, tmp_path_factory):
    return weights_of(short_run(tmp_path_factory.mktemp("a") / "a", "at(steps=1)", tiny(), seed=3))


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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_method_begins_from_other_weights(
    case, begun, first_tensors, tmp_path, tiny, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if case.recipe.slots.teacher:
        write_teacher(Path("teacher.safetensors"), tiny())
    torch.save(first_tensors, "first.pth")
    run, found = begun("first.pth", case.text)
    for name, value in found.items():
        assert torch.equal(value[: len(first_tensors[name])], first_tensors[name]), name
    assert run.about["begin"]["unused"] == (["head.bias"] if case.recipe.slots.head else [])


class TestWhatFits:
    def test_what_does_not_fit_is_told_and_left_as_the_seed_made_it(
        self, begun, stopped, tmp_path, first_tensors, tiny, capsys
    ):
        seeded = begun(None)[1]
        changed = {n: t for n, t in first_tensors.items() if n != "features.conv1.bias"}
        changed["features.conv2.weight"] = torch.zeros(9, 9)
        changed["head.bias"] = torch.zeros(10, dtype=torch.int64)
        changed["odd.one"] = torch.zeros(1)
        save_file(changed, tmp_path / "odd.safetensors")
        run, found = begun(str(tmp_path / "odd.safetensors"))
        left = {"features.conv1.bias", "features.conv2.weight", "head.bias"}
        for name, value in found.items():
            assert torch.equal(value, (seeded if name in left else first_tensors)[name])
        card = run.about["begin"]
        assert card["new"] == ["features.conv1.bias"]
        assert set(card["differing"]) == {"features.conv2.weight", "head.bias"}
        assert card["differing"]["head.bias"] == "int64(10,), not float32(10,)"
        assert card["unused"] == ["odd.one"]
        assert card["taken"] == len(found) - 3
        options = {**QUICK, "begin": str(tmp_path / "odd.safetensors")}
        assert "conv1.bias" in capsys.readouterr().err  # quiet, but worth a line
        with stopped():
            train("at(steps=1)", out=tmp_path / "loud", source=tiny(), **options)
        told = capsys.readouterr().err
        for word in ("9 of 12", "conv1.bias", "conv2.weight is float32(9, 9)", "odd.one"):
            assert word in told

    @pytest.mark.parametrize("keep", [5, 6])
    def test_less_than_half_is_refused(self, begun, tmp_path, first_tensors, keep):
        held = dict(list(first_tensors.items())[:keep])
        save_file(held, tmp_path / "part.safetensors")
        if keep == 6:
            assert begun(str(tmp_path / "part.safetensors"))[0].about["begin"]["taken"] == 6
            return
        with refused("5 of the model's 12"):
            begun(str(tmp_path / "part.safetensors"))

    def test_nearest_names_are_told(self, begun, tmp_path, first_tensors):
        renamed = {n.replace("features", "feature"): t for n, t in first_tensors.items()}
        torch.save(renamed, tmp_path / "near.pt")
        with refused("4 of the model's 12", "features.conv1.bias", "its feature.conv1.bias"):
            begun(str(tmp_path / "near.pt"))

    def test_numbers_that_are_none_are_refused(self, begun, tmp_path, first_tensors):
        broken = {**first_tensors, "head.bias": torch.full((10,), float("nan"))}
        torch.save(broken, tmp_path / "nan.pt")
        with refused("head.bias", "not finite"):
            begun(str(tmp_path / "nan.pt"))

    def test_odd_tensors_and_names_do_no_harm(
        self, begun, stopped, tmp_path, first_tensors, tiny, capsys
    ):
        held = {
            **first_tensors,
            "\x1b[31mred": torch.zeros(1),
            "head.bias": first_tensors["head.bias"].to_sparse(),
            "head.weight": torch.empty(10, 16, device="meta"),
            "module.mean": torch.zeros(1, 1, 1, 1),
        }
        torch.save(held, tmp_path / "odd.pt")
        options = {**QUICK, "begin": str(tmp_path / "odd.pt")}
        run = Run(tmp_path / "loud")
        with stopped():
            train("at(steps=1)", out=run.path, source=tiny(), **options)
        assert run.about["begin"]["new"] == ["head.weight", "head.bias"]
        assert run.about["begin"]["unused"] == ["\x1b[31mred", "module.mean"]
        assert "\x1b" not in capsys.readouterr().err
        assert torch.equal(begun(str(tmp_path / "odd.pt"))[1]["mean"], first_tensors["mean"])

    def test_a_module_that_is_really_called_module(self, tmp_path):
        model = nn.Sequential(OrderedDict(module=nn.Linear(2, 3)))
        torch.save(
            {"module.weight": torch.ones(3, 2), "module.bias": torch.ones(3)}, tmp_path / "m"
        )
        about = {"network": {"num_classes": 3}, "data": {"class_names": ["a", "b", "c"]}}
        assert len(begin_from(model, str(tmp_path / "m"), about).taken) == 2
        assert model.module.weight.eq(1).all()


class Idle(Method):
    """Two outputs behind the classes that no label names."""

    name: ClassVar[str] = "idle"

    def fill(self):
        return Slots(extra_outputs=2)


WIDE = compose([at(steps=1), Idle()])


class TestHeads:
    def test_k_outputs_grow_to_k_and_m(self, first, begun, tmp_path):
        plain = tmp_path / "plain.safetensors"
        save_file(weights_of(first), plain)
        for words in (str(first.path), str(plain)):
            run, found = begun(words, WIDE)
            for name in ("head.weight", "head.bias"):
                assert torch.equal(found[name][:10], weights_of(first)[name])
                assert found[name].shape[0] == 12
                assert not found[name][10:].any()
            assert set(run.about["begin"]["grown"]) == {"head.weight", "head.bias"}
            assert not run.about["begin"]["new"]

    def test_and_shrink_again(self, tmp_path, tiny, begun):
        wide = short_run(tmp_path / "wide", WIDE, tiny(), seed=3)
        for recipe, outputs in [("at(steps=1)", 10), ("at(steps=1)+labelaug", 11)]:
            _, found = begun(str(wide.path), recipe)
            assert found["head.weight"].shape[0] == outputs
            assert torch.equal(found["head.weight"][:10], weights_of(wide)["head.weight"][:10])
            assert not found["head.weight"][10:].any()
        _, found = begun(str(wide.path), WIDE)
        assert same(found, weights_of(wide))
        assert found["head.weight"][10:].any()

    @pytest.mark.parametrize("classes", [3, 9])
    def test_another_number_of_classes_leaves_the_head_new(self, first, begun, tiny, classes):
        seeded = begun(None, source=tiny(classes=classes))[1]
        run, found = begun(str(first.path), source=tiny(classes=classes))
        assert torch.equal(found["head.weight"], seeded["head.weight"])
        assert torch.equal(
            found["features.conv1.weight"], weights_of(first)["features.conv1.weight"]
        )
        assert set(run.about["begin"]["differing"]) == {"head.weight", "head.bias"}
        assert f"10 classes, not {classes}" in run.about["begin"]["classes"]

    def test_as_many_rows_of_other_classes_are_not_taken(self, tmp_path, tiny, begun):
        nine = short_run(tmp_path / "nine", "at(steps=1)+labelaug", tiny(classes=9))
        assert weights_of(nine)["head.bias"].shape == (10,)
        run, found = begun(str(nine.path))
        assert torch.equal(found["head.bias"], begun(None)[1]["head.bias"])
        words = "for 9 classes, not 10"
        assert run.about["begin"]["differing"] == {"head.weight": words, "head.bias": words}

    @pytest.mark.parametrize(("rows", "fit"), [(4, True), (1000, False), (3, False)])
    def test_the_head_of_a_model_of_ones_own(self, tmp_path, rows, fit):
        model = nn.Sequential(OrderedDict(body=nn.Linear(5, 6), fc=nn.Linear(6, 4)))
        before = model.fc.weight.detach().clone()
        theirs = nn.Sequential(OrderedDict(body=nn.Linear(5, 6), fc=nn.Linear(6, rows)))
        torch.save({"state_dict": theirs.state_dict()}, tmp_path / "theirs.pt")
        about = {"network": {"num_classes": 4}, "data": {"class_names": ["a", "b", "c", "d"]}}
        begun = begin_from(model, str(tmp_path / "theirs.pt"), about)
        assert torch.equal(model.body.weight, theirs.body.weight)
        assert torch.equal(model.fc.weight, theirs.fc.weight if fit else before)
        assert set(begun.differing) == (set() if fit else {"fc.weight", "fc.bias"})


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
        assert same(weights_of(train("at(steps=1)", quiet=True, resume=True, **options)), before)
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
        assert same(tensors, others)
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
    assert "at begins from" in done.stderr
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
