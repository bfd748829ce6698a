"""Methods of other people, installed under an entry point."""

import sys

import pytest
from foreign_method import ODD, TEXT, blocks, boost, named, run
from refusals import refused
from short_runs import QUICK

from classwise.laws import check_method
from classwise.methods import METHODS, at, ccm
from classwise.recipe import compose
from classwise.recipe_text import load_recipe, make_method, parse_recipe
from classwise.training.loop import train


class TestInstalled:
    def test_it_is_named_like_a_built_in_one(self, package, install, tiny):
        (package / "boost.py").write_text(named("boost"))
        install("boost = mypackage.boost:Boost")
        recipe = parse_recipe("at(steps=2)+boost", {"boost.rate": "0.3"})
        assert recipe == at(steps=2) | boost(rate=0.3) == parse_recipe(TEXT)
        assert recipe.canonical["boost"] == {"rate": 0.3}
        assert recipe.name == "at+boost"
        done = train(recipe, out="run", source=tiny(), quiet=True, **QUICK)
        with refused("boost", 'imports=("mypackage.boost",)'):
            _ = done.recipe
        assert done.read_recipe(imports=("mypackage.boost",)) == recipe
        assert done.about["sources"]["boost"]

    def test_a_file_may_name_what_is_installed(self, package, install, tmp_path):
        (package / "boost.py").write_text(named("boost"))
        install("boost = mypackage.boost:Boost")
        file = tmp_path / "mine.toml"
        file.write_text('compose = "at + boost"\n[boost]\nrate = 0.3\n')
        assert load_recipe(file) == parse_recipe("at+boost(rate=0.3)")

    def test_the_name_may_come_from_the_entry_point_alone(self, package, install):  # noqa: ARG002
        install("boost = mypackage.boost:Boost")
        assert parse_recipe("at+boost").name == "at+boost"
        check_method(make_method("boost", {"rate": 0.3}), beside="at(steps=1)")

    def test_it_may_be_listed_by_another_module_of_its_package(self, package, install):
        (package / "boost.py").write_text(named("boost"))
        (package / "__init__.py").write_text("from mypackage.boost import Boost\n")
        install("boost = mypackage:Boost")
        assert parse_recipe("at+boost").name == "at+boost"

    def test_nothing_is_loaded_until_it_is_named(self, package, install):
        (package / "boost.py").write_text("1 / 0\n")
        install("boost = mypackage.boost:Boost")
        assert parse_recipe("at+ccm") == at() | ccm()
        assert "mypackage" not in sys.modules
        with refused("boost", "the package mypackage", "ZeroDivisionError"):
            parse_recipe("at+boost")
        with refused("unknown method 'boots'", "did you mean 'boost'"):
            parse_recipe("at+boots")

    @pytest.mark.parametrize("entry", ["at = mypackage.boost:Boost", "at = nowhere:At"])
    def test_a_built_in_name_is_refused(self, package, install, entry):  # noqa: ARG002
        install(entry)
        with refused("at is built in", "mypackage", "another name"):
            parse_recipe("at+ccm")
        assert compose([at(), ccm()]).name == "at+ccm"
        assert parse_recipe("trades+ccm").name == "trades+ccm"

    def test_two_packages_of_one_name_are_refused(self, package, install):  # noqa: ARG002
        install("boost = mypackage.boost:Boost")
        install("boost = other.boost:Boost", package="other")
        with refused("mypackage", "other", "other.boost:Boost"):
            parse_recipe("at+boost")

    def test_what_is_no_method_is_refused(self, package, install):
        (package / "boost.py").write_text("class Boost: pass\n")
        install("boost = mypackage.boost:Boost", "gone = mypackage.boost:Gone")
        with refused("mypackage.boost:Boost", "classwise.Method"):
            parse_recipe("at+boost")
        with refused("gone", "mypackage", "AttributeError"):
            parse_recipe("at+gone")

    def test_a_class_that_calls_itself_otherwise_is_refused(self, package, install):
        (package / "boost.py").write_text(named("booster"))
        install("boost = mypackage.boost:Boost")
        with refused("mypackage.boost:Boost", "as boost", "one name"):
            parse_recipe("at+boost")

    def test_they_are_listed(self, package, install):
        (package / "boost.py").write_text(blocks("python")[0] + ODD)
        install(
            *("boost = mypackage.boost:Boost", "gone = mypackage.boost:Gone"),
            *("at = mypackage.boost:Boost", "needy = mypackage.boost:Needy"),
        )
        from classwise.catalogue import methods

        rows = {row[0]: row for row in reversed(methods()[1])}
        plain = list(METHODS)
        assert set(rows) == {*plain, "boost", "gone", "needy", "module:Class"}
        assert rows["boost"][1] == "Weigh a class the more, the more of it the attack breaks."
        assert rows["boost"][2] == "class label_weight, class robust_weight"
        assert {"cost", "wat"} <= set(rows["boost"][3].split(", "))
        assert "boost" in rows["wat"][3].split(", ")
        assert "AttributeError" in rows["gone"][1]
        assert rows["needy"][1:4] == ("It must be told how much.", "", "")
        assert "needy" not in rows["wat"][3]
        assert make_method("boost", {}).name == "boost"
        assert any(row[0] == "at" and "built in" in row[1] for row in methods()[1])
        assert run("list", "methods").exit_code == 0
