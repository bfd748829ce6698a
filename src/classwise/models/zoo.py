"""Networks of other libraries by their names: `timm:NAME`, `torchvision:NAME`, `hf:ORG/NAME`.

The libraries are extras and are imported here alone, when somebody names one. Weights come with
`pretrained=true` only; nothing is downloaded otherwise. A file may name what timm and torchvision
have, without weights (docs/decisions/0008); `hf:` and options are for the person at the keyboard.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import nn

from classwise.errors import ClasswiseError, cut
from classwise.files import given_path
from classwise.limits import LARGEST_OPTION
from classwise.models.logits_of import LogitsOf
from classwise.models.pickled import WEIGHTS, snapshot_pickles, tensors_of
from classwise.spelling import Call, parse_call
from classwise.texts import parse_json, read_text

ZOO = ("timm", "torchvision", "hf")
PRETRAINED = "pretrained"  # the option that asks for published weights
_IN_FILES = ("timm", "torchvision")
_OPTIONS_IN_FILES = ("img_size", "image_size")
_WANT_A_START = ("googlenet", "inception_v3")  # they warn unless told how weights begin


def zoo_of(spec: str) -> str:
    """The library that a spec names, or nothing.

    >>> zoo_of("timm:resnet18(pretrained=true)"), zoo_of("mine:net"), zoo_of("resnet18")
    ('timm', '', '')
    """
    kind, colon, _ = spec.partition("(")[0].strip().partition(":")
    return kind if colon and kind in ZOO else ""


def file_may_name(spec: str) -> bool:
    """Whether a stranger's file may name it: no code of theirs, no download, sizes alone."""
    if zoo_of(spec) not in _IN_FILES:
        return False
    return all(
        name == PRETRAINED
        or (name in _OPTIONS_IN_FILES and type(value) is int and 1 <= value <= LARGEST_OPTION)
        for name, value in parse_call(spec).options.items()
    )


def with_weights(spec: str, wanted: bool) -> str:
    """The same spec, asking for published weights or not.

    >>> with_weights("timm:resnet18(pretrained=true, img_size=32)", False)
    'timm:resnet18(img_size=32)'
    >>> with_weights("hf:here", True)
    'hf:here(pretrained=True)'
    """
    call = parse_call(spec)
    options = {**call.options, PRETRAINED: True} if wanted else dict(call.options)
    if not wanted:
        options.pop(PRETRAINED, None)
    inside = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return f"{call.name}({inside})" if inside else call.name


def asks_for_weights(spec: str) -> bool:
    """Whether a spec asks for published weights."""
    return bool(parse_call(spec).options.get(PRETRAINED, False))


def zoo_model(call: Call, num_classes: int, channels: int) -> nn.Module:
    """Build a network of another library."""
    kind, _, name = call.name.partition(":")
    if call.args or not name:
        raise ClasswiseError(
            f"cannot read {cut(call.name)!r}; write {kind}:NAME, or {kind}:NAME(option=value)"
        )
    options = dict(call.options)
    pretrained = options.pop(PRETRAINED, False)
    if not isinstance(pretrained, bool):
        raise ClasswiseError(f"{call.name}({PRETRAINED}={pretrained!r}): write true or false")
    maker = {"timm": _timm, "torchvision": _torchvision, "hf": _hub}[kind]
    return maker(name, pretrained, options, num_classes, channels)


def published_classes(model: nn.Module) -> int | None:
    """For how many classes a network's published weights are, where it says so."""
    if isinstance(model, LogitsOf):
        return model.published
    said = getattr(model, "pretrained_cfg", None)
    count = said.get("num_classes") if isinstance(said, dict) else None
    return count if isinstance(count, int) else None


def _timm(
    name: str, pretrained: bool, options: dict[str, Any], num_classes: int, channels: int
) -> nn.Module:
    timm = imported("timm")
    if not re.fullmatch(r"[\w.-]+", name) or not timm.is_model(name):
        raise _no_such("timm", name, timm.list_models())
    given = {"num_classes": num_classes, "in_chans": channels, **options}
    return _made(f"timm:{name}", timm.create_model, name, pretrained=pretrained, **given)


def _torchvision(
    name: str, pretrained: bool, options: dict[str, Any], num_classes: int, channels: int
) -> nn.Module:
    models = imported("torchvision").models
    known = models.list_models(module=models)
    if name not in known:
        raise _no_such("torchvision", name, known)
    if channels != 3:
        raise ClasswiseError(
            f"torchvision:{name} takes images of 3 channels, and these have {channels}; timm's "
            "models take any (timm:NAME)"
        )
    if not pretrained and name in _WANT_A_START:
        options.setdefault("init_weights", True)
    given = {"num_classes": num_classes, "weights": "DEFAULT" if pretrained else None, **options}
    return _made(f"torchvision:{name}", models.get_model, name, **given)


def _hub(
    name: str, pretrained: bool, options: dict[str, Any], num_classes: int, channels: int
) -> nn.Module:
    """A snapshot of the hub: a folder here, or a repository there; timm's or transformers'."""
    folder, spec = given_path(name), f"hf:{name}"
    here = folder.is_dir()
    if not here and (name.count("/") != 1 or name.startswith((".", "/", "~"))):
        raise ClasswiseError(
            f"{spec}: there is no folder {cut(name)}; write hf:FOLDER, or hf:ORG/NAME of the hub"
        )
    config = folder / "config.json" if here else _fetched(name, "config.json")
    if not here:
        with suppress(ClasswiseError):  # not every model has one
            _fetched(name, "preprocessor_config.json")
    if not config.is_file():
        raise ClasswiseError(f"{spec}: {config} is missing; name the folder of a whole snapshot")
    about = parse_json(read_text(config), config)
    if isinstance(about, dict) and "architecture" in about:  # timm's
        where = f"local-dir:{folder}" if here else f"hf-hub:{name}"
        given = {"num_classes": num_classes, "in_chans": channels, **options}
        make = imported("timm").create_model
        return _made(spec, make, where, pretrained=pretrained, **given)
    if options:
        raise ClasswiseError(f"{spec}: {', '.join(options)} has no effect here; leave it out")
    snapshot = _Snapshot(str(folder) if here else name, here)
    model = _made(spec, _transformers, snapshot, pretrained, num_classes)
    model.preprocessor_config = _processor(folder if here else config.parent)
    return model


def _processor(snapshot: Path) -> Any:
    """What a snapshot says of how its images are prepared; None where it says nothing."""
    file = snapshot / "preprocessor_config.json"
    return parse_json(read_text(file), file) if file.is_file() else None


@dataclass(frozen=True)
class _Snapshot:
    """A snapshot of transformers, and how it is asked for: never with code of its own."""

    where: str  # a folder here, or a repository of the hub
    here: bool

    @property
    def safe(self) -> dict[str, bool]:
        """What keeps the library from running strangers' code, and a folder from the network."""
        return {"trust_remote_code": False, "local_files_only": self.here}

    def with_own_weights(self, auto: Any, config: Any, *, new_head: bool) -> Any:
        """Its network with the weights that came with it, and what was said about them."""
        told = {"output_loading_info": True, "ignore_mismatched_sizes": new_head}
        files = snapshot_pickles(Path(self.where)) if self.here else []
        try:
            if not files:
                how = {"use_safetensors": True, **told, **self.safe}
                return auto.from_pretrained(self.where, config=config, **how)
        except OSError:  # there are no safetensors
            if self.here:
                raise
            files = [_fetched(self.where, WEIGHTS)]
        # transformers unpickles as it sees fit, so the tensors are read here
        kind: Any = type(auto.from_config(config, trust_remote_code=False))
        return kind.from_pretrained(None, config=config, state_dict=tensors_of(files), **told)


def _transformers(snapshot: _Snapshot, pretrained: bool, num_classes: int) -> nn.Module:
    library = imported("transformers")
    config = library.AutoConfig.from_pretrained(snapshot.where, **snapshot.safe)
    auto = library.AutoModelForImageClassification
    published, config.num_labels = config.num_labels, num_classes
    if not pretrained:
        return LogitsOf(auto.from_config(config, trust_remote_code=False))
    other = published != num_classes  # then the head is new; audits refuse that
    model, told = snapshot.with_own_weights(auto, config, new_head=other)
    odd = {kind: names for kind, names in told.items() if names and kind.endswith("_keys")}
    if odd.keys() - ({"mismatched_keys"} if other else set()):
        raise ClasswiseError(f"its weights do not fit its own network ({cut(odd)})")
    return LogitsOf(model, published)


def imported(library: str) -> Any:
    """A library of the extra `zoo`."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as reason:
        missing = (reason.name or library).partition(".")[0]
        raise ClasswiseError(
            f"{missing} is not installed; install the extra: pip install 'classwise[zoo]'"
        ) from None
    except Exception as reason:  # a library that is broken here may break in any way
        raise _wrong_build(reason) or ClasswiseError(
            f"{library} cannot be imported ({cut(reason)})"
        ) from None


def _wrong_build(reason: BaseException | None) -> ClasswiseError | None:
    """What to say where a torchvision that was made for another torch lies behind it."""
    while reason is not None and "torchvision::" not in str(reason):
        reason = reason.__cause__ or reason.__context__
    if reason is None:
        return None
    return ClasswiseError(
        f"the torchvision that is installed was built for another torch ({reason}), and timm, "
        "torchvision and transformers need it: install both from one place, such as pip install "
        "torch torchvision --index-url https://download.pytorch.org/whl/cpu; or open the weights "
        "in an architecture of ours, which needs neither: --arch resnet18 (docs/models.md)"
    )


def _fetched(repository: str, name: str) -> Path:
    """A file of a repository of the hub."""
    hub = imported("huggingface_hub")
    try:
        return Path(hub.hf_hub_download(repository, name))
    except Exception as reason:  # no network, no such repository, no permission, …
        words = " ".join(str(reason).split())
        raise ClasswiseError(
            f"hf:{repository} cannot be had ({cut(words)}); without a network, name the folder of "
            "a snapshot: hf:FOLDER"
        ) from None


def _made(spec: str, make: Callable[..., Any], *args: Any, **options: Any) -> nn.Module:
    """What a library makes of a name; whatever it says against it, in one line."""
    try:
        model = make(*args, **options)
    except Exception as reason:  # a wrong option, weights for other classes, no network, …
        if (wrong := _wrong_build(reason)) is not None:
            raise wrong from None
        words = " ".join(f"{type(reason).__name__}: {reason}".split())
        said = str(reason) if isinstance(reason, ClasswiseError) else words
        raise ClasswiseError(f"{spec} was not built ({cut(said, 400)})") from None
    if not isinstance(model, nn.Module):
        raise ClasswiseError(f"{spec} is no network, but {type(model).__name__}")
    return model


def _no_such(library: str, name: str, known: Sequence[str]) -> ClasswiseError:
    """They have a thousand names: the nearest will do."""
    near = get_close_matches(name, known, n=4, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    return ClasswiseError(
        f"{library} has no model {cut(name)!r}; {hint}"
        f"It has {len(known)}; newer versions have more: pip install --upgrade {library}"
    )
