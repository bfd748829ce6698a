"""CIFAR readers, on small files of the official formats that the tests write themselves."""

import hashlib
import io
import pickle
import tarfile
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from classwise.data import cifar, official
from classwise.data.sources import open_data
from classwise.errors import ClasswiseError

PER_BATCH = 20


class Python2Array:
    """Pickles as numpy 1 under Python 2 did: numpy.core.multiarray._reconstruct."""

    def __init__(self, array):
        self.array = array


class Python2Pickler(pickle._Pickler):
    """Writes byte strings as Python 2 `str` (BINSTRING), as the official files have them."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value):
        head = bytes([len(value)]) if len(value) < 256 else len(value).to_bytes(4, "little")
        self.write((b"U" if len(value) < 256 else b"T") + head + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes

    def save_array(self, value):
        array = value.array
        self.write(b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01bt")
        self.write(b"R(K\x01")
        self.save(tuple(array.shape))
        self.write(
            b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        )
        self.write(b"\x89")
        self.save(array.tobytes())
        self.write(b"tb")

    dispatch[Python2Array] = save_array


def python2_pickle(value):
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(value)
    return stream.getvalue()


def md5(content):
    return hashlib.md5(content).hexdigest()


def small_cifar10():
    """Six batches as (pixels, labels), and the pickles and binary files that hold them."""
    random = np.random.default_rng(0)
    batches = {}
    for name in (*cifar.TRAIN_10, "test_batch"):
        pixels = random.integers(0, 256, (PER_BATCH, 3072), dtype=np.uint8)
        batches[name] = pixels, [int(k) for k in random.permutation(PER_BATCH) % 10]
    pickles = {
        name: python2_pickle(
            {
                b"batch_label": name.encode(),
                b"labels": labels,
                b"data": Python2Array(pixels),
                b"filenames": [b"x_s_%06d.png" % i for i in range(PER_BATCH)],
            }
        )
        for name, (pixels, labels) in batches.items()
    }
    names = [name.encode() for name in cifar.NAMES_10]
    pickles["batches.meta"] = python2_pickle({b"label_names": names, b"num_vis": 3072})
    binary = {
        f"{name}.bin": np.c_[np.array(labels, np.uint8), pixels].tobytes()
        for name, (pixels, labels) in batches.items()
    }
    return batches, pickles, binary


def small_cifar100(coarse_of=lambda fine: fine % 20):
    random = np.random.default_rng(1)
    files = {}
    for part in ("train", "test"):
        fine = [int(k) for k in random.permutation(100)]
        files[part] = python2_pickle(
            {
                b"data": Python2Array(random.integers(0, 256, (100, 3072), dtype=np.uint8)),
                b"fine_labels": fine,
                b"coarse_labels": [coarse_of(k) if part == "train" else k % 20 for k in fine],
            }
        )
    files["meta"] = python2_pickle(
        {
            b"fine_label_names": [b"fine %d" % k for k in range(100)],
            b"coarse_label_names": [b"group %d" % k for k in range(20)],
        }
    )
    return files


def write_archive(path, folder, files, extra=()):
    with tarfile.open(path, "w:gz") as archive:
        top = tarfile.TarInfo(folder)
        top.type = tarfile.DIRTYPE
        archive.addfile(top)
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in extra:
            archive.addfile(member, io.BytesIO(b"x" * member.size))


def use(monkeypatch, name, *pairs):
    """Replace the official md5 table by that of small files."""
    forms = tuple(replace(form, md5={n: md5(c) for n, c in files.items()}) for form, files in pairs)
    monkeypatch.setitem(cifar.FORMS, name, forms)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CLASSWISE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CLASSWISE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def small(home, monkeypatch):
    batches, pickles, binary = small_cifar10()
    use(monkeypatch, "cifar10", (official.PYTHON_10, pickles), (official.BINARY_10, binary))
    return home, batches, pickles, binary


def check_content(source, batches):
    pixels = np.concatenate([batches[name][0] for name in cifar.TRAIN_10])
    labels = [k for name in cifar.TRAIN_10 for k in batches[name][1]]
    assert source.name == "cifar10"
    assert source.train.class_names == cifar.NAMES_10
    assert source.train.images.dtype == torch.uint8
    assert (source.train.images.flatten(1).numpy() == pixels).all()
    assert source.train.labels.tolist() == labels
    assert source.test.labels.tolist() == batches["test_batch"][1]


def test_all_four_forms_of_cifar10_give_the_same_data(small):
    home, batches, pickles, binary = small
    hashes = set()
    for form, files in ((official.PYTHON_10, pickles), (official.BINARY_10, binary)):
        write_archive(home / form.archive, form.folder, files)
        from_archive = open_data("cifar10")
        (home / form.archive).unlink()
        (home / form.folder).mkdir()
        for name, content in files.items():
            (home / form.folder / name).write_bytes(content)
        from_folder = open_data("cifar10")
        by_path = open_data(f"cifar10:{home / form.folder}")
        for source in (from_archive, from_folder, by_path):
            check_content(source, batches)
            hashes.add((source.train.content_hash, source.test.content_hash))
        for name in files:
            (home / form.folder / name).unlink()
        (home / form.folder).rmdir()
    assert len(hashes) == 1


def test_archive_under_another_name_and_with_dots(small, tmp_path):
    _, batches, pickles, _ = small
    path = tmp_path / "my copy.tgz"
    write_archive(path, "./cifar-10-batches-py", pickles)
    check_content(open_data(f"cifar10:{path}"), batches)
    check_content(open_data(f"cifar10('{path}')"), batches)


def test_cifar100_superclasses_from_coarse_labels(home, monkeypatch):
    files = small_cifar100()
    use(monkeypatch, "cifar100", (official.PYTHON_100, files))
    write_archive(home / "cifar-100-python.tar.gz", "cifar-100-python", files)
    source = open_data("cifar100")
    assert source.train.num_classes == 100
    assert source.train.superclass_of == tuple(k % 20 for k in range(100))
    assert source.test.superclass_names == tuple(f"group {k}" for k in range(20))
    assert source.train.sizes.tolist() == [1] * 100


def test_cifar100_class_in_two_superclasses_is_refused(home, monkeypatch):
    files = small_cifar100(coarse_of=lambda fine: 3 if fine == 41 else fine % 20)
    use(monkeypatch, "cifar100", (official.PYTHON_100, files))
    write_archive(home / "cifar-100-python.tar.gz", "cifar-100-python", files)
    with pytest.raises(ClasswiseError, match=r"'fine 41' lies in two superclasses, 'group"):
        open_data("cifar100")


def test_missing_says_which_file_with_which_md5_goes_where(home):
    with pytest.raises(ClasswiseError) as reason:
        open_data("cifar10")
    words = str(reason.value)
    assert "classwise data get cifar10" in words
    assert "cifar-10-python.tar.gz" in words
    assert "data_batch_3 54ebc095f3ab1f0389bbae665268c751" in words
    assert str(home.parent / "cache") in words
    with pytest.raises(ClasswiseError, match="is not in /no/where"):
        open_data("cifar10:/no/where")


def test_wrong_md5_names_the_file_and_both_sums(small):
    home, _, pickles, _ = small
    changed = {**pickles, "data_batch_4": pickles["data_batch_4"] + b" "}
    write_archive(home / "cifar-10-python.tar.gz", "cifar-10-batches-py", changed)
    with pytest.raises(ClasswiseError) as reason:
        open_data("cifar10")
    words = str(reason.value)
    assert f"data_batch_4 has md5 {md5(changed['data_batch_4'])}" in words
    assert md5(pickles["data_batch_4"]) in words


def test_incomplete_archive_names_what_it_lacks(small):
    home, _, pickles, _ = small
    fewer = {name: content for name, content in pickles.items() if name != "test_batch"}
    write_archive(home / "cifar-10-python.tar.gz", "cifar-10-batches-py", fewer)
    with pytest.raises(ClasswiseError, match=r"has no cifar-10-batches-py/test_batch \(md5 "):
        open_data("cifar10")


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({b"labels": [1]}, "no rows of 3072 pixels"),
        ({b"data": Python2Array(np.zeros((1, 9), np.uint8)), b"labels": [1]}, "no rows of 3072"),
        ({b"data": Python2Array(np.zeros((1, 3072), np.uint8))}, "no list under 'labels'"),
    ],
)
def test_pickles_of_another_content(small, monkeypatch, batch, words):
    home, _, pickles, _ = small
    other = {**pickles, "data_batch_2": python2_pickle(batch)}
    use(monkeypatch, "cifar10", (official.PYTHON_10, other))
    write_archive(home / "cifar-10-python.tar.gz", "cifar-10-batches-py", other)
    with pytest.raises(ClasswiseError, match=words):
        open_data("cifar10")
