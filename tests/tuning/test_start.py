"""Where a search begins, and the command line that trains one of its trials."""

import shlex
from pathlib import Path

from classwise.cli.app import divide_sets
from classwise.spelling import parse_value
from classwise.tuning.start import Start


def options(command):
    """What a command line says, as `classwise train` reads it."""
    words = shlex.split(command)[3:]
    pairs = list(zip(words[::2], words[1::2], strict=True))
    methods, training = divide_sets([value for name, value in pairs if name == "--set"])
    given = {
        name[2:].replace("-", "_"): value
        for name, value in pairs
        if name not in ("--set", "--out", "--preset")
    }
    return methods, given | {name: parse_value(value) for name, value in training.items()}


def test_the_command_says_all_of_it():
    training = {
        "data": "digits",
        "freeze": ["features.conv1", "features.conv2"],
        "rates": {"head": 2.0},
        "nesterov": True,
        "eps": "8/255",
        "judge_eps": 0.1,
    }
    start = Start("at+ccm", {"at.steps": "3"}, training)
    values = {"ccm.margin_floor": 0.25, "lr": 0.0123}
    methods, given = options(start.command(values, Path("runs/x")))
    again = Start("at+ccm", methods, given)
    recipe, config = start.made(values)
    other_recipe, other_config = again.made({})
    assert (recipe, config) == (other_recipe, other_config)


def test_a_preset_is_named_and_options_win_over_it():
    start = Start("trades", {}, {"data": "digits", "epochs": 3}, preset="minutes")
    command = start.command({"trades.beta": 2.0, "lr": 0.05}, Path("x"))
    assert command.startswith("classwise train trades --preset minutes --data digits --epochs 3")
    recipe, config = start.made({"trades.beta": 2.0, "lr": 0.05})
    assert (config.lr, config.epochs, config.model) == (0.05, 3, "resnet9(width=8)")
    assert recipe.canonical["trades"]["beta"] == 2.0


def test_a_recipe_file_can_be_searched(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('compose = "trades + ccm"\n[trades]\nbeta = 3.0\n')
    start = Start(str(file))
    assert start.value_of("trades.beta") == 3.0
    assert start.made({"trades.beta": 4.0})[0].canonical["trades"]["beta"] == 4.0
    assert start.value_of("mart.beta") is None
