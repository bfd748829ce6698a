"""Keep class names and other words from being read as Markdown, HTML, LaTeX or a formula."""

from __future__ import annotations

import re

from classwise.errors import defused
from classwise.spelling import one_line

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "–": "--",
    **{mark: "\\" + mark for mark in "&%$#_{}"},
}


def markdown_text(text: str) -> str:
    r"""Keep text from being read as Markdown or HTML.

    >>> print(markdown_text("a|b <i> *c*"))
    a\|b &lt;i&gt; \*c\*
    """
    text = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]~])", r"\\\1", text)


def csv_cell(value: object) -> object:
    """Keep a cell from being run as a formula; numbers stay numbers.

    >>> csv_cell("=1+1"), csv_cell("-0.5"), csv_cell("-cat"), csv_cell(3), csv_cell("cat")
    ("'=1+1", '-0.5', "'-cat", 3, 'cat')
    """
    if not isinstance(value, str):
        return value
    text = defused(value)
    begins = text.startswith(("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠"))
    return f"'{text}" if begins and not _NUMBER.fullmatch(text) else text


def latex_text(text: str) -> str:
    r"""Keep text from being read as LaTeX.

    >>> print(latex_text("50 % of a_b"))
    50 \% of a\_b
    """
    return "".join(LATEX_SPECIAL.get(mark, mark) for mark in one_line(text))
