"""Results that used to come out wrong without a word."""

import csv
import io

import numpy as np
import pytest
import torch
from asked import audit_target
from refusals import refused
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import classwise
from classwise import cli
from classwise.judging.audits import read_ledger
from classwise.models.preparation import Normalisation, Preparation
from classwise.models.prepared import Front


def run(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def digits(count=300):
    test = classwise.open_data("digits").test
    return test.images[:count], test.labels[:count], test.class_names


def save(path, labels=None, **more):
    images, numbers, _ = digits()
    np.savez(path, images=images.numpy(), labels=numbers if labels is None else labels, **more)
    return f"npz:{path}"


class TestWeightsOfAnOwnModel:
    def test_they_are_loaded(self, here):
        torch.manual_seed(5)
        other = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        save_file(other.state_dict(), here / "other.safetensors")
        facts = {"data": "digits", "attacks": "clean", "quiet": True}
        (plain,) = audit_target("given_net:net", **facts)
        (found,) = audit_target("given_net:net", weights="other.safetensors", **facts)
        images, labels, names = digits(10_000)
        expected = classwise.audit(other, images, labels, attacks=["clean"], class_names=names)
        assert found.report.by_class == expected.by_class != plain.report.by_class

    def test_those_of_another_model_or_of_nothing_are_refused(self, here):
        save_file({"1.weight": torch.zeros(10, 64)}, here / "half.safetensors")
        facts = {"data": "digits", "attacks": "clean", "quiet": True}
        with refused("half.safetensors", "1 missing", "1.bias"):
            audit_target("given_net:net", weights="half.safetensors", **facts)
        with refused("no file last", "--weights names a file"):
            audit_target("given_net:net", weights="last", **facts)


class TestUndividedData:
    def test_a_strangers_model_is_audited_on_all_images_in_their_order(self, here):
        data = save(here / "d.npz")
        done = run("audit", "given_net:net", "--data", data, "--attacks", "clean", "--out", "kept")
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith("Audited: all 300 images of npz:d.npz.")
        (read,) = read_ledger(here / "kept")
        assert (read.split, int(read.report["clean"].counts.sizes.sum())) == ("all", 300)
        images, labels, _ = digits()
        names = [str(k) for k in range(10)]
        import given_net

        whole = classwise.audit(
            given_net.net(10), images, labels, attacks=["clean"], class_names=names
        )
        assert np.array_equal(read.report.confusion["clean"], whole.confusion["clean"])
        done = run("diff", "kept", "kept")
        assert done.exit_code == 0, done.output

    def test_a_run_is_audited_on_what_it_held_out(self, here):
        data = save(here / "d.npz")
        facts = {"data": data, "model": "cnn(width=2)", "epochs": 1, "batch_size": 64}
        classwise.train("clean", **facts, out=here / "run", quiet=True)
        done = run("audit", "run", "--attacks", "clean")
        assert done.exit_code == 0, done.output
        held = len(classwise.open_data(data).test)
        assert f"Audited: {held} of the 300 images of npz:d.npz, the part set aside" in done.stdout
        last = here / "run" / "weights" / "last.safetensors"
        (file,) = audit_target(str(last), data=data, attacks="clean", quiet=True)
        assert int(file.report["clean"].counts.sizes.sum()) == held
        other = save(here / "e.npz", labels=np.roll(np.asarray(digits()[1]), 1))
        (strange,) = audit_target(str(last), data=other, attacks="clean", quiet=True)
        assert int(strange.report["clean"].counts.sizes.sum()) == 300

    def test_one_image_per_class_can_be_audited_and_not_trained(self, here):
        images, labels, _ = digits(10_000)
        first = [int((labels == k).nonzero()[0]) for k in range(10)]
        np.savez(here / "one.npz", images=images[first].numpy(), labels=np.arange(10))
        data = f"npz:{here / 'one.npz'}"
        (found,) = audit_target("given_net:net", data=data, attacks="clean", quiet=True)
        assert found.report["clean"].counts.sizes.tolist() == [1] * 10
        with refused("1 image", "one to train, one to test"):
            classwise.train("clean", data=data, epochs=1, out=here / "run", quiet=True)
        with refused("there are none", "--split all"):
            audit_target("given_net:net", data=data, split="test", attacks="clean", quiet=True)


class TestMix:
    def test_a_balanced_choice_says_so_and_what_the_split_would_show(self, here):
        images, labels, _ = digits(10_000)
        keep = torch.cat([(labels == 0).nonzero()[:50, 0], (labels == 1).nonzero()[:10, 0]])
        np.savez(here / "m.npz", images=images[keep].numpy(), labels=labels[keep].numpy())
        data = f"npz:{here / 'm.npz'}"
        words = ["audit", "given_net:net", "--data", data, "--attacks", "clean", "--out", "kept"]
        done = run(*words, "--limit", "20")
        assert done.exit_code == 0, done.output
        (read,) = read_ledger(here / "kept")
        one = read.report["clean"]
        zero, first = one.by_class.values()
        assert one.overall == pytest.approx((zero + first) / 2)
        assert one.mix_average == pytest.approx((50 * zero + 10 * first) / 60)
        said = " ".join(done.stdout.split())
        assert f"in the mix of the whole split it is clean {100 * one.mix_average:.1f}" in said
        assert "Audited: 20, balanced over the classes, of all 60 images of npz:m.npz" in said
        done = run(*words)
        assert "balanced" not in done.stdout
        (read,) = read_ledger(here / "kept")
        assert read.report["clean"].mix_average is None


class Raw(nn.Module):
    """A network that was trained on normalised images and does not normalise."""

    def __init__(self, softmax=False):
        super().__init__()
        images, labels, _ = digits(10_000)
        x = (images.float() / 255 - 0.5) / 0.25
        means = torch.stack([x[labels == k].mean(0).flatten() for k in range(10)])
        self.head = nn.Linear(64, 10)
        with torch.no_grad():
            self.head.weight.copy_(means)
            self.head.bias.copy_(-means.square().sum(1) / 2)
        self.softmax = softmax

    def forward(self, x):
        logits = self.head(x.flatten(1))
        return logits.softmax(1) if self.softmax else logits


class TestNormalisation:
    how = ((0.5,), (0.25,))

    def test_a_missing_one_is_named_with_the_remedy_which_works(self, tmp_path):
        images, labels, _ = digits()
        facts = {"attacks": ["clean"], "out": tmp_path / "kept"}
        without = classwise.audit(Raw(), images, labels, **facts)
        (flag,) = (f for f in without.about["flags"] if f.startswith("missing-normalisation"))
        assert "--normalise" in flag
        within = classwise.audit(Raw(), images, labels, normalise=self.how, **facts)
        assert not within.about.get("flags")
        assert within.overall["clean"] > without.overall["clean"] + 0.1
        kept = read_ledger(tmp_path / "kept")
        assert len(kept) == 2  # another model

    def test_functions_and_black_boxes_take_it(self):
        images, labels, _ = digits()
        model = Raw()
        expected = classwise.audit(model, images, labels, attacks=["clean"], normalise=self.how)
        for given in (
            lambda x: model(x),
            lambda x: model(torch.as_tensor(x)).detach().numpy(),
        ):
            found = classwise.audit(given, images, labels, attacks=["clean"], normalise=self.how)
            assert found.by_class == expected.by_class

    def test_it_is_never_applied_twice(self, here):
        config = {"data": "digits", "model": "cnn(width=2)", "epochs": 1, "batch_size": 64}
        run = classwise.train("clean", **config, out=here / "run", quiet=True)
        images, labels, _ = digits()
        with refused("normalises its images itself", "twice"):
            classwise.audit(run.model(), images, labels, normalise=self.how)

    @pytest.mark.parametrize(
        ("how", "words"),
        [
            ("cifar", ("cifar10", "imagenet")),
            (((0.5,), (0.0,)), ("above 0",)),
            (((0.5, 0.5), (1.0,)), ("one of each per channel",)),
            (7, ("pair",)),
        ],
    )
    def test_refusals(self, how, words):
        with refused(*words):
            Normalisation.of(how)
        with refused("3 channels", "have 1"):
            Front(Preparation.of("imagenet"), (1, 8, 8))

    def test_softmax_outputs_are_named(self):
        images, labels, _ = digits()
        found = classwise.audit(Raw(softmax=True), images, labels, attacks=["clean"])
        (flag,) = (f for f in found.about["flags"] if f.startswith("probabilities"))
        assert "--output probabilities" in flag


class TestLabels:
    @pytest.mark.parametrize(
        ("labels", "words"),
        [
            (np.repeat([1, 2, 3], 100), ("from 1 to 3", "subtract 1")),
            (np.repeat([0, 5, 7], 100), ("3 classes", "from 0 to 7", "no image of class 1, 2, 3")),
            (np.zeros(300, int), ("one class", "number 0")),
        ],
    )
    def test_data_without_names_must_number_them_from_0(self, here, labels, words):
        with refused(*words, "class_names"):
            classwise.open_data(save(here / "d.npz", labels=labels))
        names = [f"c{k}" for k in range(8)]
        assert classwise.open_data(save(here / "d.npz", labels=labels, class_names=names))

    def test_labels_from_1_and_names_of_another_length_are_told_at_once(self):
        images, labels, names = digits()
        model = Raw()
        with refused("from 1 to 10", "subtract 1"):
            classwise.audit(model, images, labels + 1)
        with refused("10 outputs", "9 classes"):
            few = labels < 9
            classwise.audit(model, images[few], labels[few], class_names=names[:9])

    def test_shifted_labels_and_a_single_class_are_flagged(self):
        images, labels, _ = digits()
        model = Raw()
        facts = {"attacks": ["clean"], "normalise": TestNormalisation.how}
        few = labels < 9
        shifted = classwise.audit(model, images[few], labels[few] + 1, **facts)
        assert any("counted from 1" in flag for flag in shifted.about["flags"])
        alone = classwise.audit(model, images[labels == 3], labels[labels == 3], **facts)
        assert any(flag.startswith("one-class") for flag in alone.about["flags"])


def test_the_long_table_says_the_split(here):
    data = save(here / "d.npz")
    facts = {"data": data, "attacks": "clean", "quiet": True}
    audit_target("given_net:net", folder=here / "kept", **facts)
    run("report", "kept", "--out", "page.csv")
    rows = list(csv.DictReader(io.StringIO((here / "page.csv").read_text())))
    assert {row["split"] for row in rows} == {"all"}


def test_the_command_line_normalises_and_refuses_what_it_would_not_use(here):
    torch.manual_seed(0)
    words = ["audit", "given_net:net", "--data", "digits", "--attacks", "clean", "--out", "kept"]
    for how in (["--mean", "0.3", "--std", "0.4"], ["--normalise", "mnist"]):
        done = run(*words, *how)
        assert done.exit_code == 0, done.output
    assert len(read_ledger(here / "kept")) == 2
    for how, said in (
        (["--mean", "0.3"], "go together"),
        (["--mean", "x", "--std", "1"], "one number per channel"),
        (["--normalise", "mnist", "--mean", "0", "--std", "1"], "not both"),
    ):
        done = run(*words, *how)
        assert (done.exit_code, said in " ".join(done.stderr.split())) == (2, True), done.output
    done = run("audit", "--from", "kept", "--eps", "0.1")
    assert (done.exit_code, "--eps would have no effect" in done.stderr) == (2, True), done.output
    assert run("audit", "--from", "kept", "--attacks", "clean").exit_code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimiser": "adamw", "momentum": 0.8}, ("momentum=0.8", "optimiser=sgd")),
        ({"optimiser": "adam", "nesterov": True}, ("nesterov=True", "optimiser=sgd")),
        ({"schedule": "cosine", "drops": (0.3,)}, ("drops", "schedule=step")),
        ({"watch_every": 5}, ("watch_every=5", "watch=")),
        ({"watch_share": 0.2}, ("watch_share=0.2", "watch=SPLIT:ATTACK without watch_every")),
        (
            {"watch": "test:clean", "watch_every": 1, "watch_share": 0.2},
            ("watch_share=0.2", "without watch_every"),
        ),
        ({"keep_every": 5, "epochs": 3}, ("keep_every=5", "at most 3 epochs")),
    ],
)
def test_what_training_would_not_use_is_refused(options, words):
    with refused(*words):
        classwise.TrainConfig(**options)
