"""Where images come from: `digits`, `cifar10`, `folder:PATH`, `longtail(cifar10, factor=100)`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from classwise.data.array_files import npy, npz
from classwise.data.cifar import cifar10, cifar100
from classwise.data.dataset import Dataset, DataSource
from classwise.data.folder import folder
from classwise.data.from_arrays import dataset_from_arrays
from classwise.data.from_python import GIVEN, source_from_python
from classwise.data.hub import hf, torchvision
from classwise.data.idx import DIGITS, fashion_mnist, idx, mnist
from classwise.data.imagenet import imagenet
from classwise.data.labelled import csv_table
from classwise.data.longtail import longtail
from classwise.data.madeup import madeup
from classwise.data.pooled import pooled
from classwise.data.splits import held_out
from classwise.data.stl10 import stl10
from classwise.data.svhn import svhn
from classwise.data.tiny_imagenet import tiny_imagenet
from classwise.errors import ClasswiseError, cut, unknown
from classwise.spelling import parse_call, split_outside_brackets

_BRACKETS = re.compile(r"\s*(?P<kind>[A-Za-z_][\w-]*)\s*\((?P<inside>.*)\)\s*", re.DOTALL)
_OPTION = re.compile(r"\s*[A-Za-z_]\w*\s*=")


def digits() -> DataSource:
    """1797 handwritten digits of 8×8 grey pixels, inside scikit-learn; a third is the test part."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    pixels = np.rint(raw.images * (255 / 16)).astype(np.uint8)  # 0…16 grey levels
    # One pixel is an eighth of a digit: moved by it, adversarial training hardly begins to learn.
    whole = dataset_from_arrays(pixels, raw.target, DIGITS, mirrored=False, moved=0)
    return held_out("digits", whole, known=True)


# Literal tables: what can be opened by name, by a path, and from another data set.
NAMED: dict[str, Callable[..., DataSource]] = {
    "digits": digits,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "svhn": svhn,
    "stl10": stl10,
    "tiny-imagenet": tiny_imagenet,
    "imagenet": imagenet,
}
FROM_PATH: dict[str, Callable[..., DataSource]] = {
    "folder": folder,
    "csv": csv_table,
    "npz": npz,
    "npy": npy,
    "idx": idx,
    "hf": hf,
    "torchvision": torchvision,
    **{name: opener for name, opener in NAMED.items() if name != "digits"},
}
FROM_DATA: dict[str, Callable[..., DataSource]] = {"longtail": longtail, "pooled": pooled}
FROM_NAMES: dict[str, Callable[..., DataSource]] = {"madeup": madeup}  # no file at all


def open_data(spec: Any, class_names: Sequence[str] | None = None) -> DataSource:
    """Open a data source by its name, by a path behind its kind, or with options in brackets.

    `digits`, `folder:PATH`, `folder(PATH, size=32)`, `longtail(cifar10, factor=100)`. A path in
    brackets is quoted if it has a comma, a bracket or a quote in it. In the place of a name may
    stand a data set or DataLoader of torch, a pair (images, labels), or a pair (train, test) of
    any of these; `class_names` are for them.

    >>> open_data("digits").train.num_classes
    10
    >>> open_data("longtail(digits, factor=10)").train.sizes.tolist()
    [118, 94, 73, 56, 43, 33, 26, 20, 15, 12]
    """
    if not isinstance(spec, str):
        return source_from_python(spec, class_names)
    if class_names is not None:
        raise ClasswiseError(
            f"class_names have no effect: {cut(spec)} brings its own; leave them out"
        )
    if spec == GIVEN:
        raise ClasswiseError(
            "these data were given in Python and are in no file; name data yourself (--data), or "
            "audit in Python with classwise.audit"
        )
    kind, first, options = read_spec(spec)
    if first is None and kind in NAMED and (not options or kind in FROM_PATH):
        return NAMED[kind](**_known(kind, NAMED[kind], options))
    if kind in FROM_DATA and first is not None:
        maker = FROM_DATA[kind]
        known = _known(kind, maker, options)  # before opening, which may take long
        return maker(open_data(first), **known)
    if kind in FROM_NAMES and first:
        return FROM_NAMES[kind](first, **_known(kind, FROM_NAMES[kind], options))
    if kind in FROM_PATH and first:
        opener = FROM_PATH[kind]
        return opener(first, **_known(kind, opener, options))
    if kind in FROM_DATA or kind in FROM_NAMES:
        raise ClasswiseError(f"{spec!r} names no data set; write {kind}(NAME, option=value)")
    if kind in FROM_PATH and kind not in NAMED:
        raise ClasswiseError(f"{spec!r} names no path; write {kind}:PATH")
    if kind in NAMED:
        raise ClasswiseError(f"{kind} takes no options, but got {spec!r}; write {kind}")
    paths = (f"{kind}:PATH" for kind in FROM_PATH)
    wraps = (f"{kind}(NAME)" for kind in (*FROM_DATA, *FROM_NAMES))
    raise unknown("data set", spec, [*NAMED, *paths, *wraps])


def data_to_train_on(spec: Any, given: DataSource | None = None) -> DataSource:
    """Open data, unless they are given; every class must have an image left to be tested on."""
    source = open_data(spec) if given is None else given
    if not len(source.train):
        raise ClasswiseError(f"{source.name} has no training part here; it can only be audited on")
    if not source.set_aside:
        return source
    for name, trained, tested in zip(
        source.train.class_names,
        source.train.sizes.tolist(),
        source.test.sizes.tolist(),
        strict=True,
    ):
        if trained + tested == 1:
            raise ClasswiseError(
                f"class {name!r} of {source.name} has 1 image; to train it needs at least 2 (one "
                "to train, one to test), or a test part of its own"
            )
        if source.train.together is not None and not tested:
            raise ClasswiseError(
                f"class {name!r} of {source.name} has no image to be tested on, since all its "
                "images are of one group; to train it needs two groups, or a test part of its own"
            )
    return source


def read_spec(spec: str) -> tuple[str, str | None, dict[str, Any]]:
    """Divide a data source's spelling into its kind, its path or inner name, and its options.

    >>> read_spec("folder:/my data/a (1)")
    ('folder', '/my data/a (1)', {})
    >>> read_spec("folder('/my data', size=32)")
    ('folder', '/my data', {'size': 32})
    """
    kind, colon, path = spec.partition(":")
    if colon and kind.strip() in FROM_PATH:
        return kind.strip(), path, {}
    match = _BRACKETS.fullmatch(spec)
    if not match:
        return spec.strip(), None, {}
    pieces = split_outside_brackets(match["inside"], ",")
    first = None
    if pieces[0].strip() and not _OPTION.match(pieces[0]):
        first = _unquoted(pieces.pop(0).strip())
    call = parse_call(f"{match['kind']}({','.join(pieces).strip()})")
    if call.args:
        raise ClasswiseError(
            f"cannot read {call.args[0]!r} in {spec!r}; options are written option=value, and a "
            "path with a comma is quoted"
        )
    return match["kind"], first, call.options


def fetches(spec: str) -> bool:
    """Whether opening a data source may go to the network.

    >>> fetches("longtail(hf:mnist, factor=9)"), fetches("cifar10")
    (True, False)
    """
    kind, first, _ = read_spec(spec)
    return kind == "hf" or (kind in FROM_DATA and first is not None and fetches(first))


def with_option(spec: str, option: str) -> str:
    """Add an option such as `skip_bad=true` to a data source that has it, also inside another.

    >>> with_option("folder:/my data", "skip_bad=true")
    "folder('/my data', skip_bad=true)"
    >>> with_option("longtail(csv(x, size=32), factor=9)", "group=track")
    'longtail(csv(x, size=32, group=track), factor=9)'
    """
    found, first, _ = read_spec(spec)
    match, name = _BRACKETS.fullmatch(spec), option.partition("=")[0]
    having = [kind for kind, opener in FROM_PATH.items() if name in _options_of(opener)]
    if found in having:
        if match and not spec.strip().startswith(f"{found}:"):
            return f"{found}({match['inside']}, {option})"
        return f"{found}({_quoted(first)}, {option})" if first else f"{found}({option})"
    if found in FROM_DATA and first is not None and match:
        rest = split_outside_brackets(match["inside"], ",")[1:]
        return f"{found}({','.join([with_option(first, option), *rest])})"
    kinds = ", ".join(f"{kind}:PATH" for kind in having)
    raise ClasswiseError(f"{option} is for {kinds} only, not for {spec!r}; leave it out")


def choose_split(source: DataSource, split: str) -> Dataset:
    """Return the part of a source that an audit looks at."""
    match split:
        case "test":
            return source.test
        case "train":
            return source.train
        case "all":
            return _both(source)
    raise unknown("split", split, ["test", "train", "all"])


def _both(source: DataSource) -> Dataset:
    """Train and test part together, in the order they had before they were divided; no copy."""
    train, test = source.train, source.test
    count = len(train) + len(test)
    every = torch.arange(count)
    first, second = source.places or (every[: len(train)], every[len(train) :])
    order = torch.empty(count).long()
    order[first], order[second] = every[: len(train)], every[len(train) :]
    labels = torch.cat([train.labels, test.labels])[order]
    known = train.attributes
    if known is not None and test.attributes is not None:
        known = known.followed_by(test.attributes, order)
    images = train.pixels.followed_by(test.pixels).take(order)
    return replace(train, store=images, labels=labels, attributes=known)


def _known(kind: str, opener: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Refuse options that the opener does not have."""
    names = _options_of(opener)
    for name in options:
        if not names:
            raise ClasswiseError(f"{kind} has no options, but got {name}")
        if name not in names:
            raise unknown(f"option of {kind}", name, names)
    return options


def _options_of(opener: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(opener).parameters)[1:]  # the first is the path


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        return text[1:-1]
    return text


def _quoted(path: str) -> str:
    quote = next((mark for mark in "'\"" if mark not in path), None)
    if quote is None:
        raise ClasswiseError(f"{path} has both kinds of quotes in it; rename it")
    return f"{quote}{path}{quote}"
