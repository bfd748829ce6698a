"""Methods of other people: named by module:Class, or installed under an entry point."""

import json
import re
import sys
from pathlib import Path

import pytest
from refusals import refused
from typer.testing import CliRunner

import classwise
from classwise.cli import app
from classwise.laws import check_method
from classwise.methods import METHODS, at, ccm
from classwise.recipe import compose
from classwise.recipe_text import load_recipe, make_method, parse_recipe
from classwise.report.summary import _has_averages
from classwise.studies.grid import Job, jobs_of, run_grid, run_job
from classwise.training.config import TrainConfig
from classwise.training.loop import train
from classwise.training.run import Run

GUIDE = Path(__file__).parent.parent / "CONTRIBUTING.md"
NAME = "mypackage.boost:Boost"
TEXT = f"at(steps=2)+{NAME}(rate=0.3)"
QUICK = {
    **{"eps": 0.2, "epochs": 2, "batch_size": 16, "lr": 0.05, "valid": "0.3"},
    **{"model": "cnn(width=2)", "valid_attack": "pgd-2"},
}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


@pytest.fixture
def forget():
    """Modules that a test made are gone before it and after it."""

    def gone():
        for name in [n for n in sys.modules if n.partition(".")[0] in ("mypackage", "trap")]:
            del sys.modules[name]

    gone()
    yield gone
    gone()


@pytest.fixture
def package(tmp_path, monkeypatch, forget):  # noqa: ARG001
    """The module of CONTRIBUTING.md, word for word, in a package on the path."""
    home = tmp_path / "code" / "mypackage"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("")
    (home / "boost.py").write_text(blocks("python")[0])
    monkeypatch.syspath_prepend(home.parent)
    monkeypatch.chdir(tmp_path)
    return home


def run(*words):
    return CliRunner().invoke(app, list(words))


def told(*words):
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    return result.stderr


def boost(**options):
    return make_method(NAME, options)


class TestTheGuide:
    def test_its_method_keeps_every_law(self, package):  # noqa: ARG002
        assert len(blocks("python")[0].splitlines()) < 35
        exec(blocks("python")[1], {})  # the call of check_method

    def test_statistics_that_are_not_there_are_told(self, package, tiny):  # noqa: ARG002
        with refused("WeighBroken", "train:robust", "base without an attack"):
            train(f"clean+{NAME}", out="run", source=tiny(), quiet=True, **QUICK)

    def test_its_commands_work(self, package):  # noqa: ARG002
        recipe, training, study = blocks("bash")[0].strip().splitlines()
        assert run("recipe", recipe.split('"')[1]).exit_code == 0
        words = training.replace('"', "").split()[1:]
        assert run(*words, "--subset", "60", "--epochs", "1", "--quiet").exit_code == 0
        assert json.loads(Path("runs/boost/run.json").read_text())["recipe"][NAME] == {"rate": 0.3}
        assert parse_recipe(study.split()[-1]) == at() | boost()

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


def named(name):
    """The module of the guide, whose class also says what it is called."""
    return blocks("python")[0].replace(
        "    rate: float = 0.5\n", f'    name: ClassVar[str] = "{name}"\n    rate: float = 0.5\n'
    )


ODD = """
from dataclasses import dataclass
from classwise import ClassPolicy, Method, Slots
number = 3
class NoMethod: pass
class Empty(Method): pass
class Junk(Method):
    def fill(self): return 3
class Plain(ClassPolicy):
    writes = frozenset({"label_weight"})
class NoDataclass(Method):
    def fill(self): return Slots(policies=(Plain(),))
@dataclass
class Mute(ClassPolicy):
    pass
class Silent(Method):
    def fill(self): return Slots(policies=(Mute(),))
class Rootless(Method):
    implies = "nonsense"
    def fill(self): return Slots()
@dataclass
class Hoard(ClassPolicy):
    writes = frozenset({"label_weight"})
    kept: object = object
    def update(self, settings, feedback): return settings, self
@dataclass
class Idle(ClassPolicy):
    writes = frozenset({"label_weight"})
class Idler(Method):
    def fill(self): return Slots(policies=(Idle(),))
class Hoarder(Method):
    def fill(self): return Slots(policies=(Hoard(),))
class Needy(Method):
    "It must be told how much."
    much: float
    def fill(self): return Slots(steps=3)
"""


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
        (package / "boost.py").write_text("class\n")
        assert "SyntaxError" in told("train", f"at+{NAME}")

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


class TestRuns:
    def test_train_resume_audit_report_diff_gate(self, package, forget):
        words = [TEXT, "--eps", "0.2", "--epochs", "2", "--subset", "60", "--quiet"]
        words += ["--model", "cnn(width=2)", "--out", "run"]
        result = run("train", *words)
        assert result.exit_code == 0, result.output
        assert "already" in run("train", *words, "--resume").output
        # From here on the code is gone, and a trap in its place: reading must not touch it.
        (package / "boost.py").write_text("import pathlib\npathlib.Path('sprung').mkdir()\n")
        forget()
        Path("contract.toml").write_text(
            'weights = "last"\n[[rule]]\nunder = "clean"\noverall_at_least = "0 %"\n'
        )
        for command in (
            ["audit", "run", "--attacks", "clean", "--limit", "40", "--quiet"],
            ["audit", "--from", "run"],
            ["report", "run", "--out", "page.html"],
            ["report", "run", "--out", "page.md"],
            ["diff", "run", "run", "--weights", "last"],
            ["gate", "contract.toml", "run"],
        ):
            result = run(*command)
            assert result.exit_code == 0, result.output
        assert NAME in Path("page.md").read_text()
        found = Run(Path("run"))
        assert "last" in found.weights
        assert found.model().training is False
        with refused(NAME, 'read_recipe(imports=("mypackage.boost",))'):
            _ = found.recipe
        assert not Path("sprung").exists()
        assert "mypackage" not in sys.modules
        (package / "boost.py").write_text(blocks("python")[0])
        assert found.read_recipe(imports=("mypackage.boost",)) == parse_recipe(TEXT)

    @pytest.mark.parametrize(
        "name", ["os:system", "trap:Boost", "trap:Boost+ema", "trapped", "mine.toml", "trap:"]
    )
    def test_run_json_of_a_stranger_imports_nothing(
        self,
        tmp_path,
        monkeypatch,
        tiny,
        forget,  # noqa: ARG002
        install,
        name,
    ):
        (tmp_path / "trap.py").write_text("import pathlib\npathlib.Path('sprung').mkdir()\n")
        (tmp_path / "mine.toml").write_text('compose = "at+trap:Boost"\n')
        monkeypatch.chdir(tmp_path)
        install("trapped = trap:Boost")
        train("at(steps=1)+ema(start=0)", out="run", source=tiny(), quiet=True, **QUICK)
        card = json.loads(Path("run/run.json").read_text())
        del card["checksum"]  # changed by hand
        card["recipe"][name] = {"command": "mkdir sprung"}
        card["recipe_name"] = f"at+{name}"
        Path("run/run.json").write_text(json.dumps(card))
        Path("contract.toml").write_text('[[rule]]\nunder = "clean"\noverall_at_least = "0 %"\n')
        commands = (
            ["audit", "run", "--data", "digits", "--attacks", "clean", "--limit", "40", "-q"],
            ["report", "run", "--out", "page.html"],
            ["report", "run", "--out", "page.md"],
            ["diff", "run", "run", "--weights", "last"],
            ["gate", "contract.toml", "run"],
        )
        for command in commands:
            result = run(*command)
            assert result.exception is None or isinstance(result.exception, SystemExit)
            assert result.exit_code < 2, result.output
        assert Run(Path("run")).weights
        assert Run(Path("run")).model() is not None
        with refused():
            _ = Run(Path("run")).recipe
        assert not Path("sprung").exists()
        assert "trap" not in sys.modules

    def test_python_trains_it_and_goes_on_bit_for_bit(self, package, tiny):  # noqa: ARG002
        one = train(at(steps=2) | boost(rate=0.3), out="one", source=tiny(), quiet=True, **QUICK)
        two = train(TEXT, out="two", source=tiny(), quiet=True, **QUICK)
        for file in ("run.json", "history.jsonl", "state.safetensors"):
            assert (one.path / file).read_bytes() == (two.path / file).read_bytes()
        weights = one.history[1]["settings"]["label_weight"]
        rates = one.history[0]["train"]["robust"]["by_class"]
        assert weights == pytest.approx([1 + 0.3 * (1 - rate) for rate in rates], rel=1e-6)

    def test_another_implementation_is_another_run(self, package, tiny, forget):
        def identity():
            forget()
            return train(TEXT, out=f"run{len(seen)}", source=tiny(), quiet=True, **QUICK).about

        seen = []
        text = blocks("python")[0]
        helped = text.replace("(1 - accuracy)", "share(accuracy)")
        helped = "from mypackage.help import share\n" + helped.replace('"""Boost:', '"""Boost;')
        for source, beside in [
            (text, ""),
            (text.replace("1 + self.rate", "2 + self.rate"), ""),
            (helped, "def share(a): return 1 - a\n"),
            (helped, "def share(a): return 2 - a\n"),
        ]:
            (package / "boost.py").write_text(source)
            (package / "help.py").write_text(beside)
            seen.append(identity()["identity"])
        assert len(set(seen)) == 4
        (package / "boost.py").write_text(text)
        with refused("holds another run", "code of its methods differs"):
            forget()
            train(TEXT, out="run3", source=tiny(), resume=True, quiet=True, **QUICK)
        assert "sources" not in train("at(steps=1)", out="x", source=tiny(), **QUICK).about


def test_a_study_trains_it_in_processes_of_its_own(package, tmp_path, capsys):  # noqa: ARG001
    from rich.console import Console

    config = TrainConfig(**{**QUICK, "data": "digits", "subset": 60})
    refused_jobs = jobs_of([f"at(steps=1)+{NAME}"], 2, config, "clean", tmp_path / "study")
    assert isinstance(refused_jobs[0], Job)
    with refused("--import mypackage.boost"):
        run_job(refused_jobs[0])
    assert not (tmp_path / "study").exists()
    given = ("mypackage.boost",)
    jobs = jobs_of([f"at(steps=1)+{NAME}"], 2, config, "clean", tmp_path / "study", given)
    for path in run_grid(jobs, workers=1, console=Console(quiet=True)):
        assert Run(path).about["recipe_name"] == f"at+{NAME}"
        assert Run(path).finished_epochs == 2


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Make entry points of our group as an installed package has them."""
    number = 0

    def add(*entries, package="mypackage"):
        nonlocal number
        number += 1
        place = tmp_path / f"site{number}"
        about = place / f"{package}-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        listed = "\n".join(entries)
        (about / "entry_points.txt").write_text(f"[classwise.methods]\n{listed}\n")
        monkeypatch.syspath_prepend(place)

    return add


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
