"""The kinds of artefacts, one file each; a study file names them."""

from __future__ import annotations

from classwise.studies.artefact import Kind
from classwise.studies.artefacts.curves import CurvesOptions, curves
from classwise.studies.artefacts.fluctuation import FluctuationOptions, fluctuation
from classwise.studies.artefacts.vulnerable import VulnerableOptions, vulnerable
from classwise.studies.artefacts.window import WindowOptions, window

KINDS: dict[str, Kind] = {
    "curves": Kind(CurvesOptions, curves),
    "vulnerable": Kind(VulnerableOptions, vulnerable),
    "fluctuation": Kind(FluctuationOptions, fluctuation),
    "window": Kind(WindowOptions, window),
}
