"""Weights of other people, one command each; and what is said where they do not fit."""

import os

import pytest
import torch
from refusals import refused
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import classwise
from classwise.cli import app
from classwise.data.splits import balanced_subset
from classwise.models import build_model
from classwise.record.state_dict import NESTS, read_state_dict

NETS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes=10, **options):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten())
        self.fc = nn.Linear(36, num_classes)

    def forward(self, x):
        return self.fc(self.body(x))


def loose(**options):
    return Net(**options)


def fixed(**options):
    return Fixed(**options)


class Fixed(Net):
    def __init__(self, wide=False):
        super().__init__(num_classes=5)


def broken(**options):
    return Net(num_classes=options["num_classes"], **{"num_classes": 3})
"""


@pytest.fixture
def net(tmp_path, monkeypatch):
    (tmp_path / "theirs_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import theirs_nets

    torch.manual_seed(3)
    model = theirs_nets.Net()
    for weight in model.parameters():
        nn.init.normal_(weight)
    return model


def audit(*words):
    few = ["--data", "digits", "--attacks", "clean", "--limit", "40"]
    return CliRunner().invoke(app, ["audit", *words, *few])


def digits():
    test = classwise.open_data("digits").test
    rows = balanced_subset(test.labels, 40, seed=0)
    return test.images[rows], test.labels[rows]


def written(model, kind):
    state = dict(model.state_dict())
    wrapped = {f"module.{name}": value for name, value in state.items()}
    held = {
        "plain": state,
        "data parallel": wrapped,
        "compiled": {f"_orig_mod.{name}": value for name, value in state.items()},
        "lightning": {"state_dict": {f"model.{n}": v for n, v in state.items()}, "epoch": 3},
        "ema": {"model_ema": wrapped, "optimizer": {"lr": 0.1}},
        "deep": {"net": {"ema": wrapped}},
        "averaged": {"n_averaged": torch.tensor(3), **wrapped},
    }[kind]
    torch.save(held, "theirs.pth")
    return "theirs.pth"


@pytest.mark.parametrize(
    "kind", ["plain", "data parallel", "compiled", "lightning", "ema", "deep", "averaged"]
)
def test_every_kind_of_pth_is_one_command(net, kind):
    images = digits()[0] / 255
    file = written(net, kind)
    told = audit(file, "--arch", "theirs_nets:Net")
    assert told.exit_code == 0, told.output
    model = classwise.load_model(file, arch="theirs_nets:Net", num_classes=10)
    assert torch.equal(model(images), net.eval()(images))
    right = 100 * (net(images).argmax(1) == digits()[1]).double().mean()
    assert f" {right:.1f} " in next(line for line in told.stdout.splitlines() if file in line)


def test_safetensors_and_a_set_of_weights_by_its_key(net):
    images, state = digits()[0] / 255, net.state_dict()
    save_file(state, "theirs.safetensors")
    found = classwise.load_model("theirs.safetensors", arch="theirs_nets:loose")  # **options
    assert torch.equal(found(images), net(images))
    other = {name: value + 1 for name, value in state.items()}
    torch.save({"state_dict": other, "state_dict_ema": state}, "two.pth")
    told = audit("two.pth", "--arch", "theirs_nets:Net")
    assert told.exit_code == 2
    assert "state_dict and state_dict_ema" in told.stderr
    assert "two.pth@state_dict_ema" in told.stderr
    assert audit("two.pth@state_dict_ema", "--arch", "theirs_nets:Net").exit_code == 0
    torch.save({"last": state, "best": other}, "named.pth")
    with refused("last", "named.pth@last"):
        classwise.load_model("named.pth", arch="theirs_nets:Net")
    model = classwise.load_model("named.pth@last", arch="theirs_nets:Net")
    assert torch.equal(model(images), net(images))
    with refused("'lost'", "did you mean 'last'"):
        classwise.load_model("named.pth@lost", arch="theirs_nets:Net")


def test_a_head_of_another_name_takes_two_commands(net):
    state = {f"module.{n}".replace("fc", "classifier"): v for n, v in net.state_dict().items()}
    torch.save(state, "theirs.pth")
    told = audit("theirs.pth", "--arch", "theirs_nets:Net")
    assert told.exit_code == 2
    for words in ("2 missing: fc.bias, fc.weight", "classifier.bias", "--rename classifier=fc"):
        assert words in told.stderr
    assert audit("theirs.pth", "--arch", "theirs_nets:Net", *last_words(told)).exit_code == 0
    model = classwise.load_model("theirs.pth", arch="theirs_nets:Net", rename={"classifier": "fc"})
    images = digits()[0] / 255
    assert torch.equal(model(images), net(images))


def last_words(told):
    return told.stderr.split("Then add ")[1].split()


def test_a_head_of_other_classes_takes_two_commands(net):
    torch.save(type(net)(num_classes=7).state_dict(), "seven.pth")
    told = audit("seven.pth", "--arch", "theirs_nets:Net")
    assert told.exit_code == 2
    for words in ("fc.weight is (7, 36), not (10, 36)", "other classes", "--begin seven.pth"):
        assert words in told.stderr
    words = told.stderr.split("classwise train ")[1].split()
    quick = ["--epochs", "1", "--subset", "60", "--quiet", "--out", "runs/new"]
    assert CliRunner().invoke(app, ["train", *words, *quick]).exit_code == 0
    done = CliRunner().invoke(
        app, ["audit", "runs/new", "--model", "theirs_nets:Net", "--limit", "20", "--quiet"]
    )
    assert done.exit_code == 0, done.output


def test_what_did_not_fit_is_listed(net):
    state = net.state_dict()
    state["extra.weight"] = torch.zeros(2)
    torch.save(state, "more.pth")
    told = audit("more.pth", "--arch", "theirs_nets:Net")
    assert "1 that belong to no part of it: extra.weight" in told.stderr
    assert "--rename extra=" in told.stderr
    assert audit("more.pth", "--arch", "theirs_nets:Net", "--rename", "extra=").exit_code == 0
    del state["extra.weight"], state["fc.bias"]
    torch.save(state, "less.pth")
    assert "1 missing: fc.bias" in audit("less.pth", "--arch", "theirs_nets:Net").stderr
    torch.save({**net.state_dict(), "fc.bias": torch.full((10,), torch.nan)}, "nan.pth")
    assert "not finite" in audit("nan.pth", "--arch", "theirs_nets:Net").stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["theirs.pth"], "--arch"),
        (["theirs.safetensors"], "--arch"),
        (["theirs.pth", "--arch", "resnet181"], "did you mean 'resnet18'"),
        (["theirs.pth", "--arch", "theirs_nets:Net", "--rename", "body"], "OLD=NEW"),
        (["theirs.pth", "--arch", "theirs_nets:Net", "--rename", "bodi=x"], "did you mean"),
        (["theirs.pth", "--rename", "a=b"], "--arch"),
        (["theirs_nets:Net", "--arch", "cnn"], "no weights file"),
        (["theirs.pth", "--arch", "cnn", "--model", "theirs_nets:Net"], "give --arch alone"),
        (["theirs.pth", "--arch", "cnn", "--weights", "last"], "leave out --weights"),
    ],
)
def test_every_stumble_has_a_way_out(net, words, said):
    torch.save(net.state_dict(), "theirs.pth")
    save_file(net.state_dict(), "theirs.safetensors")
    told = audit(*words)
    assert told.exit_code == 2, told.output
    assert said in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.usefixtures("net")
def test_the_number_of_classes_goes_wherever_it_fits():
    def outputs(spec):
        facts = {"num_classes": 7, "channels": 1, "mean": [0.0], "deviation": [1.0]}
        return build_model(spec, **facts).fc.out_features

    assert [outputs(f"theirs_nets:{name}") for name in ("Net", "loose", "fixed")] == [7, 7, 5]
    assert outputs("theirs_nets:loose(num_classes=4)") == 4  # the user's word counts
    with refused("theirs_nets:fixed failed", "nonsense"):
        outputs("theirs_nets:fixed(nonsense=1)")
    with refused("theirs_nets:broken failed"):
        outputs("theirs_nets:broken")


def test_images_that_are_too_small_are_told():
    with refused("lenet does not take images of 1×8×8", "Kernel size"):
        classwise.train("clean", model="lenet", data="digits", epochs=1, eps=0.1, out="never")


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("boom",)


def test_a_malicious_pickle_is_not_run(net):
    torch.save({"state_dict": net.state_dict(), "hook": Bomb()}, "evil.pth")
    told = audit("evil.pth", "--arch", "theirs_nets:Net")
    assert told.exit_code == 2
    assert "was not opened" in told.stderr
    assert not os.path.exists("boom")


def test_names_in_a_file_do_not_speak_to_the_terminal(net):
    torch.save({**net.state_dict(), "\x1b[2Jx": torch.zeros(1)}, "odd.pth")
    assert "\x1b" not in audit("odd.pth", "--arch", "theirs_nets:Net").stderr


def test_our_own_files_need_no_architecture(tmp_path, tiny):
    run = classwise.train(
        "clean", out=tmp_path / "run", source=tiny(), quiet=True, epochs=1, eps=0.1, valid="0.2"
    )
    path, images = run.weights_path("last"), torch.rand(2, 1, 8, 8)
    assert torch.equal(classwise.load_model(path)(images), run.model()(images))
    with refused("normalises its images itself"):
        classwise.load_model(path, normalise="mnist")
    with refused("leave out --rename"):
        classwise.load_model(path, rename={"a": "b"})
    with refused("was made with cnn, not resnet18"):
        classwise.load_model(path, arch="resnet18")
    told = CliRunner().invoke(app, ["audit", str(tmp_path / "run"), "--arch", "cnn"])
    assert "says what it is" in told.stderr


def test_a_mapping_of_mappings_ends(tmp_path):
    nested: dict = {}
    nested.update(dict.fromkeys(NESTS, nested))
    torch.save(nested, tmp_path / "loop.pth")
    with refused("no tensors"):
        read_state_dict(tmp_path / "loop.pth")
