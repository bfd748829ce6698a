"""Methods of other people, named by module:Class."""

import json
import sys
from pathlib import Path

import pytest
from foreign_method import NAME, ODD, TEXT, blocks, boost, named, run, told
from refusals import refused
from short_runs import QUICK

import classwise
from classwise.methods import METHODS, at
from classwise.recipe_text import load_recipe, parse_recipe
from classwise.report.summary import _has_averages
from classwise.training.loop import train


class TestTheGuide:
    def test_its_method_keeps_every_law(self, package):  # noqa: ARG002
        assert len(blocks("python")[0].splitlines()) < 35
        exec(blocks("python")[1], {})  # the call of check_method

    def test_statistics_that_are_not_there_are_told(self, package, tiny):  # noqa: ARG002
        with refused("WeighBroken", "train:robust", "base without an attack"):
            train(f"clean+{NAME}", out="run", source=tiny(), quiet=True, **QUICK)

    def test_its_commands_work(self, package):  # noqa: ARG002
        (recipe, training), (study,) = (one.strip().splitlines() for one in blocks("bash"))
        assert run("recipe", recipe.split('"')[1]).exit_code == 0
        words = training.replace('"', "").split()[1:]
        assert run(*words, "--subset", "60", "--epochs", "1", "--quiet").exit_code == 0
        assert json.loads(Path("runs/boost-set/run.json").read_text())["recipe"][NAME] == {
            "rate": 0.3
        }
        assert parse_recipe(study.split("#")[0].split()[-1]) == at() | boost()

    def test_its_entry_point_is_read(self, package, install):
        text = blocks("toml")[0].split("\n")[1].split("#")[0].strip().replace('"', "")
        (package / "boost.py").write_text(named("boost"))
        install(text)
        assert parse_recipe("at+boost").name == "at+boost"


class TestSpellings:
    def test_all_of_them_are_one_recipe(self, package, tmp_path):  # noqa: ARG002
        expected = at(steps=2) | boost(rate=0.3)
        assert expected == parse_recipe(TEXT)
        assert expected == parse_recipe(f"{NAME}+at(steps=2)", {f"{NAME}.rate": "3/10"})
        file = tmp_path / "mine.toml"
        file.write_text(f'compose = "at + {NAME}"\n[at]\nsteps = 2\n["{NAME}"]\nrate = 0.3\n')
        assert expected == load_recipe(file, imports=("mypackage.boost",))
        assert expected == classwise.load_recipe(str(file), imports=["mypackage.boost"])
        assert expected.name == f"at+{NAME}"
        assert expected.canonical[NAME] == {"rate": 0.3}
        assert expected.owners["class label_weight"] == NAME
        assert expected != parse_recipe(f"at(steps=2)+{NAME}")

    def test_a_class_is_known_by_where_it_is_made(self, package):
        (package / "__init__.py").write_text("from mypackage.boost import Boost as Short\n")
        assert parse_recipe("at+mypackage:Short") == parse_recipe(f"at+{NAME}")
        with refused(NAME, "twice"):
            parse_recipe(f"at+mypackage:Short+{NAME}")

    def test_a_name_of_its_own_does_not_hide_where_it_is(self, package):
        (package / "boost.py").write_text(named("trades"))
        assert parse_recipe(f"at+{NAME}").name == f"at+{NAME}"
        (package / "more.py").write_text(
            "from classwise.methods.zhang2019_trades import Trades\nclass Mine(Trades):\n    pass\n"
        )
        assert parse_recipe("mypackage.more:Mine").name == "mypackage.more:Mine"

    def test_a_class_inside_a_class(self, package):
        body = "\nclass Shelf:\n    class Inner(Boost):\n        pass\n"
        (package / "boost.py").write_text(blocks("python")[0] + body)
        assert parse_recipe("at+mypackage.boost:Shelf.Inner").name.endswith(":Shelf.Inner")

    def test_the_command_line_explains_it(self, package):  # noqa: ARG002
        shown = run("recipe", f"at+{NAME}", "--set", f"{NAME}.rate=0.25").output
        assert "WeighBroken(rate=0.25)" in "".join(shown.split())


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("Boots", ("'Boots'", "did you mean 'Boost'")),
            ("number", ("no method but int", "classwise.Method")),
            ("NoMethod", ("no method but the class NoMethod", "classwise.Method")),
            ("Method", ("classwise.Method",)),
            ("Empty", ("Empty", "fill(self)")),
            ("Junk", ("Junk", "fill(self)", "Slots")),
            ("NoDataclass", ("Plain", "dataclass")),
            ("Silent", ("Mute", "writes")),
            ("Idler", ("Idle", "update(self")),
            ("Hoarder", ("Hoard", "kept", "tensor")),
            ("Boost(rat=3)", ("option of mypackage.boost:Boost", "did you mean 'rate'")),
            ("Boost(rate=fast)", ("mypackage.boost:Boost(rate='fast')",)),
            ("Boost(0.3)", ("name the options",)),
        ],
    )
    def test_what_is_no_method_is_refused(self, package, name, words):
        (package / "boost.py").write_text(blocks("python")[0] + ODD)
        with refused(*words):
            parse_recipe(f"at+mypackage.boost:{name}")

    def test_bases_that_nobody_has(self, package):
        (package / "boost.py").write_text(blocks("python")[0] + ODD)
        with refused("nonsense", "trades"):
            parse_recipe("mypackage.boost:Rootless")
        with refused(NAME, "no training loss", "trades"):
            parse_recipe(NAME)

    def test_modules_that_cannot_be_had(self, package):
        with refused("nowhere_at_all"):
            parse_recipe("at+nowhere_at_all:Boost")
        (package / "boost.py").write_text("1 / 0\n")
        with refused(NAME, "cannot be imported", "ZeroDivisionError"):
            parse_recipe(f"at+{NAME}")
        (package / "boost.py").write_text("class without a colon\n")  # longer: else Python may
        # take the compiled file of before, which was written in the same second
        said = run("train", f"at+{NAME}")  # where it is wrong in their file, then one line of ours
        assert said.exit_code == 2
        place, *_, words = said.stderr.strip().splitlines()
        assert "mypackage/boost.py" in place
        assert words.startswith("classwise: ")
        assert "SyntaxError" in words

    def test_clashes_name_it(self, package):  # noqa: ARG002
        with refused(NAME, "wat", "label_weight"):
            parse_recipe(f"trades+wat+{NAME}")
        with refused(NAME, "twice"):
            at() | boost() | boost(rate=0.1)
        with refused(NAME, "twice"):
            parse_recipe(f"at+{NAME}+{NAME}")


class TestFiles:
    def file(self, tmp_path):
        file = tmp_path / "mine.toml"
        file.write_text(f'compose = "at + {NAME}"\n')
        return file

    def test_a_file_imports_nothing_by_itself(self, package, tmp_path):  # noqa: ARG002
        file = self.file(tmp_path)
        with refused(NAME, "--import mypackage.boost", 'imports=("mypackage.boost",)'):
            load_recipe(file)
        with refused("--import mypackage.boost"):
            train(str(file), out="run")
        for command in ("recipe", "train"):
            assert "--import mypackage.boost" in told(command, str(file))
        assert "mypackage" not in sys.modules
        assert not Path("run").exists()

    def test_leave_is_for_the_module_that_is_named(self, package, tmp_path):  # noqa: ARG002
        file = self.file(tmp_path)
        for other in ("mypackage", "mypackage.boost.more", "os"):
            with refused(f"--import {other}", "leave it out"):
                load_recipe(file, imports=(other,))
        assert "mypackage" not in sys.modules
        assert run("recipe", str(file), "--import", "mypackage.boost").exit_code == 0

    def test_leave_that_nothing_needs_is_refused(self, package):  # noqa: ARG002
        assert "leave it out" in told("recipe", "at", "--import", "mypackage.boost")
        assert run("recipe", f"at+{NAME}", "--import", "mypackage.boost").exit_code == 0


@pytest.mark.parametrize(
    ("recipe", "averaged"),
    [
        *(("at+trap:Boost+ema", True), ("ema+trap:Base", True), ("cfa+trap:Base", True)),
        *(("at+trap:Boost", False), ("trap:Base", False), ("mine.toml", False), ("at+at", False)),
    ],
)
def test_a_report_reads_averages_from_the_names_alone(recipe, averaged):
    assert _has_averages(recipe) is averaged
    assert "trap" not in sys.modules


def test_what_a_method_needs_is_at_hand():
    from classwise.classes.settings import ClassPolicy
    from classwise.recipe import Method
    from classwise.slots import Slots

    found = (classwise.ClassPolicy, classwise.Method, classwise.Slots, classwise.load_recipe)
    assert found == (ClassPolicy, Method, Slots, load_recipe)


def test_every_built_in_method_is_found_by_its_lower_case_name():
    import classwise.methods as table

    assert set(table.__all__) == {"METHODS", *METHODS}
    for name, kind in METHODS.items():
        assert getattr(table, name) is kind
        assert kind.name == name == name.lower()
    with pytest.raises(ImportError):
        from classwise.methods import tradse  # noqa: F401
