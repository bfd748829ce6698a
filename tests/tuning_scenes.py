"""A search that takes a second: few digits, a tiny network, one step of attack."""

from classwise.tuning.ranges import parse_search
from classwise.tuning.search import Search
from classwise.tuning.start import Start

TRAINING = {
    "data": "digits",
    "model": "cnn(width=2)",
    "eps": 0.02,
    "epochs": 3,
    "subset": 300,
    "batch_size": 50,
    "optimiser": "adam",
    "valid": "0.1",
    "valid_attack": "pgd-1",
}
METHODS = {"at.steps": 1}
START = Start("at+ccm", METHODS, TRAINING)
WORDS = "ccm.margin_floor=0.2..0.9,lr=log:0.002..0.02"


def small_search(words=WORDS, prune=True, start=START):
    return Search.of(start, parse_search(words, start), prune, 0)


def as_options():
    """The same as words of the command line."""
    short = ("data", "model", "eps", "epochs", "subset", "valid")
    words = [word for name in short for word in (f"--{name}", str(TRAINING[name]))]
    sets = {n: v for n, v in TRAINING.items() if n not in short} | METHODS
    words += [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
    return ["at+ccm", "--search", WORDS, *words]
