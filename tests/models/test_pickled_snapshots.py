"""Snapshots of transformers whose weights are pickles: tensors are read, nothing is run."""

import json
import os

import numpy as np
import torch
from refusals import refused
from typer.testing import CliRunner
from zoo_libraries import library

from classwise.cli import app
from classwise.models import build_model, zoo


class Malicious:
    """Makes a folder where it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def build(spec):
    plain = {"mean": [0.0] * 3, "deviation": [1.0] * 3}
    return build_model(spec, num_classes=3, channels=3, **plain).eval()


def test_weights_in_pickles_alone(vit, tmp_path, monkeypatch):
    """As transformers saved them before safetensors: in one file, or in several."""
    monkeypatch.chdir(tmp_path)
    images, tensors = torch.rand(2, 3, 64, 64), vit.state_dict()
    expected, snapshot = vit(pixel_values=images).logits, tmp_path / "snapshot"
    (snapshot / "model.safetensors").unlink()
    torch.save(tensors, snapshot / "pytorch_model.bin")
    assert torch.equal(build("hf:snapshot(pretrained=true)")(images), expected)
    given = np.zeros((6, 64, 64, 3), np.uint8)
    np.savez("data.npz", images=given, labels=np.arange(6) % 3)
    words = ["audit", "hf:snapshot", "--data", "npz:data.npz", "--attacks", "clean"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    assert "random-weights" not in told.output
    names, halves = list(tensors), {}
    for number, some in enumerate((names[::2], names[1::2])):
        file = f"pytorch_model-0000{number + 1}-of-00002.bin"
        torch.save({name: tensors[name] for name in some}, snapshot / file)
        halves |= dict.fromkeys(some, file)
    (snapshot / "pytorch_model.bin").unlink()
    index = snapshot / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": halves}))
    assert torch.equal(build("hf:snapshot(pretrained=true)")(images), expected)
    (snapshot / file).unlink()
    with refused(file, "is missing", "get the snapshot again"):
        build("hf:snapshot(pretrained=true)")
    index.write_text(json.dumps({"weight_map": {"a": "../elsewhere.bin"}}))
    with refused("names no files beside it"):
        build("hf:snapshot(pretrained=true)")


def test_a_pickle_that_would_run_code_is_not_opened(vit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    snapshot = tmp_path / "snapshot"
    (snapshot / "model.safetensors").unlink()
    tensors = vit.state_dict()
    torch.save(tensors | {"more": Malicious(tmp_path / "ran")}, snapshot / "pytorch_model.bin")
    with refused("hf:snapshot was not built", "holds more than tensors"):
        build("hf:snapshot(pretrained=true)")
    assert not (tmp_path / "ran").exists()
    torch.save([1, 2], snapshot / "pytorch_model.bin")
    with refused("holds list, not tensors by name"):
        build("hf:snapshot(pretrained=true)")
    kept = {n: v for n, v in tensors.items() if "classifier" not in n}
    torch.save(kept, snapshot / "pytorch_model.bin")
    with refused("do not fit its own network", "classifier"):
        build("hf:snapshot(pretrained=true)")


def test_a_repository_of_the_hub_with_a_pickle_alone(vit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images, snapshot = torch.rand(2, 3, 64, 64), tmp_path / "snapshot"
    torch.save(vit.state_dict(), snapshot / "pytorch_model.bin")
    auto, asked = library("transformers").AutoModelForImageClassification, []

    def without_safetensors(where, **_):
        asked.append(where)
        raise OSError("no file named model.safetensors")

    config = library("transformers").AutoConfig.from_pretrained(snapshot)
    patched = library("transformers").AutoConfig
    monkeypatch.setattr(patched, "from_pretrained", lambda *_, **__: config)
    monkeypatch.setattr(auto, "from_pretrained", without_safetensors)
    monkeypatch.setattr(zoo, "_fetched", lambda _repository, name: snapshot / name)
    found = build("hf:org/name(pretrained=true)")(images)
    assert asked == ["org/name"]
    assert torch.equal(found, vit(pixel_values=images).logits)
