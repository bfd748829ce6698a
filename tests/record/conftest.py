"""Fixtures of the record's tests."""

import shutil

import pytest
from damages import judge


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder of audits, with a grouping and remarks."""
    folder = tmp_path_factory.mktemp("audits") / "kept"
    judge(folder)
    return folder


@pytest.fixture
def audited(kept, tmp_path):
    return shutil.copytree(kept, tmp_path / "kept")
