import ast
from pathlib import Path

import pytest

import classwise

ROOT = Path(classwise.__file__).parent
WALK = [
    *(
        "errors",
        "memory",
        "files",
        "spelling",
        "types",
        "draws",
        "data",
        "models",
        "attacks",
        "classes",
    ),
    *("objective", "slots", "sense", "script", "foreign", "recipe", "methods", "recipe_text"),
    *("training", "laws", "auditing", "report"),
    *("catalogue", "quickstart", "studies", "cli", "__main__"),
]
MODULES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def station(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """(station imported, whether inside a function) of every import of the package."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: write imports in full"
            own = node.module == "classwise"
            names = [f"classwise.{a.name}" for a in node.names] if own else [str(node.module)]
        else:
            continue
        found += [(n.split(".")[1], id(node) in inside) for n in names if n[:10] == "classwise."]
    return found


def test_every_module_has_its_place_on_the_walk():
    assert {station(path) for path in MODULES} <= set(WALK)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_point_backwards_on_the_walk(path):
    here = station(path)
    for there, in_function in imports(path):
        if (here, there) == ("recipe", "methods"):
            assert in_function, "recipe may ask for the table of methods only while it runs"
            continue
        assert WALK.index(there) <= WALK.index(here), f"{here} must not import {there}"


def test_the_reader_of_imports_sees_them():
    assert ("methods", True) in imports(ROOT / "recipe.py")
    assert ("draws", False) in imports(ROOT / "data" / "splits.py")
