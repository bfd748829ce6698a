"""Class means on disk: what was written comes back, what is damaged or strange does not."""

import numpy as np
import pytest
import torch
from refusals import refused

from classwise.record.means import ClassMeans, read_means, write_means
from classwise.record.tensors import write_tensors
from classwise.sealed import Damaged

MEANS = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
FOUND = ClassMeans(MEANS, np.array([4, 2, 0]), ("a", "b", "c"), "ab12", "cd34", "last", "test")


def test_what_was_written_comes_back(tmp_path):
    path = write_means(tmp_path, FOUND)
    assert path == tmp_path / "similarity" / "ab12-cd34.safetensors"
    found = read_means(tmp_path, "ab12", "cd34")
    assert np.array_equal(found.means, MEANS)
    assert found.sizes.tolist() == [4, 2, 0]
    assert (found.class_names, found.weights, found.split) == (("a", "b", "c"), "last", "test")
    assert read_means(tmp_path, "ab12", "ffff") is None


def test_cosines_are_those_of_the_angles():
    found = FOUND.cosines
    assert found[0, 1] == pytest.approx(np.sqrt(0.5))
    assert np.diagonal(found)[:2] == pytest.approx(1)
    assert np.isnan(found[2]).all()  # no image, no direction


def test_a_strangers_hash_leads_nowhere(tmp_path):
    (tmp_path / "secret.safetensors").write_bytes(b"x")
    for strange in ("../secret", "/etc/passwd", "", "ab\0", "a" * 65):
        assert read_means(tmp_path, strange, "cd34") is None
        assert read_means(tmp_path, "ab12", strange) is None


def test_damage_is_noticed(tmp_path):
    path = write_means(tmp_path, FOUND)
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)
    with pytest.raises(Damaged):
        read_means(tmp_path, "ab12", "cd34")


@pytest.mark.parametrize(
    ("tensors", "about", "words"),
    [
        ({"sizes": torch.zeros(2)}, {}, "no class means"),
        ({"means": torch.zeros(2, 3).double()}, {}, "not those of 2 classes"),
        ({"means": torch.zeros(2, 2)}, {}, "not those of 2 classes"),
        ({"means": torch.full((2, 2), torch.nan).double()}, {}, "not finite"),
        ({"sizes": torch.tensor([1, -1])}, {}, "sizes"),
        ({}, {"class_names": [1, 2]}, "no class means"),
        ({}, {"model_hash": "other"}, "another model"),
    ],
)
def test_what_is_not_as_we_write_it_is_refused(tmp_path, tensors, about, words):
    good = {"means": torch.zeros(2, 2).double(), "sizes": torch.ones(2).long()}
    said = {"class_names": ["a", "b"], "model_hash": "ab12", "data_hash": "cd34"}
    if words == "no class means" and tensors:
        good = {}
    path = tmp_path / "similarity" / "ab12-cd34.safetensors"
    write_tensors(path, {**good, **tensors}, {**said, **about})
    with refused(words, "make it again"):
        read_means(tmp_path, "ab12", "cd34")
