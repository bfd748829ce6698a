"""A stranger's table of groups, and what a run folder keeps of it."""

import json

import numpy as np
import pytest
from ledgers import ABOUT, stamp, verdicts
from refusals import refused

from classwise import csv_rows
from classwise.judging.audits import read_audits, read_ledger
from classwise.judging.group_files import groupings_in, keep_groupings, read_table
from classwise.judging.groups import of_samples
from classwise.judging.samples import diff_samples, read_samples
from classwise.record.ledger import Ledger


@pytest.fixture
def table(tmp_path):
    def write(content):
        path = tmp_path / "groups.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_several_attributes_several_groups_and_none(table):
    found = read_table(
        table('weather,sample,camera\nfog|night,2,"<b>, front"\n\n,0,rear\r\nsun , 1 ,\n'), 9
    )
    weather, camera = found["weather"], found["camera"]
    assert list(found) == ["weather", "camera"]
    assert (weather.names, camera.names) == (("fog", "night", "sun"), ("<b>, front", "rear"))
    assert sorted(zip(weather.member.tolist(), weather.group.tolist(), strict=True)) == [
        (1, 2),
        (2, 0),
        (2, 1),
    ]
    assert sorted(zip(camera.member.tolist(), camera.group.tolist(), strict=True)) == [
        (0, 1),
        (2, 0),
    ]
    assert (weather.overlapping, camera.overlapping) == (True, False)
    assert read_table(table("\ufeffsample,t\n0,a\n".encode()), 1)["t"].names == ("a",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ("line 1", "'sample'")),
        ("sample\n0\n", ("line 1", "a column for each attribute")),
        ("camera,weather\na,b\n", ("line 1", "'sample'")),
        ("sample;camera\n0;a\n", ("line 1", "separated by commas")),
        ("sample,camera,camera\n0,a,b\n", ("line 1", "differently", "'camera'")),
        ("sample,sample,camera\n0,1,b\n", ("line 1", "one column 'sample'")),
        ("sample,,camera\n0,a,b\n", ("line 1", "name every column", "''")),
        ("sample,camera\n", ("no line about a sample",)),
        ("sample,camera\n0,a\n1\n", ("line 3", "has 1 cells", "2")),
        ("sample,camera\n0,a\n1,b,c\n", ("line 3", "has 3 cells")),
        ("sample,camera\n0,a\n5,b\n", ("line 3", "sample '5'", "from 0 to 4")),
        ("sample,camera\n-1,a\n", ("line 2", "'-1'")),
        ("sample,camera\n1.0,a\n", ("line 2", "'1.0'")),
        ("sample,camera\n١,a\n", ("line 2", "'١'")),
        ("sample,camera\nimg.png,a\n", ("line 2", "'img.png'", "places in the split")),
        (f"sample,camera\n{'9' * 5000},a\n", ("line 2", "'99999")),
        ("sample,camera\n0,a\n\n1,b\n0,c\n", ("line 5", "sample 0", "as line 2")),
        ("sample,camera\n0,a|a\n", ("line 2", "'a|a'", "'camera'", "once")),
        ("sample,camera\n0,a||b\n", ("line 2", "'a||b'")),
        ("sample,camera\n0,|\n", ("line 2", "'|'")),
        ('sample,camera\n0,"a\n', ("line 2", "is not CSV")),
        (f"sample,camera\n0,{'x' * 140_000}\n", ("line 2", "is not CSV")),
        (f"sample,camera\n0,{'x' * 201}\n", ("line 2", "201 letters", "'camera'")),
        ("sample,camera\n0,a\x07\n", ("line 2", "no name for a group")),
        ("sample,camera\n0,\n1,\n", ("groups.csv", "'camera' puts no image")),
        ("sample,class\n0,a\n", ("groups.csv", "'class'", "labels decide")),
        (b"sample,camera\n0,\xff\xfe\n", ("not text in UTF-8",)),
        (
            f"sample,{','.join(f'c{k}' for k in range(100))}\n0{',a' * 100}\n",
            ("line 1", "101 columns"),
        ),
    ],
)
def test_bad_lines_are_refused_by_their_number(table, content, words):
    with refused("groups.csv", *words):
        read_table(table(content), 5)


def test_files_that_cannot_be_read(tmp_path, table, monkeypatch):
    with refused("cannot read", "nowhere.csv"):
        read_table(tmp_path / "nowhere.csv", 5)
    with refused("cannot read"):
        read_table(tmp_path, 5)
    monkeypatch.setattr(csv_rows, "MOST_CSV_BYTES", 10)
    with refused("larger than"):
        read_table(table("sample,camera\n0,a\n"), 5)


NASTY = ["<script>alert(1)</script>", "a/b:c", "../../etc", "\u0430", "x" * 200]


def test_kept_groupings_come_back_whatever_their_names(tmp_path):
    entries = [["fog", "night"], None, "fog", NASTY[0]]
    given = of_samples(dict.fromkeys(NASTY, entries), 4)
    keep_groupings(tmp_path, "d1", given)
    keep_groupings(tmp_path, "d2", of_samples({NASTY[0]: ["x"] * 4}, 4))
    found = groupings_in(tmp_path)
    assert set(found) == {"d1", "d2"}
    assert set(found["d1"]) == set(NASTY)
    assert all(given[name].same_as(found["d1"][name]) for name in NASTY)
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path / "groups"}
    keep_groupings(tmp_path, "d1", of_samples({NASTY[1]: ["new"] * 4}, 4))
    assert groupings_in(tmp_path)["d1"][NASTY[1]].names == ("new",)
    assert groupings_in(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": 2, "name": "a", "data_hash": "d", "samples": {"x": [0]}}',
        '{"format": 1, "name": "a", "data_hash": "d", "samples": {}}',
        '{"format": 1, "name": "a", "data_hash": "d", "samples": {"x": [0, 0]}}',
        '{"format": 1, "name": "a", "data_hash": "d", "samples": {"x": [-1]}}',
        '{"format": 1, "name": "a", "data_hash": "d", "samples": {"x": [1.5]}}',
        '{"format": 1, "name": "a", "data_hash": "d", "samples": {"x": "0"}}',
        '{"format": 1, "name": "a\\nb", "data_hash": "d", "samples": {"x": [0]}}',
        '{"format": 1, "name": "class", "data_hash": "d", "samples": {"x": [0]}}',
        '{"format": 1, "name": 3, "data_hash": "d", "samples": {"x": [0]}}',
        json.dumps({"format": 1, "name": "a", "data_hash": "d", "samples": {"x": [2**80]}}),
    ],
)
def test_damaged_groupings_are_refused_with_the_way_out(tmp_path, content):
    folder = tmp_path / "groups"
    folder.mkdir()
    (folder / "a.json").write_text(content)
    with refused("a.json", "no grouping of format 1", "delete it"):
        groupings_in(tmp_path)


def a_run(path, right, model="m1"):
    found = verdicts(range(9), predicted=np.where(right, np.arange(9) % 3, (np.arange(9) + 1) % 3))
    Ledger(path, ABOUT).append(found, stamp(model=model))
    return path


def test_the_stored_tallies_are_those_of_the_rows(tmp_path):
    right = np.array([1, 1, 0, 0, 1, 0, 1, 0, 0], bool)
    path = a_run(tmp_path / "run", right)
    entries = ["a", "b", ["a", "b"], None, "a", "c", "c", "a", None, "lost"]  # nobody audited 9
    keep_groupings(path, "d1", of_samples({"camera": entries}, 10))
    keep_groupings(path, "other data", of_samples({"track": ["1"] * 10}, 10))
    (audit,) = read_ledger(path)
    assert audit.report.groups == ("class", "camera")
    found = audit.report.by("camera")["pgd-2"]
    assert found.sizes == {"a": 4, "b": 2, "c": 2, "lost": 0}
    assert found.by_group == {"a": 0.5, "b": 0.5, "c": 0.5, "lost": None}
    assert (found.tally.outside, found.tally.overlapping) == (2, True)
    rows = read_samples(path)
    one = rows.conditions["pgd-2"]
    tally = rows.grouping("camera").tally(one.sample, one.label, one.correct)
    assert tally.hits.tolist() == found.tally.hits.tolist()
    assert tally.sizes.tolist() == found.tally.sizes.tolist()
    assert tally.outside == 2


def test_a_grouping_in_which_nobody_was_audited(tmp_path):
    path = a_run(tmp_path / "run", np.ones(9, bool))
    keep_groupings(path, "d1", of_samples({"camera": [None] * 9 + ["a"]}, 10))
    (audit,) = read_audits(path, ABOUT)
    assert audit.report.by("camera")["pgd-2"].by_group == {"a": None}


def test_two_runs_share_a_grouping(tmp_path):
    before = a_run(tmp_path / "a", np.arange(9) < 3)
    after = a_run(tmp_path / "b", np.arange(9) < 6, model="m2")
    cameras = {"camera": ["x"] * 4 + ["y"] * 5}

    def compared():
        (found,) = diff_samples(read_samples(before), read_samples(after), grouping="camera")
        return found

    with refused("unknown grouping", "'camera'"):
        compared()
    keep_groupings(after, "d1", of_samples(cameras, 9))
    assert compared().won.tolist() == [1, 2]
    keep_groupings(before, "d1", of_samples(cameras, 9))
    assert compared().won.tolist() == [1, 2]
    keep_groupings(before, "d1", of_samples({"camera": ["x"] * 9}, 9))
    with refused("different groups of 'camera'", "same --groups file"):
        compared()
