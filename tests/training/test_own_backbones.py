"""Fine-tuning models of the user's own."""

import json

import pytest
import torch
from refusals import refused
from short_runs import QUICK, moved, run_cli, short_run, weights_of

from classwise.training.config import TrainConfig
from classwise.training.loop import train

OWN = """
import torch
from torch import nn

class Backbone(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.hidden = nn.Linear(64, 8)
        self.fc = nn.Linear(8, num_classes)
    def forward(self, images):
        return self.fc(torch.relu(self.hidden(self.norm(images.flatten(1)))))

class Mine(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.backbone = Backbone(num_classes)
    def forward(self, images):
        return self.backbone(images)

class Two(Mine):
    def __init__(self, num_classes):
        super().__init__(num_classes)
        self.other = nn.Linear(8, num_classes)

def headless(num_classes):
    return nn.Sequential(nn.Conv2d(1, num_classes, 8), nn.Flatten())

ONE = Mine(10)

def always_the_same():
    return ONE
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    name = f"nets_{abs(hash(tmp_path.name))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return name


class TestOwnModels:
    def test_everything_at_once_goes_on_bit_for_bit(self, tmp_path, tiny, own, steps):
        first = short_run(tmp_path / "first", "clean", tiny(), model=f"{own}:Mine", seed=2)
        options = {
            **{"model": f"{own}:Mine", "begin": str(first.path), "freeze": "backbone.norm"},
            **{"rates": {"backbone.fc": 5}, "optimiser": "adam", "lr": 0.01, "keep_every": 2},
            **{"warmup": 1, "eps_warmup": 0.5, "epochs": 4},
        }
        recipe = "at(steps=1, batchnorm=train)+labelaug(share=0.3)"

        def go(folder, resume=False):
            config = TrainConfig(**{**QUICK, **options})
            return train(
                recipe, config, out=tmp_path / folder, source=tiny(), quiet=True, resume=resume
            )

        steps.seen.clear()
        straight = go("straight")
        total = len(steps.seen)
        steps.seen.clear()
        steps.control["fatal"] = 5 * total // 8
        with pytest.raises(KeyboardInterrupt):
            go("broken")
        steps.control["fatal"] = None
        resumed = go("broken", resume=True)
        assert resumed.weights == straight.weights
        for name in straight.weights:
            assert not moved(weights_of(resumed, name), weights_of(straight, name))
        state = "state.safetensors"
        assert (resumed.path / state).read_bytes() == (straight.path / state).read_bytes()
        history = "history.jsonl"
        assert (resumed.path / history).read_text() == (straight.path / history).read_text()
        found = weights_of(straight)
        assert set(found) == set(weights_of(first))  # names stay
        assert found["backbone.fc.weight"].shape == (11, 8)
        assert found["backbone.fc.weight"][10].any()  # the attack's slot has learnt
        for name in found:
            assert torch.equal(found[name], weights_of(first)[name]) == ("norm" in name), name
        model = straight.model()
        images = torch.rand(3, 1, 8, 8)
        assert model(images).shape == (3, 10)
        assert torch.equal(model.outputs(images)[:, :10], model(images))

    def test_the_first_k_rows_begin_as_they_were(self, tmp_path, tiny, own):
        first = short_run(tmp_path / "first", "clean", tiny(), model=f"{own}:Mine", seed=2)
        run = short_run(
            tmp_path / "wide",
            "at(steps=1)+labelaug(head='backbone.fc')",
            tiny(),
            **{"model": f"{own}:Mine", "begin": str(first.path), "epochs": 1, "lr": 1e-30},
        )
        found, before = weights_of(run), weights_of(first)
        assert torch.equal(found["backbone.fc.weight"][:10], before["backbone.fc.weight"])
        assert torch.equal(found["backbone.fc.bias"][:10], before["backbone.fc.bias"])
        for name in ("backbone.fc.weight", "backbone.fc.bias"):
            assert found[name][10:].abs().max() < 1e-20  # idle at first
        assert run.about["begin"]["grown"].keys() == {"backbone.fc.weight", "backbone.fc.bias"}
        assert run.about["network"]["head_path"] == "backbone.fc"
        images = torch.rand(2, 1, 8, 8)
        assert run.model()(images).shape == (2, 10)
        narrow = short_run(
            tmp_path / "narrow",
            "clean",
            tiny(),
            **{"model": f"{own}:Mine", "begin": str(run.path), "epochs": 1, "lr": 1e-30},
        )
        assert torch.equal(weights_of(narrow)["backbone.fc.weight"], before["backbone.fc.weight"])

    def test_trained_and_audited_through_the_command_line(self, tmp_path, own):
        words = ["--model", f"{own}:Mine", "--subset", "60", "--epochs", "1", "--valid", "0.1"]
        out = ["--out", str(tmp_path / "run"), "--quiet"]
        told = run_cli("train", "at(steps=1)+labelaug", *words, *out)
        assert told.exit_code == 0, told.output
        attacks = ["--attacks", "clean,pgd-2,pgd-2(logits=all)", "--limit", "30", "--quiet"]
        told = run_cli("audit", str(tmp_path / "run"), "--model", f"{own}:Mine", *attacks)
        assert told.exit_code == 0, told.output
        card = json.loads((tmp_path / "run" / "run.json").read_text())
        assert card["network"]["extra"] == 1

    def test_heads_that_cannot_be_found_are_refused_by_name(self, tmp_path, tiny, own):
        def go(model, recipe="at(steps=1)+labelaug"):
            return short_run(tmp_path / "a", recipe, tiny(), model=f"{own}:{model}")

        with refused("backbone.fc", "other", "labelaug(head="):
            go("Two")
        with refused("other", "is not its head"):
            go("Two", "at(steps=1)+labelaug(head=other)")
        with refused("no torch.nn.Linear with 10 outputs", "none"):
            go("headless")
        with refused("'backbone.hidden'", "backbone.fc (10 outputs)"):
            go("Mine", "at(steps=1)+labelaug(head='backbone.hidden')")
        with refused("'nowhere'", "backbone.fc"):
            go("Mine", "at(steps=1)+labelaug(head=nowhere)")
        with refused("cnn", "knows its head"):
            short_run(tmp_path / "a", "at(steps=1)+labelaug(head=head)", tiny())
        with refused("another head"):
            go("Mine", "at(steps=1)+ldam")
        assert not (tmp_path / "a").exists()
        assert go("Two", "at(steps=1)+labelaug(head='backbone.fc')").finished_epochs == 2

    def test_a_function_that_returns_the_same_model_every_time(self, tmp_path, tiny, own):
        options = {"model": f"{own}:always_the_same", "epochs": 1}
        run = short_run(tmp_path / "a", "at(steps=1)+labelaug", tiny(), **options)
        assert run.model()(torch.rand(1, 1, 8, 8)).shape == (1, 10)
