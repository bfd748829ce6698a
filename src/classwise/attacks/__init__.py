"""Batch to perturbed batch, with a radius per sample everywhere.

    from classwise.attacks import PGD, AutoAttack
    adversarial = PGD(model, eps=8 / 255, alpha=2 / 255, steps=10)(images, labels)

Names load on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    **dict.fromkeys(
        ("FGSM", "PGD", "APGD", "APGDT", "FAB", "DeepFool", "Square"),
        "classwise.doors.attacks",
    ),
    # judges class by class, so it lives further down the walk
    "AutoAttack": "classwise.doors.autoattack",
    "BlackBox": "classwise.models.blackbox",
    "parse_attack": "classwise.attacks.names",
}

__all__ = [
    *("APGD", "APGDT", "AutoAttack", "BlackBox", "DeepFool"),
    *("FAB", "FGSM", "PGD", "Square", "parse_attack"),
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'classwise.attacks' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
