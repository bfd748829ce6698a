"""Run every code block of README, CONTRIBUTING and docs, page by page: `make test-docs`.

The blocks of a page run in order, in one temporary folder; its Python blocks share their names.
What would take long runs at the smoke setting: every training has one epoch, every audit looks at
20 images. An HTML comment right above a block says what is special about it:

    <!-- test-docs: not run: WHY -->      it stays unrun
    <!-- test-docs: file NAME -->         it is a file that later blocks need
    <!-- test-docs: epochs 10 -->         its trainings have so many epochs
    <!-- test-docs: first CODE -->        what the reader has and the page does not show
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHELL, RUNS = ("sh", "bash"), ("sh", "bash", "python")
EPOCHS = "TEST_DOCS_EPOCHS"
FEW_IMAGES = "20"
_BLOCK = re.compile(r"(?:^<!-- test-docs: (.*?) *-->\n)?^```(\w+)\n(.*?)^```$", re.S | re.M)


@dataclass(frozen=True)
class Block:
    """One code block of a page, with what the comment above it asks for."""

    language: str
    text: str
    line: int  # of its first line of code
    wish: str = ""

    def wished(self, what: str) -> str | None:
        """What follows a word of the comment; None where it does not begin with that word."""
        words = self.wish.removeprefix(what)
        return words.strip(" \n:") if self.wish.startswith(what) else None


def blocks_of(text: str) -> Iterator[Block]:
    """The code blocks of a page that have a language."""
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(3)) + 1
        yield Block(match[2], match[3], line, match[1] or "")


def smoke(arguments: Sequence[str]) -> list[str]:
    """A command as it is run here: one epoch, few images; the last of two equal options counts."""
    given = list(arguments)
    if given[:1] == ["train"]:
        given += ["--epochs", os.environ.get(EPOCHS, "1"), "--quiet"]
    if given[:1] == ["audit"] and not {"--from", "--limit", "--predictions"} & set(given):
        given += ["--limit", FEW_IMAGES]
    return given


def command(arguments: Sequence[str]) -> None:
    """The command `classwise` of the pages: no and undecided are answers, not failures."""
    from classwise.cli import main

    sys.argv = ["classwise", *smoke(arguments)]
    try:
        main()
    except SystemExit as end:
        answers = (1, 3) if arguments[:1] == ["gate"] or "--question" in arguments else ()
        if end.code not in (None, 0, *answers):
            raise


class Failed(Exception):
    """A block did not run."""


def run_shell(text: str) -> None:
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def run_python(text: str, names: dict[str, Any], page: str, line: int) -> None:
    text = re.sub(r"\bepochs=\d+", f"epochs={os.environ.get(EPOCHS, '1')}", text)
    try:
        exec(compile("\n" * (line - 1) + text, page, "exec"), names)
    except Exception:
        raise Failed(traceback.format_exc(limit=-6)) from None


def run_block(block: Block, names: dict[str, Any], page: str) -> bool:
    """Whether the block ran; one that fails raises `Failed`."""
    if block.wished("not run") is not None:
        if not block.wished("not run"):
            raise Failed("a block that is not run must say why")
        return False
    file = block.wished("file")
    if file is not None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(block.text)
        return True
    if block.language not in RUNS:
        return False
    os.environ[EPOCHS] = block.wished("epochs") or "1"
    first = block.wished("first") or ""
    if block.language in SHELL:
        run_shell(f"{first}\n{block.text}")
    else:
        run_python(first, names, f"{page} (before)", block.line)
        run_python(block.text, names, page, block.line)
    return True


def run_page(page: str) -> int:
    """Run one page in the working folder and say how it went; the exit code."""
    names: dict[str, Any] = {"__name__": "__page__"}
    sys.path.insert(0, os.getcwd())
    ran = unrun = 0
    for block in blocks_of((ROOT / page).read_text()):
        try:
            done = run_block(block, names, page)
        except Failed as reason:
            print(f"{page}, line {block.line}: {reason}\n{block.text}", file=sys.stderr)
            return 1
        ran, unrun = ran + done, unrun + (not done)
    print(f"{page}: {ran} blocks ran, {unrun} are not for running")
    return 0


def in_a_folder(page: str) -> tuple[str, int]:
    """Run a page in a process and a folder of its own; what it said, and its exit code."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tools, work = Path(folder, "bin"), Path(folder, "work")
        tools.mkdir()
        work.mkdir()
        script = tools / "classwise"
        own = f"import sys; sys.path[0] = {str(ROOT / 'tests')!r}"
        call = "if __name__ == '__main__':  # not again in the processes of a study\n    "
        call += "from doc_pages import command\n    command(sys.argv[1:])"
        script.write_text(f"#!{sys.executable}\n{own}\n{call}\n")
        script.chmod(0o755)
        path = [str(tools), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        facts = {"PATH": os.pathsep.join(path), "ROOT": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, __file__, "--one", page],
            cwd=work,
            env={**os.environ, **facts},
            capture_output=True,
            text=True,
        )
    said = done.stderr if done.returncode else done.stdout.strip().splitlines()[-1]
    return f"{said} ({time.perf_counter() - began:.0f} s)", done.returncode


def pages() -> list[str]:
    """The pages that hold code to run."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    kinds = {path: [block.language for block in blocks_of(path.read_text())] for path in found}
    return [str(path.relative_to(ROOT)) for path in found if set(RUNS) & set(kinds[path])]


def main() -> int:
    """Run the pages that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", help="such as README.md; all if none is named")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        return run_page(given.one)
    worst = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for said, code in pool.map(in_a_folder, given.pages or pages()):
            print(said, flush=True)
            worst = max(worst, code)
    return worst


if __name__ == "__main__":
    sys.exit(main())
