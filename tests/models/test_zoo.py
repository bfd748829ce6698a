"""Networks of timm, torchvision and the hub: built by name, opened, audited; what is refused."""

import json

import numpy as np
import pytest
import torch
from refusals import refused
from safetensors.torch import save_file
from typer.testing import CliRunner
from zoo_libraries import library

import classwise
from classwise.cli import app
from classwise.models import build_model, names_own_model, zoo
from classwise.record.run_folder import load_model as load_described
from classwise.record.tensors import read_tensors, write_tensors

TINY = {
    "timm": "timm:resnet10t",
    "torchvision": "torchvision:squeezenet1_1",
}


def build(spec, num_classes=3, channels=3):
    return build_model(
        spec, num_classes=num_classes, channels=channels, mean=[0.0] * 3, deviation=[1.0] * 3
    ).eval()


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Twelve pictures of three classes, 64 pixels wide."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (12, 64, 64, 3), dtype=np.uint8)
    labels = np.arange(12) % 3
    np.savez("data.npz", images=images, labels=labels)
    return "npz:data.npz"


def audit(*words):
    return CliRunner().invoke(app, ["audit", *words, "--attacks", "clean,fgsm"])


@pytest.mark.parametrize("kind", TINY)
class TestNamed:
    def test_seeded_and_of_the_classes_of_the_data(self, kind):
        library(kind)
        one, two = build(TINY[kind]), build(TINY[kind])
        images = torch.rand(2, 3, 64, 64)
        assert one(images).shape == (2, 3)
        assert torch.equal(one(images), two(images))

    def test_a_file_of_its_weights_is_one_command(self, kind, data):
        library(kind)
        model = build(TINY[kind])
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.1)
        torch.save(
            {"state_dict": {f"module.{n}": v for n, v in model.state_dict().items()}}, "x.pt"
        )
        assert audit("x.pt", "--arch", TINY[kind], "--data", data).exit_code == 0
        assert audit(TINY[kind], "--weights", "x.pt", "--data", data).exit_code == 0
        images = torch.rand(2, 3, 64, 64)
        assert torch.equal(
            classwise.load_model("x.pt", arch=TINY[kind], num_classes=3)(images), model(images)
        )

    def test_random_weights_are_never_silent(self, kind, data):
        library(kind)
        told = audit(TINY[kind], "--data", data)
        assert told.exit_code == 0, told.output
        assert "random-weights" in told.stderr
        assert "random-weights" in told.stdout

    def test_a_run_says_the_name_and_no_file_needs_it_again(self, kind, tmp_path, data):
        library(kind)
        run = classwise.train(
            "clean", data=data, model=TINY[kind], epochs=1, batch_size=4, valid="0.4", eps=0.1,
            out=tmp_path / "run", quiet=True,
        )  # fmt: skip
        assert classwise.load_model(run.weights_path("last"))(torch.rand(2, 3, 64, 64)).shape
        path = run.weights_path("last")
        tensors, about = read_tensors(path)
        for spec, words in (
            (f"{TINY[kind]}(pretrained=true)", None),  # as it was trained; not fetched again
            (f"{TINY[kind]}(checkpoint_path='x')", "may not import"),
            (f"{TINY[kind]}(img_size=5000)", "may not import"),
            (f"{kind}:no_such_model", f"{kind} has no model"),
            ("hf:org/name", "may not import"),
            ("timm:hf-hub:org/name", "timm has no model"),
        ):
            about["network"]["spec"] = spec
            write_tensors(tmp_path / "told.safetensors", tensors, about)
            if words is None:
                assert load_described(tmp_path / "told.safetensors")
                continue
            with refused("told.safetensors", words):
                load_described(tmp_path / "told.safetensors")
        tensors.popitem()
        about["network"]["spec"] = TINY[kind]
        write_tensors(tmp_path / "told.safetensors", tensors, about)
        with refused("does not fit its own model", "1 missing"):
            load_described(tmp_path / "told.safetensors")

    def test_nearest_names(self, kind):
        library(kind)
        with refused(f"{kind} has no model 'resnet19'", "did you mean"):
            build(f"{kind}:resnet19")
        with refused("was not built", "nonsense"):
            build(f"{TINY[kind]}(nonsense=3)")
        with refused("write true or false"):
            build(f"{TINY[kind]}(pretrained=3)")
        with refused("option"):
            build(f"{TINY[kind]}(3)")


def test_published_weights_of_other_classes_are_no_audit(data, monkeypatch):
    timm = library("timm")
    made = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda *a, **o: made(*a, **o | {"pretrained": False}))
    told = audit("timm:resnet10t(pretrained=true)", "--data", data)
    assert told.exit_code == 2
    assert "are for 1000 classes, and the data have 3" in told.stderr


class TestSnapshots:
    """A folder as the hub keeps them, made here."""

    @pytest.fixture
    def timms(self, tmp_path):
        timm = library("timm")
        model = timm.create_model("resnet10t", num_classes=3).eval()
        config = {
            "architecture": "resnet10t",
            "num_classes": 3,
            "pretrained_cfg": {"num_classes": 3, "input_size": [3, 64, 64], "classifier": "fc"},
        }
        (tmp_path / "snapshot").mkdir()
        (tmp_path / "snapshot/config.json").write_text(json.dumps(config))
        save_file(model.state_dict(), tmp_path / "snapshot/model.safetensors")
        return model

    @pytest.mark.parametrize("whose", ["timms", "vit"])
    def test_a_folder_is_one_command(self, whose, data, request, tmp_path):
        theirs = request.getfixturevalue(whose)
        images = torch.rand(2, 3, 64, 64)
        expected = theirs(images) if whose == "timms" else theirs(pixel_values=images).logits
        assert torch.equal(build("hf:snapshot(pretrained=true)")(images), expected)
        told = audit("hf:snapshot", "--data", data)
        assert told.exit_code == 0, told.output
        assert "random-weights" not in told.output
        file = str(tmp_path / "snapshot/model.safetensors")
        opened = classwise.load_model(file, arch="hf:snapshot", num_classes=3)
        assert torch.equal(opened(images), expected)
        assert not torch.equal(build("hf:snapshot")(images), expected)  # none unless asked

    @pytest.mark.usefixtures("vit")
    def test_its_images_are_prepared_as_it_says(self, data, tmp_path):
        said = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.2, 0.2], "do_resize": False}
        (tmp_path / "snapshot/preprocessor_config.json").write_text(json.dumps(said))
        told = " ".join(audit("hf:snapshot", "--data", data).output.split())
        assert "normalised by mean 0.4 0.5 0.6, deviation 0.2 0.2 0.2, as the config" in told
        told = " ".join(audit("hf:snapshot", "--data", data, "--normalise", "none").output.split())
        assert "normalised" not in told

    def test_what_lacks_is_said(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "empty").mkdir()
        with refused("config.json is missing"):
            build("hf:empty")
        with refused("there is no folder ./nowhere", "hf:ORG/NAME"):
            build("hf:./nowhere")

    def test_of_other_classes_it_has_a_new_head_and_is_no_audit(self, vit, data):
        assert vit.config.num_labels == 3
        assert build("hf:snapshot(pretrained=true)", num_classes=5)(torch.rand(2, 3, 64, 64)).shape
        images = np.zeros((10, 64, 64, 3), np.uint8)
        np.savez("five.npz", images=images, labels=np.arange(10) % 5)
        told = audit("hf:snapshot", "--data", data.replace("data", "five"))
        assert "are for 3 classes, and the data have 5" in told.stderr

    def test_a_head_that_is_not_there_is_no_weight(self, vit, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        kept = {n: v for n, v in vit.state_dict().items() if "classifier" not in n}
        save_file(kept, tmp_path / "snapshot/model.safetensors", {"format": "pt"})
        with refused("do not fit its own network", "classifier"):
            build("hf:snapshot(pretrained=true)")


def test_the_hub_out_of_reach(monkeypatch):
    class Hub:
        @staticmethod
        def hf_hub_download(*_):
            raise OSError("no network here")

    monkeypatch.setattr(zoo, "imported", lambda _: Hub)
    with refused("hf:org/name cannot be had", "no network here", "hf:FOLDER"):
        build("hf:org/name")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (ModuleNotFoundError(name="timm"), ("not installed", "classwise[zoo]")),
        (
            RuntimeError("operator torchvision::nms does not exist"),
            ("built for another torch", "torchvision::nms", "--arch"),
        ),
        (OSError("broken"), ("cannot be imported (broken)",)),
    ],
)
def test_a_library_that_does_not_import_is_one_sentence(monkeypatch, reason, words):
    def broken(_):
        raise reason

    monkeypatch.setattr(zoo.importlib, "import_module", broken)
    with refused(*words):
        build("timm:resnet18")


def test_also_where_it_shows_while_a_network_is_made():
    def hidden():
        try:
            raise RuntimeError("operator torchvision::nms does not exist")
        except RuntimeError as reason:
            raise ModuleNotFoundError("requirements?") from reason

    with refused("built for another torch"):
        zoo._made("hf:x", hidden)


def test_who_may_name_what():
    may = ["timm:resnet18", "torchvision:vit_b_16(image_size=64)", "cnn", "timm:x(pretrained=true)"]
    may_not = ["hf:a/b", "mine:net", "timm:x(cache_dir='a')", "torchvision:x(weights='DEFAULT')"]
    may_not += ["timm:x(scriptable=1)", "timm:x(img_size=0)"]
    assert [names_own_model(spec) for spec in may + may_not] == [False] * 4 + [True] * 6
