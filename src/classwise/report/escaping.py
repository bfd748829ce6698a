"""Keep class names and other words from being read as Markdown, HTML or LaTeX."""

from __future__ import annotations

import re

from classwise.spelling import one_line

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


def latex_text(text: str) -> str:
    r"""Keep text from being read as LaTeX.

    >>> print(latex_text("50 % of a_b"))
    50 \% of a\_b
    """
    return "".join(LATEX_SPECIAL.get(mark, mark) for mark in one_line(text))
