"""Models that draw random numbers: flagged, and audited as the mean of several passes."""

import numpy as np
import pytest
import torch
from asked import audit_target
from refusals import refused
from torch import nn

import classwise
from classwise.judging.audits import read_ledger
from classwise.models.averaged import mean_of_passes
from classwise.models.blackbox import BlackBox
from classwise.models.subject import model_hash


class Noisy(nn.Module):
    """A linear model behind noise, which eval mode does not turn off."""

    def __init__(self, scale=1.0, num_classes=3):
        super().__init__()
        self.scale = scale
        rng = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(num_classes, 16, generator=rng))

    def forward(self, x):
        return (x + self.scale * torch.randn_like(x)).flatten(1) @ self.weight.T


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def data():
    images = torch.rand(300, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    return images, Noisy(0.0)(images).argmax(1)


def test_every_audit_flags_a_model_that_changes_its_answers(data):
    report = classwise.audit(Noisy(), *data, attacks="clean")
    assert [words.split(":")[0] for words in report.about["flags"]] == ["random"]
    assert "--repeat" in report.about["flags"][0]
    assert "flags" not in classwise.audit(Noisy(0.0), *data, attacks="clean").about


@pytest.mark.parametrize("kind", ["module", "function", "arrays", "tensors"])
def test_many_passes_are_nearly_the_model_without_noise(data, kind):
    noisy = Noisy(0.5)

    def arrays(x):
        with torch.no_grad():
            return noisy(torch.from_numpy(x)).numpy()

    model = {
        "module": noisy,
        "function": lambda x: noisy(x),
        "arrays": BlackBox(arrays),
        "tensors": BlackBox(lambda x: noisy(x).detach(), arrays=False),
    }[kind]
    once, often = (
        classwise.audit(model, *data, attacks="clean", repeat=n).overall["clean"] for n in (1, 60)
    )
    assert once < 0.8
    assert often > 0.9


def test_the_gradient_is_the_mean_gradient(data):
    images = data[0][:2].clone().requires_grad_()
    mean_of_passes(Noisy(), 5)(images)[:, 0].sum().backward()
    assert torch.allclose(images.grad.flatten(1), Noisy().weight[0].expand(2, -1), atol=1e-5)


def test_an_attack_object_made_for_the_model_itself_is_welcome(data):
    model = Noisy(0.1)

    class Shift:
        eps = 0.05

        def __init__(self):
            self.model = model

        def __call__(self, x, _):
            return (x + 0.05).clamp(max=1)

    report = classwise.audit(model, *data, attacks=["clean", Shift()], eps=0.05, repeat=3)
    assert len(report) == 2


def test_the_mean_of_some_passes_is_still_random_and_says_so(data):
    (words,) = classwise.audit(Noisy(), *data, attacks="clean", repeat=3).about["flags"]
    assert "two means of 3 passes" in words
    assert "--repeat 30" in words


def test_one_pass_is_the_model_itself_and_none_is_refused(data):
    model = Noisy()
    assert mean_of_passes(model, 1) is model
    with refused("repeat is 0", "1 or more"):
        classwise.audit(model, *data, attacks="clean", repeat=0)


def test_modes_stay_and_a_ledger_takes_the_mean_for_another_model():
    model = Noisy().train()
    averaged = mean_of_passes(model, 2)
    assert averaged.training
    mixed = nn.Sequential(nn.Dropout(), Noisy()).train()
    mixed[0].eval()
    assert mean_of_passes(mixed, 2).training
    assert not mixed[0].training, "parts keep their modes"
    assert not mean_of_passes(model.eval(), 2).training
    hashes = {model_hash(mean_of_passes(model, n)) for n in (1, 2, 3)}
    assert len(hashes) == 3


def test_a_target_is_repeated_and_its_flag_kept(tmp_path, monkeypatch):
    (tmp_path / "noisy_net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Noise(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x + 0.2 * torch.randn_like(x)\n"
        "def make(num_classes):\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(Noise(), nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    facts = {"data": "digits", "attacks": "clean", "limit": 40, "quiet": True}
    for repeat in (1, 3):
        (found,) = audit_target("noisy_net:make", folder=tmp_path / "kept", repeat=repeat, **facts)
        assert found.report.about["flags"][0].startswith("random")
    both = read_ledger(tmp_path / "kept")
    assert len(both) == 2  # two models: one pass, and the mean of three
    assert all(one.report.about["flags"][0].startswith("random") for one in both)
    assert np.isfinite([one.report.overall["clean"] for one in both]).all()
