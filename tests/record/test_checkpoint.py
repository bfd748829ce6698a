import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from refusals import refused
from safetensors.torch import save_file

from classwise.errors import ClasswiseError
from classwise.files import write_atomically
from classwise.models import build_model
from classwise.record.run_folder import load_model
from classwise.record.tensors import (
    pack_optimiser,
    read_tensors,
    under_prefix,
    unpack_optimiser,
    with_prefix,
    write_tensors,
)
from classwise.training.run import Run

NETWORK = {
    "spec": "cnn(width=2)",
    "num_classes": 3,
    "channels": 1,
    "mean": [0.5],
    "deviation": [0.25],
    "extra": 0,
}


def network():
    facts = {k: v for k, v in NETWORK.items() if k != "spec"}
    return build_model(NETWORK["spec"], **facts, seed=1)


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "last.safetensors"
    write_tensors(path, network().state_dict(), {"network": NETWORK, "epoch": 4})
    return path


def test_tensors_and_description_come_back(weights):
    tensors, about = read_tensors(weights)
    expected = network().state_dict()
    assert set(tensors) == set(expected)
    assert all(torch.equal(tensors[name], expected[name]) for name in tensors)
    assert about == {"format": 1, "network": NETWORK, "epoch": 4}


def test_a_model_comes_back_in_eval_mode_and_answers_the_same(weights):
    model, about = load_model(weights)
    images = torch.rand(2, 1, 8, 8)
    assert not model.training
    assert about["epoch"] == 4
    assert torch.equal(model(images), network()(images))


def test_the_same_tensors_give_the_same_bytes(weights, tmp_path):
    other = tmp_path / "again.safetensors"
    write_tensors(other, network().state_dict(), {"epoch": 4, "network": NETWORK})
    assert other.read_bytes() == weights.read_bytes()


def test_a_description_of_any_length_comes_back(tmp_path):
    # the file begins with the length of its header, whose bytes must not be taken for a pickle's
    path, beginnings = tmp_path / "weights.safetensors", set()
    for length in [*range(0, 264, 8), *range(18_800, 19_300, 8)]:
        write_tensors(path, {"one": torch.ones(1)}, {"note": "x" * length})
        beginnings.add(path.read_bytes()[:2])
        assert read_tensors(path)[1]["note"] == "x" * length
    assert b"PK" in beginnings
    assert any(two[:1] == b"\x80" for two in beginnings)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with refused("no checkpoint", "nowhere"):
        read_tensors(tmp_path / "nowhere")
    with refused("no checkpoint"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("keep", [0, 1, 4, 8, 50, -200, -1])
def test_a_truncated_file_is_refused(weights, keep):
    weights.write_bytes(weights.read_bytes()[:keep])
    with refused("last.safetensors", "damaged"):
        load_model(weights)


@pytest.mark.parametrize("content", [b"\xff" * 300, b"{}", b"hello\n" * 50, bytes(300)])
def test_a_corrupt_file_is_refused(weights, content):
    weights.write_bytes(content)
    with refused("last.safetensors", "damaged"):
        load_model(weights)


def test_a_damaged_header_is_refused(weights):
    content = bytearray(weights.read_bytes())
    content[8:20] = b"\x00" * 12
    weights.write_bytes(content)
    with refused("last.safetensors", "damaged"):
        load_model(weights)


class Bomb:
    def __reduce__(self):
        return os.mkdir, (str(Bomb.target),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_is_refused_and_never_run(tmp_path, protocol):
    path, Bomb.target = tmp_path / "model.pt", tmp_path / "boom"
    path.write_bytes(pickle.dumps(Bomb(), protocol=protocol))
    with refused("model.pt"):
        load_model(path)
    assert not Bomb.target.exists()
    pickle.loads(path.read_bytes())
    assert Bomb.target.exists()  # it would have


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_of_torch_save_is_refused_as_a_pickle(tmp_path, zipped):
    path = tmp_path / "model.pt"
    torch.save(network().state_dict(), path, _use_new_zipfile_serialization=zipped)
    with refused("model.pt", "pickle", "safetensors"):
        load_model(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_safetensors_of_somebody_else_are_refused(tmp_path, metadata):
    path = tmp_path / "theirs.safetensors"
    save_file(network().state_dict(), path, metadata)
    with refused("theirs.safetensors", "not written by classwise"):
        load_model(path)


@pytest.mark.parametrize("header", ["no json", "[]", "3", '"words"'])
def test_a_header_that_is_no_description_is_refused(tmp_path, header):
    path = tmp_path / "odd.safetensors"
    save_file(network().state_dict(), path, {"classwise": header})
    with refused("odd.safetensors"):
        load_model(path)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_format_version_is_refused(tmp_path, version):
    path = tmp_path / "future.safetensors"
    save_file(network().state_dict(), path, {"classwise": json.dumps({"format": version})})
    with refused("future.safetensors", str(version), "format 1"):
        load_model(path)


def test_a_training_state_is_not_weights(tmp_path):
    path = tmp_path / "state.safetensors"
    write_tensors(path, network().state_dict(), {"epoch": 3})
    with refused("state.safetensors", "training state"):
        load_model(path)


def test_weights_of_another_shape_are_refused(tmp_path):
    path = tmp_path / "other.safetensors"
    tensors = network().state_dict()
    del tensors["head.bias"]
    write_tensors(path, tensors, {"network": NETWORK})
    with refused("other.safetensors", "does not fit", "head.bias"):
        load_model(path)
    write_tensors(path, network().state_dict(), {"network": {**NETWORK, "num_classes": 4}})
    with refused("other.safetensors", "does not fit"):
        load_model(path)


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_a_damaged_run_card_is_refused(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with refused("run.json"):
        Run(tmp_path).config  # noqa: B018


def test_a_folder_without_a_card_is_no_run(tmp_path):
    with refused("not a run"):
        Run(tmp_path).about  # noqa: B018


def test_weights_that_a_run_does_not_have_are_refused(tmp_path, weights):
    (tmp_path / "weights").mkdir()
    weights.rename(tmp_path / "weights" / "last.safetensors")
    with refused("'lst'", "did you mean 'last'"):
        Run(tmp_path).model("lst")


def fail(*_args, **_options):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch, where):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    owner, name = (os, "fsync") if where == "fsync" else (Path, "replace")
    monkeypatch.setattr(owner, name, fail)
    with refused("cannot write", "No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_target_is_whole_at_every_moment(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    seen = []
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda f: (seen.append(path.read_bytes()), flush(f)))
    write_atomically(path, b"new" * 10_000)
    assert seen == [b"old"]
    assert path.read_bytes() == b"new" * 10_000


def test_a_folder_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").write_text("a file, not a folder")
    with pytest.raises(ClasswiseError, match="cannot write"):
        write_atomically(tmp_path / "file" / "below", b"new")


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_an_optimiser_goes_on_as_if_nothing_had_happened(tmp_path, kind):
    def fresh():
        model = network()
        options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        return model, kind(model.parameters(), 0.05, weight_decay=0.01, **options)

    def steps(model, optimiser, seeds):
        for seed in seeds:
            images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
            optimiser.zero_grad()
            model(images).square().sum().backward()
            optimiser.step()

    straight, straight_optimiser = fresh()
    steps(straight, straight_optimiser, range(6))
    model, optimiser = fresh()
    steps(model, optimiser, range(3))
    tensors, plain = pack_optimiser(optimiser)
    write_tensors(tmp_path / "s", tensors | with_prefix("model", model.state_dict()), {"o": plain})
    tensors, about = read_tensors(tmp_path / "s")
    model, optimiser = fresh()
    model.load_state_dict(under_prefix("model", tensors))
    unpack_optimiser(optimiser, tensors, about["o"])
    steps(model, optimiser, range(3, 6))
    for one, two in zip(model.parameters(), straight.parameters(), strict=True):
        assert torch.equal(one, two)
