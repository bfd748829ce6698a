"""Data that Python has at hand, Keras's arrays, channels last, and data sets of other libraries."""

import importlib.util
import io
import sys
import types

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import refused
from torch.utils.data import DataLoader, TensorDataset

import classwise
from classwise.data.from_arrays import dataset_from_arrays
from classwise.data.from_python import source_from_python
from classwise.data.sources import open_data

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (24, 3, 8, 8), dtype=np.uint8)
LABELS = np.arange(24) % 3


class Pictures(torch.utils.data.Dataset):
    """As torchvision's data sets are: pictures of Pillow's and names of classes."""

    def __init__(self, root="", train=True, download=True):
        if root == "nowhere":
            raise RuntimeError("Dataset not found or corrupted.")
        assert not download or not root
        self.classes, self.rows = ["a", "b", "c"], range(24) if train else range(6)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return Image.fromarray(IMAGES[row].transpose(1, 2, 0)), int(LABELS[row])


def floats(images=IMAGES):
    return torch.from_numpy(images).float() / 255


@pytest.mark.parametrize(
    "data",
    [
        TensorDataset(floats(), torch.from_numpy(LABELS)),
        DataLoader(TensorDataset(floats(), torch.from_numpy(LABELS)), batch_size=7),
        Pictures(),
        (IMAGES, LABELS),
        (list(IMAGES), LABELS.tolist()),
        dataset_from_arrays(IMAGES, LABELS),
    ],
    ids=["data set", "loader", "pictures", "arrays", "lists", "ours"],
)
def test_a_whole_of_any_kind_is_divided(data):
    source = open_data(data)
    assert (len(source.train), len(source.test), source.set_aside) == (15, 9, True)
    for part, rows in zip((source.train, source.test), source.places, strict=True):
        assert (part.images.numpy() == IMAGES[rows]).all()
        assert (part.labels.numpy() == LABELS[rows]).all()


def test_two_parts_and_names():
    source = open_data((Pictures(), (IMAGES[:6], LABELS[:6])), class_names=["x", "y", "z"])
    assert (len(source.train), len(source.test)) == (24, 6)
    assert source.test.class_names == ("x", "y", "z")
    assert open_data(source) is source


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (7, "data are given as int"),
        ((IMAGES, LABELS + 1), "labels run from 1 to 3"),
        ((floats() - 1, LABELS), "pixels run from"),
        ((IMAGES.transpose(0, 2, 3, 1), LABELS), "channels last"),
        (DataLoader(Pictures(), shuffle=True), "shuffles"),
    ],
)
def test_what_is_no_data_is_refused(data, words):
    with refused(words):
        source_from_python(data)


def test_names_beside_a_name_have_no_effect():
    with refused("class_names have no effect"):
        open_data("digits", class_names=["a"])


def test_a_run_on_data_given_in_python(tmp_path):
    data = (Pictures(), Pictures(train=False))
    run = classwise.train("clean", data=data, epochs=1, valid="0.2", out=tmp_path / "r", quiet=True)
    assert run.config.data == "given data"
    with refused("were given in Python", "--data"):
        open_data(run.config.data)


class TestChannelsLast:
    LAST = IMAGES.transpose(0, 2, 3, 1)

    def test_an_audit_takes_them_when_told(self):
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
        first = classwise.audit(model, IMAGES, LABELS, attacks="clean")
        last = classwise.audit(model, self.LAST, LABELS, attacks="clean", channels_last=True)
        assert first["clean"].by_class == last["clean"].by_class
        with refused("channels_last=True, but images have shape (24, 3, 8, 8)"):
            classwise.audit(model, IMAGES, LABELS, channels_last=True)

    def test_what_fits_both_ways_is_asked(self):
        both = np.zeros((6, 3, 5, 3), np.uint8)
        with refused("may stand first or last", "channels_last=true"):
            dataset_from_arrays(both, [0, 1] * 3)
        assert dataset_from_arrays(both, [0, 1] * 3, channels_last=True).images.shape[1:] == (
            3,
            3,
            5,
        )
        assert dataset_from_arrays(both, [0, 1] * 3, channels_last=False).images.shape[1:] == (
            3,
            5,
            3,
        )
        with refused("makes 8 channels of it"):
            dataset_from_arrays(IMAGES, LABELS, channels_last=True)

    def test_the_option_of_a_file(self, tmp_path):
        both = self.LAST[:, :3]  # 3 × 8 pixels of 3 channels, or the other way round
        np.savez(tmp_path / "x.npz", images=both, labels=LABELS)
        with refused("may stand first or last"):
            open_data(f"npz:{tmp_path / 'x.npz'}")
        source = open_data(f"npz({tmp_path / 'x.npz'}, channels_last=true)")
        assert source.train.images.shape[1:] == (3, 3, 8)


class TestKeras:
    ARRAYS = {  # noqa: RUF012
        "x_train": IMAGES.transpose(0, 2, 3, 1),
        "y_train": LABELS[:, None],
        "x_test": IMAGES[:6].transpose(0, 2, 3, 1),
        "y_test": LABELS[:6, None],
    }

    def test_both_parts(self, tmp_path):
        np.savez(tmp_path / "x.npz", **self.ARRAYS)
        source = open_data(f"npz:{tmp_path / 'x.npz'}")
        assert (source.train.images.numpy() == IMAGES).all()
        assert source.test.labels.tolist() == LABELS[:6].tolist()
        for name, array in self.ARRAYS.items():
            np.save(tmp_path / f"{name}.npy", array)
        assert open_data(f"npy:{tmp_path}").test.content_hash == source.test.content_hash

    def test_grey_images_and_a_test_part_alone(self, tmp_path):
        np.savez(tmp_path / "x.npz", x_test=IMAGES[:, 0], y_test=LABELS)
        source = open_data(f"npz:{tmp_path / 'x.npz'}")
        assert source.set_aside
        assert source.train.images.shape[1:] == (1, 8, 8)

    def test_two_kinds_of_names_in_one_file(self, tmp_path):
        np.savez(tmp_path / "x.npz", images=IMAGES, labels=LABELS, **self.ARRAYS)
        with refused("holds x_test beside images"):
            open_data(f"npz:{tmp_path / 'x.npz'}")
        np.savez(tmp_path / "y.npz", x_train=IMAGES)
        with refused("or x_train, y_train, x_test and y_test"):
            open_data(f"npz:{tmp_path / 'y.npz'}")


class TestTorchvision:
    """With a module of the same form: the real one cannot be imported beside every torch."""

    @pytest.fixture(autouse=True)
    def sets(self, monkeypatch):
        module = types.ModuleType("torchvision.datasets")
        module.Pictures, module.__all__ = Pictures, ("Pictures",)
        package = types.ModuleType("torchvision")
        package.datasets = module
        monkeypatch.setitem(sys.modules, "torchvision", package)
        monkeypatch.setitem(sys.modules, "torchvision.datasets", module)

    def test_its_parts_and_names(self):
        source = open_data("torchvision(Pictures, root=here, mirrored=false)")
        assert (source.train.images.numpy() == IMAGES).all()
        assert source.test.class_names == ("a", "b", "c")
        assert not source.test.mirrored

    def test_what_is_not_there(self):
        with refused("Dataset not found or corrupted.", "root=FOLDER"):
            open_data("torchvision(Pictures, root=nowhere)")
        with refused("unknown data set of torchvision 'Picture'", "did you mean 'Pictures'"):
            open_data("torchvision:Picture")

    def test_the_library_is_missing(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
        with refused("pip install"):
            open_data("torchvision:CIFAR10")


def test_the_hub_needs_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refused('pip install "classwise[hf]"'):
        open_data("hf:mnist")


def test_a_run_cannot_make_an_audit_go_to_the_network(tmp_path):
    run = classwise.train(
        "clean", data="digits", subset=50, epochs=1, out=tmp_path / "r", quiet=True
    )
    card = run.path / "run.json"
    text = card.read_text().replace('"data": "digits"', '"data": "hf:stranger/set"')
    assert "stranger" in text
    card.write_text(text.replace('"checksum"', '"was"'))
    from classwise.doors.targets import audit_target
    from classwise.doors.wish import Wish

    with refused("may come from the network", "--data 'hf:stranger/set'"):
        audit_target(Wish(str(run.path)))


def png(image):
    stream = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0)).save(stream, "PNG")
    return {"bytes": stream.getvalue(), "path": None}


@pytest.mark.skipif(
    not importlib.util.find_spec("datasets"), reason="the extra hf is not installed"
)
@pytest.mark.filterwarnings("ignore")
class TestHub:
    def saved(self, folder, parts=("train", "test"), images=IMAGES):
        import datasets

        kinds = {"img": datasets.Image(), "fine": datasets.ClassLabel(names=["a", "b", "c"])}
        rows = {"img": [png(one) for one in images], "fine": LABELS.tolist()}
        made = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
        datasets.DatasetDict(dict.fromkeys(parts, made)).save_to_disk(str(folder))
        return folder

    def test_a_folder_of_one(self, tmp_path):
        source = open_data(f"hf:{self.saved(tmp_path / 'x')}")
        assert (source.test.images.numpy() == IMAGES).all()
        assert source.test.class_names == ("a", "b", "c")
        assert open_data(f"hf({tmp_path / 'x'}, size=4)").test.images.shape == (24, 3, 4, 4)

    def test_parts_and_columns(self, tmp_path):
        folder = self.saved(tmp_path / "x", ("train", "validation"))
        assert len(open_data(f"hf:{folder}").test) == 24
        alone = self.saved(tmp_path / "y", ("train",))
        assert open_data(f"hf:{alone}").set_aside
        with refused("unknown label column"):
            open_data(f"hf({folder}, label=coarse)")

    def test_what_cannot_be_loaded(self, tmp_path):
        with refused("cannot be loaded"):
            open_data(f"hf:{tmp_path / 'none'}")
        sizes = [IMAGES[0], *(one[:, :4] for one in IMAGES[1:])]
        with refused("image 1 has 4×8 pixels, the first 8×8", "size=32"):
            open_data(f"hf:{self.saved(tmp_path / 'x', images=sizes)}")
