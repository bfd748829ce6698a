"""What a soak found, as the measured part of docs/reliability.md."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from soak.fault import Fault, Outcome

BEGIN = "<!-- written by `make soak`; what stands below is lost with the next -->"
END = "<!-- end of what `make soak` writes -->"
SECTIONS = {
    "killed": "SIGKILL, then the same command again (a training with `--resume`). Weights, states, "
    "history and watched rates equal those of an undisturbed run byte for byte, ledgers row for "
    "row; no lock is left.",
    "two at once": "Two processes on one folder, started together.",
    "no room": "The command line in a file system with too little room, then the same command with "
    "enough. The result equals that of an undisturbed run.",
    "damaged": "One file damaged: a flipped bit, a lost, zeroed or foreign tail, two blocks "
    "exchanged, nothing left. Either the file is named in one line, or what is read is the same.",
    "yours": "Files that you write yourself carry no checksum: a changed digit is another rule, a "
    "changed pixel another image. They are refused by name, or read as what they then say, under "
    "another content hash, so that no verdict on the one is taken for one on the other.",
    "words": "Hostile words for everything that reads text. They are taken, or refused in one "
    "line.",
    "files": "Hostile bytes for everything that reads a file: changed, cut, doubled, with absurd "
    "numbers. They are read, or refused in one line.",
}


@dataclass(frozen=True)
class Soak:
    """What was asked for."""

    seed: int
    kind: str  # how much
    workers: int
    seconds: float
    notes: Mapping[str, str]  # what a section must say besides


def write(page: Path, soak: Soak, faults: Sequence[Fault], found: Mapping[str, Outcome]) -> None:
    """Replace what stands between the two marks."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{page} has no place for what was measured: {BEGIN} … {END}")
    body = "\n".join([_opening(soak, found), *_sections(soak, faults, found)])
    page.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}")


def _opening(soak: Soak, found: Mapping[str, Outcome]) -> str:
    tried = sum(one.tried for one in found.values())
    failed = sum(len(one.failures) for one in found.values())
    work = sum(one.work for one in found.values())
    today = time.strftime("%Y-%m-%d", time.gmtime())
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return (
        f"\n{tried} faults, **{failed} failures**. Measured on {today}, seed {soak.seed}, "
        f"{soak.kind}: {soak.seconds:.0f} seconds in {soak.workers} processes, {work:.0f} seconds "
        f"of processor time ({machine}, {versions}).\n"
    )


def _sections(soak: Soak, faults: Sequence[Fault], found: Mapping[str, Outcome]) -> list[str]:
    lines: list[str] = []
    for section, words in SECTIONS.items():
        some = [one for one in faults if one.section == section]
        if not some:
            continue
        more = soak.notes.get(section, "")
        lines += [f"### {section.capitalize()}", "", f"{words}{more}", ""]
        lines += ["| fault | tried | failed | told | slowest, s | what the user sees |"]
        lines += ["| --- | ---: | ---: | ---: | ---: | --- |"]
        lines += [_row(one, found[one.title]) for one in some]
        bounded = [found[one.title] for one in some if one.room is not None]
        if bounded:
            peak = max(one.peak for one in bounded)
            lines += [
                "",
                f"At most {peak / 1e6:.0f} MB of memory were taken beside the libraries'.",
            ]
        lines += [""]
    return lines


def _row(fault: Fault, found: Outcome) -> str:
    said = f"`{_cell(found.said)}`" if found.said else "nothing: the result is the same"
    return (
        f"| {fault.name} | {found.tried} | {len(found.failures)} | {found.told} "
        f"| {found.slowest:.3g} | {said} |"
    )


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("`", "'")
