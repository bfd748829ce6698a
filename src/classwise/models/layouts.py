"""How other people call the parts of networks that are ours, too.

Read from public source: what is renamed here, and nothing else, tells their network from ours.
Where a difference leaves no trace in the names (which input a shortcut takes, an activation), it is
an architecture of its own, and the user says which is meant.

    RobustBench/robustbench     78fcc9e48a07a861268f295a777b975f25155964  model_zoo/architectures/
    MadryLab/robustness         a9541241defd9972e9334bfcdb804f6aefe24dc7  cifar_models/, attacker.py
    yaodongyu/TRADES            6e8e11b7c281371c2f027ffadfbaea80361f09de  models/wideresnet.py
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

LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "resnet18": (RESNET,),
    "resnet50": (RESNET,),
    "preactresnet18": (PREACT,),
    "preactresnet18-nobn": (PREACT,),
    "preactresnet18-raw": (PREACT,),
    "wrn": (WIDE,),
    "wrn-28-10": (WIDE,),
    "wrn-34-10": (WIDE,),
    "wrn-silu": (DEEPMIND,),
}


def layouts_of(spec: str) -> tuple[Layout, ...]:
    """The layouts in which weights of an architecture of ours are published."""
    return LAYOUTS.get(parse_call(spec).name, ())


def architectures_of(tensors: Mapping[str, Tensor]) -> list[str]:
    """Architectures of ours in one of whose layouts all names are known; their sizes may differ."""
    found = []
    for name, layouts in LAYOUTS.items():
        for layout in layouts:
            ours, _ = layout.applied(tensors)
            parts = {one.partition(".")[0] for one in ours} - {"mean", "deviation"}
            if parts == {"features", "head"}:
                found.append(name)
    return found
