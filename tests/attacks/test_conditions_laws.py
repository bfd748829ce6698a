"""Laws that every condition keeps; `conditions.CONDITIONS` has one row for each."""

from dataclasses import replace

import conditions
import numpy as np
import pytest
import torch
from conditions import CONDITIONS, COUNT, Scene, same_verdicts

import classwise
from classwise.attacks import attack_names
from classwise.attacks.condition import Condition
from classwise.attacks.names import parse_condition
from classwise.attacks.threat import Threat
from classwise.auditing.plan import Plan
from classwise.auditing.run import run_audit
from classwise.errors import ClasswiseError
from classwise.models.blackbox import BlackBox

every_row = pytest.mark.parametrize("row", CONDITIONS, ids=str)
every_kept = pytest.mark.parametrize("row", [row for row in CONDITIONS if row.kept], ids=str)
both_norms = pytest.mark.parametrize("norm", conditions.EPS)


def test_every_attack_that_can_be_named_has_a_row():
    assert {row.known for row in CONDITIONS if row.known} == set(attack_names.KNOWN_ATTACKS)


def test_the_table_holds_what_falls_and_what_stands():
    fell = {str(row): int((~row.scene().found(row).correct).sum()) for row in CONDITIONS}
    assert all(1 <= count < COUNT for count in fell.values()), fell
    assert sum(count > 3 for count in fell.values()) > len(fell) / 2


@every_row
@both_norms
def test_neither_batch_size_nor_order_changes_a_verdict(row, norm):
    if row.only_l2 and norm != "L2":
        return
    scene = row.scene(norm)
    condition = scene.condition(row)
    assert condition.by_batch == row.by_batch
    if row.by_batch:
        return  # it draws from the global generators, batch after batch
    whole = scene.found(row)
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(1)).numpy()
    plan = Plan(scene.subject(width=5), scene.data.take(order), (condition,))
    (other,) = run_audit(plan)
    assert other.sample.tolist() == order.tolist()
    back = np.argsort(order)
    sorted_back = {name: getattr(other, name)[back] for name in _PER_SAMPLE}
    same_verdicts(whole, replace(other, **sorted_back))


_PER_SAMPLE = ("sample", "label", "predicted", "logit_gap", "radius", "iterations", "broken_by")


@every_row
@both_norms
@pytest.mark.parametrize("num_classes", [2, 100])
def test_rows_are_sound_for_few_classes_and_many(row, norm, num_classes):
    if row.only_l2 and norm != "L2":
        return
    scene = row.scene(norm, num_classes=num_classes)
    found, clean = scene.found(row), scene.found(CONDITIONS[0])
    assert found.sample.tolist() == list(range(COUNT))
    assert found.label.tolist() == scene.labels.tolist()
    certifies = found.verdict == "certified"  # and may then name no class
    assert ((found.predicted >= 0) & (found.predicted < num_classes + certifies)).all()
    assert (found.correct == np.array([name is None for name in found.broken_by])).all()
    # Where an attack flees from the label, or looks for any fall, the gap says the same; of a
    # smoothed model only what is certain counts.
    if certifies:
        assert (found.logit_gap > 0)[found.correct].all()
    elif found.sigma:
        assert (found.logit_gap < 0)[~found.correct].all()
    else:
        assert (found.correct == (found.logit_gap > 0))[found.logit_gap != 0].all()
    if found.verdict == "any" and found.kind == "attack":
        assert not found.correct[~clean.correct].any()
    if not row.threatens:
        assert not found.radius.any()
    elif not row.own_eps:
        assert np.allclose(found.radius, scene.eps)


@every_row
def test_single_and_double_precision_agree_on_nearly_all(row):
    if row.by_batch:
        return  # its draws are of the images' own precision
    double, single = (row.scene(dtype=kind).found(row) for kind in (torch.float64, torch.float32))
    assert (double.correct == single.correct).mean() >= 1 - 1 / COUNT


class TestIdentity:
    """A key is the same for the same condition, and another one for anything that matters."""

    @every_kept
    @both_norms
    def test_the_same_condition_has_the_same_key(self, row, norm):
        first, second = (row.scene(norm).condition(row) for _ in range(2))
        assert first.key == second.key
        assert first.name == second.name

    @every_kept
    def test_radius_norm_and_seed(self, row):
        scene = row.scene()
        given, base = row.given(scene), scene.condition(row)

        def key(eps=scene.eps, norm=scene.norm, seed=0):
            if isinstance(given, classwise.PGD):  # it states all three
                return classwise.PGD(
                    scene.model, eps, given.alpha, 2, norm=norm, seed=seed
                ).condition.key
            return conditions.parse_conditions([given], Threat.of(eps, norm), seed)[0].key

        assert key() == base.key
        assert (key(eps=0.05) == base.key) == (
            not row.threatens or (row.own_eps and isinstance(given, str))
        )
        if not row.only_l2:
            assert (key(norm="L2") == base.key) == (not row.threatens)
        assert (key(seed=1) == base.key) == (not row.seeded)

    def test_no_two_rows_share_a_key(self):
        keys = [row.scene().condition(row).key for row in CONDITIONS if row.kept]
        assert len(set(keys)) == len(keys)

    @pytest.mark.parametrize("attack", [*attack_names._OPTIONS, "pgd-3", "cw-3"])
    def test_every_option_counts(self, attack):
        table = attack_names._OPTIONS.get(attack, attack_names._PGD)
        other = {
            "eps": "0.07", "step": "eps/3", "start": "none", "target": "likely", "restarts": 2,
            "logits": "all", "labels": "predicted", "verdict": "any", "steps": 7, "eot": 2,
            "targets": 4, "queries": 12, "p": 0.3, "overshoot": 0.1,
        }  # fmt: skip
        named = [attack, *(f"{attack}({option}={other[option]})" for option in table)]
        if attack == "cw-3":
            named.remove("cw-3(target=likely)")  # it takes none
        keys = [parse_condition(name, Threat.of(0.1)).key for name in named]
        assert len(set(keys)) == len(keys)

    @pytest.mark.parametrize(
        "name", ["apgd-ce,square", "square,apgd-ce", "apgd-ce(steps=7),square"]
    )
    def test_members_of_a_suite_and_their_order_count(self, name):
        others = {"apgd-ce,square", "square,apgd-ce", "apgd-ce(steps=7),square", "apgd-ce"} - {name}
        keys = {parse_condition(f"suite({one})", Threat.of(0.1)).key for one in others}
        assert parse_condition(f"suite({name})", Threat.of(0.1)).key not in keys

    def test_clean_is_one_for_all(self):
        keys = {
            parse_condition("clean", Threat.of(eps, norm), seed).key
            for eps in (0.0, 0.1)
            for norm in ("Linf", "L2")
            for seed in (0, 5)
        }
        assert keys == {Condition().key}

    @every_row
    @both_norms
    def test_a_name_read_back_is_the_same_condition(self, row, norm):
        scene = row.scene(norm)
        condition = scene.condition(row)
        if not row.readable:
            with pytest.raises(ClasswiseError):
                parse_condition(condition.name, scene.threat(), own=True)
            return
        again = parse_condition(condition.name, scene.threat(), own=True)
        assert (again.name, again.key) == (condition.name, condition.key)
        assert (again.kind, again.traits) == (condition.kind, condition.traits)


# An object of ours is for the model that it was made for, and a black box is another.
NOT_FOR_A_BLACK_BOX = r"needs gradients, but .* black box; use clean|was made for another model"


@every_row
def test_a_black_box_is_judged_or_refused_before_it_is_asked(row):
    scene, asked = row.scene(dtype=torch.float32), []

    def answers(images):
        asked.append(len(images))
        with torch.no_grad():
            return scene.model.eval()(torch.from_numpy(images)).numpy()

    def audit(attacks):
        return classwise.audit(
            BlackBox(answers), scene.pixels, scene.labels, attacks=attacks, eps=scene.eps,
            norm=scene.norm, class_names=scene.class_names,
        )  # fmt: skip

    if not row.black_box:
        with pytest.raises(ClasswiseError, match=NOT_FOR_A_BLACK_BOX):
            audit([row.given(scene)])
        assert sum(asked) <= 1  # one image shows which of its outputs are the logits
        return
    report = audit([row.given(scene)])
    (found,) = report
    white = scene.found(row)
    sizes = np.bincount(white.label, minlength=4)
    hits = np.bincount(white.label[white.correct], minlength=4)
    assert asked
    assert report.about["black_box"]
    assert report[found].counts.confusion.diagonal().tolist() == hits.tolist()
    assert report[found].counts.sizes.tolist() == sizes.tolist()


def test_a_batch_of_one_and_a_batch_of_nobody_who_stands():
    """What is left when all others fell is a batch, too."""
    wrong = int((~Scene().found(CONDITIONS[0]).correct).nonzero()[0][0])
    for row in CONDITIONS:
        scene = row.scene()
        plan = Plan(scene.subject(), scene.data.take([wrong]), (scene.condition(row),))
        (found,) = run_audit(plan)
        assert found.sample.tolist() == [wrong]


def test_a_row_without_an_entry_would_be_missed(monkeypatch):
    monkeypatch.setitem(attack_names.KNOWN_ATTACKS, "new-attack", "not in the table")
    with pytest.raises(AssertionError):
        test_every_attack_that_can_be_named_has_a_row()
