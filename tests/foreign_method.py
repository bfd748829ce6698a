"""The method that CONTRIBUTING.md shows, as a package of somebody else."""

import re

from places import ROOT
from typer.testing import CliRunner

from classwise.cli import app
from classwise.recipe_text import make_method

GUIDE = ROOT / "CONTRIBUTING.md"
NAME = "mypackage.boost:Boost"
TEXT = f"at(steps=2)+{NAME}(rate=0.3)"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def run(*words):
    return CliRunner().invoke(app, list(words))


def told(*words):
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    return result.stderr


def boost(**options):
    return make_method(NAME, options)


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
