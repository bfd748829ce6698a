"""The effects table: every claim of the papers beside what our runs show, with a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from classwise.papers import PAPERS
from classwise.report.escaping import markdown_text
from classwise.spelling import few_names
from classwise.studies.artefact import Artefact, Cell, Figure, Series, settled
from classwise.studies.effects import Finding, Judged, Verdict
from classwise.studies.found import Found

TITLE = "The papers' claims beside our runs"
HEAD = ("claim", "paper", "where", "paper's number", "ours", "read of", "verdict")
MOST_POINTS = 30  # in one panel of the picture; of more, the worst classes alone
DOUBTFUL = "†"
KINDS_OF_UNIT = {"relative": " % of it", "share": " %"}
HOW_TO_READ = (
    "A verdict is about the direction of an effect, or a bound, at the scale beside it; "
    "numbers at another scale than the paper's are not expected to be equal.",
    "± is half of a 95 % interval over seeds and images. A claim agrees or disagrees if the whole "
    "interval is on one side; with one seed nothing is decided, since the interval is then of two "
    "networks, not of two ways to train.",
    f"{DOUBTFUL}: the paper's own number is not to be relied on; why, stands beside it.",
)


def effects_page(judged: Sequence[Judged], found: Mapping[str, Found], *, picture: str = "") -> str:
    """The page in Markdown: counts, then every claim by paper; `picture` is a file to show."""
    lines = [f"# {TITLE}", "", *(f"- {line}" for line in HOW_TO_READ)]
    lines += [f"- {line}" for line in scale_lines(found)]
    lines += ["", *count_table(judged), ""]
    if picture:
        lines += [f"![{TITLE}]({picture})", ""]
    for key, paper in PAPERS.items():
        own = [one for one in judged if one.claim.paper == key]
        lines += [f"## {markdown_text(paper.cited)}", ""]
        for title, part in _parts(own):
            lines += [f"### {title}", "", *_table(part), ""]
    return "\n".join(lines)


def effects_artefact(judged: Sequence[Judged], found: Mapping[str, Found]) -> Artefact:
    """The same as one table with a picture, for the files that every artefact has."""
    return Artefact(
        "effects",
        TITLE,
        HEAD,
        tuple(_cells(one) for one in judged),
        (*HOW_TO_READ, *scale_lines(found), *_count_lines(judged)),
        effects_figure(judged),
    )


def scale_lines(found: Mapping[str, Found]) -> list[str]:
    """At which scale each study was read."""
    scales: dict[tuple[str, str], list[str]] = {}
    for name, one in found.items():
        scales.setdefault((one.scale, one.scale_words), []).append(name)
    return [
        f"Scale {scale}{f': {words}' if words else ''} ({few_names(names, 40)})."
        for (scale, words), names in scales.items()
    ]


def count_table(judged: Sequence[Judged]) -> list[str]:
    """How many claims agree, by paper; what only repeats another claim is not counted again."""
    lines = [f"| paper | {' | '.join(Verdict)} | of them doubtful {DOUBTFUL} |"]
    lines.append("| --- |" + " ---: |" * (len(Verdict) + 1))
    counted = [one for one in judged if not one.of]
    for key, paper in PAPERS.items():
        lines.append(_counts(paper.cited, [one for one in counted if one.claim.paper == key]))
    return [*lines, _counts("all", counted)]


def _counts(name: str, judged: Sequence[Judged]) -> str:
    many = Counter(one.verdict for one in judged)
    doubtful = sum(1 for one in judged if one.claim.doubtful)
    numbers = [*(many[verdict] for verdict in Verdict), doubtful]
    return f"| {markdown_text(name)} | {' | '.join(map(str, numbers))} |"


def _count_lines(judged: Sequence[Judged]) -> list[str]:
    many = Counter(one.verdict for one in judged if not one.of)
    words = ", ".join(f"{many[verdict]} {verdict}" for verdict in Verdict)
    return [f"{many.total()} claims: {words}. Claims that repeat another are not counted again."]


def _parts(judged: Sequence[Judged]) -> list[tuple[str, list[Judged]]]:
    """The sentences, then the differences of the tables."""
    parts = {
        "Sentences": [one for one in judged if not one.claim.from_table],
        "Differences of the tables": [one for one in judged if one.claim.from_table],
    }
    return [(title, part) for title, part in parts.items() if part]


def _table(judged: Sequence[Judged]) -> list[str]:
    heads = [head for head in HEAD if head != "paper"]
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for one in judged:
        words = [cell.words for head, cell in zip(HEAD, _cells(one), strict=True) if head in heads]
        lines.append(f"| {' | '.join(markdown_text(word) for word in words)} |")
    return lines


def _cells(one: Judged) -> tuple[Cell, ...]:
    claim = one.claim
    return tuple(
        Cell(words=words or "–")
        for words in (
            claim.words,
            claim.paper,
            f"{claim.section} ({claim.id})",
            paper_words(one),
            ours_words(one),
            _read_of(one),
            verdict_words(one),
        )
    )


def paper_words(one: Judged) -> str:
    """The paper's number with its unit; a bound as it is stated."""
    claim = one.claim
    doubt = f" {DOUBTFUL} ({claim.doubtful})" if claim.doubtful else ""
    if claim.value is None:
        return {"+": "more", "-": "less", "": ""}.get(claim.sign, "") + doubt
    signed = "+" if claim.kind in ("difference", "relative", "same") and claim.sign in "+-" else ""
    return f"{claim.value:{signed}g}{KINDS_OF_UNIT.get(claim.kind, '')}{doubt}"


def ours_words(one: Judged) -> str:
    """Our number with half its interval: `+2.1 ± 1.4 (minutes, 3 seeds)`."""
    shown = one.shown
    if shown is None:
        return ""
    value, low, high = map(settled, (shown.value, shown.low, shown.high))
    number = f"{value:+.1f}" if _is_difference(one) else f"{value:.3g}"
    half = settled((high - low) / 2)
    span = f" ± {half:.1f}" if _is_difference(one) else f" [{low:.3g}, {high:.3g}]"
    if not shown.seeds:
        return f"{number} ({one.scale})"
    seeds = "one seed" if shown.seeds == 1 else f"{shown.seeds} seeds"
    lacking = f", {shown.left_out} left out" if shown.left_out else ""
    several = f"; {shown.words}, of {len(one.findings)}" if len(one.findings) > 1 else ""
    unit = KINDS_OF_UNIT.get(one.claim.kind, "")
    return f"{number}{unit}{span} ({one.scale}, {seeds}{lacking}{several})"


def _is_difference(one: Judged) -> bool:
    return one.claim.kind in ("difference", "relative", "share", "same")


def _read_of(one: Judged) -> str:
    """Study, conditions that were really read, and images."""
    shown = one.shown
    if shown is None:
        return ""
    conditions = few_names(list(shown.conditions)) if shown.conditions else ""
    asked = one.claim.condition
    instead = f" in place of {asked}" if _stands_in(asked, shown) else ""
    images = f"{shown.images} images" if shown.images else ""
    return ", ".join(word for word in (one.study, f"{conditions}{instead}", images) if word)


def _stands_in(asked: str, shown: Finding) -> bool:
    plain = asked and " " not in asked and not asked.endswith("corruptions")
    return bool(plain and shown.conditions and not any(asked in name for name in shown.conditions))


def verdict_words(one: Judged) -> str:
    """The verdict and, where it is none, why."""
    scale = f" at scale {one.scale}" if one.verdict == Verdict.UNDECIDED else ""
    why = f" ({one.why})" if one.why else ""
    same = f"; as {one.of}" if one.of else ""
    return f"{one.verdict}{scale}{why}{same}"


def sentence(one: Judged) -> str:
    """One claim in a line: what is said, the paper's number, ours, and the verdict."""
    ours = ours_words(one)
    parts = [word for word in (f"paper {paper_words(one)}" if paper_words(one) else "",
                               f"ours {ours}" if ours else "") if word]  # fmt: skip
    return ": ".join(
        word for word in (one.claim.words, ", ".join(parts), verdict_words(one)) if word
    )


def effects_figure(judged: Sequence[Judged]) -> Figure | None:
    """Differences that were run, with intervals, beside the paper's; a panel for each paper."""
    panels = []
    for key, paper in PAPERS.items():
        own = [
            one
            for one in judged
            if one.claim.paper == key
            and one.shown
            and one.claim.kind == "difference"
            and not one.of
        ]
        if len(own) > MOST_POINTS:
            own = [one for one in own if one.claim.measure in ("worst", "tail")][:MOST_POINTS]
        if own:
            panels.append(_panel(paper.cited, own))
    if not panels:
        return None
    return Figure("points", "claim", "points", panels=tuple(panels), unit="")


def _panel(title: str, judged: Sequence[Judged]) -> Figure:
    names = tuple(one.claim.id for one in judged)
    shown = [one.shown for one in judged if one.shown]
    ours = Series(
        "ours",
        names,
        tuple(one.value for one in shown),
        tuple(one.low for one in shown),
        tuple(one.high for one in shown),
    )
    theirs = Series("paper", names, tuple(one.claim.value for one in judged), dashed=True)
    return Figure("points", "claim", "points", (ours, theirs), title=title, unit="", level=0.0)
