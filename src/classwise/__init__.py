"""Train, attack and audit image classifiers class by class.

    import classwise
    report = classwise.audit(model, images, labels, eps=8 / 255)
    print(report.worst_class["pgd-20"], report.worst["pgd-20"])

Names load on first use, so that importing the package, and `classwise --help`, stay quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from classwise.auditing.given import audit as audit
    from classwise.auditing.health import check_health as check_health
    from classwise.auditing.metrics import ClassReport as ClassReport
    from classwise.classes.settings import ClassPolicy as ClassPolicy
    from classwise.data.sources import open_data as open_data
    from classwise.errors import ClasswiseError as ClasswiseError
    from classwise.recipe import Method as Method
    from classwise.recipe_text import load_recipe as load_recipe
    from classwise.slots import Slots as Slots
    from classwise.training.config import TrainConfig as TrainConfig
    from classwise.training.loop import train as train
    from classwise.training.run import Run as Run

_HOMES = {
    "audit": "classwise.auditing.given:audit",
    "check_health": "classwise.auditing.health:check_health",
    "ClassPolicy": "classwise.classes.settings:ClassPolicy",
    "ClassReport": "classwise.auditing.metrics:ClassReport",
    "ClasswiseError": "classwise.errors:ClasswiseError",
    "Method": "classwise.recipe:Method",
    "Run": "classwise.training.run:Run",
    "Slots": "classwise.slots:Slots",
    "TrainConfig": "classwise.training.config:TrainConfig",
    "open_data": "classwise.data.sources:open_data",
    "load_recipe": "classwise.recipe_text:load_recipe",
    "train": "classwise.training.loop:train",
}

__all__ = [
    "ClassPolicy",
    "ClassReport",
    "ClasswiseError",
    "Method",
    "Run",
    "Slots",
    "TrainConfig",
    "audit",
    "check_health",
    "load_recipe",
    "open_data",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'classwise' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
