"""Logits in whatever a model gives: found, or chosen; doubt is refused."""

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from refusals import refused
from torch import Tensor, nn

import classwise
from classwise.models.outputs import Output
from classwise.models.subject import Subject

IMAGES = torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(30) % 3
Named = namedtuple("Named", ["logits", "aux"])


@dataclass
class ModelOutput:
    """As transformers' are: attributes, of which some are None."""

    logits: Tensor
    loss: Tensor | None = None
    hidden: Tensor | None = None


class Net(nn.Module):
    def __init__(self, give):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(16, 3)
        self.give = give

    def forward(self, x):
        return self.give(self.head(x.flatten(1)))


PLAIN = Net(lambda z: z)
FACTS = {"attacks": ["clean", "pgd-3"], "eps": 0.1, "class_names": "abc"}


def verdicts(model, **words):
    report = classwise.audit(model, IMAGES, LABELS, **FACTS, **words)
    return [report.confusion[name].tolist() for name in FACTS["attacks"]]


def wide(z):
    return torch.cat([z, z], 1)


FOUND = {
    "tuple": lambda z: (z, wide(z)),
    "list": lambda z: [wide(z), z],
    "dictionary": lambda z: {"features": wide(z), "scores": z},
    "called logits": lambda z: {"aux": -z, "logits": z},
    "names in a tuple": lambda z: Named(z, -z),
    "object": lambda z: ModelOutput(z, hidden=-z),
    "pixels of one": lambda z: z[:, :, None, None],
}


@pytest.mark.parametrize("name", FOUND)
def test_they_are_found(name):
    assert verdicts(Net(FOUND[name])) == verdicts(PLAIN)


CHOSEN = {
    "number": (lambda z: (-z, z), 1),
    "number in words": (lambda z: (-z, z), "1"),
    "from the end": (lambda z: (-z, z), -1),
    "name": (lambda z: {"aux": -z, "main": z}, "main"),
    "attribute": (lambda z: ModelOutput(-z, hidden=z), "hidden"),
    "probabilities": (lambda z: z.softmax(1), "probabilities"),
    "log-probabilities": (lambda z: z.log_softmax(1), "log-probabilities"),
    "probabilities of a name": (lambda z: {"a": -z, "b": z.softmax(1)}, "b:probabilities"),
    "called probabilities": (lambda z: {"a": -z, "probabilities": z.softmax(1)}, "probabilities"),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_they_are_chosen(name):
    give, output = CHOSEN[name]
    assert verdicts(Net(give), output=output) == verdicts(PLAIN)


def test_functions_and_black_boxes():
    for give in (
        lambda x: {"a": -PLAIN(x), "b": PLAIN(x)},
        lambda x: {"a": -PLAIN(x).detach(), "b": PLAIN(x).detach()},
        lambda x: (None, PLAIN(torch.as_tensor(x)).detach().numpy()),
    ):
        words = {"output": "b"} if give(IMAGES[:1]).__class__ is dict else {}
        report = classwise.audit(
            give, IMAGES, LABELS, attacks=["clean"], class_names="abc", **words
        )
        expected = classwise.audit(PLAIN, IMAGES, LABELS, attacks=["clean"], class_names="abc")
        assert np.array_equal(report.confusion["clean"], expected.confusion["clean"])


@pytest.mark.parametrize(
    ("give", "output", "words"),
    [
        (lambda z: (z, -z), None, ("a tuple of 0 (1, 3); 1 (1, 3)", "--output 0")),
        (lambda z: {"a": z, "b": z}, None, ("a (1, 3); b (1, 3)", "output='a'")),
        (lambda z: (wide(z), wide(z)), None, ("nobody can tell",)),
        (lambda z: (z, -z), 2, ("there is no 2",)),
        (lambda z: {"a": z}, "b", ("there is no 'b'", "--output a")),
        (lambda z: z, "b", ("one tensor", "leave it out")),
        (lambda z: z, "probabilities", ("add up to", "leave it out")),
        (lambda z: z, "log-probabilities", ("add up to",)),
        (lambda z: z, "", ("output ''",)),
        (lambda z: z, True, ("output True",)),
    ],
)
def test_doubt_is_refused_in_words_that_name_the_choice(give, output, words):
    with refused(*words):
        verdicts(Net(give), output=output)


def test_probabilities_of_nought_have_a_logarithm():
    found = Output(None, "probabilities")(torch.tensor([[1.0, 0.0]]))
    assert found.isfinite().all()
    torch.testing.assert_close(found.softmax(1), torch.tensor([[1.0, 0.0]]))


def test_the_twin_sees_through_it():
    model = Net(lambda z: {"logits": z, "more": -z})
    subject = Subject.of(model, IMAGES)
    assert subject.num_classes == 3
    assert subject.words == ("logits are taken from its output 'logits'",)
    with subject.asked():
        assert subject.quick(subject.take(IMAGES)) is not subject.model
