"""Functions and files stay short, signatures stand once, tests stand where their subject does."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

from places import ROOT, TESTS

LINES_OF_A_FUNCTION = 60
LINES_OF_A_FILE = 300
LINES_OF_A_LONG_SIGNATURE = 6
PACKAGE = ROOT / "src" / "classwise"
SOURCES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])
FILES = sorted([*SOURCES, *TESTS.rglob("*.py")])
# Folders with a subject of their own: methods beside their released code, and data to download.
NOT_MIRRORED = {"equality", "real"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def is_command(function) -> bool:
    """Whether its parameters are the options of a command, each with its help."""
    calls = [one.func for one in function.decorator_list if isinstance(one, ast.Call)]
    return any(isinstance(one, ast.Attribute) and one.attr == "command" for one in calls)


def length(function) -> int:
    """Lines from `def` to the end; of a command, those behind its signature and docstring."""
    first = function.lineno
    if is_command(function):
        documented = ast.get_docstring(function) is not None
        first = function.body[0].end_lineno + 1 if documented else function.body[0].lineno
    return function.end_lineno - first + 1


def signature_lines(function) -> int:
    """Lines from `def` to the last parameter or the type that is returned."""
    parts = [*ast.walk(function.args), *([function.returns] if function.returns else [])]
    last = max((part.end_lineno for part in parts if hasattr(part, "end_lineno")), default=0)
    return max(last, function.lineno) - function.lineno + 1


def parameters(function) -> tuple[str, ...]:
    given = function.args
    several = [one for one in (given.vararg, given.kwarg) if one is not None]
    return tuple(one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *several))


def repeated_signatures(trees: dict[str, ast.AST]) -> list[list[str]]:
    """Where a signature of many lines stands more than once, in whatever order.

    A command declares its options for the shell, each with its help, and hands them on to the
    function that Python users call: these two may have the same names. Two commands may not.
    """
    found = defaultdict(list)
    for place, tree in trees.items():
        for function in functions(tree):
            if signature_lines(function) >= LINES_OF_A_LONG_SIGNATURE:
                names = (is_command(function), *sorted(parameters(function)))
                found[names].append(f"{place}:{function.lineno} {function.name}")
    return [places for places in found.values() if len(places) > 1]


def test_no_function_is_long():
    long = {
        f"{name_of(path)}:{one.lineno} {one.name}": length(one)
        for path in SOURCES
        for one in functions(ast.parse(path.read_text()))
        if length(one) > LINES_OF_A_FUNCTION
    }
    assert not long, "take a part with a name of its own out of each"


def test_no_file_is_long():
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in FILES}
    assert len(lengths) == len(FILES)
    long = {name: length for name, length in lengths.items() if length > LINES_OF_A_FILE}
    assert not long, "split them by their subjects"


def test_no_long_signature_stands_twice():
    trees = {name_of(path): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert not repeated_signatures(trees), "what travels together is a type, or has a base"


def test_tests_stand_in_folders_of_the_package():
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    strange = {
        str(folder)
        for folder in folders
        if folder.parts[:1] not in {(name,) for name in NOT_MIRRORED}
        and not (PACKAGE / folder / "__init__.py").exists()
    }
    assert not strange, "a folder of tests has the name of the package it is about"


def test_no_two_test_files_share_a_name():
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


class TestTheRulers:
    """What measures must see what it is for."""

    LONG = "def f(\n    a,\n    b,\n    c,\n    d,\n) -> None:\n" + "    pass\n" * 60

    def test_every_line_of_a_function_counts(self):
        (plain,) = functions(ast.parse(self.LONG))
        assert (length(plain), signature_lines(plain)) == (66, 6)

    def test_the_options_of_a_command_do_not(self):
        told = self.LONG.replace("None:\n", 'None:\n    """Words.\n\n    More.\n    """\n', 1)
        commands = [f"@app.command()\n@kindly\n{text}" for text in (self.LONG, told)]
        assert [length(functions(ast.parse(text))[0]) for text in commands] == [60, 60]
        (other,) = functions(ast.parse(f"@cached\n{self.LONG}"))
        assert length(other) == 66

    def test_methods_and_functions_inside_functions_count(self):
        text = "class A:\n    def f(self):\n        def g():\n            pass\n"
        lengths = {one.name: length(one) for one in functions(ast.parse(text))}
        assert lengths == {"f": 3, "g": 2}

    def test_signatures_are_told_apart_by_their_names(self):
        other = self.LONG.replace("    d,", "    e,")
        short = "def f(a, b, c, d): ...\n"
        trees = {n: ast.parse(t) for n, t in (("one", self.LONG), ("two", other), ("x", short))}
        assert repeated_signatures(trees) == []
        twice = repeated_signatures({**trees, "three": ast.parse(self.LONG)})
        assert twice == [["one:1 f", "three:1 f"]]

    def test_another_order_is_the_same_signature(self):
        turned = self.LONG.replace("    a,\n    b,", "    b,\n    a,")
        trees = {"one": ast.parse(self.LONG), "two": ast.parse(turned)}
        assert repeated_signatures(trees) == [["one:1 f", "two:1 f"]]

    def test_a_command_may_have_the_options_of_its_function_and_of_no_other_command(self):
        command = ast.parse(f"@app.command()\n{self.LONG}")
        trees = {"door": ast.parse(self.LONG), "command": command}
        assert repeated_signatures(trees) == []
        assert repeated_signatures({**trees, "other": command}) == [["command:2 f", "other:2 f"]]
