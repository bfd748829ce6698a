"""Errors in a user's own code begin in their file, not in ours."""

import traceback

import pytest
from typer.testing import CliRunner

from classwise.cli import app
from classwise.errors import OwnCodeError
from classwise.models import import_object

FACTORY = """
def helper():
    return {}["width"]

def make():
    return helper()
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_the_traceback_begins_in_their_factory(tmp_path):
    (tmp_path / "own_factory.py").write_text(FACTORY)
    found = CliRunner().invoke(app, ["audit", "own_factory:make", "--data", "digits"])
    assert found.exit_code == 2
    files = [line for line in found.stderr.splitlines() if line.startswith("  File ")]
    assert [line.rpartition(" in ")[2] for line in files] == ["make", "helper"]
    assert all("own_factory.py" in line for line in files)
    last = found.stderr.splitlines()[-1]
    assert last == "classwise: own_factory:make failed (KeyError: 'width')"


def test_so_does_the_cause_in_python(tmp_path):
    (tmp_path / "own_broken.py").write_text("import os\n1 / 0\n")
    with pytest.raises(OwnCodeError, match="cannot be imported") as caught:
        import_object("own_broken:make")
    frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert [(frame.lineno, frame.filename) for frame in frames] == [
        (2, str(tmp_path / "own_broken.py"))
    ]


def test_a_module_that_theirs_lacks_is_not_theirs(tmp_path):
    (tmp_path / "own_lacking.py").write_text("import there_is_no_such_module\n")
    with pytest.raises(OwnCodeError, match="there_is_no_such_module") as caught:
        import_object("own_lacking:make")
    assert "run in the folder" not in str(caught.value)
