"""The kinds of artefacts, one file each; a study file names them."""

from __future__ import annotations

from classwise.studies.artefact import Kind
from classwise.studies.artefacts.agreement import agreement
from classwise.studies.artefacts.both_views import BothViewsOptions, both_views
from classwise.studies.artefacts.classes import ClassesOptions, classes
from classwise.studies.artefacts.convergence import ConvergenceOptions, convergence
from classwise.studies.artefacts.corruptions import CorruptionsOptions, corruptions
from classwise.studies.artefacts.cost import CostOptions, cost
from classwise.studies.artefacts.curves import CurvesOptions, curves
from classwise.studies.artefacts.factors import FactorsOptions, factors
from classwise.studies.artefacts.false_positives import FalsePositivesOptions, false_positives
from classwise.studies.artefacts.fluctuation import FluctuationOptions, fluctuation
from classwise.studies.artefacts.outputs import OutputsOptions, outputs
from classwise.studies.artefacts.overfitting import OverfittingOptions, overfitting
from classwise.studies.artefacts.ranking import RankingOptions, ranking
from classwise.studies.artefacts.selection import SelectionOptions, selection
from classwise.studies.artefacts.similarity import SimilarityOptions, similarity
from classwise.studies.artefacts.sweep import SweepOptions, sweep
from classwise.studies.artefacts.table import TableOptions, table
from classwise.studies.artefacts.toy_cfa import ToyCfaOptions, toy_cfa
from classwise.studies.artefacts.toy_targets import ToyTargetsOptions, toy_targets
from classwise.studies.artefacts.vulnerable import VulnerableOptions, vulnerable
from classwise.studies.artefacts.window import WindowOptions, window
from classwise.studies.orders import AgreementOptions

KINDS: dict[str, Kind] = {
    "table": Kind(TableOptions, table),
    "sweep": Kind(SweepOptions, sweep),
    "classes": Kind(ClassesOptions, classes),
    "ranking": Kind(RankingOptions, ranking),
    "corruptions": Kind(CorruptionsOptions, corruptions),
    "false-positives": Kind(FalsePositivesOptions, false_positives, shows_theirs=True),
    "outputs": Kind(OutputsOptions, outputs),
    "factors": Kind(FactorsOptions, factors),
    "curves": Kind(CurvesOptions, curves),
    "vulnerable": Kind(VulnerableOptions, vulnerable),
    "fluctuation": Kind(FluctuationOptions, fluctuation),
    "window": Kind(WindowOptions, window),
    "selection": Kind(SelectionOptions, selection),
    "convergence": Kind(ConvergenceOptions, convergence),
    "overfitting": Kind(OverfittingOptions, overfitting),
    "toy-cfa": Kind(ToyCfaOptions, toy_cfa),
    "toy-targets": Kind(ToyTargetsOptions, toy_targets),
    "agreement": Kind(AgreementOptions, agreement),
    "similarity": Kind(SimilarityOptions, similarity),
    "cost": Kind(CostOptions, cost),
    "both-views": Kind(BothViewsOptions, both_views),
}
