"""Files, modules and pages that the documentation names are there."""

import importlib
import re
from functools import cache
from pathlib import Path

import pytest
from test_layering import WALK

import classwise

ROOT = Path(__file__).parent.parent
SOURCE = Path(classwise.__file__).parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILE = re.compile(r"(?<![\w/.])((?:\w+/)*\w+\.py)\b")
MODULE = re.compile(r"(?<![\w/.-])classwise((?:\.\w+)+)")
PAGE = re.compile(r"\]\(([^)#:\s]+\.md)?(?:#([\w-]+))?\)")
EXAMPLE = "mypackage"  # what examples call the reader's own code


@cache
def files_there():
    places = [SOURCE, ROOT / "tests", ROOT / "benchmarks"]
    found = [path.relative_to(place) for place in places for path in place.rglob("*.py")]
    whole = [path.relative_to(ROOT) for place in places[1:] for path in place.rglob("*.py")]
    return {path.as_posix() for path in [*found, *whole]}


def is_there(file):
    """Whether a file stands where a page says, or, named alone, in some folder."""
    return file in files_there() or any(one.endswith(f"/{file}") for one in files_there())


def resolves(dotted):
    """Whether `.a.b.c` is a module of the package, or something in one."""
    found, name = classwise, "classwise"
    for part in dotted.strip(".").split("."):
        name = f"{name}.{part}"
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
    return True


def anchors(page):
    """The names of a page's headings, as they stand in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-") for words in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page):
    text = page.read_text()
    files = {file for file in FILE.findall(text) if not file.startswith(EXAMPLE)}
    assert not {file for file in files if not is_there(file)}
    assert not {name for name in MODULE.findall(text) if not resolves(name)}
    for there, heading in PAGE.findall(text):
        target = page.parent / there if there else page
        assert target.exists(), f"no page {there}"
        assert not heading or heading in anchors(target), f"{there} has no heading {heading}"


def test_the_walk_is_written_down_in_its_order():
    table = (ROOT / "docs" / "ARCHITECTURE.md").read_text().partition("## One batch")[0]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = [re.sub(r"/$|\.py$", "", name) for name in re.findall(r"`([^`]+)`", "".join(first))]
    assert named == [station for station in WALK if station != "__main__"]


def test_the_check_sees_what_is_gone():
    assert is_there("attacks/search/engine.py")
    assert is_there("engine.py")
    assert not is_there("attacks/suite.py")
    assert resolves(".judging.audits.read_ledger")
    assert not resolves(".auditing.given")
    assert FILE.findall("`auditing/given.py`, x/y.pyc") == ["auditing/given.py"]
    assert MODULE.findall("`classwise.auditing.given`") == [".auditing.given"]
