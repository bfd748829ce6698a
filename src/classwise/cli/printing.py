"""What `classwise audit` prints: answers first, then averages and classes, then remarks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from classwise.cli.app import NO, UNDECIDED, YES, out
from classwise.errors import ClasswiseError, unknown

if TYPE_CHECKING:
    from classwise.judging.audits import AuditedWeights
    from classwise.report.runs import ReportRun

CLASSES = ("worst", "all")


def check_classes(choice: str) -> bool:
    """Whether every class is to be listed."""
    if choice not in CLASSES:
        raise unknown("choice of --classes", choice, CLASSES)
    return choice == "all"


def check_page(page: Path | None, kept: Path | None) -> None:
    """Refuse a page that could not be written in the end, before anything is audited."""
    if page is None:
        return
    if kept is None:
        raise ClasswiseError("--report needs stored predictions; add --out FOLDER")
    from classwise.doors.folders import check_report

    check_report(page)


def listed(attacks: str | None) -> tuple[str, ...]:
    """The names in a list of conditions, commas inside brackets aside."""
    from classwise.spelling import split_outside_brackets

    return tuple(n.strip() for n in split_outside_brackets(attacks or "", ",") if n.strip())


def only_reading(
    context: typer.Context, *allowed: str, reads: str = "--from only reads what an audit has kept"
) -> None:
    """Refuse options that say how to audit where stored verdicts are only read."""
    for option in context.command.params:
        name = str(option.name)
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in allowed:
            raise ClasswiseError(
                f"{reads}, so {option.opts[-1]} would have no "
                "effect; leave it out, or audit with it: verdicts that are kept are not computed "
                "again"
            )


def normalisation(name: str | None, mean: str | None, std: str | None) -> Any:
    """What --normalise, or --mean and --std, say; None where nothing is said."""
    if name is not None and (mean is not None or std is not None):
        raise ClasswiseError("give --normalise, or --mean and --std, not both")
    if (mean is None) != (std is None):
        raise ClasswiseError("--mean and --std go together; give both, one number per channel")
    if mean is None or std is None:
        return name
    try:
        return [[_number(one) for one in part.split(",")] for part in (mean, std)]
    except (ValueError, ZeroDivisionError):
        raise ClasswiseError(
            f"--mean {mean} --std {std}: write one number per channel, such as 0.5,0.5,0.5, or "
            "127/255"
        ) from None


def _number(text: str) -> float:
    """Read 0.5 or 127/255."""
    top, slash, bottom = text.partition("/")
    return float(top) / float(bottom) if slash else float(top)


def command_for_all(kept: Path | None, audits: Sequence[AuditedWeights]) -> str:
    """What to type to see every class; nothing is attacked again where audits were kept.

    Of a folder with several weights or splits it names the one that was audited, as reports do.
    """
    if kept is None:
        return "the same command with --classes all"
    from classwise.record.card import audit_facts

    words, facts = ["classwise", "audit", "--from", str(kept)], audit_facts(kept)
    for name in ("weights", "split"):
        there = {one[f"shown_{name}"] for one in facts}
        shown = {getattr(one, name) for one in audits}
        if len(shown) == 1 and shown < there:
            words += [f"--{name}", *shown]
    return shlex.join([*words, "--classes", "all"])


def print_audits(audits: Sequence[AuditedWeights], *, everything: bool, command: str) -> None:
    """Print all audits; those that stopped early by what they may say, without averages."""
    from classwise.judging.groups import CLASS
    from classwise.judging.showing import own_groupings
    from classwise.report.brackets import bracket_tables
    from classwise.report.classes import class_table, titles
    from classwise.report.corruptions import apart, rich_corruptions
    from classwise.report.partial import partial_table
    from classwise.report.summary import remarks
    from classwise.report.tables import rich_table

    named = list(zip(audits, titles(audits), strict=True))
    for audit, title in named:
        if audit.partial is not None:
            _say(f"{audit.partial.words} ({title})")
    for words in dict.fromkeys(_audited(audit) for audit in audits):
        if words:
            _say(f"Audited: {words}.")
    for audit, title in named:
        if audit.partial is not None and not audit.partial.whole:
            again = "the same command with --classes all"
            out.print(partial_table(audit.partial, title, everything=everything, command=again))
    whole = [(a, title) for a, title in named if a.partial is None or a.partial.whole]
    plain, corrupted = apart([audit for audit, _ in whole])
    if whole:
        out.print(rich_table(plain))
    for audit, (_, title) in zip(plain, whole, strict=True):
        for grouping in (CLASS, *own_groupings(audit.report)):
            out.print(
                class_table(audit, title, everything=everything, command=command, grouping=grouping)
            )
        for table in bracket_tables(audit, title, everything=everything, command=command):
            out.print(table)
    for one in corrupted:
        out.print(rich_corruptions(one))
    print_relabelled([audit for audit, _ in whole], everything=everything, command=command)
    answered = [audit.partial.words for audit in audits if audit.partial is not None]
    answered += [words for audit in audits for words in _asked(audit) if _audited(audit)]
    for line in remarks(audits):
        if not any(line.endswith(words) for words in answered):
            _say(line)


def _audited(audit: AuditedWeights) -> str:
    """Which images, and how the model is asked about them; nothing where verdicts are only read."""
    images = audit.report.about.get("images", "")
    return "; ".join([images, *_asked(audit)]) if images else ""


def _asked(audit: AuditedWeights) -> list[str]:
    return list(audit.report.about.get("asked", []))


def print_predictions(
    context: typer.Context, file: Path, folder: Path | None, page: Path | None, everything: bool
) -> None:
    """Report on predictions that were made elsewhere, and keep them if a folder is named."""
    from classwise.doors.predictions import audit_predictions

    kept = ("predictions", "folder", "page", "classes", "quiet")
    only_reading(context, *kept, reads="--predictions only reads what was predicted elsewhere")
    check_page(page, folder)
    audits = audit_predictions(file, folder)
    print_audits(audits, everything=everything, command=command_for_all(folder, audits))
    lead_on(folder, page)


def print_relabelled(audits: Sequence[AuditedWeights], *, everything: bool, command: str) -> None:
    """Print what more than one true label makes of the same answers, where there are any."""
    from classwise.report.classes import class_table, judged_again, titles
    from classwise.report.tables import rich_table

    again = judged_again(audits)
    if not again:
        return
    out.print("")
    for words in dict.fromkeys(audit.report.about["note"] for audit in again):
        _say(f"{words[0].upper()}{words[1:]}:")
    out.print(rich_table(again))
    for audit, title in zip(again, titles(again), strict=True):
        out.print(class_table(audit, title, everything=everything, command=command))


def question_code(audits: Sequence[AuditedWeights]) -> int:
    """The exit code of a question: no where one answer is no, yes where all are yes."""
    answers = [audit.partial.answer for audit in audits if audit.partial is not None]
    return NO if False in answers else YES if all(answers) else UNDECIDED


def say_healthy(audits: Sequence[AuditedWeights]) -> None:
    """Name the audits that were probed and raised no flag."""
    for audit in audits:
        if not audit.report.about.get("flags"):
            unseen = " (gradients could not be probed)" * ("black_box" in audit.report.about)
            words = f"{audit.recipe} {audit.weights}: no sign of a broken evaluation{unseen}"
            out.print(words, highlight=False, markup=False)


def say_remarks(audits: Sequence[AuditedWeights]) -> None:
    """Print what a reader must know beside the numbers."""
    from classwise.report.summary import remarks

    for line in remarks(audits):
        _say(line)


def lead_on(where: Path | None, page: Path | None) -> None:
    """After an audit: write its page if one was asked for, or say what comes next."""
    if page is not None and where is not None:
        write_page([where], page)
        out.print(f"Wrote {page}", soft_wrap=True)
    elif where is not None:
        out.print(f"Next: classwise report {where} --out report.html", soft_wrap=True)
    else:
        out.print("Nothing was kept; --out FOLDER keeps audits, and goes on where one broke off.")


def write_page(runs: list[Path], to: Path) -> list[ReportRun]:
    """Write the audits of runs, and say so of further files."""
    from classwise.doors import folders

    loaded = folders.report(runs, to)
    for beside in folders.files_beside(to, [entry for run in loaded for entry in run.audits]):
        out.print(f"Wrote {beside}", soft_wrap=True)
    return loaded


def _say(line: str) -> None:
    out.print(line, highlight=False, markup=False, soft_wrap=True)
