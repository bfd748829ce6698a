"""A column of somebody's own, from a CSV file to report, diff and gate, by the command line."""

import csv
import io
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from classwise import cli
from classwise.data.sources import choose_split, open_data
from classwise.judging.audits import read_ledger
from classwise.judging.samples import read_samples

NASTY = "<script>alert(1)</script>"
MARKS = "100 % $a_1$ {x}"


def run(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def done(*words):
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


def refused(*words):
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    return result.stderr


@pytest.fixture(scope="module")
def cameras(tmp_path_factory):
    """A table over the whole test split: unbalanced, crossing classes, overlapping, with holes."""
    path = tmp_path_factory.mktemp("table") / "groups.csv"
    size = len(choose_split(open_data("digits"), "test"))
    with path.open("w", newline="") as stream:
        out = csv.writer(stream)
        out.writerow(["sample", "camera", "the weather"])
        for k in range(size):
            camera = NASTY if k % 7 == 0 else MARKS if k % 7 < 3 else "rear"
            out.writerow([k, camera, ["", "fog", "fog|night", "sun"][k % 4]])
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory, cameras):
    folder = tmp_path_factory.mktemp("runs")
    for name, seed in (("a", 0), ("b", 1)):
        options = ["--eps", "0.1", "--epochs", "1", "--valid", "0.1", "--subset", "200", "--quiet"]
        done("train", "at(steps=2)", *options, "--seed", seed, "--out", folder / name)
    audit = ["--attacks", "clean,fgsm", "--limit", "120", "--quiet"]
    done("audit", folder / "b", *audit)
    files = {path: path.read_bytes() for path in (folder / "b" / "predictions").iterdir()}
    done("audit", folder / "a", *audit, "--groups", cameras)
    result = done("audit", folder / "b", *audit, "--groups", cameras)
    assert {path: path.read_bytes() for path in files} == files, "groups void no ledger"
    words = " ".join(result.output.split())
    assert "by camera" in words
    assert "by the weather" in words
    alone = outside(folder / "b")
    assert 0 < alone < 120
    assert f"Images may be in several groups. {alone} images are in no group." in words
    return folder


def outside(folder):
    """Audited images whose weather is empty."""
    return int((read_samples(folder).conditions["clean"].sample % 4 == 0).sum())


def by_hand(folder, condition):
    """Right answers of each camera from the rows themselves."""
    found = read_samples(folder).conditions[condition]
    hits, sizes = {}, {}
    for sample, right in zip(found.sample.tolist(), found.correct.tolist(), strict=True):
        name = NASTY if sample % 7 == 0 else MARKS if sample % 7 < 3 else "rear"
        sizes[name] = sizes.get(name, 0) + 1
        hits[name] = hits.get(name, 0) + right
    return hits, sizes


def test_stored_reports_know_the_groups_without_a_model(runs):
    (audit,) = read_ledger(runs / "a")
    for condition in ("clean", "fgsm"):
        hits, sizes = by_hand(runs / "a", condition)
        found = audit.report.by("camera")[condition]
        assert found.sizes == sizes
        assert found.by_group == {name: hits[name] / sizes[name] for name in sizes}
    words = " ".join(done("audit", "--from", runs / "a").output.split())
    assert "by camera" in words
    assert NASTY in words


def test_every_report_shows_each_grouping(runs, tmp_path):
    hits, sizes = by_hand(runs / "a", "fgsm")
    texts = {}
    for suffix in ("html", "md", "csv", "tex", "json"):
        out = tmp_path / f"report.{suffix}"
        done("report", runs / "a", runs / "b", "--out", out)
        texts[suffix] = out.read_text()
    shown = f"{100 * hits['rear'] / sizes['rear']:.1f}"

    assert re.search(rf"\| rear \| {sizes['rear']} \|.* {shown} \(", texts["md"])
    assert "by camera" in texts["md"]
    assert r"by the weather" in texts["md"]
    assert "<script>" not in texts["md"]

    assert rf"100 \% \$a\_1\$ \{{x\}} & {sizes[MARKS]} &" in texts["tex"]
    assert texts["tex"].count(r"\begin{longtable}") == texts["tex"].count(r"\end{longtable}") == 6

    assert "rear" not in texts["csv"], "one file, one table"
    beside = (tmp_path / "report.groups.csv").read_text()
    lines = list(csv.DictReader(io.StringIO(beside)))
    (line,) = [
        one for one in lines if (one["run"], one["condition"], one["group"]) == ("a", "fgsm", NASTY)
    ]
    assert line["grouping"] == "camera"
    assert (int(line["hits"]), int(line["n"])) == (hits[NASTY], sizes[NASTY])
    assert float(line["low"]) <= float(line["accuracy"]) <= float(line["high"])
    assert {one["group"] for one in lines if one["grouping"] == "the weather"} == {
        *("fog", "night", "sun")
    }

    found = json.loads(texts["json"])["audits"][0]["conditions"]
    fgsm = next(one for one in found if one["condition"] == "fgsm")
    rear = next(one for one in fgsm["groups"]["camera"] if one["group"] == "rear")
    assert (rear["hits"], rear["n"]) == (hits["rear"], sizes["rear"])

    page = texts["html"]
    assert 'id="groups"' in page
    assert NASTY not in page
    assert page.count("<script") == 3
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    camera = next(one for one in data["groupings"] if one["name"] == "camera")
    assert sorted(camera["names"]) == sorted(sizes)
    side = camera["rows"][0]["robust"]
    assert dict(zip(camera["names"], side["hits"], strict=True)) == hits
    assert dict(zip(camera["names"], side["sizes"], strict=True)) == sizes
    worst = min(sizes, key=lambda name: hits[name] / sizes[name])
    assert side["worst"] == pytest.approx(hits[worst] / sizes[worst], abs=1e-3)


def decide(runs, tmp_path, rule, *options):
    contract = tmp_path / "contract.toml"
    contract.write_text(f'[[rule]]\nunder = "fgsm"\n{rule}\n')
    return run("gate", contract, runs / "a", *options)


def test_the_gate_holds_groups_to_their_bars(runs, tmp_path):
    hits, sizes = by_hand(runs / "a", "fgsm")
    rates = {name: hits[name] / sizes[name] for name in sizes}
    low = min(rates.values())
    for bar, code in ((max(0, low - 0.01), 0), (low, 0), (low + 0.01, 1)):
        rule = f'groups = "camera"\nno_group_below = {bar}'
        result = decide(runs, tmp_path, rule)
        assert result.exit_code == code, result.output
        assert "no group of camera below" in result.output
        one = f'groups = "camera"\ngroup = "rear"\nat_least = {rates["rear"] + bar - low}'
        result = decide(runs, tmp_path, one)
        assert result.exit_code == code, result.output
        assert "rear (camera) at least" in result.output
    result = decide(runs, tmp_path, 'groups = "the weather"\nno_group_below = 0')
    assert result.exit_code == 0
    assert f"{outside(runs / 'a')} images are in no group" in " ".join(result.output.split())
    result = decide(runs, tmp_path, 'groups = "camera"\nno_group_below = 0.99\nconfidence = 0.95')
    assert result.exit_code == 1
    rule = 'groups = "camera"\nno_group_drops_more_than = "99 %"'
    result = decide(runs, tmp_path, rule, "--baseline", runs / "b")
    assert result.exit_code == 0, result.output
    assert "no group of camera drops more than 99 points" in result.output


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ('groups = "camra"\nno_group_below = 0.1', "did you mean 'camera'"),
        ('groups = "camera"\ngroup = "reer"\nat_least = 0.1', "did you mean 'rear'"),
        ('groups = ""\nno_group_below = 0.1', "unknown grouping"),
        ("no_group_below = 0.1", 'groups = "camera" belongs with'),
        ('groups = "camera"\nno_class_below = 0.1', 'groups = "camera" belongs with'),
        ('groups = "camera"\noverall_at_least = 0.1', 'groups = "camera" belongs with'),
        ('groups = "camera"\ngroup = "rear"\nno_group_below = 0.1', "are for one class or group"),
        ('groups = "camera"\nat_least = 0.1', "are for one class or group"),
        ('groups = "camera"\ngroup = "rear"\nclass = "one"\nat_least = 0.1', "a named class"),
        ('groups = "camera"\nno_group_below = 0.1\nno_class_below = 0.1', "one demand"),
    ],
)
def test_rules_that_cannot_be(runs, tmp_path, rule, says):
    contract = tmp_path / "contract.toml"
    contract.write_text(f'[[rule]]\nunder = "fgsm"\n{rule}\n')
    assert says in refused("gate", contract, runs / "a")


def test_diff_compares_groups_when_asked(runs):
    plain = done("diff", runs / "a", runs / "b").output
    assert "camera" not in plain
    words = done("diff", runs / "a", runs / "b", "--groups", "camera", "--groups", "the weather")
    lines = words.output.splitlines()
    assert [line for line in lines if "groups of camera better" in line]
    assert [line for line in lines if "groups of the weather better" in line]
    assert plain.splitlines() == lines[: len(plain.splitlines())]
    assert "unknown grouping" in refused("diff", runs / "a", runs / "b", "--groups", "track")


def test_files_that_do_not_fit_are_refused_before_anything_is_attacked(runs, tmp_path, cameras):
    bad = tmp_path / "bad.csv"
    bad.write_text("sample,camera\n0,a\n100000,b\n")
    told = refused("audit", runs / "a", "--attacks", "pgd-3", "--groups", bad)
    assert "bad.csv: line 3" in told
    assert "100000" in told
    (audit,) = read_ledger(runs / "a")
    assert list(audit.report) == ["clean", "fgsm"]
    assert "--from only reads" in refused("audit", "--from", runs / "a", "--groups", cameras)


def test_a_changed_file_replaces_the_grouping(runs, tmp_path):
    table = tmp_path / "new.csv"
    table.write_text("sample,track\n" + "".join(f"{k},{'AB'[k % 2]}\n" for k in range(100)))
    audit = ["audit", runs / "b", "--attacks", "clean", "--limit", "120", "--quiet", "--groups"]
    done(*audit, table)
    (found,) = read_ledger(runs / "b")
    assert found.report.groups == ("class", "camera", "the weather", "track")
    assert tuple(found.report.by("track")["clean"].sizes) == ("A", "B")
    table.write_text("sample,track\n0,C\n5,C\n")
    done(*audit, table)
    (found,) = read_ledger(runs / "b")
    tally = found.report.by("track")["clean"].tally
    assert tally.names == ("C",)
    assert tally.outside + int(np.sum(tally.sizes)) == 120
