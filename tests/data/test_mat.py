"""MATLAB files, read as scipy reads them; whatever else they claim is refused."""

import struct
import zlib

import numpy as np
import pytest
import scipy.io
from official_files import mat_bytes
from refusals import refused

from classwise.data.mat import read_mat

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
def test_numbers_are_what_scipy_reads(tmp_path, kind, packed):
    array = RANDOM.integers(0, 100, (3, 2, 4)).astype(kind)
    (tmp_path / "x.mat").write_bytes(mat_bytes({"a": array, "b": array[0]}, do_compression=packed))
    other = scipy.io.loadmat(tmp_path / "x.mat")
    found = read_mat((tmp_path / "x.mat").read_bytes(), "x.mat")
    for name in ("a", "b"):
        assert found[name].dtype == other[name].dtype
        assert (found[name] == other[name]).all()


def test_tables_and_texts():
    table = np.array([(1, "tench"), (2, "über")], dtype=[("id", "O"), ("word", "O")])
    cells = np.array([[np.arange(3.0), "abc"]], dtype=object)
    found = read_mat(mat_bytes({"t": table, "c": cells}), "x")
    assert [(int(row["id"].item()), row["word"]) for row in found["t"]] == [
        (1, "tench"),
        (2, "über"),
    ]
    assert found["c"][0].ravel().tolist() == [0, 1, 2]
    assert found["c"][1] == "abc"


def test_newer_files_are_hdf5():
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    with refused("x.mat is a MATLAB file of version 7.3, which is HDF5", "-v7"):
        read_mat(head.ljust(512, b"\0") + b"\x89HDF\r\n\x1a\n", "x.mat")


GOOD = mat_bytes({"X": np.arange(24, dtype=np.uint8).reshape(2, 3, 4)})


def changed(at, number):
    content = bytearray(GOOD)
    content[at : at + 4] = struct.pack("<i", number)
    return bytes(content)


def bomb(claimed):
    """A compressed element of a megabyte of zeros that claims another size."""
    content = zlib.compress(struct.pack("<II", 14, claimed) + bytes(1 << 20))
    return GOOD[:128] + struct.pack("<II", 15, len(content)) + content


SHAPE = 128 + 8 + 16 + 8  # heads of the file, of the matrix and of its flags, then of its sides


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no MATLAB file"),
        (GOOD[:-9], "an element claims"),
        (changed(132, 2**31 - 1), "an element claims 2147483647 bytes"),
        (changed(SHAPE, 2**30), "claims"),
        (changed(SHAPE, -1), "claims the shape"),
        (bomb(4_000_000_000), "4000000000 bytes"),
        (bomb((1 << 20) + 50), "claims 1048626 bytes, but has 1048576"),
        (mat_bytes({"f": np.array([1 + 2j])}), "neither numbers"),
    ],
)
def test_what_cannot_be_inside_is_refused(content, words):
    with refused("x.mat", words):
        read_mat(content, "x.mat")
