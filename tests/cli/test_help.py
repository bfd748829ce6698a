"""Every command explains itself: version, completion, defaults."""

import pytest
import typer.main
from typer.testing import CliRunner

import classwise
from classwise.cli import app

ROOT_COMMAND = typer.main.get_command(app)


def commands(command, words=()):
    """Every command with the words that call it."""
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, below in command.commands.items():
        yield from commands(below, (*words, name))


COMMANDS = dict(commands(ROOT_COMMAND))


def test_all_commands_are_walked():
    assert {("audit",), ("train",), ("study",), ("data", "get")} <= set(COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_says_every_default_and_gives_an_example(words):
    found = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "1000", "TERM": "dumb"})
    assert found.exit_code == 0
    assert "Example: classwise " in found.output
    for option in COMMANDS[words].params:
        name = option.opts[0]
        if option.required or getattr(option, "is_flag", False):
            continue  # a flag is off until it is given
        assert "default: " in line_of(found.output, option), name


def test_a_group_of_commands_gives_an_example():
    found = CliRunner().invoke(app, ["data", "--help"], env={"COLUMNS": "1000", "TERM": "dumb"})
    assert (found.exit_code, "Example: classwise data get" in found.output) == (0, True)


def line_of(text, option):
    """What help says of one option: its line, or of an argument the one with its help."""
    said = option.help.split("\n")[0]
    lines = [line for line in text.splitlines() if said in line]
    assert len(lines) == 1, (option.name, lines)
    return lines[0]


def test_version():
    found = CliRunner().invoke(app, ["--version"])
    assert (found.exit_code, found.output) == (0, f"classwise {classwise.__version__}\n")


def test_completion_can_be_installed():
    assert "--install-completion" in {name for one in ROOT_COMMAND.params for name in one.opts}
