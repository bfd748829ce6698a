"""The table of mutants fits the code, so that `make mutants` has something to run."""

import ast

import pytest
from mutants import MUTANTS
from places import ROOT, TESTS
from run_mutants import mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: f"{one.file} {one.why}")
def test_a_mutant_is_one_change_of_code_and_its_tests_are_there(mutant):
    before = (ROOT / "src" / "classwise" / mutant.file).read_text()
    after = mutated(mutant, before)
    assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(before)), "only the layout differs"
    for test in mutant.tests:
        file, *names = test.split("::")
        text = (TESTS / file).read_text()
        assert all(f"class {name}" in text or f"def {name}(" in text for name in names)


def test_a_text_that_is_gone_or_stands_twice_is_refused():
    for text in ("nothing of it", MUTANTS[0].before * 2):
        with pytest.raises(SystemExit, match="not once"):
            mutated(MUTANTS[0], text)


def test_no_mutant_stands_twice():
    assert len({(one.file, one.before, one.after) for one in MUTANTS}) == len(MUTANTS)
