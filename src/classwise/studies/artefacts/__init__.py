"""The kinds of artefacts, one file each; a study file names them."""

from __future__ import annotations

from classwise.studies.artefact import Kind

KINDS: dict[str, Kind] = {}
