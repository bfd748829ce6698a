"""Images as people have them at hand are understood, or refused in words."""

import numpy as np
import pytest
import torch
from refusals import refused
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import classwise

X = torch.rand(12, 3, 5, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 2
MODEL = nn.Sequential(nn.Flatten(), nn.Linear(90, 2))
with torch.no_grad():
    MODEL[1].weight.copy_(torch.linspace(-1, 1, 180).sin().reshape(2, 90))


class Pairs(Dataset):
    """Entries as they were given, one by one."""

    def __init__(self, entries):
        self.entries = entries

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, number):
        return self.entries[number]


def audited(*given, model=MODEL):
    return classwise.audit(model, *given, attacks="clean")["clean"].by_class


@pytest.mark.parametrize(
    "given",
    [
        (list(X), Y.tolist()),
        ([one.numpy() for one in X], Y.numpy()),
        (X.tolist(), Y),
        (TensorDataset(X, Y),),
        (Pairs([(image.numpy(), int(label)) for image, label in zip(X, Y, strict=True)]),),
        (DataLoader(TensorDataset(X, Y), batch_size=5),),
    ],
    ids=["tensors", "arrays", "numbers", "data set", "pairs", "loader"],
)
def test_is_audited_as_the_tensors_are(given):
    assert audited(*given) == audited(X, Y)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((X,), ("labels are missing", "DataLoader")),
        ((TensorDataset(X, Y), Y), ("TensorDataset brings its labels", "leave out")),
        ((X.permute(0, 2, 3, 1), Y), ("channels last", "images.permute(0, 3, 1, 2)")),
        ((X.permute(0, 2, 3, 1).numpy(), Y), ("images.transpose(0, 3, 1, 2)",)),
        (([X[0], X[1, :, :4]], Y[:2]), ("several shapes", "(3, 4, 6)", "one size")),
        ((["a.png", "b.png"], Y[:2]), ("list of str", "DataLoader")),
        ((DataLoader(TensorDataset(X, Y), shuffle=True),), ("shuffle=False",)),
        ((DataLoader(TensorDataset(X, Y), 5, drop_last=True),), ("drop_last=False",)),
        ((DataLoader(TensorDataset(X)),), ("DataLoader gives (Tensor)", "pairs")),
        ((Pairs([("a.png", 0)]),), ("Pairs gives (str, int)", "pairs")),
        ((Pairs([]),), ("empty",)),
        ((Pairs([(X[0], 0), (X[1, :, :4], 1)]),), ("several shapes", "one size")),
    ],
)
def test_is_refused_in_words(given, words):
    with refused(*words):
        audited(*given)


def test_our_own_data_set_is_told_from_torchs():
    with refused(".images", ".labels"):
        audited(classwise.open_data("digits").test)


class Many(nn.Module):
    """A model that gives more than its logits."""

    def __init__(self, wrap):
        super().__init__()
        self.net, self.wrap = MODEL, wrap

    def forward(self, images):
        return self.wrap(self.net(images))


@pytest.mark.parametrize(
    ("wrap", "words"),
    [
        (lambda z: {"main": z, "aux": z}, ("a dict of main", "aux", "--output main", "output=")),
        (lambda z: (z, z), ("a tuple of 0", "--output 0", "output=")),
        (str, ("gave a str", "(n, K)")),
        (lambda z: z[0], ("gave (2,) for 1 images;", "(1, K)")),
    ],
)
def test_outputs_that_are_no_logits_are_named(wrap, words):
    with refused(*words):
        audited(X, Y, model=Many(wrap))
    assert np.isfinite(list(audited(X, Y).values())).all()
