"""Files that torch's own exporter writes: audited to the verdicts of the network they are of."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import classwise
from classwise.models import build_model
from classwise.models.onnx_network import open_onnx

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.onnx.export


@pytest.fixture(scope="module")
def digits():
    return classwise.open_data("digits")


def plain():
    """Convolutions with batch normalisation, one after the other."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 10),
    )  # fmt: skip


def shortcuts():
    """A network of ours with shortcuts, which normalises its images itself."""
    facts = {"num_classes": 10, "channels": 1, "mean": [0.3], "deviation": [0.35]}
    return build_model("resnet9(width=4)", **facts)


@pytest.fixture(scope="module", params=[plain, shortcuts])
def network(request, digits):
    """One that has learnt enough for some of its images to withstand an attack."""
    torch.manual_seed(0)
    made = request.param().train()
    images, labels = digits.train.images / 255, digits.train.labels
    optimiser = torch.optim.Adam(made.parameters(), 5e-3)
    for rows in torch.randperm(len(labels))[:1152].split(64) * 3:
        optimiser.zero_grad()
        cross_entropy(made(images[rows]), labels[rows]).backward()
        optimiser.step()
    return made.eval()


FORMS = {
    "one image": {},
    "any number": {"dynamic_axes": {"x": {0: "n"}}, "input_names": ["x"]},
    "nothing folded": {"do_constant_folding": False, "training": torch.onnx.TrainingMode.PRESERVE},
    "old": {"opset_version": 9},
}


@pytest.mark.parametrize("form", FORMS)
class TestExported:
    def test_slopes_are_those_of_the_network(self, network, digits, tmp_path, form):
        images = digits.test.images[:5] / 255
        torch.onnx.export(network, (images[:1],), tmp_path / "n.onnx", dynamo=False, **FORMS[form])
        opened = open_onnx(tmp_path / "n.onnx", images)
        found = []
        for model in (opened.model, network):
            moved = images.clone().requires_grad_()
            logits = model(moved)
            found.append((logits, *torch.autograd.grad(logits.square().sum(), moved)))
        for mine, its in zip(*found, strict=True):
            assert its.abs().max() > 0.1
            assert (mine - its).abs().max() < 1e-5 * its.abs().max()

    def test_so_are_the_verdicts(self, network, digits, tmp_path, form):
        images, labels = digits.test.images[:60], digits.test.labels[:60]
        first = (images[:1] / 255,)
        torch.onnx.export(network, first, tmp_path / "n.onnx", dynamo=False, **FORMS[form])
        facts = {"attacks": ["clean", "pgd-20"], "eps": 0.1}
        found = classwise.audit(str(tmp_path / "n.onnx"), images, labels, **facts)
        expected = classwise.audit(network, images, labels, **facts)
        assert np.array_equal(found.confusion["clean"], expected.confusion["clean"])
        # Normalisation is folded into convolutions: rounding may choose another wrong class
        assert found.by_class["pgd-20"] == expected.by_class["pgd-20"]
        assert found.overall["clean"] > 0.8 > found.overall["pgd-20"] > 0
