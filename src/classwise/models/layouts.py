"""How other people call the parts of networks that are ours, too.

Read from public source: what is renamed here, and nothing else, tells their network from ours.
Where a difference leaves no trace in the names (which input a shortcut takes, an activation), it is
an architecture of its own, and the user says which is meant.

    RobustBench/robustbench     78fcc9e48a07a861268f295a777b975f25155964  model_zoo/architectures/
    MadryLab/robustness         a9541241defd9972e9334bfcdb804f6aefe24dc7  cifar_models/, attacker.py
    yaodongyu/TRADES            6e8e11b7c281371c2f027ffadfbaea80361f09de  models/wideresnet.py
    torchvision 0.29.2 and timm 1.0.31, as published on PyPI
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from classwise.spelling import parse_call


@dataclass(frozen=True)
class Layout:
    """Names of somebody's state dict, as patterns and what stands for them in ours."""

    whose: str
    renames: tuple[tuple[str, str], ...]
    unused: tuple[str, ...] = ()  # parts that their network has and never asks

    def applied(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
        """Tensors under our names, and the names of those that are never asked."""
        found: dict[str, Tensor] = {}
        left: list[str] = []
        for name, tensor in tensors.items():
            if name.startswith(self.unused or ("\0",)):
                left.append(name)
                continue
            for pattern, ours in self.renames:
                name = re.sub(pattern, ours, name)
            found[name] = tensor
        return found, left


_STEM = ((r"^conv1\.", "features.stem."), (r"^bn1\.", "features.norm."))
_HEAD = (r"^(?:linear|fc|logits)\.", "head.")
_STAGES = ((r"^layer(\d)\.", r"features.stage\1."), (r"\.bn(\d)\.", r".norm\1."))

RESNET = Layout(
    "torchvision, MadryLab/robustness and RobustBench",
    (*_STEM, *_STAGES, (r"\.downsample\.", ".shortcut."), _HEAD),
)
PREACT = Layout(
    "RobustBench",
    (*_STEM, (r"^bn\.", "features.norm."), *_STAGES, (r"\.shortcut\.0\.", ".shortcut."), _HEAD),
)
# Their first group of blocks stands twice, the second time as `sub_block1`, which is never called.
WIDE = Layout(
    "TRADES and RobustBench",
    (
        *_STEM,
        (r"^block(\d)\.layer\.", r"features.stage\1."),
        (r"\.bn(\d)\.", r".norm\1."),
        (r"\.convShortcut\.", ".shortcut."),
        _HEAD,
    ),
    unused=("sub_block1.",),
)
DEEPMIND = Layout(
    "RobustBench's networks after DeepMind",
    (
        (r"^init_conv\.", "features.stem."),
        *((rf"^layer\.{n}\.block\.", f"features.stage{n + 1}.") for n in range(3)),
        *((rf"\.batchnorm_{n}\.", f".norm{n + 1}.") for n in range(2)),
        *((rf"\.conv_{n}\.", f".conv{n + 1}.") for n in range(2)),
        (r"^batchnorm\.", "features.norm."),
        _HEAD,
    ),
)

VGG = Layout(
    "torchvision",
    (
        (r"^features\.(\d)", r"features.layers.\1"),
        (r"^classifier\.0\.", "features.hidden1."),
        (r"^classifier\.3\.", "features.hidden2."),
        (r"^classifier\.6\.", "head."),
    ),
)
DENSE = Layout(
    "torchvision",
    (
        (r"^features\.conv0\.", "features.stem."),
        (r"^features\.norm0\.", "features.norm."),
        (r"^features\.denseblock(\d)\.denselayer", r"features.dense\1.layer"),
        (r"\.(norm|conv)\.([12])\.", r".\1\2."),  # files of before 2018
        (r"^features\.transition", "features.turn"),
        (r"^features\.norm5\.", "features.last."),
        (r"^classifier\.", "head."),
    ),
)
# Published weights of these two expect (x - 0.5) / 0.5, whatever their page says of ImageNet's.
GOOGLE = Layout(
    "torchvision", ((r"^(conv|inception)(\d)", r"features.\1\2"), _HEAD), unused=("aux1.", "aux2.")
)
INCEPTION = Layout(
    "torchvision",
    (
        (r"^(Conv2d|Mixed)_", r"features.\1_"),
        (r"\.(branch\w*?)_(\d)\.", r".\1.\2."),
        (r"\.(branch\w*?)_(\d)([ab])\.", r".\1.\2.\3."),
        (r"\.(branch\w*)\.(conv|bn)\.", r".\1.1.\2."),
        _HEAD,
    ),
    unused=("AuxLogits.",),
)
VIT = Layout(
    "timm",
    (
        (r"^patch_embed\.proj\.", "features.patches."),
        (r"^cls_token$", "features.token"),
        (r"^pos_embed$", "features.positions"),
        (r"^(blocks|norm)\.", r"features.\1."),
        (r"\.attn\.", "."),
    ),
)
XCIT = Layout(
    "timm and RobustBench",
    (
        (r"^patch_embed\.proj\.", "features.stem."),
        (r"^cls_token$", "features.token"),
        (r"^pos_embed(?:er)?\.token_projection\.", "features.places."),
        (r"^(blocks|norm)\.", r"features.\1."),
        (r"^cls_attn_blocks\.", "features.looks."),
        (r"\.attn\.", "."),
        (r"\.local_mp\.conv", ".near"),
        (r"\.local_mp\.bn\.", ".bn."),
    ),
)

_FAMILIES: dict[Layout, tuple[str, ...]] = {
    RESNET: ("resnet18", "resnet18-224", "resnet34-32", "resnet34-224", "resnet50", "resnet50-32"),
    PREACT: ("preactresnet18", "preactresnet18-nobn", "preactresnet18-raw"),
    WIDE: ("wrn", "wrn-28-10", "wrn-34-10"),
    DEEPMIND: ("wrn-silu",),
    VGG: ("vgg16-32", "vgg16-224", "vgg19-32", "vgg19-224"),
    DENSE: ("densenet121-32", "densenet121-224", "densenet169-32", "densenet169-224"),
    GOOGLE: ("googlenet-32", "googlenet-224"),
    INCEPTION: ("inception-v3-32", "inception-v3-299"),
    VIT: ("vit-s-32", "vit-s-224"),
    XCIT: ("xcit-s12-32", "xcit-s12-224"),
}
LAYOUTS = {name: layout for layout, names in _FAMILIES.items() for name in names}


def layouts_of(spec: str) -> tuple[Layout, ...]:
    """The layouts in which weights of an architecture of ours are published."""
    name = parse_call(spec).name
    return (LAYOUTS[name],) if name in LAYOUTS else ()


def architectures_of(tensors: Mapping[str, Tensor]) -> list[str]:
    """Architectures of ours in whose layout all names are known; their sizes may differ."""
    found = []
    for name, layout in LAYOUTS.items():
        ours, _ = layout.applied(tensors)
        if {one.partition(".")[0] for one in ours} - {"mean", "deviation"} == {"features", "head"}:
            found.append(name)
    return found
