"""The call people know as AutoAttack, also with a radius for each image."""

import numpy as np
import pytest
import torch
from linear_models import Linear
from refusals import refused

import classwise
from classwise.attacks import PGD, AutoAttack
from classwise.attacks.search.suite import Suite


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
        straight = [2, 8, 12, 12, 6]
        assert judged == [2, 8, *[2, 8, 12, 8]]
        torch.testing.assert_close(moved, expected, rtol=0, atol=1e-6)
        assert list(again.predictions.broken_by) == list(whole.predictions.broken_by)
        assert torch.equal(again.run_standard_evaluation(images, labels, **kept), moved)
        assert len(judged) == 6
        # another radius, other data or another model is another question to the same folder
        other = AutoAttack(model, **{**facts, "eps": 0.02})
        other.run_standard_evaluation(images, labels, **kept)
        again.run_standard_evaluation(images, labels.flip(0), **kept)
        with torch.no_grad():
            model.weight[0, 0] += 1
        again.run_standard_evaluation(images, labels, **kept)
        assert judged[6:] == straight * 3

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
