"""Corrupted images stand beside clean ones only where they are the same images."""

import pytest
from asked import named
from ledgers import ABOUT, stamp, verdicts

from classwise.judging.audits import AuditedWeights, read_ledger
from classwise.judging.corrupted import corruption_report
from classwise.judging.reports import class_report
from classwise.record.shards import write_rows
from classwise.report.corruptions import apart

THREE = [3, 4, 5]


def told(condition, samples):
    if condition == "clean":
        return verdicts(samples, condition=condition)
    facts = {"kind": "shift", "family": "corruption:fog", "strength": float(condition[-1])}
    return verdicts(samples, condition=condition, **facts)


@pytest.mark.parametrize(
    ("clean", "last", "same"),
    [(THREE, THREE, True), ([0, 1, 2], THREE, False), (THREE, [6, 7, 8], False)],
)
def test_as_many_other_images_are_not_the_same(clean, last, same, tmp_path):
    """Neither in the report of an audit, nor in one that is read from its ledger."""
    rows = [told("clean", clean), told("corruption:fog-5", last)]
    rows += [told(f"corruption:fog-{severity}", THREE[::-1]) for severity in (1, 2, 3, 4)]
    for one in rows:
        place = tmp_path / f"{one.condition.replace(':', '-')}.parquet"
        write_rows(place, one, stamp(attack=one.condition), ABOUT)
    for report in (class_report(rows, named("abc")), read_ledger(tmp_path)[0].report):
        found = corruption_report(report)
        assert len({tuple(one.tally.sizes) for one in report.values()}) == 1
        assert found.beside_clean is same
        assert found.together.same_images is (last is THREE)
        (table,) = apart([AuditedWeights("run", "at", "last", "test", report)])[1]
        said = "Not all saw the same images (3 each)" in " ".join(table.words)
        assert said is (last is not THREE)
