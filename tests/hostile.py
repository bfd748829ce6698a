"""Hostile words from a seed for every parser; only success or a ClasswiseError is right.

`make test` tries a few thousand of each kind; a longer soak calls `try_parser` with more.
"""

import contextlib
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from classwise.attacks.names import parse_conditions
from classwise.attacks.threat import Threat
from classwise.auditing.question import parse_question
from classwise.data.pictures import NotAnImage
from classwise.data.sources import open_data, read_spec, with_option
from classwise.data.splits import split_indices
from classwise.errors import ClasswiseError
from classwise.judging.contract import load_contract, parse_share
from classwise.recipe_text import load_recipe, parse_recipe
from classwise.spelling import (
    conditions_meant,
    parse_call,
    parse_eps,
    parse_value,
    split_outside_brackets,
)
from classwise.texts import parse_json, parse_toml
from classwise.training.config import TrainConfig, choose_device
from classwise.training.watched import parse_watched

WORDS = int(os.environ.get("CLASSWISE_HOSTILE_WORDS", "2000"))  # per parser

PIECES = [
    *("pgd-20", "clean", "suite", "apgd-ce", "square", "eps", "8/255", "trades", "ccm", "at"),
    *("digits", "longtail", "cifar10", "npz:", "folder", "npy:x", "test:", "worst", "cnn", "true"),
    *("(", ")", "[", "]", "{", "}", ",", "=", "+", ">", ">=", ":", "@", "/", "-", ".", "'", '"'),
    *("%", "#", " ", "\n", "\t", "\r", "\0", "\x1b[2J", "\ud800", "\udcff", "é", "²", "٣", "０"),
    *("0", "1", "1e999", "-1", "1e-999", "nan", "inf", "1j", "b'x'", "...", "0x10", "1_0", "None"),
    *("1" * 400, "9" * 5000, "(" * 50, "[" * 300, "-" * 300, "a." * 200, "~nobody/x", "~"),
    *("/" + "x" * 5000, "x" * 12000, "lambda:0", "*a", "**a", "x if y else z", "f'{a}'", "a:=1"),
    *("last:", "first:", "0.1", "1/0", "1e99999999", "beta=6", "size=", "width=", "..", "\\"),
]
PIECES += ["pgd-20(step=2/255,restarts=3)", "trades(beta=6)+ccm", "folder(x, size=[8, 8])", "ema"]
PIECES += [
    "suite(apgd-ce,square(queries=50),eps=0.1)",
    "longtail(digits, factor=10)",
    "eps/4",
    "0.05",
]
PIECES += [
    "worst>=0.2",
    "epochs=3",
    "fgsm(eps=0.2)",
    "mod:Blur(radius=2)>pgd-3",
    "last:0.5",
    "40 %",
]
TOML = [
    '[[rule]]\nunder = "pgd-20"\nno_class_below = 0.2\n',
    "rule",
    "[[rule]]\n",
    "[a]\n",
    'under = "pgd-20"\n',
    "no_class_below = 0.2\n",
    "a.b = 1\n",
]
TOML += [
    'compose = "trades + ccm"\n',
    "[trades]\n",
    "beta = 6\n",
    "eps = 1\n",
    "= ",
    '"""',
    "a" * 300,
]
TOML += ["a." * 40 + "b = 1\n", "x = " + "[" * 500, "y = 1979-05-27\n", "z = " + "7" * 4400 + "\n"]
JSON = ['{"data": ', '{"class_names": ', '["a", "b"]', "}", "{", "[", "]", ",", ":", "null", "NaN"]
JSON += [
    "1" * 5000,
    "1e999",
    '"\\ud800"',
    '"a"',
    "-1",
    "[" * 400,
    '{"a":' * 400,
    "true",
    "100000000",
]
JSON += [
    '"superclass_of": [0, 99999999]',
    '"config": ',
    '"identity": 3',
    '"notes": []',
    '"seen": 1',
]


def words(rng: random.Random, pieces: list[str], most: int = 12) -> str:
    """Some pieces in a row, now and then with letters exchanged."""
    count = rng.randint(1, most) if rng.random() < 0.6 else 1
    text = "".join(rng.choices(pieces, k=count))
    if rng.random() < 0.3 and text:
        at = rng.randrange(len(text))
        text = text[:at] + chr(rng.choice([*range(32, 127), 0x2028, 0xFEFF])) + text[at + 1 :]
    return text


def _config(text: str) -> None:
    name, _, value = text.partition("=")
    fields = [*TrainConfig.model_fields]
    TrainConfig(**{fields[len(name) % len(fields)]: parse_value(value)})


def _eps(text: str) -> None:
    parse_eps(text)
    parse_eps(text, float("inf"))


def _text_files(read: Callable[[Path], Any]) -> Callable[[str, Path], None]:
    def parse(text: str, place: Path) -> None:
        file = place / "given.toml"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        read(file)

    return parse


def _share(text: str) -> None:
    with contextlib.suppress(ValueError):  # what pydantic makes a message of
        parse_share(text)


Parser = Callable[[str], Any]
PARSERS: dict[str, tuple[list[str], Parser]] = {
    "parse_call": (PIECES, parse_call),
    "parse_value": (PIECES, parse_value),
    "parse_eps": (PIECES, _eps),
    "split": (PIECES, lambda text: split_outside_brackets(text, ",")),
    "recipe": (PIECES, lambda text: parse_recipe(text, imports=())),
    "attacks": (PIECES, lambda text: parse_conditions(text, Threat.of(0.1), own=False)),
    "watch": (PIECES, lambda text: parse_watched(f"test:{text}")),
    "question": (PIECES, lambda text: parse_question(text, ["cat"])),
    "meant": (PIECES, lambda text: conditions_meant(text, ["pgd-20 eps=8/255", text])),
    "data spelling": (PIECES, read_spec),
    "data": (PIECES, lambda text: open_data(f"npz:/nowhere/{text}")),
    "data option": (PIECES, lambda text: with_option(text, "skip_bad=true")),
    "share": (PIECES, _share),
    "valid": (PIECES, lambda text: split_indices(torch.tensor([0, 0, 1, 1]), text)),
    "config": (PIECES, _config),
    "device": (PIECES, choose_device),
    "json": (JSON, lambda text: parse_json(text, "it")),
    "toml": (TOML, lambda text: parse_toml(text, "it")),
}
TEXT_FILES: dict[str, tuple[list[str], Callable[[str, Path], None]]] = {
    "contract": (TOML, _text_files(load_contract)),
    "recipe file": (TOML, _text_files(load_recipe)),
}


def try_parser(name: str, count: int, seed: int = 0, place: Path | None = None) -> int:
    """Give so many words to a parser; return how many it took. Anything else is raised."""
    rng, taken = random.Random(f"{name} {seed}"), 0
    for _ in range(count):
        if name in PARSERS:
            pieces, parse = PARSERS[name]
            text = words(rng, pieces)
        else:
            pieces, of_file = TEXT_FILES[name]
            assert place is not None
            text, parse = words(rng, pieces), lambda text, do=of_file: do(text, place)
        taken += accepted(lambda text=text, parse=parse: parse(text), repr(text[:300]))
    return taken


def accepted(do: Callable[[], Any], what: str) -> bool:
    """Whether something went well; a ClasswiseError that can be printed is as good."""
    return refusal(do, what) is None


def refusal(do: Callable[[], Any], what: str) -> str | None:
    """The words with which something is refused, which can be printed; None where it is not."""
    try:
        do()
    except (ClasswiseError, NotAnImage) as reason:  # the reader of a folder counts and names those
        if "\x1b" in str(reason).encode().decode():
            raise AssertionError(f"{what} speaks to the terminal") from None
        return str(reason)
    except Exception as reason:
        raise AssertionError(
            f"{type(reason).__name__} from {what}: {str(reason)[:300]}"
        ) from reason
    return None
