"""Attacks that state a radius of their own: name, verdicts, ledger, tables."""

import csv
import io

import numpy as np
import pytest
import torch
from asked import evaluate, judge, parse_attack
from ledgers import verdicts
from refusals import refused
from torch import nn
from typer.testing import CliRunner

from classwise import audit, cli
from classwise.attacks import PGD
from classwise.attacks.ball import LINF
from classwise.attacks.condition import Condition
from classwise.attacks.names import parse_condition
from classwise.attacks.threat import Threat
from classwise.auditing.flags import check_records
from classwise.data.batches import Batches
from classwise.doors.attacks import Attack
from classwise.judging.audits import read_ledger
from classwise.record.card import audit_facts
from classwise.report.tables import csv_table
from classwise.types import Batch

NAMES = ("a", "b", "c", "d")
FAMILIES = {
    "fgsm": "fgsm(eps={})",
    "pgd-3": "pgd-3(eps={})",
    "cw-3": "cw-3(eps={})",
    "pgd-3(verdict=any)": "pgd-3(eps={},verdict=any)",
    "apgd-ce(steps=4)": "apgd-ce(eps={},steps=4)",
    "apgd-dlr(steps=4)": "apgd-dlr(eps={},steps=4)",
    "apgd-t(steps=4)": "apgd-t(eps={},steps=4)",
    "fab-t(steps=4)": "fab-t(eps={},steps=4)",
    "square(queries=20)": "square(eps={},queries=20)",
    "deepfool(steps=4)": "deepfool(eps={},steps=4)",
    "suite(fgsm,square(queries=9))": "suite(fgsm,square(queries=9),eps={})",
}


@pytest.fixture
def given(net):
    """A model and images that some attacks break and others do not."""
    model = net().eval()
    images = torch.rand(
        40, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3)
    )
    with torch.no_grad():
        labels = model(images).argmax(1)
    return model, images, labels


def verdict(model, images, labels, attack, eps, norm="Linf"):
    batches = Batches(images, labels, torch.arange(len(images)), 16)
    return evaluate(model, batches, num_classes=4, attacks=[attack], eps=eps, norm=norm)[0]


@pytest.mark.parametrize("plain", FAMILIES)
def test_its_own_radius_is_the_one_it_attacks_with(plain, given):
    own, told = verdict(*given, FAMILIES[plain].format("0.05"), 0.4), verdict(*given, plain, 0.05)
    assert own.condition == FAMILIES[plain].format("0.05")
    assert np.array_equal(own.radius, np.full(40, 0.05))
    for column in ("predicted", "logit_gap", "iterations", "radius"):
        assert np.array_equal(getattr(own, column), getattr(told, column))
    far = verdict(*given, FAMILIES[plain].format("0.4"), 0.05)
    assert far.correct.sum() < own.correct.sum()
    assert np.array_equal(far.radius, np.full(40, 0.4))


@pytest.mark.parametrize("name", ["autoattack", "autoattack-rand"])
def test_the_standard_suites_hand_it_on(name):
    own = parse_condition(f"{name}(eps=4/255)", Threat.of(8 / 255))
    assert own.threat.radius == 4 / 255
    assert own.attack.searches == parse_attack(name).searches


def test_others_keep_the_audits_radius_also_one_per_image(given):
    model, images, labels = given
    each = torch.linspace(0.01, 0.4, 40, dtype=torch.float64)
    batches = Batches(images, labels, torch.arange(40), 16)
    attacks = ["clean", "pgd-2", "pgd-2(eps=0.05)"]
    found = evaluate(model, batches, num_classes=4, attacks=attacks, eps=each)
    radii = {one.condition: one.radius for one in found}
    assert np.array_equal(radii["clean"], np.zeros(40))
    assert np.array_equal(radii["pgd-2"], each.numpy())
    assert np.array_equal(radii["pgd-2(eps=0.05)"], np.full(40, 0.05))


def test_one_batch_is_judged_by_the_same_rule(given):
    model, images, labels = given
    batch = Batch(images, labels, torch.arange(40))
    facts = {"num_classes": 4, "radius": 0.4, "ball": LINF}
    assert set(judge(model, batch, "pgd-2(eps=0.05)", **facts).radius) == {0.05}
    assert set(judge(model, batch, "pgd-2", **facts).radius) == {0.4}
    assert set(judge(model, batch, "clean", **facts).radius) == {0.0}


def test_the_norm_decides_what_a_radius_may_be(given):
    asked = []

    class Asked(nn.Module):
        def forward(self, x):
            asked.append(len(x))
            return given[0](x)

    model = Asked()
    with refused("eps is 8.0", "8/255"):
        verdict(model, *given[1:], "pgd-2(eps=8)", 0.1)
    assert sum(asked) <= 1  # about one image, to see its logits
    assert set(verdict(*given, "pgd-2(eps=1.5)", 0.1, "L2").radius) == {1.5}


def test_an_attack_object_has_one_radius(given):
    with refused("pgd-2(eps=4/255)", "eps=0.1"):
        Attack(given[0], "pgd-2(eps=4/255)", eps=0.1)
    assert PGD(given[0], eps=0.1).condition.threat.radius == 0.1


class TestKept:
    ATTACKS = "clean,pgd-2,pgd-2(eps=0.05),square(eps=0.05,queries=5)"

    def test_the_ledger_tells_radii_apart(self, given, tmp_path):
        model, images, labels = given
        facts = {"attacks": self.ATTACKS, "eps": 0.4, "class_names": NAMES, "out": tmp_path / "run"}
        report = audit(model, images, labels, **facts)
        assert {name: report[name].eps for name in report} == {
            "clean": 0,
            "pgd-2": 0.4,
            "pgd-2(eps=0.05)": 0.05,
            "square(eps=0.05,queries=5)": 0.05,
        }
        kept = audit_facts(tmp_path / "run")
        assert len({one["attack_key"] for one in kept}) == len(kept) == 4
        assert {one["condition"]: one["radius"] for one in kept} == {
            name: report[name].eps for name in report
        }

    def test_what_is_kept_is_not_attacked_again_whatever_the_audits_radius(
        self, given, tmp_path, monkeypatch
    ):
        facts = {"class_names": NAMES, "out": tmp_path / "run"}
        first = audit(*given, attacks="pgd-2(eps=0.05)", eps=0.4, **facts)
        monkeypatch.setattr(Condition, "judge", None)
        again = audit(*given, attacks="pgd-2(eps=0.05)", eps=0.1, **facts)
        assert first.by_class == again.by_class
        with refused("NoneType"):
            audit(*given, attacks="pgd-2(eps=0.06)", eps=0.1, **facts)

    def test_tables_say_the_radius_of_each_row(self, given, tmp_path):
        model, images, labels = given
        facts = {"attacks": self.ATTACKS, "eps": 0.4, "class_names": NAMES, "out": tmp_path / "run"}
        audit(model, images, labels, **facts)
        rows = csv.DictReader(io.StringIO(csv_table(read_ledger(tmp_path / "run"))))
        assert {row["condition"]: row["eps"] for row in rows} == {
            "clean": "0",
            "pgd-2": "0.4",
            "pgd-2(eps=0.05)": "0.05",
            "square(eps=0.05,queries=5)": "0.05",
        }

    def test_it_is_found_by_its_name(self, given, tmp_path):
        model, images, labels = given
        facts = {"attacks": self.ATTACKS, "eps": 0.4, "class_names": NAMES, "out": tmp_path / "run"}
        audit(model, images, labels, **facts)
        (one,) = read_ledger(tmp_path / "run", attacks=["pgd-2(eps=0.05)"])
        assert list(one.report) == ["pgd-2(eps=0.05)"]

    def test_from_the_command_line(self, tmp_path):
        run = tmp_path / "run"
        quick = ["--eps", "2/255", "--judge-eps", "8/255", "--epochs", "1", "--subset", "60"]
        result = CliRunner().invoke(
            cli.app, ["train", "at(steps=1,step=2/255)", *quick, "--quiet", "--out", str(run)]
        )
        assert result.exit_code == 0, result.output
        attacks = "clean,pgd-1,pgd-1(eps=4/255),pgd-1(step=eps/8)"
        result = CliRunner().invoke(
            cli.app, ["audit", str(run), "--attacks", attacks, "--limit", "20", "--quiet"]
        )
        assert result.exit_code == 0, result.output
        radii = {one["condition"]: round(255 * one["radius"], 6) for one in audit_facts(run)}
        assert radii == {"clean": 0, "pgd-1": 8, "pgd-1(eps=4/255)": 4, "pgd-1(step=eps/8)": 8}


def test_a_larger_radius_that_breaks_less_is_flagged_however_it_was_said():
    samples = np.arange(300)
    wrong = (samples % 3 + 1) % 3
    near = verdicts(samples, predicted=wrong, condition="pgd-20(eps=0.1)")
    far = verdicts(samples, condition="pgd-20(eps=0.2)")
    far.radius[:] = 0.2
    (flag,) = check_records([near, far], ("a", "b", "c"))
    assert flag.name == "larger-eps-weaker"
    assert "pgd-20 breaks images at eps 0.1" in flag.words
    assert check_records([verdicts(samples, predicted=wrong), verdicts(samples)], "abc") == []
