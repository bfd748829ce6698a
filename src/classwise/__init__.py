"""Train, attack and audit image classifiers class by class.

    import classwise
    report = classwise.audit(model, images, labels, eps=8 / 255)
    print(report.worst_class["pgd-20"], report.worst["pgd-20"])

Names load on first use, so that importing the package, and `classwise --help`, stay quick.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from classwise.classes.settings import ClassPolicy as ClassPolicy
    from classwise.data.sources import open_data as open_data
    from classwise.doors.attacks import PGD as PGD
    from classwise.doors.audit import audit as audit
    from classwise.doors.autoattack import AutoAttack as AutoAttack
    from classwise.doors.features import make_features as make_features
    from classwise.doors.folders import diff as diff
    from classwise.doors.folders import gate as gate
    from classwise.doors.folders import report as report
    from classwise.doors.health import check_health as check_health
    from classwise.doors.loading import load_model as load_model
    from classwise.doors.predictions import audit_predictions as audit_predictions
    from classwise.doors.universality import agree as agree
    from classwise.doors.universality import similarity as similarity
    from classwise.errors import ClasswiseError as ClasswiseError
    from classwise.judging.audits import read_ledger as read_ledger
    from classwise.judging.metrics import ClassReport as ClassReport
    from classwise.recipe import Method as Method
    from classwise.recipe_text import load_recipe as load_recipe
    from classwise.slots import Slots as Slots
    from classwise.training.config import TrainConfig as TrainConfig
    from classwise.training.estimate import estimate as estimate
    from classwise.training.loop import train as train
    from classwise.training.run import Run as Run

_HOMES = {
    "AutoAttack": "classwise.doors.autoattack",
    "ClassPolicy": "classwise.classes.settings",
    "ClassReport": "classwise.judging.metrics",
    "ClasswiseError": "classwise.errors",
    "Method": "classwise.recipe",
    "PGD": "classwise.doors.attacks",
    "Run": "classwise.training.run",
    "Slots": "classwise.slots",
    "TrainConfig": "classwise.training.config",
    "agree": "classwise.doors.universality",
    "audit": "classwise.doors.audit",
    "audit_predictions": "classwise.doors.predictions",
    "check_health": "classwise.doors.health",
    "diff": "classwise.doors.folders",
    "estimate": "classwise.training.estimate",
    "gate": "classwise.doors.folders",
    "load_model": "classwise.doors.loading",
    "load_recipe": "classwise.recipe_text",
    "make_features": "classwise.doors.features",
    "open_data": "classwise.data.sources",
    "read_ledger": "classwise.judging.audits",
    "report": "classwise.doors.folders",
    "similarity": "classwise.doors.universality",
    "train": "classwise.training.loop",
}

__all__ = [
    *_HOMES,
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("classwise")
    if name not in _HOMES:
        raise AttributeError(f"module 'classwise' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


class _Package(ModuleType):
    """A package whose folder `report/` does not hide its function `report` once it is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
