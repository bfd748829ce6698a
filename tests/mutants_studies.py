"""Mutants of what a study makes of its runs."""

from mutant import Mutant

TABLE = ("studies/test_artefact_table.py",)
KINDS = ("studies/test_artefact_kinds.py",)
CONDITIONS = ("studies/test_artefact_conditions.py",)
FILES = ("studies/test_artefact_files.py::TestMarkdown", "studies/test_artefact_files.py::TestCsv")

# fmt: off
STUDIES = (
    # --- cells over seeds, and their holes
    Mutant("studies/cells.py", "if len(settings) > 1:", "if len(settings) > 99:", TABLE,
           "runs of two radii are averaged as if they were seeds"),
    Mutant("studies/cells.py", "reasons if len(holes) == runs else", "reasons if runs else", TABLE,
           "a mean over two of three seeds does not say so"),
    Mutant("studies/cells.py", "len(top) <= MOST_NAMED", "True", TABLE,
           "one of a hundred classes at 0 % is called the worst"),
    Mutant("studies/found.py", "weights = averages[0] if averages else keep", "weights = keep",
           TABLE, "a row of an average shows the trained weights"),
    Mutant("studies/found.py", "if not averages and", "if averages and", TABLE,
           "trained weights stand for an average that never began"),
    Mutant("studies/readings.py", "Read(1 - rate, (), (1 - high, 1 - low))", "Read(rate)", TABLE,
           "an accuracy is printed as an error"),
    # --- kinds of artefacts
    Mutant("studies/artefacts/classes.py", "if one.seed == run.seed:", "if True:", KINDS,
           "differences to a base are of other seeds"),
    Mutant("studies/artefacts/classes.py", "sum(rates.values()) / len(rates)",
           "max(rates.values())", KINDS,
           "classes are shown from the best one instead of from their mean"),
    Mutant("studies/artefacts/ranking.py", "tuple(sum(seed) / len(known) for seed in by_seed)",
           "tuple(max(seed) for seed in by_seed)", KINDS,
           "superclasses are ranked by their best method"),
    Mutant("studies/artefacts/corruptions.py", "Read(found.worst, _at(found, found.worst), ",
           "Read(min(one.worst for one in found.seen), (), ", CONDITIONS,
           "the minimum is taken before severities are pooled"),
    Mutant("studies/artefacts/false_positives.py", "report.one_vs_rest_accuracy[name]",
           "_recall(report, name)", CONDITIONS, "equation 7 shows recall"),
    Mutant("studies/artefacts/outputs.py", "return after - before", "return before - after",
           CONDITIONS, "the attack on all outputs seems to be the weaker one"),
    Mutant("studies/artefacts/factors.py", "return ratio - _ratio(same[0], name, options)",
           "return ratio", CONDITIONS, "spill-over is measured from nothing"),
    # --- files
    Mutant("studies/artefact_files.py", "if len(cell.rates) < seeds else []", "if False else []",
           FILES, "a cell of fewer seeds looks like all others"),
    Mutant("studies/artefact_files.py", "[csv_cell(value) for value in", "[value for value in",
           FILES, "a class name is run as a formula"),
)
