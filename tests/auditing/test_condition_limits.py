"""`pgd-10 on 200`: a condition with fewer images than the audit it is part of."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from asked import audit_target
from ledgers import Tiny, data
from refusals import refused

import classwise
from classwise.attacks import AutoAttack
from classwise.attacks.condition import Condition
from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.data.splits import balanced_order, balanced_subset
from classwise.judging.audits import read_ledger
from classwise.judging.gate import gate
from classwise.judging.samples import diff_samples, read_samples
from classwise.report.tables import markdown_table
from classwise.statistics.intervals import wilson

THREAT = Threat.of(0.1)
FACTS = {"data": "digits", "eps": 0.1, "quiet": True, "limit": 60}


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """How many images were judged, call by call; `own_net:make` is a network."""
    (tmp_path / "own_net.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "def make(num_classes):\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found, judge = [], Condition.judge

    def counting(self, subject, batch, tell):
        found.append((self.name, len(batch)))
        return judge(self, subject, batch, tell)

    monkeypatch.setattr(Condition, "judge", counting)
    return found


def judged(shown, name):
    return sum(count for said, count in shown if said == name)


@pytest.mark.parametrize(
    ("text", "names", "limits"),
    [
        ("clean,pgd-10(eps=1/255) on 200", ["clean", "pgd-10(eps=1/255)"], [0, 200]),
        ("clean on 5 , corruption:fog-3>pgd-5  on  20", ["clean", "corruption:fog-3>pgd-5"],
         [5, 20]),
        (["suite(apgd-ce,square) on 7"], ["suite(apgd-ce,square)"], [7]),
        ([replace(Condition(), limit=3)], ["clean"], [3]),
    ],
)  # fmt: skip
def test_a_number_behind_a_condition_is_no_part_of_what_it_is(text, names, limits):
    found = parse_conditions(text, THREAT)
    assert ([one.name for one in found], [one.limit for one in found]) == (names, limits)
    assert [one.key for one in found] == [replace(one, limit=0).key for one in found]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pgd-3 on few", ["pgd-3 on few", "whole number of images from 1 up", "pgd-3 on 200"]),
        ("pgd-3 on 0", ["from 1 up"]),
        ("pgd-3 on -5", ["from 1 up"]),
        ("pgd-3 on 1.5", ["from 1 up"]),
        ("on 20", ["name what is asked", "pgd-10 on 20"]),
        ("pgd-3 on 20,pgd-3", ["named twice"]),
    ],
)
def test_other_numbers_are_refused(text, words):
    with refused(*words):
        parse_conditions(text, THREAT)


def test_where_no_audit_is_asked_for_a_number_is_refused():
    with refused("pgd-3 on 5", "leave the number out here"):
        parse_conditions("clean,pgd-3 on 5", THREAT, own=False)


def test_fewer_are_the_first_of_more():
    labels = torch.tensor([0] * 30 + [1] * 5 + [2] * 25)
    order = balanced_order(labels).tolist()
    assert sorted(order) == list(range(60))
    for count in (1, 3, 14, 59, 60):
        assert balanced_subset(labels, count).tolist() == sorted(order[:count])
    assert torch.bincount(labels[order[:15]]).tolist() == [5, 5, 5]


def test_one_command_audits_some_images_under_one_condition_only(shown, tmp_path):
    kept, alone = tmp_path / "kept", tmp_path / "alone"
    (found,) = audit_target("own_net:make", folder=kept, attacks="clean,pgd-2 on 20", **FACTS)
    assert (judged(shown, "clean"), judged(shown, "pgd-2")) == (60, 20)
    assert found.report.about["images"].startswith("60, balanced over the classes, of ")
    assert found.report.about["images"].endswith("; pgd-2 on 20 of them, balanced")
    few = FACTS | {"limit": 20}
    audit_target("own_net:make", folder=alone, attacks="pgd-2", **few)
    rows, same = (read_samples(folder).conditions for folder in (kept, alone))
    assert np.array_equal(rows["pgd-2"].sample, same["pgd-2"].sample)
    assert np.array_equal(rows["pgd-2"].predicted, same["pgd-2"].predicted)
    assert np.isin(rows["pgd-2"].sample, rows["clean"].sample).all()
    assert np.bincount(rows["pgd-2"].label).tolist() == [2] * 10
    shown.clear()
    audit_target("own_net:make", folder=kept, attacks="pgd-2", **few)
    assert not shown  # it is the same audit under another spelling
    audit_target("own_net:make", folder=kept, attacks="clean,pgd-2 on 30", **FACTS)
    assert (judged(shown, "clean"), judged(shown, "pgd-2")) == (0, 10)


def test_an_audit_that_broke_off_goes_on(shown, tmp_path, monkeypatch):
    counting, lucky = Condition.judge, [2]

    def unlucky(self, subject, batch, tell):
        lucky[0] -= self.name == "pgd-2"
        if not lucky[0]:
            raise RuntimeError("out of luck")
        return counting(self, subject, batch, tell)

    facts = FACTS | {"attacks": "clean,pgd-2 on 20", "folder": tmp_path / "kept"}
    monkeypatch.setattr(Condition, "judge", unlucky)
    with refused("out of luck", "of 20 samples are kept"):
        audit_target("own_net:make", batch_size=3, **facts)
    monkeypatch.setattr(Condition, "judge", counting)
    (found,) = audit_target("own_net:make", batch_size=3, **facts)
    assert judged(shown, "pgd-2") == 20
    (fresh,) = audit_target("own_net:make", **facts | {"folder": tmp_path / "fresh"})
    assert found.report.by_class == fresh.report.by_class


@pytest.mark.usefixtures("shown")
def test_every_reader_says_how_many_and_counts_with_them(tmp_path):
    folder = tmp_path / "kept"
    (said,) = audit_target("own_net:make", folder=folder, attacks="clean,pgd-2 on 20", **FACTS)
    (read,) = read_ledger(folder)
    for report in (said.report, read.report):
        clean, robust = report["clean"], report["pgd-2"]
        assert [int(one.counts.sizes.sum()) for one in (clean, robust)] == [60, 20]
        hits, name = int(robust.counts.confusion[0, 0]), robust.class_names[0]
        low, high = wilson(np.array([hits]), np.array([2]), 0.95)
        assert robust.intervals[name] == (low[0], high[0])
        assert "overall of 60 images" in str(report)
        assert "overall of 20 images" in str(report)
        assert "<tr><th>all</th><td>60, 20</td>" in report._repr_html_()
    text = markdown_table([read])
    assert "60 samples, 6 per class (clean; pgd-2: 20)" in text
    assert f"| {read.report.class_names[0]} | 6, 2 |" in text
    contract = tmp_path / "contract.toml"
    contract.write_text('[[rule]]\nunder = "pgd-2"\noverall_at_least = "99 %"\n')
    assert "(20 images" in gate(contract, folder).outcomes[0].why


@pytest.mark.usefixtures("shown")
def test_models_are_compared_on_the_images_of_both(tmp_path):
    (tmp_path / "other_net.py").write_text(
        (tmp_path / "own_net.py").read_text().replace("seed(0)", "seed(1)")
    )
    few, more = tmp_path / "few", tmp_path / "more"
    audit_target("own_net:make", folder=few, attacks="clean,pgd-2 on 20", **FACTS)
    audit_target("other_net:make", folder=more, attacks="clean,pgd-2 on 30", **FACTS)
    both = {one.condition: one for one in diff_samples(read_samples(few), read_samples(more))}
    assert (both["clean"].images, both["clean"].unpaired) == (60, 0)
    assert (both["pgd-2"].images, both["pgd-2"].unpaired) == (20, 10)
    assert both["pgd-2"].sizes.tolist() == [2] * 10
    assert str(both["pgd-2"]).startswith("pgd-2 on 20 images: ")


class TestRefused:
    """Before anything is judged."""

    def test_more_images_than_there_are(self, shown):
        with refused("pgd-2 on 61", "60 images", "leave it out"):
            audit_target("own_net:make", attacks="clean,pgd-2 on 61", **FACTS)
        assert not shown

    @pytest.mark.parametrize("chooses", [{"question": "worst>=0.2"}, {"minutes": 1.0}])
    def test_beside_what_chooses_images_itself(self, shown, chooses):
        with refused("chosen as the audit goes", "pgd-2 on 20", "--limit"):
            audit_target("own_net:make", attacks="clean,pgd-2 on 20", **FACTS, **chooses)
        assert not shown

    def test_in_a_list_of_autoattack(self):
        (one,) = parse_conditions("apgd-ce on 5", THREAT)
        batches = data(8)
        adversary = AutoAttack(
            Tiny(), eps=0.1, version="custom", attacks_to_run=[one], verbose=False
        )
        with refused("number of images"):
            adversary.run_standard_evaluation(batches.images, batches.labels)


def test_from_python_with_a_radius_for_each_image():
    batches = data(40)
    radii = torch.linspace(0.01, 0.2, 40)
    facts = {"eps": radii, "class_names": ("a", "b", "c")}
    report = classwise.audit(
        Tiny(), batches.images, batches.labels, attacks=["clean", "pgd-3 on 9"], **facts
    )
    assert report.sizes["pgd-3"] == {"a": 3, "b": 3, "c": 3}
    assert int(report["clean"].counts.sizes.sum()) == 40
    rows = balanced_subset(batches.labels, 9)
    alone = classwise.audit(
        Tiny(), batches.images[rows], batches.labels[rows], attacks="pgd-3",
        **facts | {"eps": radii[rows]},
    )  # fmt: skip
    assert report["pgd-3"].eps == alone["pgd-3"].eps == pytest.approx(float(radii[rows].max()))
