"""A question asked about a target, and what its ledger says later."""

import pytest
from asked import audit_target
from refusals import refused

from classwise.attacks.condition import Condition
from classwise.judging.audits import read_ledger


@pytest.fixture
def linear(tmp_path, monkeypatch):
    """A linear net for digits, by name, that knows some classes better than others."""
    (tmp_path / "asked_net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "from classwise.data.sources import open_data\n"
        "def make(num_classes):\n"
        "    train = open_data('digits').train\n"
        "    x, y = train.images.flatten(1).float() / 255, train.labels\n"
        "    net = nn.Linear(64, num_classes)\n"
        "    means = torch.stack([x[y == k].mean(0) for k in range(num_classes)])\n"
        "    with torch.no_grad():\n"
        "        net.weight.copy_(means)\n"
        "        net.bias.copy_(-means.square().sum(1) / 2)\n"
        "    return nn.Sequential(nn.Flatten(), net)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "asked_net:make"


def test_a_target_is_asked_and_its_ledger_goes_on(linear, tmp_path, monkeypatch):
    shown, judge = [], Condition.judge

    def counting(self, subject, batch, tell):
        shown.append(len(batch))
        return judge(self, subject, batch, tell)

    monkeypatch.setattr(Condition, "judge", counting)
    facts = {"data": "digits", "attacks": "clean,pgd-5", "eps": 0.2, "quiet": True}
    folder = tmp_path / "kept"
    (found,) = audit_target(linear, folder=folder, question="worst>=0.5", **facts)
    assert "worst>=0.5 under pgd-5: no" in found.report.about["note"]
    first = sum(shown)
    (again,) = audit_target(linear, folder=folder, question="worst>=0.5", **facts)
    judged = int(found.partial.standing.seen.sum())
    assert (found.partial.known, again.partial.known) == (0, judged)
    saved = f"{found.partial.saved:.1f} times less work than the full audit"
    known = "all of them known from before: nothing was judged anew"
    assert saved in found.report.about["note"]
    assert again.report.about["note"] == found.report.about["note"].replace(saved, known)
    assert sum(shown) == first  # all from the ledger
    assert len(list((folder / "predictions").iterdir())) == 2  # compacted
    (whole,) = audit_target(linear, folder=folder, **facts)
    count = int(whole.report["pgd-5"].counts.sizes.sum())
    assert sum(shown) == 2 * count  # nothing twice
    assert first <= 2 * count / 5
    assert whole.report["pgd-5"].worst < 0.5
    (timed,) = audit_target(linear, minutes=1e-6, **facts)
    assert "time was up" in timed.report.about["note"]
    with refused("unknown class in a question"):
        audit_target(linear, question="zreo>=0.5", **facts)


def test_a_note_says_what_the_ledger_lacks_not_what_an_audit_did(linear, tmp_path):
    facts = {"data": "digits", "attacks": "clean", "quiet": True}

    def note(folder):
        (kept,) = read_ledger(folder)
        return kept.report.about.get("note", "")

    # in full, and then a question: it is answered by all that is known, and nothing is missing
    audit_target(linear, folder=tmp_path / "a", **facts)
    (asked,) = audit_target(linear, folder=tmp_path / "a", question="worst>=0.99", **facts)
    assert "602 of 602 images judged, all of them known" in asked.report.about["note"]
    assert "sure" not in asked.report.about["note"]
    assert note(tmp_path / "a") == ""
    # a question, and then a few images: what the question chose is still there
    audit_target(linear, folder=tmp_path / "b", question="worst>=0.99", **facts)
    audit_target(linear, folder=tmp_path / "b", limit=10, **facts)
    assert "not examined" in note(tmp_path / "b")
    # a class in full is not the whole
    audit_target(linear, folder=tmp_path / "c", question="three>=1", **facts)
    assert "three>=1" in note(tmp_path / "c")
    for folder in "bc":
        audit_target(linear, folder=tmp_path / folder, **facts)
        assert note(tmp_path / folder) == ""


def test_what_was_begun_and_broken_off_is_no_audit(linear, tmp_path, monkeypatch):
    facts = {"data": "digits", "attacks": "clean,pgd-5", "eps": 0.2, "quiet": True}
    folder = tmp_path / "kept"
    calls, judge = [], Condition.judge

    def breaks(*words):
        calls.append(1)
        if len(calls) > 6:
            raise KeyboardInterrupt
        return judge(*words)

    with monkeypatch.context() as patch:
        patch.setattr(Condition, "judge", breaks)
        with pytest.raises(KeyboardInterrupt):
            audit_target(linear, folder=folder, question="worst>=0.5", **facts)
    (kept,) = read_ledger(folder)
    assert all("broken off" in one.unfinished for one in kept.report.values())
    (whole,) = audit_target(linear, folder=folder, **facts)
    (kept,) = read_ledger(folder)
    assert not any(one.unfinished for one in [*kept.report.values(), *whole.report.values()])
