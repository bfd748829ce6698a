"""Archives that are damaged or mean harm, and the restricted unpickler."""

import os
import pickle
import tarfile

import numpy as np
import pytest
from test_data_cifar import Python2Array, home, python2_pickle, small, use, write_archive

from classwise.data import official
from classwise.data.archives import read_members
from classwise.data.sources import open_data
from classwise.data.unpickle import read_pickle
from classwise.errors import ClasswiseError

__all__ = ["home", "small"]  # fixtures


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"  <!DOCTYPE html><html>sign in</html>", "is an HTML page, not an archive"),
        (b"", "not a whole tar archive"),
        (b"not a tar at all" * 99, "not a whole tar archive"),
        (b"\x1f\x8b\x08\x00garbage", "not a whole tar archive"),
    ],
)
def test_other_files_in_place_of_an_archive(small, content, words):
    home = small[0]
    (home / "cifar-10-python.tar.gz").write_bytes(content)
    with pytest.raises(ClasswiseError, match=words) as refusal:
        open_data("cifar10")
    assert "\n" not in str(refusal.value)


def test_archive_cut_short(small):
    home, _, pickles, _ = small
    path = home / "cifar-10-python.tar.gz"
    write_archive(path, "cifar-10-batches-py", pickles)
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ClasswiseError, match="not a whole tar archive"):
        open_data("cifar10")


def odd_member(name, kind=tarfile.REGTYPE, link=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


@pytest.mark.parametrize(
    "member",
    [
        odd_member("../../evil"),
        odd_member("cifar-10-batches-py/../../evil"),
        odd_member("/etc/evil"),
        odd_member("..\\evil"),
        odd_member("C:\\evil"),
        odd_member("cifar-10-batches-py/link", tarfile.SYMTYPE, "/etc/passwd"),
        odd_member("cifar-10-batches-py/link", tarfile.LNKTYPE, "../x"),
        odd_member("cifar-10-batches-py/pipe", tarfile.FIFOTYPE),
        odd_member("cifar-10-batches-py/device", tarfile.CHRTYPE),
    ],
    ids=lambda member: f"{member.name}-{member.type.decode()}",
)
def test_members_that_reach_outside_are_refused(small, member, tmp_path):
    home, _, pickles, _ = small
    write_archive(home / "cifar-10-python.tar.gz", "cifar-10-batches-py", pickles, [member])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ClasswiseError, match="is refused: its member"):
        open_data("cifar10")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_member_that_claims_to_be_huge_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("classwise.data.archives.LARGEST", 10)
    write_archive(tmp_path / "a.tar.gz", "a", {"b": b"x" * 11})
    with pytest.raises(ClasswiseError, match="claims 11 bytes"):
        read_members(tmp_path / "a.tar.gz", ["a/b"], "")


class _Shell:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_pickle_that_runs_a_command_is_refused_even_with_the_right_md5(
    small, monkeypatch, tmp_path
):
    home, _, pickles, binary = small
    mark = tmp_path / "ran"
    evil = {**pickles, "data_batch_1": pickle.dumps({"data": _Shell(f"touch {mark}")}, protocol=2)}
    use(monkeypatch, "cifar10", (official.PYTHON_10, evil), (official.BINARY_10, binary))
    write_archive(home / "cifar-10-python.tar.gz", "cifar-10-batches-py", evil)
    with pytest.raises(ClasswiseError, match=r"data_batch_1 is refused: it asks for \w+.system"):
        open_data("cifar10")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pickle.dumps(getattr), "builtins.getattr"),
        (pickle.dumps(np.float64(1.0)), "scalar"),
        (pickle.dumps(np.array([object()])), "no official file has"),
        (pickle.dumps(np.arange(3.0)), "only bytes"),
        (pickle.dumps([1, 2]), "holds a list"),
        (b"\x80\x02}(X\x01\x00\x00\x00aP0\n", "refused"),
        (b"", "refused"),
        (b"garbage", "refused"),
        (b"\x80\x02cnumpy\nload\n.", "asks for numpy.load"),
        (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(K\x01tR.", "unknown kind"),
    ],
)
def test_restricted_unpickler_refuses(content, words):
    with pytest.raises(ClasswiseError, match=words):
        read_pickle(content, "batch")


def test_restricted_unpickler_reads_arrays_of_any_numpy():
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    for protocol in (3, 4):  # the official files have 2, as Python 2 wrote it: see below
        found = read_pickle(pickle.dumps({"c": array, "f": array.T}, protocol=protocol), "batch")
        assert (found["c"] == array).all()
        assert (found["f"] == array.T).all()
    old = read_pickle(python2_pickle({b"data": Python2Array(array), b"names": [b"a"]}), "batch")
    assert (old["data"] == array).all()
    assert old["names"] == ["a"]
