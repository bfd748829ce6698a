"""A ledger of the version before, kept as it was written: read, reported, compared and resumed.

Its files lack the columns kind, family, strength, options, weakened and image.
"""

import shutil
from pathlib import Path

import duckdb
import pytest
import torch
from conditions import same_verdicts
from torch import nn

import classwise
from classwise.attacks.condition import Condition
from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.judging.audits import read_ledger
from classwise.judging.samples import read_samples
from classwise.record.card import audit_facts

OLD = Path(__file__).parent / "data_old"
SUITE = "suite(apgd-ce(steps=2),square(queries=5))"
ATTACKS = f"clean,pgd-2,{SUITE}"
EPS = 0.05


def given():
    """The model and images that it was written for."""
    images = (torch.arange(12 * 16).view(12, 1, 4, 4) * 37 % 256).to(torch.uint8)
    labels = torch.tensor([0, 2, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0])
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    with torch.no_grad():
        model[1].weight.copy_((torch.arange(48).view(3, 16) * 7 % 11 - 5) / 4)
        model[1].bias.copy_(torch.tensor([0.5, -0.25, 0.0]))
    return model, images, labels


def audit(folder, attacks=ATTACKS, **facts):
    model, images, labels = given()
    facts = {"eps": EPS, "class_names": ["a", "b", "c"], "name": "linear", **facts}
    return classwise.audit(model, images, labels, attacks=attacks, out=folder, **facts)


@pytest.fixture
def old(tmp_path):
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def test_it_is_of_the_version_before():
    columns = set(duckdb.sql(f"SELECT * FROM '{OLD}/predictions/*.parquet'").columns)
    assert not columns & {"kind", "family", "strength", "options", "weakened", "image"}


def test_it_is_read(old):
    (found,) = read_ledger(old)
    assert {name: found.report[name].kind for name in found.report} == {
        "clean": "clean", "pgd-2": "attack", SUITE: "attack",
    }  # fmt: skip
    assert found.report["clean"].counts.confusion.tolist() == [[7, 0, 0], [1, 3, 0], [0, 0, 1]]
    assert found.report["pgd-2"].counts.confusion.tolist() == [[7, 0, 0], [2, 2, 0], [1, 0, 0]]
    assert found.report[SUITE].counts.confusion.tolist() == [[5, 0, 2], [4, 0, 0], [1, 0, 0]]
    rows = read_samples(old).conditions
    assert (rows["pgd-2"].family, rows["pgd-2"].strength) == ("pgd", 2)
    assert rows[SUITE].options == "apgd-ce(steps=2),square(queries=5)"


@pytest.mark.parametrize("ending", ["html", "md", "csv", "json", "tex"])
def test_it_is_reported(old, ending):
    classwise.report(old, old / f"page.{ending}")
    assert "pgd-2" in (old / f"page.{ending}").read_text()


def test_conditions_are_known_by_the_keys_they_had():
    keys = {one["condition"]: one["attack_key"] for one in audit_facts(OLD)}
    conditions = parse_conditions(ATTACKS, Threat.of(EPS))
    assert keys == {one.name: one.key for one in conditions}


def test_it_is_resumed_and_nothing_is_judged_again(old, monkeypatch):
    before, files = read_samples(old).conditions, sorted(old.rglob("*.parquet"))
    monkeypatch.setattr(Condition, "judge", None)
    report = audit(old)
    assert report.confusion["pgd-2"].tolist() == [[7, 0, 0], [2, 2, 0], [1, 0, 0]]
    assert sorted(old.rglob("*.parquet")) == files
    after = read_samples(old).conditions
    for name in before:
        same_verdicts(before[name], after[name])


def test_half_of_it_is_completed(old, monkeypatch):
    """Rows of both versions become one file."""
    for path in old.rglob("*.parquet"):
        notes = duckdb.sql(
            f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{path}')"
        ).fetchall()
        said = ", ".join("{}: '{}'".format(*note) for note in notes)
        half = path.with_suffix(".half")
        duckdb.sql(
            f"COPY (SELECT * FROM '{path}' WHERE sample < 6) TO '{half}' "
            f"(FORMAT parquet, KV_METADATA {{{said}}})"
        )
        half.replace(path)
    judge, shown = Condition.judge, []

    def counted(self, subject, batch, *tell):
        shown.extend(batch.index.tolist())
        return judge(self, subject, batch, *tell)

    monkeypatch.setattr(Condition, "judge", counted)
    audit(old)
    assert sorted(shown) == sorted(3 * [6, 7, 8, 9, 10, 11])
    assert len(list(old.rglob("*.parquet"))) == 3
    whole, straight = read_samples(old).conditions, read_samples(OLD).conditions
    for name in straight:
        same_verdicts(whole[name], straight[name])
        assert whole[name].kind in ("clean", "attack")


def test_it_is_compared_and_gated_with_one_of_today(old, tmp_path):
    audit(tmp_path / "new")
    differences = classwise.diff(old, tmp_path / "new")
    assert [one.condition for one in differences] == ["clean", "pgd-2", SUITE]
    assert all(one.sizes.sum() == 12 and not (one.lost + one.won).any() for one in differences)
    contract = tmp_path / "contract.toml"
    for bar, status in ((0.2, "failed"), (0.0, "passed")):
        contract.write_text(f"[[rule]]\nunder = 'pgd-2'\nno_class_below = {bar}\n")
        (one,) = classwise.gate(contract, old).outcomes
        assert one.status == status
