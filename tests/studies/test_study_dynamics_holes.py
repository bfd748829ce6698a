"""Every kind that reads trainings, of runs that are not there: rows stay, and say why."""

import pytest
from trained_runs import found_runs, history, record

from classwise.studies.artefact_files import markdown
from classwise.studies.artefacts import KINDS

OPTIONS = {
    "curves": {"of": ["test:robust", "train:clean"], "classes": ["all"], "panels": ["look"]},
    "vulnerable": {"of": ["test:robust"]},
    "fluctuation": {"of": ["test:robust", "test:robust@fawa"]},
    "window": {"axis": "eps", "of": ["test:robust"], "since": "8/255"},
    "selection": {"averages": ["", "fawa"]},
    "convergence": {},
    "overfitting": {"classes": ["overall", "all"]},
    "agreement": {"axis": "eps"},
    "similarity": {},
    "cost": {},
    "both-views": {},
}
PLACES = [
    {"recipe": recipe, "eps": eps, "seed": seed}
    for recipe in ("at", "trades")
    for eps in ("8/255", "16/255")
    for seed in ("0", "1")
]


def made(kind, found):
    options = KINDS[kind].options(kind=kind, title=kind, note="Said.", **OPTIONS[kind])
    return KINDS[kind].make(found, options)


@pytest.mark.parametrize("kind", OPTIONS)
def test_runs_that_are_not_there_leave_rows_of_holes(kind):
    found = made(kind, found_runs(*((place, "data unobtainable") for place in PLACES)))
    assert found.rows
    assert not [cell for line in found.rows for cell in line if cell.rates]
    assert any(cell.hole for line in found.rows for cell in line)
    assert "Said." in found.notes
    text = markdown(found, picture=False, depth=2)
    assert "data unobtainable" in text
    assert "Scale smoke" in text


@pytest.mark.parametrize("kind", OPTIONS)
def test_records_without_what_is_asked_for_are_holes_too(kind):
    bare = record(history({"valid:clean": [[0.1, 0.2, 0.3, 0.4]] * 2}))
    found = made(kind, found_runs(*((place, bare) for place in PLACES)))
    assert any(cell.hole for line in found.rows for cell in line)
    markdown(found, picture=False, depth=2)


@pytest.mark.parametrize("kind", OPTIONS)
def test_options_that_nobody_knows_are_refused(kind):
    with pytest.raises(ValueError, match="nonsense"):
        KINDS[kind].options(kind=kind, title=kind, nonsense=1, **OPTIONS[kind])
