"""The pages in docs/studies are those that the records there make, and no others."""

from pathlib import Path

import pytest
from places import ROOT
from typer.testing import CliRunner

from classwise.cli import app
from classwise.studies.finding import Reader
from classwise.studies.making import is_there, plan_studies, write_index, write_page
from classwise.studies.runs_folder import RunsFolder
from classwise.studies.study import study_names

PAGES = ROOT / "docs" / "studies"
RECORDS = PAGES / "records"
SCALE = "minutes"


def texts(folder: Path) -> dict[str, str]:
    """Pages and tables by their places; pictures differ from one matplotlib to the next."""
    files = [path for kind in ("md", "csv") for path in folder.rglob(f"*.{kind}")]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def committed(name: str, pages: Path = PAGES) -> dict[str, str]:
    return texts(pages / name) if (pages / name).is_dir() else {}


def made(name: str, folder: Path, records: Path = RECORDS) -> dict[str, str]:
    """What one study makes of the records; nothing without any."""
    kept = RunsFolder.of(records)
    (planned,) = plan_studies([name], SCALE)
    if kept.runs and is_there(planned, kept):
        write_page(planned, Reader(kept), folder)
    return committed(name, folder)


@pytest.mark.parametrize("name", study_names())
def test_a_page_is_what_the_records_make(name, tmp_path):
    assert committed(name) == made(name, tmp_path)


def test_effects_and_index_are_what_the_records_make(tmp_path):
    kept = RunsFolder.of(RECORDS)
    if not kept.runs:
        assert not PAGES.exists(), "there are pages, and no records that they are made from"
        return
    words = ["study", "effects", "--scale", SCALE, "--from", str(RECORDS), "--pages", str(tmp_path)]
    assert CliRunner().invoke(app, words).exit_code == 0
    write_index(plan_studies(study_names(), SCALE), kept, tmp_path)
    assert committed("effects") == committed("effects", tmp_path)
    assert (PAGES / "index.md").read_text() == (tmp_path / "index.md").read_text()


def test_there_is_no_page_of_anything_else():
    there = {path.name for path in PAGES.glob("*")} if PAGES.exists() else set()
    assert there <= {*study_names(), "effects", "records", "index.md"}
