"""Runs that begin from other weights: which tensors fit, and which are left new."""

from collections import OrderedDict
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from cases import CASES
from refusals import refused
from safetensors.torch import save_file
from short_runs import QUICK, same_tensors, short_run, weights_of
from torch import nn

from classwise.laws.made_up import write_teacher
from classwise.methods import at
from classwise.recipe import Method, compose
from classwise.slots import Slots
from classwise.training.begin import begin_from
from classwise.training.loop import train
from classwise.training.run import Run


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
        network = {"spec": "mine:net", "num_classes": 3}
        about = {"network": network, "data": {"class_names": ["a", "b", "c"]}}
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
        assert same_tensors(found, weights_of(wide))
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
        network = {"spec": "mine:net", "num_classes": 4}
        about = {"network": network, "data": {"class_names": ["a", "b", "c", "d"]}}
        begun = begin_from(model, str(tmp_path / "theirs.pt"), about)
        assert torch.equal(model.body.weight, theirs.body.weight)
        assert torch.equal(model.fc.weight, theirs.fc.weight if fit else before)
        assert set(begun.differing) == (set() if fit else {"fc.weight", "fc.bias"})
