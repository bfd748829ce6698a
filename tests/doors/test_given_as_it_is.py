"""What a door is given is used as it is, or refused in words; no door looks less than another."""

from pathlib import Path

import pytest
import torch
from linear_models import Linear
from refusals import refused
from torch.utils.data import DataLoader, TensorDataset

import classwise
from classwise.attacks import APGD, PGD, AutoAttack
from classwise.attacks.attack_names import Suite
from classwise.attacks.condition import Condition, Traits
from classwise.attacks.names import parse_condition
from classwise.attacks.search.apgd import Apgd
from classwise.attacks.threat import Threat
from classwise.auditing.plan import Plan

CUSTOM = {"eps": 0.03, "version": "custom", "verbose": False}


@pytest.fixture(scope="module")
def unnormalised(digits):
    """A model that expects (x − 0.5)/0.25, or shares instead of logits, and its images."""
    model, images, labels = digits
    linear = model[1]
    raw = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).double()
    with torch.no_grad():
        raw[1].weight.copy_(linear.weight * 0.25)
        raw[1].bias.copy_(linear.bias + 0.5 * linear.weight.sum(1))
    return raw, images, labels


HOW = ((0.5,), (0.25,))


def ran(model, images, labels, **facts):
    attack = AutoAttack(model, **CUSTOM, attacks_to_run=["apgd-ce(steps=2)"], **facts)
    moved = attack.run_standard_evaluation(images, labels)
    return attack.report, moved


class TestFirstLook:
    def test_autoattack_names_what_audits_name(self, digits, unnormalised, tmp_path):
        model, images, labels = digits
        softmax = torch.nn.Sequential(model, torch.nn.Softmax(1))
        few = labels == 3
        for flag, given in (
            ("probabilities", (softmax, images, labels)),
            ("missing-normalisation", (unnormalised[0], images, labels)),
            ("one-class", (model, images[few], labels[few])),
        ):
            report, _ = ran(*given, log_path=tmp_path / flag)
            assert any(words.startswith(flag) for words in report.about["flags"]), flag
            assert flag in (tmp_path / flag).read_text()
        assert not ran(model, images, labels)[0].about.get("flags")

    def test_the_remedies_exist_at_every_door(self, digits, unnormalised):
        model, images, labels = digits
        raw = unnormalised[0]
        expected, moved = ran(model, images, labels)
        found, again = ran(raw, images, labels, normalise=HOW)
        assert not found.about.get("flags")
        assert found.by_class == expected.by_class
        torch.testing.assert_close(again, moved)
        facts = {"eps": 0.03, "steps": 2}
        straight = PGD(model, **facts)(images, labels)
        torch.testing.assert_close(PGD(raw, normalise=HOW, **facts)(images, labels), straight)
        softmax = torch.nn.Sequential(model, torch.nn.Softmax(1))
        named = {"output": "probabilities"}
        torch.testing.assert_close(PGD(softmax, **named, **facts)(images, labels), straight)
        assert not ran(softmax, images, labels, **named)[0].about.get("flags")
        few = {"eps": 0.03, "steps": 2, "queries": 4}
        names = {one.name for one in classwise.check_health(raw, images, labels, **few)}
        assert "missing-normalisation" in names
        told = classwise.check_health(raw, images, labels, normalise=HOW, **few)
        assert "missing-normalisation" not in {one.name for one in told}

    def test_a_probe_takes_images_as_audits_do(self, model, data):
        images, labels = data
        facts = {"eps": 0.03, "steps": 2, "queries": 4}
        expected = classwise.check_health(model, images, labels, **facts)
        loader = DataLoader(TensorDataset(images, labels), batch_size=7)
        turned = images.permute(0, 2, 3, 1)
        assert classwise.check_health(model, loader, **facts) == expected
        assert (
            classwise.check_health(model, turned, labels, channels_last=True, **facts) == expected
        )
        with refused("labels are missing"):
            classwise.check_health(model, images, **facts)


class TestObjects:
    def test_autoattack_takes_objects_and_conditions(self, model, data):
        names = ["apgd-ce(steps=3)", "pgd-2(step=2/255)"]
        by_name = AutoAttack(model, **CUSTOM, attacks_to_run=names)
        expected = by_name.run_standard_evaluation(*data)
        given = [
            APGD(model, 0.03, steps=3),
            parse_condition(names[1], Threat.of(0.03)),
        ]
        found = AutoAttack(model, **CUSTOM, attacks_to_run=given)
        assert torch.equal(found.run_standard_evaluation(*data), expected)
        assert found.predictions.condition == by_name.predictions.condition
        assert list(found.predictions.broken_by) == list(by_name.predictions.broken_by)

    def test_each_alone_is_not_read_back_from_its_name(self, model, data):
        mine = Suite("mine", Traits("mine"), (Apgd("only I know it", "ce", steps=2),))
        condition = Condition(None, mine, Threat.of(0.03))
        attack = AutoAttack(model, **CUSTOM, attacks_to_run=[condition])
        assert list(attack.run_standard_evaluation_individual(*data)) == ["only I know it"]

    def test_members_that_would_be_used_otherwise_are_refused(self, model, data):
        for member in (
            APGD(model, 0.05),
            APGD(model, 0.03, norm="L2"),
            APGD(model, 0.03, seed=1),
        ):
            with refused("another eps, norm, seed or number", "give its name"):
                AutoAttack(model, **CUSTOM, attacks_to_run=[member]).run_standard_evaluation(*data)
        for member in (Condition(), 7, lambda x: x):
            with refused("attacks_to_run holds", "attack objects"):
                AutoAttack(model, **CUSTOM, attacks_to_run=[member]).run_standard_evaluation(*data)

    def test_what_was_kept_is_found_by_objects_and_conditions(self, model, data, tmp_path):
        facts = {"attacks": "clean,fgsm,pgd-2(step=2/255)"}
        for folder, eps in (("a", 0.03), ("a", 0.06), ("b", 0.06)):
            classwise.audit(model, *data, out=tmp_path / folder, eps=eps, **facts)
        wide = PGD(model, 0.06, steps=2)
        (read,) = classwise.read_ledger(tmp_path / "a", attacks=[wide])
        assert [read.report[name].eps for name in read.report] == [pytest.approx(0.06)]
        (both,) = classwise.read_ledger(tmp_path / "a", attacks="clean, fgsm")
        assert len(both.report) == 3
        wanted = [wide, parse_condition("fgsm", Threat.of(0.06))]
        found = classwise.diff(tmp_path / "a", tmp_path / "b", attacks=wanted)
        assert [one.condition.partition("(")[0].split()[0] for one in found] == ["pgd-2", "fgsm"]
        assert len(classwise.diff(tmp_path / "a", tmp_path / "b", attacks="clean")) == 1
        other = PGD(model, 0.05, steps=2)
        for ask in (
            lambda: classwise.read_ledger(tmp_path / "a", attacks=[other]),
            lambda: classwise.diff(tmp_path / "a", tmp_path / "b", attacks=[other]),
        ):
            with refused("pgd-2(step=2/255) eps=0.05", "condition in"):
                ask()
        with refused("int is no condition", "give its name"):
            classwise.read_ledger(Path(tmp_path / "a"), attacks=[3])


class TestGivenAndNotUsed:
    def test_an_attack_for_another_model(self, model, data):
        other = Linear()
        with refused("made for another model", "pgd-10"):
            classwise.audit(model, *data, attacks=["clean", PGD(other)])
        with refused("made for another model"):
            facts = CUSTOM | {"attacks_to_run": [APGD(other, 0.03)]}
            AutoAttack(model, **facts).run_standard_evaluation(*data)
        with refused("normalise= of its own", "say it to the audit"):
            classwise.audit(model, *data, attacks=[PGD(model, normalise=HOW)])

    @pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("meta")])
    def test_a_device_that_is_not_the_models(self, model, data, device):
        attack = AutoAttack(model, device=device)
        for ask in (attack.run_standard_evaluation, attack.clean_accuracy):
            with refused("has no effect", "the model is on cpu"):
                ask(*data)

    @pytest.mark.parametrize("device", [None, "cpu", torch.device("cpu")])
    def test_its_own_is_fine(self, model, data, device):
        assert AutoAttack(model, device=device).clean_accuracy(*data) == pytest.approx(0.9)

    def test_nothing_runs_before_the_list_is_read(self, model, data, monkeypatch):
        planned, real = [], Plan.__post_init__

        def counted(self):
            planned.append(self)
            real(self)

        monkeypatch.setattr(Plan, "__post_init__", counted)
        with refused("attack"):
            AutoAttack(model, **CUSTOM, attacks_to_run=["nope"]).run_standard_evaluation(*data)
        assert not planned
