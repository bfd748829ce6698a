"""Artefacts as files: nothing is lost, nothing is obeyed, the same bytes every time."""

import csv
import io
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from classwise.errors import ClasswiseError
from classwise.studies import artefact_files, drawing
from classwise.studies.artefact import Artefact, ArtefactOptions, Cell, Figure, Series
from classwise.studies.artefact_files import csv_text, markdown, write_artefact
from classwise.studies.drawing import draw

CELLS = (
    Cell(words="AT"),
    Cell((0.5, 0.52, 0.54), words="cat 2/3", paper=51.3),
    Cell((0.25, 0.26), hole="1 of 3 seeds missing: not run yet", paper=16.0, doubtful="far below"),
    Cell(hole="not run yet"),
)
MADE = Artefact("table-1", "Table 1", ("", "average", "worst", "best"), (CELLS,), ("Scale smoke.",))
PLACES = ("1/255", "<8>", "$x$", "_y")
LINES = Figure(
    "lines",
    "eps",
    "accuracy",
    (
        Series(
            "ours & yours", (1.0, 2.0, 4.0), (0.5, None, 0.3), (0.4, None, 0.2), (0.6, None, 0.4)
        ),
        Series("_paper", (1.0, 2.0, 4.0), (0.5, 0.4, 0.3), dashed=True),
    ),
)
PICTURES = {
    "lines": LINES,
    "bars": Figure("bars", "class", "accuracy", (Series("a", PLACES, (0.1, 0.2, None, 0.4)),)),
    "points": replace(LINES, kind="points", log_x=True, level=0.1),
    "heat": Figure("heat", "severity", "", (Series("fog", ("1", "2"), (0.1, None)),)),
    "panels": Figure("lines", "", "", panels=(LINES, LINES, LINES, replace(LINES, title="last"))),
    "empty": Figure("lines", "eps", "accuracy", (Series("a", (1.0,), (None,)),)),
}


def lines_of(text):
    return {(line["row"], line["column"]): line for line in csv.DictReader(io.StringIO(text))}


class TestMarkdown:
    def test_prints_mean_deviation_class_and_paper(self):
        row = next(line for line in markdown(MADE).splitlines() if line.startswith("| AT"))
        assert row == (
            "| AT | 52.0 ± 2.0 (cat 2/3) · paper 51.3 "
            "| 25.5 ± 0.7 (n = 2) [1] · paper 16.0 [2] | – [3] |"
        )

    def test_says_why_below(self):
        text = markdown(MADE)
        assert "- [1] 1 of 3 seeds missing: not run yet" in text
        assert "- [2] The paper: far below" in text
        assert "- [3] not run yet" in text
        assert "- Scale smoke." in text

    def test_units(self):
        cells = (Cell(words="x"), Cell((0.021,), unit="points"), Cell((1.2345,), unit="s"))
        text = markdown(Artefact("a", "A", ("", "change", "time"), (cells,)))
        assert "| x | +2.1 | 1.23 s |" in text

    def test_words_are_no_markup(self):
        rows = ((Cell(words="a|b <script>"), Cell((0.5,), words="*c*")),)
        text = markdown(Artefact("a", "[t](u)", ("", "h|h"), rows, ("<b>",)))
        assert "<script>" not in text
        assert r"a\|b &lt;script&gt;" in text
        assert r"\[t\](u)" in text
        assert r"(\*c\*)" in text

    def test_the_picture_or_how_to_get_it(self):
        drawn = replace(MADE, figure=LINES)
        assert "![Table 1](table-1.svg)" in markdown(drawn)
        missing = markdown(drawn, picture=False)
        assert "pip install 'classwise[figures]'" in missing
        assert "table-1.csv" in missing
        assert "svg" not in missing


class TestCsv:
    def test_has_every_cell_in_full(self):
        lines = lines_of(csv_text(MADE, "smoke"))
        assert set(lines) == {("AT", "average"), ("AT", "worst"), ("AT", "best")}
        first = lines["AT", "average"]
        assert [float(rate) for rate in first["each_seed"].split(";")] == [0.5, 0.52, 0.54]
        assert float(first["mean"]) == pytest.approx(0.52)
        assert float(first["deviation"]) == pytest.approx(0.02)
        assert (first["seeds"], first["unit"], first["words"]) == ("3", "rate", "cat 2/3")
        assert (first["paper_as_printed"], first["scale"]) == ("51.3", "smoke")
        assert lines["AT", "worst"]["doubtful"] == "far below"
        hole = lines["AT", "best"]
        assert (hole["hole"], hole["mean"], hole["seeds"]) == ("not run yet", "", "0")

    def test_no_cell_is_a_formula(self):
        rows = ((Cell(words="=1+1"), Cell((0.5,), words="@x")),)
        (line,) = lines_of(csv_text(Artefact("a", "A", ("", "+h"), rows), "smoke")).values()
        assert (line["row"], line["column"], line["words"]) == ("'=1+1", "'+h", "'@x")

    def test_words_that_begin_a_row_name_it(self):
        rows = (
            (Cell(words="fog"), Cell(words="1"), Cell((0.5,))),
            (Cell(words="a"), Cell(words="b"), Cell(words="c")),
        )
        lines = lines_of(csv_text(Artefact("a", "A", ("x", "y", "z"), rows), "smoke"))
        assert set(lines) == {("fog / 1", "z"), ("a", "y"), ("a", "z")}


class TestPictures:
    @pytest.mark.parametrize("name", PICTURES)
    def test_are_the_same_bytes_every_time(self, name):
        one = draw(PICTURES[name], "Figure (scale smoke)")
        assert one == draw(PICTURES[name], "Figure (scale smoke)")
        words = " ".join(ET.fromstring(one).itertext())
        assert "Figure (scale smoke)" in words

    def test_show_names_as_they_are(self):
        words = " ".join(ET.fromstring(draw(PICTURES["bars"], "t")).itertext())
        assert all(name in words for name in PLACES)
        legend = " ".join(ET.fromstring(draw(LINES, "t")).itertext())
        assert "ours & yours" in legend
        assert "_paper" in legend

    def test_a_gap_is_not_joined(self):
        whole = replace(LINES, series=(Series("a", (1.0, 2.0, 4.0), (0.5, 0.4, 0.3)),))
        gap = replace(LINES, series=(Series("a", (1.0, 2.0, 4.0), (0.5, None, 0.3)),))
        assert draw(whole, "t") != draw(gap, "t")

    def test_a_name_has_one_colour_in_all_panels(self):
        def colours(*names):
            panels = [Figure("bars", "", "", (Series(name, ("a",), (0.5,)),)) for name in names]
            text = draw(Figure("bars", "", "", panels=tuple(panels)), "t").decode()
            return {colour for colour in drawing.COLOURS if colour.lower() in text.lower()}

        assert len(colours("x", "x") & set(drawing.COLOURS[:2])) == 1
        assert len(colours("x", "y") & set(drawing.COLOURS[:2])) == 2

    def test_leave_the_settings_of_others_alone(self):
        import matplotlib

        before = dict(matplotlib.rcParams)
        draw(LINES, "t")
        assert dict(matplotlib.rcParams) == before

    def test_no_date_inside(self):
        assert b"<dc:date>" not in draw(LINES, "t")


class TestFolders:
    def test_three_files(self, tmp_path):
        paths = write_artefact(replace(MADE, figure=LINES), "smoke", tmp_path)
        assert sorted(path.name for path in paths) == ["table-1.csv", "table-1.md", "table-1.svg"]
        assert b"Table 1 (scale smoke)" in (tmp_path / "table-1.svg").read_bytes()

    def test_two_without_matplotlib(self, tmp_path, monkeypatch):
        monkeypatch.setattr(artefact_files, "can_draw", lambda: False)
        paths = write_artefact(replace(MADE, figure=LINES), "smoke", tmp_path)
        assert sorted(path.name for path in paths) == ["table-1.csv", "table-1.md"]
        assert drawing.NO_PICTURES in (tmp_path / "table-1.md").read_text()


class TestTypes:
    def test_refuse_what_could_not_be_shown(self):
        with pytest.raises(ClasswiseError, match="neither"):
            Cell()
        with pytest.raises(ClasswiseError, match="nan"):
            Cell((float("nan"),))
        with pytest.raises(ClasswiseError, match="2 places"):
            Series("a", (1.0, 2.0), (0.5,))
        with pytest.raises(ClasswiseError, match="2 columns"):
            Artefact("a", "A", ("x", "y"), ((Cell(words="a"),),))

    def test_the_name_of_the_files(self):
        assert ArtefactOptions(kind="x", title="Fig. 2: fox/chair").file_name == "fig-2-fox-chair"
        assert ArtefactOptions(kind="x", title="../../etc").file_name == "etc"
        with pytest.raises(ValueError, match="plain"):
            ArtefactOptions(kind="x", title="a", name="../a")
