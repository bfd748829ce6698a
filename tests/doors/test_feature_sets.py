"""Feature sets on disk: made once, gone on with, opened and trained on like any data."""

import json

import numpy as np
import pytest
import torch
from refusals import refused
from short_runs import run_cli, short_run

import classwise
from classwise.attacks import features as making
from classwise.attacks.features import FeatureSettings
from classwise.doors import features as door
from classwise.doors.features import make_features

FEW = {"limit": 30, "steps": 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "plain"
    return short_run(folder, "clean", None, data="digits", model="cnn(width=8)", epochs=3).path


def arrays(path):
    with np.load(path, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


@pytest.mark.parametrize("kind", making.KINDS)
def test_a_set_opens_and_trains_like_any_data(run, tmp_path, kind):
    found = make_features(run, kind, tmp_path / "x.npz", **FEW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npz", "x.npz.json"]
    source, original = classwise.open_data(found.data), classwise.open_data("digits")
    assert source.train.class_names == original.train.class_names
    assert source.test.content_hash == original.test.content_hash  # the original test images
    assert len(source.train) == 30
    card = json.loads((tmp_path / "x.npz.json").read_text())
    assert (card["run"], card["kind"], card["steps"], card["norm"]) == ("plain", kind, 3, "L2")
    assert card["eps"] == (None if "robust" in kind else 0.5)
    if kind == "robust":
        trained = classwise.train(
            "clean", data=found.data, model="cnn(width=2)", epochs=1, out=tmp_path / "r", quiet=True
        )
        assert trained.finished_epochs == 1
        assert "without attacks" in card["notes"][0]


def test_labels_and_images_are_those_of_the_kind(run, tmp_path):
    original = classwise.open_data("digits").train
    rows = classwise.data.splits.balanced_subset(original.labels, 30, seed=0)
    found = {
        kind: arrays(make_features(run, kind, tmp_path / f"{kind}.npz", **FEW).path)
        for kind in making.KINDS
    }
    labels = original.labels[rows].numpy()
    for kind in making.RESTORED:
        assert np.array_equal(found[kind]["train_labels"], labels)
    assert np.array_equal(found["deterministic"]["train_labels"], (labels + 1) % 10)
    assert not np.array_equal(found["random"]["train_labels"], labels)
    moved = found["random"]["train_images"] / 255.0 - original.images[rows].numpy() / 255.0
    lengths = np.sqrt((moved.reshape(30, -1) ** 2).sum(1))
    assert (lengths > 0.1).any()
    assert (lengths <= 0.5 + 8 * 0.5 / 255).all()  # 64 pixels, rounded


def test_no_image_depends_on_the_batch_size(run, tmp_path):
    for kind in ("robust", "random"):
        sets = [
            arrays(make_features(run, kind, tmp_path / f"{kind}{n}.npz", batch_size=n, **FEW).path)
            for n in (4, 64)
        ]
        assert np.array_equal(sets[0]["train_labels"], sets[1]["train_labels"])
        # rounding to bytes may fall either way where two batches differ in the last digit
        apart = np.abs(sets[0]["train_images"].astype(int) - sets[1]["train_images"])
        assert apart.max() <= 1
        assert (apart > 0).mean() < 1e-3


def test_what_broke_off_goes_on_and_ends_the_same(run, tmp_path, monkeypatch):
    whole = make_features(run, "random", tmp_path / "whole.npz", batch_size=8, **FEW)
    made, real = [], door.towards_class

    def breaking(model, batch, *rest):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(batch.index.tolist())
        return real(model, batch, *rest)

    monkeypatch.setattr(door, "towards_class", breaking)
    with pytest.raises(KeyboardInterrupt):
        make_features(run, "random", tmp_path / "x.npz", batch_size=8, **FEW)
    assert not (tmp_path / "x.npz").exists()
    before = {index for piece in made for index in piece}
    made.clear()
    made.append([])  # so that nothing breaks any more
    monkeypatch.setattr(
        door, "towards_class", lambda m, b, *r: made.append(b.index.tolist()) or real(m, b, *r)
    )
    with refused("another feature set"):
        make_features(run, "random", tmp_path / "x.npz", batch_size=8, **{**FEW, "steps": 4})
    found = make_features(run, "random", tmp_path / "x.npz", batch_size=8, **FEW)
    after = {index for piece in made for index in piece}
    assert before
    assert not before & after
    assert found.path.read_bytes() == whole.path.read_bytes()
    assert not (tmp_path / "x.npz.parts").exists()


def test_a_set_that_another_process_finished_meanwhile_is_taken(run, tmp_path, monkeypatch):
    first = make_features(run, "random", tmp_path / "x.npz", **FEW)
    looks, real = [], door._known

    def known(*words):
        looks.append(words)
        return real(*words) if len(looks) > 1 else None  # it ends after our first look

    def never(*_):
        raise AssertionError

    monkeypatch.setattr(door, "_known", known)
    monkeypatch.setattr(door._Work, "complete", never)
    assert make_features(run, "random", tmp_path / "x.npz", **FEW).about == first.about


def test_pieces_go_while_nobody_else_may_write_there(run, tmp_path, monkeypatch):
    real, seen = door.shutil.rmtree, []

    def removing(folder, **options):
        seen.append([path.name for path in tmp_path.glob(".*")])
        real(folder, **options)
        seen.append([path.name for path in tmp_path.glob(".*")])

    monkeypatch.setattr(door.shutil, "rmtree", removing)
    make_features(run, "random", tmp_path / "x.npz", **FEW)
    assert seen == [[".x.npz.lock"]] * 2
    assert not list(tmp_path.glob(".*"))


def test_a_set_that_is_there_is_not_made_again_nor_written_over(run, tmp_path, monkeypatch):
    first = make_features(run, "random", tmp_path / "x.npz", **FEW)
    monkeypatch.setattr(door, "towards_class", None)
    assert make_features(run, "random", tmp_path / "x.npz", **FEW).about == first.about
    with refused("exists and is not this"):
        make_features(run, "random", tmp_path / "x.npz", **{**FEW, "seed": 1})
    whole = bytearray(first.path.read_bytes())
    whole[200] ^= 1
    first.path.write_bytes(whole)
    with refused("not as it was written"):
        make_features(run, "random", tmp_path / "x.npz", **FEW)


def test_outcomes_are_of_the_images_as_they_are_stored(run, tmp_path):
    found = make_features(run, "deterministic", tmp_path / "x.npz", limit=40, steps=40, eps=3.0)
    stored = arrays(found.path)
    model = classwise.Run(run).model("last")
    with torch.no_grad():
        said = model(torch.from_numpy(stored["train_images"]).float() / 255).argmax(1)
    share = (said.numpy() == stored["train_labels"]).mean()
    assert found.about["reached_target"] == pytest.approx(share, abs=1e-6)
    assert share > 0.5


def test_wrong_use(run, tmp_path):
    for options, word in (
        ({"kind": "random", "out": tmp_path / "x.npy"}, ".npz"),
        ({"kind": "random", "out": tmp_path / "x.npz", "head": "fc"}, "no effect"),
        ({"kind": "robust", "out": tmp_path / "x.npz", "head": "fc"}, "head"),
        ({"kind": "robust", "out": tmp_path / "x.npz", "eps": 1.0}, "no ball"),
    ):
        with refused(word):
            make_features(run, **options, **FEW)


def test_the_command_says_how_to_open_it(run, tmp_path):
    out = str(tmp_path / "x.npz")
    words = ["features", str(run), "--kind", "nonrobust", "--out", out, "--limit", "20"]
    done = run_cli(*words, "--steps", "2", "-q")
    assert done.exit_code == 0, done.output
    assert "20 images" in done.output
    assert "moved=0" in done.output  # digits may not be moved, nor mirrored
    assert FeatureSettings.of("nonrobust").steps == 1000
