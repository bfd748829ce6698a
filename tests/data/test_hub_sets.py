"""`hf:` with the real library `datasets`, on folders made here; nothing is fetched."""

import importlib.util

import numpy as np
import pytest
from PIL import Image
from refusals import refused

from classwise.data.sources import open_data

pytestmark = [
    pytest.mark.skipif(
        not importlib.util.find_spec("datasets"), reason="the extra hf is not installed"
    ),
    pytest.mark.filterwarnings("ignore"),
]
IMAGES = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), np.uint8)
LABELS = [k % 3 for k in range(12)]


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Their cache lies in the test's own folder, and no network is asked."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)


def made(images=IMAGES, labels=LABELS, kind=None):
    import datasets

    kinds = {"image": datasets.Image(), "label": kind or datasets.ClassLabel(names=list("abc"))}
    pictures = [None if one is None else Image.fromarray(one) for one in images]
    rows = {"image": pictures, "label": labels}
    return datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))


def same(data, images=IMAGES):
    assert np.array_equal(data.images.numpy(), images.transpose(0, 3, 1, 2))
    assert (data.labels.tolist(), data.class_names) == (LABELS, ("a", "b", "c"))


def test_a_folder_of_parquet_files(tmp_path):
    (tmp_path / "set" / "data").mkdir(parents=True)
    for part in ("train", "test"):
        made().to_parquet(tmp_path / "set" / "data" / f"{part}-00000-of-00001.parquet")
    source = open_data("hf:set")
    same(source.train)
    same(source.test)
    assert source.name == "hf:set"
    assert not source.set_aside
    assert open_data("hf(set, size=4)").train.images.shape == (12, 3, 4, 4)


def test_saved_to_disk_divided_shuffled_and_grey():
    import datasets

    made().train_test_split(0.25, seed=0).save_to_disk("divided")
    source = open_data("hf:divided")
    assert (len(source.train), len(source.test)) == (9, 3)
    made().select([5, 3, 1]).save_to_disk("some")
    some = open_data("hf:some")
    assert some.set_aside
    assert sorted([*some.train.labels.tolist(), *some.test.labels.tolist()]) == [0, 1, 2]
    grey = made(IMAGES[..., 0])
    datasets.DatasetDict(train=grey, test=grey).save_to_disk("grey")
    same(open_data("hf:grey").test, IMAGES[..., :1].repeat(3, axis=3))


def test_a_test_part_without_labels_is_none():
    import datasets

    parts = {"train": made(), "test": made(labels=[-1] * 12), "validation": made(IMAGES[::-1])}
    datasets.DatasetDict(parts).save_to_disk("held back")
    source = open_data("hf:held back")
    same(source.train)
    same(source.test, IMAGES[::-1])


def test_what_cannot_be_used_is_told_with_the_way_out():
    import datasets

    made(labels=[None, *LABELS[1:]]).save_to_disk("gaps")
    with refused("hf:gaps", "image 0 has no label", "Dataset.filter"):
        open_data("hf:gaps")
    made(labels=[-1, *LABELS[1:]]).save_to_disk("below")
    with refused("labels run from -1 to 2"):
        open_data("hf:below")
    made([None, *IMAGES[1:]]).save_to_disk("holes")
    with refused("hf:holes: image 0 cannot be decoded"):
        open_data("hf:holes")
    words = made(labels=["abc"[k] for k in LABELS], kind=datasets.Value("string"))
    words.save_to_disk("words")
    with refused("hf:words", "no column of the kind ClassLabel", "class_encode_column"):
        open_data("hf:words")
    with refused("no column of the kind ClassLabel"):
        open_data("hf(words, label=label)")
    words.class_encode_column("label").save_to_disk("encoded")  # the way out leads on
    assert open_data("hf:encoded").train.class_names == ("a", "b", "c")


def test_no_script_in_a_folder_is_run(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "set.py").write_text("open('ran', 'w')\n")
    with refused("hf:set cannot be loaded"):
        open_data("hf:set")
    assert not (tmp_path / "ran").exists()
