"""Calls people know from elsewhere, attacks of other libraries, and models that only answer."""

import sys
import types

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from asked import attacked, judge
from onnx import TensorProto, helper, numpy_helper
from refusals import refused
from torch import nn
from typer.testing import CliRunner

import classwise
from classwise.attacks import PGD, AutoAttack, BlackBox, Square
from classwise.attacks.ball import LINF
from classwise.attacks.search.suite import Suite
from classwise.cli import app
from classwise.data.sources import open_data
from classwise.judging.audits import read_ledger
from classwise.models.blackbox import as_model, onnx_files, open_onnx
from classwise.types import Batch


class Linear(nn.Module):
    """Two pictures' worth of weights: a digit-sized linear model with BatchNorm to disturb."""

    def __init__(self, num_classes=4):
        super().__init__()
        rng = torch.Generator().manual_seed(0)
        self.norm = nn.BatchNorm2d(1)
        self.weight = nn.Parameter(torch.randn(num_classes, 36, generator=rng))

    def forward(self, x):
        return self.norm(x - 0.5).flatten(1) @ self.weight.T


@pytest.fixture
def model():
    return Linear()


@pytest.fixture
def data(model):
    rng = torch.Generator().manual_seed(1)
    images = torch.rand(40, 1, 6, 6, generator=rng)
    with torch.no_grad():
        labels = model.eval()(images).argmax(1)
    labels[:4] = (labels[:4] + 1) % 4  # four are wrong from the beginning
    return images, labels


class TestAutoAttack:
    custom = ("apgd-ce", "square(queries=20)")

    def test_a_drop_in(self, model, data, capsys):
        images, labels = data
        adversary = AutoAttack(
            model, norm="Linf", eps=0.03, version="custom", attacks_to_run=self.custom
        )
        moved = adversary.run_standard_evaluation(images, labels, bs=16)
        assert moved.shape == images.shape
        assert (moved - images).abs().max() <= 0.03 + 1e-6
        robust = (model(moved).argmax(1) == labels).double().mean().item()
        assert 0 < robust < 0.9
        report = adversary.report
        name = "suite(apgd-ce,square(queries=20))"
        assert report.overall[name] == pytest.approx(robust)
        assert report.overall["clean"] == pytest.approx(0.9)
        for k, rate in report.by_class[name].items():
            own = labels == int(k)
            expected = (model(moved[own]).argmax(1) == labels[own]).double().mean().item()
            assert rate == pytest.approx(expected)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "initial accuracy: 90.00%"
        assert lines[1].startswith("robust accuracy after APGD-CE: ")
        assert lines[-1] == f"robust accuracy: {robust:.2%}"
        assert set(adversary.predictions.broken_by) >= {None, "clean", "apgd-ce"}

    def test_a_call_that_broke_off_goes_on(self, model, data, tmp_path, monkeypatch):
        images, labels = data
        facts = {"eps": 0.03, "version": "custom", "attacks_to_run": self.custom, "verbose": False}
        whole = AutoAttack(model, **facts)
        expected = whole.run_standard_evaluation(images, labels)
        path, judged, lucky = tmp_path / "state", [], [2]

        judge = Suite.judge

        def counted(self, subject, batch, *rest):
            if len(judged) == lucky[0]:
                raise KeyboardInterrupt
            judged.append(len(batch))
            return judge(self, subject, batch, *rest)

        monkeypatch.setattr(Suite, "judge", counted)
        kept = {"bs": 6, "state_path": path}
        with pytest.raises(KeyboardInterrupt):
            AutoAttack(model, **facts).run_standard_evaluation(images, labels, **kept)
        lucky[0] = 99
        again = AutoAttack(model, **facts)
        moved = again.run_standard_evaluation(images, labels, **kept)
        assert judged == [12, 12, 12, 4]
        torch.testing.assert_close(moved, expected, rtol=0, atol=1e-6)
        assert list(again.predictions.broken_by) == list(whole.predictions.broken_by)
        assert torch.equal(again.run_standard_evaluation(images, labels, **kept), moved)
        assert len(judged) == 4
        # another radius, other data or another model is another question to the same folder
        other = AutoAttack(model, **{**facts, "eps": 0.02})
        other.run_standard_evaluation(images, labels, **kept)
        again.run_standard_evaluation(images, labels.flip(0), **kept)
        with torch.no_grad():
            model.weight[0, 0] += 1
        again.run_standard_evaluation(images, labels, **kept)
        assert judged == [12, 12, 12, 4] * 4

    def test_a_state_file_of_old_is_refused_with_the_way_out(self, model, data, tmp_path):
        (tmp_path / "state").write_bytes(b"safetensors")
        with refused("is a file", "another state_path"):
            AutoAttack(model, verbose=False).run_standard_evaluation(
                *data, state_path=tmp_path / "state"
            )

    def test_a_function_is_known_by_the_model_in_it(self, model, data, tmp_path):
        other = Linear().eval()
        with torch.no_grad():
            other.weight[0, 0] += 1
        facts = {"eps": 0.03, "version": "custom", "attacks_to_run": ["apgd-ce"], "verbose": False}
        kept = {"state_path": tmp_path / "state"}
        first, second = (
            AutoAttack(lambda x: model(x), **facts),
            AutoAttack(lambda x: other(x), **facts),
        )
        first.run_standard_evaluation(*data, **kept)
        second.run_standard_evaluation(*data, **kept)
        plain = AutoAttack(other, **facts)
        plain.run_standard_evaluation(*data)
        assert list(second.predictions.predicted) == list(plain.predictions.predicted)
        assert list(second.predictions.predicted) != list(first.predictions.predicted)

    def test_labels_come_along_when_asked_for(self, model, data, tmp_path, capsys):
        images, labels = data
        adversary = AutoAttack(
            model,
            eps=0.03,
            version="custom",
            attacks_to_run=["apgd-ce"],
            verbose=False,
            log_path=tmp_path / "log.txt",
        )
        moved, predicted = adversary.run_standard_evaluation(images, labels, return_labels=True)
        assert torch.equal(model(moved).argmax(1), predicted)
        assert capsys.readouterr().out == ""
        assert "robust accuracy after APGD-CE" in (tmp_path / "log.txt").read_text()

    @pytest.mark.parametrize("num_classes", [2, 3])
    def test_few_classes(self, num_classes, capsys):
        few = Linear(num_classes).eval()
        images = torch.rand(12, 1, 6, 6, generator=torch.Generator().manual_seed(2))
        labels = few(images).argmax(1)
        names = ["apgd-ce(steps=5)", "apgd-dlr(steps=5)", "apgd-t(steps=5)", "fab-t(steps=5)"]
        adversary = AutoAttack(few, eps=0.02, version="custom", attacks_to_run=names)
        adversary.run_standard_evaluation(images, labels)
        assert capsys.readouterr().out.count("robust accuracy after") == 4

    def test_each_attack_alone(self, model, data):
        images, labels = data
        adversary = AutoAttack(
            model, eps=0.03, version="custom", attacks_to_run=self.custom, verbose=False
        )
        alone = adversary.run_standard_evaluation_individual(images, labels, bs=16)
        assert list(alone) == list(self.custom)
        assert not torch.equal(*alone.values())
        assert adversary.clean_accuracy(images, labels) == pytest.approx(0.9)

    def test_refusals(self, model, data):
        with refused("'plus'", "standard", "custom"):
            AutoAttack(model, version="plus")
        with refused("attacks_to_run", "custom"):
            AutoAttack(model, attacks_to_run=["square"])
        with refused("attacks_to_run"):
            AutoAttack(model, version="custom").run_standard_evaluation(*data)
        with refused("run_standard_evaluation"):
            _ = AutoAttack(model).report
        with refused("[0, 1]"):
            AutoAttack(model).run_standard_evaluation(2 * data[0], data[1])
        for kind in (torch.uint8, torch.int64):
            with refused(str(kind), "floats"):
                AutoAttack(model).run_standard_evaluation((255 * data[0]).to(kind), data[1])


class TestObjects:
    def test_pgd_is_the_straight_loop(self, model, data):
        images, labels = data
        moved = PGD(model, eps=0.05, alpha=0.02, steps=3, random_start=False)(images, labels)
        x = images.clone()
        for _ in range(3):
            x.requires_grad_()
            (slope,) = torch.autograd.grad(F.cross_entropy(model(x), labels), x)
            x = (x + 0.02 * slope.sign()).detach()
            x = (images + (x - images).clamp(-0.05, 0.05)).clamp(0, 1)
        torch.testing.assert_close(moved, x)

    @pytest.mark.usefixtures("untouched_random_state")
    def test_other_batches_give_the_same_images(self, model, data):
        images, labels = data
        whole = PGD(model, eps=0.05)(images, labels)
        attack = PGD(model, eps=0.05)
        parts = [attack(images[a:b], labels[a:b]) for a, b in ((0, 7), (7, 30), (30, 40))]
        torch.testing.assert_close(torch.cat(parts), whole)
        own = PGD(model, eps=0.05)(images[20:], labels[20:], index=torch.arange(20, 40))
        torch.testing.assert_close(own, whole[20:])

    def test_a_second_call_starts_elsewhere(self, model, data):
        attack = PGD(model, eps=0.05, steps=1)
        assert not torch.equal(attack(*data), attack(*data))

    def test_the_mode_comes_back(self, model, data):
        model.train()
        PGD(model)(*data)
        assert model.training
        assert int(model.norm.num_batches_tracked) == 0

    @pytest.mark.parametrize("name", ["FGSM", "APGD", "APGDT", "FAB", "DeepFool", "Square"])
    @pytest.mark.parametrize("norm", ["Linf", "L2"])
    def test_every_object_fools_within_its_ball(self, model, data, name, norm):
        images, labels = data
        kind = getattr(classwise.attacks, name)
        eps = {"Linf": 0.1, "L2": 0.7}[norm]
        options = {"n_queries": 60} if name == "Square" else {}
        moved = kind(model, eps=eps, norm=norm, **options)(images, labels)
        offset = (moved - images).flatten(1)
        length = offset.abs().amax(1) if norm == "Linf" else offset.norm(dim=1)
        assert length.max() <= eps + 1e-6
        assert moved.min() >= 0
        assert moved.max() <= 1
        assert (model(moved).argmax(1) == labels).double().mean() < 0.6

    def test_it_says_what_it_is(self, model):
        text = repr(PGD(model, eps=8 / 255, steps=7))
        assert text == "PGD(pgd-7(step=2/255), eps=8/255, norm='Linf')"

    def test_refusals(self, model, data):
        with refused("eps", "8/255"):
            PGD(model, eps=8)
        with refused("uint8"):
            PGD(model)((255 * data[0]).to(torch.uint8), data[1])

    def test_an_unknown_name_is_an_attribute_error(self):
        with pytest.raises(AttributeError, match="Nonsense"):
            _ = classwise.attacks.Nonsense


def stand_in(library, name, members):
    """An object whose class claims to come from another library."""
    return type(name, (), {"__module__": f"{library}.attacks", **members})()


def step_up(model, images, labels, eps):
    x = images.clone().requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(model(x), labels), x)
    noise = torch.rand(1) * 1e-3  # from the global generator, as theirs do
    return (images + (eps - noise) * slope.sign()).clamp(0, 1).detach()


@pytest.mark.usefixtures("untouched_random_state")
class TestAdapters:
    def attack(self, model, library, eps=0.03):
        def torchattacks_call(self, images, labels):
            model.zero_grad()
            return step_up(model, images, labels, self.eps)

        def foolbox_call(_, theirs, images, labels, *, epsilons):
            assert theirs.bounds == (0, 1)
            moved = step_up(theirs.model, images, labels, epsilons)
            return moved + 99, moved, moved

        def art_generate(self, x, y):
            assert isinstance(x, np.ndarray)
            return step_up(model, torch.tensor(x), torch.tensor(y), self.eps).numpy()

        members = {
            "torchattacks": {"__call__": torchattacks_call, "model": model, "steps": 7, "eps": eps},
            "foolbox": {"__call__": foolbox_call},
            "art": {"generate": art_generate, "eps": eps, "max_iter": 7},
        }
        return stand_in(library, "Stepping", members[library])

    @pytest.fixture(autouse=True)
    def foolbox(self, monkeypatch):
        def wrapped(model, bounds):
            return types.SimpleNamespace(model=model, bounds=bounds)

        fake = types.SimpleNamespace(PyTorchModel=wrapped)
        monkeypatch.setitem(sys.modules, "foolbox", fake)

    @pytest.mark.parametrize("library", ["torchattacks", "foolbox", "art"])
    def test_an_object_stands_in_the_list(self, model, data, library):
        images, labels = data
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        attack = self.attack(model, library)
        report = classwise.audit(model, images, labels, attacks=["clean", attack, "fgsm"], eps=0.03)
        assert list(report) == ["clean", f"{library}:Stepping", "fgsm"]
        assert report.overall[f"{library}:Stepping"] < report.overall["clean"]
        again = classwise.audit(model, images, labels, attacks=[attack], eps=0.03)
        same = again.confusion[f"{library}:Stepping"], report.confusion[f"{library}:Stepping"]
        assert np.array_equal(*same)
        assert all((p.grad == 1).all() for p in model.parameters())

    def test_a_function_stands_in_the_list(self, model, data):
        def nudge(images, labels):
            return step_up(model, images, labels, 0.03)

        report = classwise.audit(model, *data, attacks=[nudge], eps=0.03)
        assert report.overall["nudge"] < 0.9

    def test_another_eps_is_refused(self, model, data):
        attack = self.attack(model, "torchattacks", eps=0.3)
        with refused("0.3", "0.03", "same"):
            classwise.audit(model, *data, attacks=[attack], eps=0.03)

    def test_another_model_is_refused(self, model, data):
        with refused("another model"):
            classwise.audit(Linear(), *data, attacks=[self.attack(model, "torchattacks")], eps=0.03)

    def test_leaving_the_ball_it_states_is_refused(self, model, data):
        attack = self.attack(model, "torchattacks")
        with refused("L2", "norm"):
            classwise.audit(
                model,
                *data,
                attacks=[self.attack(model, "torchattacks")],
                eps=attack.eps,
                norm="L2",
            )

    def test_what_a_nearest_image_attack_finds_outside_does_not_count(self, model, data):
        def far(images, labels):
            moved = step_up(model, images, labels, 0.5)
            moved[::2] = step_up(model, images, labels, 0.03)[::2]
            return moved

        images, labels = data
        batch = Batch(images, labels, torch.arange(40))
        from classwise.attacks.other_libraries import Foreign

        found = attacked(model, batch, Foreign.of(far), num_classes=4, radius=0.03, ball=LINF)
        assert torch.equal(found.images[1::2], images[1::2])
        assert not torch.equal(found.images[::2], images[::2])

    def test_no_attack_at_all(self, model, data):
        with refused("no attack", "pgd-20"):
            classwise.audit(model, *data, attacks=["clean", 3], eps=0.03)

    @pytest.mark.parametrize("library", ["torchattacks", "foolbox"])
    def test_the_real_thing(self, model, data, library, monkeypatch):
        monkeypatch.delitem(sys.modules, "foolbox")
        real = pytest.importorskip(library)
        if library == "torchattacks":
            attack = real.PGD(model, eps=0.03, alpha=0.01, steps=5)
        else:
            attack = real.attacks.LinfPGD(abs_stepsize=0.01, steps=5)
        report = classwise.audit(model, *data, attacks=[attack, "pgd-5(step=0.01)"], eps=0.03)
        theirs, ours = report.overall.values()
        assert theirs == pytest.approx(ours, abs=0.06)


class TestBlackBox:
    def numpy_model(self, model):
        weight = model.weight.detach().numpy()

        def scores(x):
            assert isinstance(x, np.ndarray)
            assert x.dtype == np.float32
            return (x - 0.5).reshape(len(x), -1) @ weight.T

        return scores

    def test_a_function_of_arrays_is_audited_with_square(self, model, data):
        report = classwise.audit(self.numpy_model(model), *data, eps=0.05)
        assert list(report) == ["clean", "square"]
        assert report.about["black_box"] is True
        assert report.overall["clean"] == pytest.approx(0.9)
        assert report.overall["square"] < 0.6

    def test_square_needs_no_gradient_and_gives_the_same_verdict(self, model, data):
        images, labels = data
        batch = Batch(images, labels, torch.arange(40))
        facts = {"num_classes": 4, "radius": 0.03, "ball": LINF}
        white = judge(model, batch, "square(queries=50)", **facts)
        black = judge(
            BlackBox(lambda x: model.eval()(x), arrays=False), batch, "square(queries=50)", **facts
        )
        assert np.array_equal(white.predicted, black.predicted)

    def test_a_torch_function_without_gradient(self, model, data):
        def quiet(x):
            with torch.no_grad():
                return model(x)

        report = classwise.audit(quiet, *data, attacks="clean,square(queries=20)", eps=0.03)
        assert report.about["black_box"] is True

    def test_a_differentiable_function_is_no_black_box(self, model, data):
        report = classwise.audit(lambda x: model(x), *data, attacks="pgd-2", eps=0.03)
        assert "black_box" not in report.about

    def test_gradient_attacks_are_refused(self, model, data):
        with refused("pgd-20", "black box", "square"):
            classwise.audit(self.numpy_model(model), *data, attacks="clean,pgd-20,square", eps=0.03)

    def test_scores_that_are_words(self, data):
        with refused("scores"):
            classwise.audit(lambda x: np.array(["cat"] * len(x)), *data)

    def test_a_module_is_never_taken_for_one(self, model, data):
        assert as_model(model, data[0]) is model

    def test_the_object_form(self, model, data):
        images, labels = data
        moved = Square(BlackBox(self.numpy_model(model)), eps=0.05, n_queries=60)(images, labels)
        assert (model.eval()(moved).argmax(1) == labels).double().mean() < 0.6


class Session:
    """Stands for onnxruntime's: a fixed or free batch, and a linear model inside."""

    fixed = 0

    def __init__(self, path, providers):
        assert providers == ["CPUExecutionProvider"]
        if "broken" in path:
            raise RuntimeError("Protobuf parsing failed.\nmore")

    def get_inputs(self):
        return [types.SimpleNamespace(name="image", shape=[self.fixed or "n", 1, 6, 6])]

    def run(self, _, given):
        x = given["image"]
        if self.fixed:
            assert len(x) == self.fixed
        return [(x - 0.5).reshape(len(x), -1) @ Linear().weight.detach().numpy().T, None]


def onnx_file(path, weight, shape, batch, beside=None):
    """A linear model as an ONNX file, for a free or a fixed batch; the weights in it or beside."""
    weights = numpy_helper.from_array(weight.numpy(), "weight")
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["flat"]),
            helper.make_node("Gemm", ["flat", "weight"], ["scores"], transB=1),
        ],
        "linear",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, *shape])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, len(weight)])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    facts = {"location": beside, "size_threshold": 0} if beside else {}
    onnx.save_model(model, path, save_as_external_data=beside is not None, **facts)
    return path


class TestOnnx:
    @pytest.mark.parametrize("fixed", [0, 1, 7])
    def test_a_file_is_a_black_box(self, data, tmp_path, monkeypatch, fixed):
        monkeypatch.setitem(
            sys.modules, "onnxruntime", types.SimpleNamespace(InferenceSession=Session)
        )
        monkeypatch.setattr(Session, "fixed", fixed)
        path = tmp_path / "model.onnx"
        path.write_bytes(b"onnx")
        report = classwise.audit(str(path), *data, attacks="clean,square(queries=40)", eps=0.05)
        assert report.about["black_box"] is True
        assert report.overall["clean"] == pytest.approx(0.9)
        assert report.overall["square(queries=40)"] < 0.7

    @pytest.mark.parametrize("batch", ["n", 1, 7])
    def test_a_real_file_answers_as_the_model_it_was_made_from(self, data, tmp_path, batch):
        weight = Linear().weight.detach()
        box = open_onnx(onnx_file(tmp_path / "net.onnx", weight, (1, 6, 6), batch))
        torch.testing.assert_close(box(data[0]), data[0].flatten(1) @ weight.T, rtol=0, atol=1e-5)

    def test_a_real_file_on_the_command_line(self, tmp_path):
        digits = open_data("digits").train
        x, y = digits.images.float().flatten(1) / 255, digits.labels
        weight = torch.stack([(x[y == k] - x.mean(0)).mean(0) for k in range(10)])
        path = onnx_file(tmp_path / "net.onnx", weight, (1, 8, 8), "n")
        words = f"audit {path} --data digits --limit 100 --eps 0.2 --out {tmp_path / 'kept'} -q"
        attack = "clean,square(queries=100)"
        page = tmp_path / "page.html"
        ran = CliRunner().invoke(app, [*words.split(), "--attacks", attack, "--report", str(page)])
        assert ran.exit_code == 0, ran.output
        said = " ".join(ran.output.split())
        for text in (said, " ".join(page.read_text().split())):
            assert "a black box, so only attacks without gradients were run" in text
        (audited,) = read_ledger(tmp_path / "kept")
        rates = audited.report.overall
        assert rates["clean"] > 0.7
        assert rates["square(queries=100)"] < rates["clean"] - 0.2

    @pytest.mark.parametrize("name", ["net.onnx.data", "w" * 130 + ".bin"])
    def test_weights_beside_the_file_count(self, data, tmp_path, name):
        images, labels = data
        weight = Linear().weight.detach()
        found = []
        for sign in (1, 1, -1):
            (tmp_path / name).unlink(missing_ok=True)
            path = onnx_file(tmp_path / "net.onnx", sign * weight, (1, 6, 6), "n", name)
            assert onnx_files(path) == [path, tmp_path / name]
            facts = {"attacks": "clean", "out": tmp_path / "kept"}
            found.append(classwise.audit(str(path), images, labels, **facts).overall["clean"])
        right = (images.flatten(1) @ weight.T).argmax(1) == labels
        assert found[0] == found[1] == pytest.approx(right.double().mean().item())
        assert found[2] != found[0]
        assert len(read_ledger(tmp_path / "kept")) == 2

    def test_no_file(self, tmp_path):
        with refused("nowhere.onnx", "no file"):
            open_onnx(tmp_path / "nowhere.onnx")

    def test_without_the_extra(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        path = tmp_path / "model.onnx"
        path.write_bytes(b"onnx")
        with refused("onnxruntime", "classwise[onnx]"):
            open_onnx(path)

    def test_a_file_that_is_not_onnx(self, tmp_path, monkeypatch):
        monkeypatch.setitem(
            sys.modules, "onnxruntime", types.SimpleNamespace(InferenceSession=Session)
        )
        path = tmp_path / "broken.onnx"
        path.write_bytes(b"?")
        with refused("broken.onnx", "Protobuf"):
            open_onnx(path)


class TestEpsPerImage:
    def test_each_image_has_its_own(self, model, data):
        images, labels = data
        eps = torch.linspace(0, 0.06, 40)
        report = classwise.audit(model, images, labels, attacks="clean,pgd-5,apgd-ce", eps=eps)
        small = classwise.audit(model, images[:20], labels[:20], attacks="apgd-ce", eps=eps[:20])
        assert report.about["eps"] == pytest.approx(0.06)
        assert small.overall["apgd-ce"] > report.overall["apgd-ce"]

    @pytest.mark.parametrize("name", ["FGSM", "PGD", "APGD", "FAB", "DeepFool", "Square"])
    def test_the_objects_take_them_too(self, model, data, name):
        images, labels = data
        eps = torch.linspace(0, 0.1, 40)
        options = {"n_queries": 20} if name == "Square" else {}
        attack = getattr(classwise.attacks, name)(model, eps=eps, **options)
        away = (attack(images, labels) - images).flatten(1).abs().amax(1)
        assert (away <= eps + 1e-6).all()
        assert away[0] == 0
        assert away[20:].max() > 0.05
        assert "one per image" in repr(attack)
        with refused("40", "3 images"):
            attack(images[:3], labels[:3])

    @pytest.mark.parametrize("eps", [np.float32(0.03), np.array(0.03), torch.tensor(0.03), "3/100"])
    def test_numbers_of_any_library(self, model, data, eps):
        assert PGD(model, eps=eps).eps == pytest.approx(0.03)
        report = classwise.audit(model, *data, attacks="pgd-2", eps=eps)
        assert report.about["eps"] == pytest.approx(0.03)

    def test_of_the_wrong_length(self, model, data):
        with refused("3", "40 images"):
            classwise.audit(model, *data, eps=torch.zeros(3))

    def test_an_l2_radius_may_exceed_one(self, model, data):
        assert classwise.audit(model, *data, attacks="pgd-5", eps=2.0, norm="L2").about["eps"] == 2
        attack = PGD(model, eps="1.5", alpha=1.25, norm="L2")
        assert (attack.eps, attack.alpha) == (1.5, 1.25)
        with refused("eps is inf", "finite"):
            PGD(model, eps=float("inf"), norm="L2")
