"""Flags that the records of several attacks raise, and where they are kept and shown."""

import numpy as np
import pytest
from asked import audit_target
from digit_names import NAMES
from health_scenes import EPS
from ledgers import verdicts
from refusals import refused

from classwise.auditing.flags import check_records
from classwise.doors.health import check_health
from classwise.judging.audits import read_ledger
from classwise.judging.gate import gate
from classwise.record.card import audit_facts
from classwise.record.remarks import read_remarks, write_remarks
from classwise.report.html import load_runs, write_report
from classwise.report.tables import csv_table, latex_table, markdown_table


class TestRecords:
    def told(self, fallen, condition, radius=0.1, count=300):
        samples = np.arange(count)
        predicted = np.where(np.isin(samples, fallen), (samples + 1) % 3, samples % 3)
        found = verdicts(samples, predicted=predicted, condition=condition)
        found.radius[:] = radius
        return found

    def names(self, *found):
        return [flag.name for flag in check_records(found, ("a", "b", "c"))]

    def test_stronger_attacks_must_break_no_fewer(self):
        many, few = range(60), range(20)
        for name, weak, strong in (
            ("black-box-beats-white-box", "square", "apgd-ce"),
            ("black-box-beats-white-box", "square(queries=100)", "pgd-20"),
            ("more-steps-weaker", "pgd-10", "pgd-40"),
            ("more-steps-weaker", "fgsm", "pgd-10"),
        ):
            assert self.names(self.told(many, weak), self.told(few, strong)) == [name]
            assert self.names(self.told(few, weak), self.told(many, strong)) == []
        near, far = self.told(many, "pgd-10", 0.1), self.told(few, "pgd-10", 0.2)
        assert self.names(far, near) == ["larger-eps-weaker"]
        assert self.names(self.told(few, "pgd-10", 0.1), self.told(many, "pgd-10", 0.2)) == []

    def test_chance_raises_no_flag(self):
        weak, strong = self.told(range(20), "fgsm"), self.told(range(5, 23), "pgd-10")
        assert self.names(weak, strong) == []

    def test_the_class_is_named_where_it_is_certain(self):
        weak = self.told(range(0, 90, 3), "fgsm")
        strong = self.told(range(1, 90, 3), "pgd-10")
        (flag,) = check_records([weak, strong], ("a", "b", "c"))
        assert flag.classes == ("a",)
        assert "(a)" in str(flag)

    def test_square_at_the_end_of_a_suite(self):
        suite = self.told(range(30), "autoattack")
        suite.broken_by[:30] = "apgd-ce"
        assert self.names(suite) == []
        suite.broken_by[:10] = "square"
        assert self.names(suite) == ["black-box-beats-white-box"]

    def test_other_norms_radii_and_clean_images_are_not_compared(self):
        assert self.names(self.told(range(60), "clean", 0), self.told([], "pgd-10")) == []
        assert self.names(self.told(range(60), "fgsm", 0.2), self.told([], "pgd-10")) == []


def test_flags_are_kept_beside_the_audit_and_shown_with_it(tmp_path, monkeypatch):
    (tmp_path / "sick_net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Rounded(nn.Module):\n"
        "    def __init__(self, net):\n"
        "        super().__init__()\n"
        "        self.net = net\n"
        "    def forward(self, x):\n"
        "        return self.net((4 * x).round() / 4)\n"
        "def make(num_classes):\n"
        "    torch.manual_seed(0)\n"
        "    return Rounded(nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))).eval()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    facts = {"data": "digits", "attacks": "clean,fgsm", "eps": EPS, "quiet": True, "limit": 20}
    folder = tmp_path / "kept"
    (found,) = audit_target("sick_net:make", folder=folder, **facts)
    assert "flags" not in found.report.about
    (found,) = audit_target("sick_net:make", folder=folder, health=True, **facts)
    assert any("zero-gradients" in words for words in found.report.about["flags"])
    (again,) = read_ledger(folder)
    assert again.report.about["flags"] == found.report.about["flags"]
    write_remarks(folder, "another model", seen={"d": ["x"]}, probed=[], black_box=False, notes={})
    (again,) = read_ledger(folder)
    assert again.report.about["flags"] == found.report.about["flags"]
    # An audit without a probe leaves what the probe found; every form of the report says it.
    (later,) = audit_target("sick_net:make", folder=folder, **facts)
    assert "flags" not in later.report.about  # it did not look
    runs = load_runs([folder])
    write_report(runs, tmp_path / "page.html")
    forms = [form(runs[0].audits) for form in (markdown_table, latex_table, csv_table)]
    forms.append(repr(runs[0].audits[0].report))
    contract = tmp_path / "contract.toml"
    contract.write_text('[[rule]]\nunder = "clean"\noverall_at_least = "1 %"\n')
    forms.append(gate(contract, folder).markdown())
    for text in [(tmp_path / "page.html").read_text(), *forms]:
        assert "the gradient is exactly zero at rightly classified images" in text


def test_a_partial_audit_and_a_black_box_are_said_to_be_such_in_the_report(tmp_path, monkeypatch):
    (tmp_path / "plain_net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def make(num_classes):\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes)).eval()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    facts = {"data": "digits", "attacks": "clean", "quiet": True, "folder": tmp_path / "kept"}
    audit_target("plain_net:make", question="worst>=0.5", **facts)
    (partial,) = read_ledger(tmp_path / "kept")
    assert "worst>=0.5 under clean: no" in partial.report.about["note"]
    assert "not examined" in markdown_table([partial])
    words = gate_words(tmp_path)
    assert "only in part" in words
    assert "not examined" in words
    # Another attack, in full, takes nothing back; the same one in full does.
    audit_target("plain_net:make", **{**facts, "attacks": "fgsm"})
    assert "not examined" in markdown_table(read_ledger(tmp_path / "kept"))
    audit_target("plain_net:make", **facts)
    (whole,) = read_ledger(tmp_path / "kept")
    assert "note" not in whole.report.about
    assert "not examined" not in markdown_table([whole])
    write_remarks(
        tmp_path / "kept", only_hash(tmp_path / "kept"), seen={}, probed=None, black_box=True,
        notes={},
    )  # fmt: skip
    (boxed,) = read_ledger(tmp_path / "kept")
    assert "only attacks without gradients were run" in markdown_table([boxed])


def gate_words(folder):
    (folder / "contract.toml").write_text('[[rule]]\nunder = "clean"\noverall_at_least = "1 %"\n')
    return gate(folder / "contract.toml", folder / "kept").markdown()


def only_hash(folder):
    (one,) = {facts["model_hash"] for facts in audit_facts(folder)}
    return one


def test_what_was_seen_on_other_data_stays(tmp_path):
    kept = {"probed": None, "black_box": False, "notes": {}}
    write_remarks(tmp_path, "h", seen={"test": ["random: a"]}, **kept)
    write_remarks(tmp_path, "h", seen={"train": ["weak: b"]}, **kept)
    test, train = (
        {"model_hash": "h", "data_hash": name, "attack_key": "k"} for name in ("test", "train")
    )
    assert read_remarks(tmp_path, [test]) == {"flags": ["random: a"]}
    assert read_remarks(tmp_path, [train]) == {"flags": ["weak: b"]}
    write_remarks(tmp_path, "h", seen={"test": []}, **kept)
    assert read_remarks(tmp_path, [test]) == {}
    assert read_remarks(tmp_path, [train, train]) == {"flags": ["weak: b"]}


def test_remarks_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "remarks.json").write_text("[1]")
    with refused("remarks.json", "delete it"):
        write_remarks(tmp_path, "h", seen={"d": ["x"]}, probed=None, black_box=False, notes={})


def outcome(condition, fallen):
    """A hundred samples of which the first have fallen."""
    labels = np.arange(100) % 10
    predicted = np.where(np.arange(100) < fallen, (labels + 1) % 10, labels)
    return verdicts(np.arange(100), predicted, labels, condition)


@pytest.mark.parametrize(
    ("weak", "strong", "flag"),
    [
        ("pgd-10", "pgd-20", "more-steps-weaker"),
        ("pgd-10", "pgd-20(target=unlikely)", None),
        ("pgd-10(target=likely)", "pgd-20(target=likely)", None),
        ("pgd-10", "pgd-20(step=1/255)", None),
        ("fgsm", "pgd-20", "more-steps-weaker"),
        ("fgsm", "pgd-20(step=0.001)", None),
        ("square", "pgd-20", "black-box-beats-white-box"),
        ("square", "pgd-5", None),
        ("square", "apgd-ce", "black-box-beats-white-box"),
        ("square", "apgd-ce(steps=3)", None),
        ("square", "autoattack", "black-box-beats-white-box"),
    ],
)
def test_only_attacks_that_must_be_stronger_are_compared(weak, strong, flag):
    found = check_records([outcome(weak, 40), outcome(strong, 0)], NAMES)
    assert [one.name for one in found] == ([flag] if flag else [])


@pytest.mark.parametrize(
    ("suite", "flagged"),
    [("suite(apgd-ce,square)", True), ("suite(square,apgd-ce)", False), ("suite(square)", False)],
)
def test_square_surprises_only_after_a_climb(suite, flagged):
    found = outcome(suite, 30)
    found.broken_by[:30] = "square"
    assert bool(check_records([found], NAMES)) == flagged


def test_it_takes_what_an_audit_takes(digits):
    _, images, labels = digits
    weight = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)

    def scores(x):
        return x.reshape(len(x), -1) @ weight

    assert isinstance(check_health(scores, images.numpy(), labels.numpy(), eps="8/255"), list)
    with refused("8/255"):
        check_health(digits[0], images, labels, eps=8)
    with refused("label"):
        check_health(digits[0], images, labels + 10)
