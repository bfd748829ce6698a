"""How a contract is read, and how its verdict is written."""

from xml.etree import ElementTree

import pytest
from contracts import decide, ledger
from refusals import refused

import classwise
from classwise.judging.gate import gate, load_contract, parse_share


class TestOutputs:
    @pytest.fixture
    def report(self, tmp_path, contract):
        text = """
            name = "signs & <co>"
            [[rule]]
            under = "pgd-2"
            no_class_below = "10 %"
            [[rule]]
            under = "pgd-2"
            class = "dog|x"
            at_least = "60 %"
            [[rule]]
            under = "pgd-2"
            no_class_below = "20 %"
            confidence = 0.95
        """
        return gate(contract(text), ledger(tmp_path / "run", [15, 40, 80]))

    def test_the_exit_code_is_that_of_the_worst_rule(self, report, tmp_path, contract):
        assert not report.passed
        assert report.exit_code == 1
        assert report.headline.startswith("signs & <co>: 1 of 3 rules broken, 1 undecided")
        fine = contract("[[rule]]\nunder = 'pgd-2'\nno_class_below = 0.1")
        assert gate(fine, tmp_path / "run").exit_code == 0

    @pytest.mark.parametrize(("strict", "code"), [("false", 0), ("true", 3)])
    def test_what_too_few_images_leave_open_is_no_broken_rule(
        self, tmp_path, contract, strict, code
    ):
        path = ledger(tmp_path / "run", [15, 40, 80])
        open_rule = "[[rule]]\nunder = 'pgd-2'\nno_class_below = 0.2\nconfidence = 0.95\n"
        report = gate(contract(f"{open_rule}strict = {strict}\n"), path)
        assert (report.outcomes[0].status, report.exit_code) == ("undecided", code)
        broken = "[[rule]]\nunder = 'pgd-2'\nno_class_below = 0.9\n"
        assert gate(contract(f"{open_rule}strict = {strict}\n{broken}"), path).exit_code == 1

    def test_python_may_ask_for_strictness_as_the_command_line_does(self, tmp_path, contract):
        path = ledger(tmp_path / "run", [15, 40, 80])
        rule = contract("[[rule]]\nunder = 'pgd-2'\nno_class_below = 0.2\nconfidence = 0.95\n")
        codes = [classwise.gate(rule, path, strict=one).exit_code for one in (False, True)]
        assert codes == [0, 3]

    def test_junit_is_xml_with_a_case_per_rule(self, report):
        suite = ElementTree.fromstring(report.junit())
        assert suite.attrib["name"] == "signs & <co>"
        assert [suite.attrib[n] for n in ("tests", "failures", "skipped")] == ["3", "1", "1"]
        passed, failed, undecided = suite
        assert passed.find("failure") is None
        assert "dog|x 40.0 %" in failed.find("failure").attrib["message"]
        assert failed.attrib["name"] == "dog|x at least 60.0 % under pgd-2"
        assert undecided.find("skipped") is not None

    def test_markdown_is_a_table_that_names_cannot_break(self, report):
        lines = report.markdown().splitlines()
        rows = [line for line in lines if line.startswith("|")]
        assert len(rows) == 5
        assert all(row.replace("\\|", "").count("|") == 4 for row in rows)
        assert "✅ passed" in rows[2]
        assert "❌ failed" in rows[3]
        assert "⚠️ undecided" in rows[4]
        assert "<co>" not in report.markdown().replace("\\<co\\>", "")


class TestContracts:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", ("rule", "required")),
            ("rule = []", ("rule", "at least 1")),
            ("[[rule]]\nunder = 'x'", ("rule 1", "one demand", "no_class_below")),
            ("[[rule]]\nno_class_below = 0.1", ("rule 1 under", "required")),
            (
                "[[rule]]\nunder='x'\nno_class_below=0.1\noverall_at_least=0.2",
                ("rule 1", "this one 2"),
            ),
            ("[[rule]]\nunder='x'\nno_class_below=15", ("rule 1 no_class_below", "15 %")),
            ("[[rule]]\nunder='x'\nno_class_below='15'", ("rule 1 no_class_below", "no share")),
            ("[[rule]]\nunder='x'\nno_class_below=true", ("no share",)),
            ("[[rule]]\nunder='x'\nat_least=0.4", ("class =",)),
            ("[[rule]]\nunder='x'\nclass='cat'\nno_class_below=0.4", ("at_least =",)),
            ("[[rule]]\nunder='x'\nno_class_belwo=0.4", ("no_class_belwo",)),
            ("[[rule]]\nunder='x'\nno_class_below=0.4\nconfidence=95", ("confidence",)),
            ("[[rule]]\nunder='x'\nno_class_below=0.4\neps=-1", ("eps", "0 or more")),
            ("[[rule]\n", ("not TOML",)),
        ],
    )
    def test_mistakes_are_named_with_their_place(self, contract, text, words):
        path = contract(text)
        with refused("contract.toml", *words):
            load_contract(path)

    def test_a_file_that_is_not_there(self, tmp_path):
        with refused("cannot read", "gone.toml"):
            load_contract(tmp_path / "gone.toml")

    def test_shares_as_people_write_them(self):
        found = [parse_share(text) for text in ("15%", "15 per cent", " 2.5 % ", "1 point", 0, 1)]
        assert found == pytest.approx([0.15, 0.15, 0.025, 0.01, 0, 1])

    def test_what_was_not_audited_is_no_pass(self, tmp_path, contract):
        path = ledger(tmp_path / "run", [15, 40, 80])
        with refused("autoattack", "classwise audit"):
            gate(contract("[[rule]]\nunder = 'autoattack'\nno_class_below = 0.1"), path)
        with refused("'cta'", "did you mean 'cat'"):
            decide(contract, path, "class = 'cta'\nat_least = 0.1")
        with refused("eps 0.2", "audited at 0.1"):
            decide(contract, path, "no_class_below = 0.1\neps = 0.2")
        with refused("eps 8", "audited at 0.1", "write 8/255"):
            decide(contract, path, "no_class_below = 0.1\neps = 8")
        assert decide(contract, path, "no_class_below = 0.1\neps = 0.1").status == "passed"
