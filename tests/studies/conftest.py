"""What takes minutes, or changes its process as Ray does: `make test-studies` asks for it."""

import os
import shutil

import pytest
from tiny_studies import Here, study, write_study

_ASKED = os.environ.get("CLASSWISE_STUDIES") == "1"
collect_ignore = [] if _ASKED else ["test_studies_smoke.py", "test_on_ray.py"]


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A study that was run once, with its records."""
    home = tmp_path_factory.mktemp("studies")
    with pytest.MonkeyPatch.context() as patch:
        here = Here()
        words = (write_study(home), "--out", home / "runs", "--records", home / "records")
        result = study(*words, here=here, monkeypatch=patch)
    assert result.exit_code == 0, result.output
    assert len(here.jobs) == 6
    return home


@pytest.fixture
def home(made, tmp_path):
    shutil.copytree(made, tmp_path / "home")
    return tmp_path / "home"
