"""Tables of images, names in files, and groups that no split divides."""

import numpy as np
import pytest
import torch
from hostile_bombs import png_claiming
from hypothesis import given, settings
from hypothesis import strategies as st
from official_files import picture
from refusals import refused
from typer.testing import CliRunner

from classwise.cli import app
from classwise.cli.app import data_with
from classwise.data.attributes import Attributes
from classwise.data.dataset import Dataset, DataSource
from classwise.data.sources import (
    choose_split,
    data_to_train_on,
    open_data,
    read_spec,
    with_option,
)
from classwise.data.splits import held_out, split_indices
from classwise.errors import ClasswiseError
from classwise.training.build import rows_to_use
from classwise.training.config import TrainConfig


def put_table(folder, rows, heads="path,label,track,split", name="images.csv", pictures=True):
    """A table, and a picture for each of its lines that has one."""
    folder.mkdir(exist_ok=True)
    lines = [heads, *(",".join(map(str, row)) for row in rows)]
    (folder / name).write_text("\n".join(lines) + "\n")
    for number, row in enumerate(rows if pictures else ()):
        picture(folder / row[0], 10 * number, side=8)
    return folder / name


TRACKS = [
    (f"p/{c}{t}{k}.png", c, f"{c}{t}") for c in ("cat", "dog") for t in range(4) for k in range(3)
]


def test_a_table_of_paths_and_labels(tmp_path):
    table = put_table(tmp_path, TRACKS, "path,label,track")
    source = open_data(f"csv:{table}")
    assert source.train.class_names == ("cat", "dog")
    assert source.name == "csv:images.csv"
    whole = choose_split(source, "all")
    assert whole.labels.tolist() == [0] * 12 + [1] * 12
    assert whole.attributes.words["track"].tolist() == [row[2] for row in TRACKS]
    assert whole.images[:, 0, -1, -1].tolist() == [10 * k for k in range(24)]  # each its own


def test_a_group_stays_on_one_side(tmp_path):
    table = put_table(tmp_path, TRACKS, "path,label,track")
    plain, whole = open_data(f"csv:{table}"), open_data(with_option(f"csv:{table}", "group=track"))
    tracks = [{*one.attributes.words["track"].tolist()} for one in (plain.train, plain.test)]
    assert tracks[0] & tracks[1]  # without the word they are divided
    tracks = [{*one.attributes.words["track"].tolist()} for one in (whole.train, whole.test)]
    assert not tracks[0] & tracks[1]
    assert whole.test.sizes.min() >= 3
    train, valid = rows_to_use(whole.train, TrainConfig(valid="0.2"))
    tracks = [{*whole.train.attributes.take(r).words["track"].tolist()} for r in (train, valid)]
    assert len(valid)
    assert not tracks[0] & tracks[1]


@st.composite
def grouped(draw):
    count = draw(st.integers(6, 60))
    groups = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    mixed = draw(st.booleans())
    labels = [g % 3 if not mixed else draw(st.integers(0, 2)) for g in groups]
    return torch.tensor(groups), torch.tensor(labels)


@settings(max_examples=150, deadline=None)
@given(
    grouped(),
    st.sampled_from(["0.02", "0.3", "1/3", "first:2", "last:3", "last:0.2"]),
    st.integers(0, 5),
)
def test_no_group_is_in_two_parts(data, rule, seed):
    groups, labels = data
    try:
        train, valid = split_indices(labels, rule, seed, groups)
    except ClasswiseError:  # a class that stands only in groups of another one
        return
    assert sorted([*train.tolist(), *valid.tolist()]) == list(range(len(labels)))
    assert not {*groups[train].tolist()} & {*groups[valid].tolist()}
    assert {*labels[train].tolist()} == {*labels.tolist()}  # every class is trained on


def test_whole_groups_until_there_are_enough():
    labels = torch.tensor([0] * 12 + [1] * 4)
    groups = torch.tensor([0] * 3 + [1] * 3 + [2] * 3 + [3] * 3 + [4] * 4)
    _, valid = split_indices(labels, "first:4", groups=groups)
    assert valid.tolist() == [0, 1, 2, 3, 4, 5]  # 3 are not enough; class 1 has one group only
    _, valid = split_indices(labels, "last:1", groups=groups)
    assert valid.tolist() == [9, 10, 11]
    alone = split_indices(labels, "0.3", 3, torch.arange(16))
    plain = split_indices(labels, "0.3", 3)
    assert all(torch.equal(a, b) for a, b in zip(alone, plain, strict=True))  # groups of one


def test_parts_that_share_a_group_are_refused(tmp_path):
    rows = [(*row, "train" if k % 2 else "test") for k, row in enumerate(TRACKS)]
    table = put_table(tmp_path, rows)
    assert len(open_data(f"csv:{table}").test) == 12
    with refused("track 'cat0'", "has images in train and in test"):
        open_data(f"csv({table}, group=track)")


def test_a_class_of_one_group_cannot_be_tested(tmp_path):
    rows = [row for row in TRACKS if row[1] == "cat" or row[2] == "dog0"]
    source = open_data(f"csv({put_table(tmp_path, rows, 'path,label,track')}, group=track)")
    assert source.test.sizes.tolist()[1] == 0
    with refused("class 'dog'", "of one group"):
        data_to_train_on("csv", source)


def test_groups_enter_who_validates_but_not_the_content():
    images, labels = torch.zeros(6, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1] * 3)
    plain = Dataset(images, labels, ("a", "b"))
    known = Attributes.of({"t": list("aabbcc")}, whole="t")
    kept = Dataset(images, labels, ("a", "b"), attributes=known)
    assert plain.content_hash == kept.content_hash
    assert known.digest != Attributes.of({"t": list("aabbcd")}, whole="t").digest
    assert isinstance(held_out("x", kept), DataSource)


def test_the_options_of_the_command_line(tmp_path):
    said = data_with("csv:a b.csv", True, "track")
    assert read_spec(said) == ("csv", "a b.csv", {"skip_bad": True, "group": "track"})
    with refused("group='track' is for folder:PATH, csv:PATH only, not for 'digits'"):
        data_with("digits", False, "track")
    done = CliRunner().invoke(app, ["audit", str(tmp_path), "--group", "track"])
    assert (done.exit_code, "says how to divide --data" in done.output) == (2, True)


def test_a_picture_that_would_fill_the_memory(tmp_path):
    table = put_table(tmp_path, TRACKS, "path,label,track")
    (tmp_path / TRACKS[0][0]).write_bytes(png_claiming(10_000, 10_000))
    with refused("10000×10000 pixels; 64000000 are the most"):
        open_data(f"csv({table}, size=8)")


LINES = {
    "letters": (f"path,label,track\na.png,cat,{'x' * 201}\n", "line 2 has 201 letters in 'track'"),
    "no head": ("image,label\na.png,cat\n", "line 1 must name the columns path and label"),
    "short": ("path,label\na.png\n", "line 2 has 1 cells"),
    "outside": ("path,label\n../a.png,cat\n", "line 2 leaves the table's folder"),
    "absolute": ("path,label\n/etc/a.png,cat\n", "line 2 has the absolute path"),
    "windows": ("path,label\nC:\\a.png,cat\n", "line 2 has the absolute path"),
    "twice": ("path,label\na.png,cat\nb.png,dog\na.png,dog\n", "line 4 names the image of line 2"),
    "no label": ("path,label\na.png,\n", "line 2 has no label"),
    "split": ("path,label,split\na.png,cat,validate\n", "line 2 has the split 'validate'"),
    "one part": ("path,label,split\na.png,cat,train\nb.png,dog,train\n", "give both, train and"),
    "one class": ("path,label\na.png,cat\nb.png,cat\n", "all images are of one class, 'cat'"),
    "from 1": ("path,label\na.png,1\nb.png,2\n", "labels run from 1 to 2"),
    "holes": ("path,label\na.png,0\nb.png,99999\n", "run from 0 to 99999"),
    "empty": ("path,label\n", "names no image"),
    "columns": (f"path,label{',x' * 200}\n", "names 202 columns"),
    "many": (
        "path,label\n" + "".join(f"{k}.png,c{k}\n" for k in range(10_001)),
        "10001 classes, and 10000 are the most",
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_lines_that_are_refused(tmp_path, name):
    text, words = LINES[name]
    (tmp_path / "x.csv").write_text(text)
    with refused(words):
        open_data(f"csv:{tmp_path / 'x.csv'}")


def test_absolute_paths_if_you_say_so(tmp_path):
    rows = [(tmp_path / "far" / f"{k}.png", "ab"[k % 2]) for k in range(6)]
    for path, _ in rows:
        picture(path, 9, side=8)
    table = put_table(tmp_path / "near", rows, "path,label", pictures=False)
    assert len(open_data(f"csv({table}, absolute=true)").train) == 4


def test_missing_pictures_are_counted_and_left_out_if_wanted(tmp_path):
    table = put_table(tmp_path, TRACKS, "path,label,track")
    (tmp_path / TRACKS[0][0]).unlink()
    with refused("1 of 24 images", "csv(PATH, skip_bad=true)"):
        open_data(f"csv({table}, size=8)")
    source = open_data(f"csv({table}, size=8, skip_bad=true, group=track)")
    assert len(source.train) + len(source.test) == 23
    with refused("unknown column", "track"):
        open_data(f"csv({table}, group=camera)")


def test_classes_by_number_are_named_by_a_file(tmp_path):
    rows = [(f"{k}.png", k % 3) for k in range(9)]
    (tmp_path / "names.txt").write_text("stop\ngive way\nno entry\nnever seen\n")
    source = open_data(f"csv:{put_table(tmp_path, rows, 'path,label')}")
    assert source.train.class_names == ("stop", "give way", "no entry", "never seen")
    (tmp_path / "names.txt").write_text("stop\ngive way\n")
    with refused("has the label 2, but names.txt beside it has 2 lines"):
        open_data(f"csv:{tmp_path / 'images.csv'}")


class TestFolders:
    def folder(self, root, classes, per=4):
        for number, name in enumerate(classes):
            for k in range(per):
                picture(root / name / f"{k // 2:05d}_{k:03d}.png", 20 * number, side=8)
        return root

    def test_folders_by_number_have_the_order_of_their_numbers(self, tmp_path, capsys):
        root = self.folder(tmp_path / "x", ["0", "1", "2", "10"])
        plain = choose_split(open_data(f"folder:{root}"), "all")
        assert plain.class_names == ("0", "1", "10", "2")  # as image folders are sorted
        (root / "names.txt").write_text("".join(f"sign {k}\n" for k in range(11)))
        named = choose_split(open_data(f"folder:{root}"), "all")
        assert named.class_names[10] == "sign 10"
        shades = named.images[:, 0, -1, -1].tolist()
        assert {(int(y), s) for y, s in zip(named.labels, shades, strict=True)} == {
            (0, 0), (1, 20), (2, 40), (10, 60)
        }  # fmt: skip
        assert "names.txt" not in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("classes", "names", "words"),
        [
            (["1", "2"], "a\nb\n", "there is a folder 2; folders are counted from 0"),
            (["0", "cat"], "a\nb\n", "the folder 'cat' is no number"),
            (["1", "01"], "a\nb\n", "two class folders have one number"),
            (["0", "1"], "a\n\nb\n", "one name per line"),
            (["0", "1"], "a\na\n", "appears twice"),
        ],
    )
    def test_names_that_do_not_fit(self, tmp_path, classes, names, words):
        root = self.folder(tmp_path / "x", classes)
        (root / "names.txt").write_text(names)
        with refused(words):
            open_data(f"folder:{root}")

    def test_tracks_by_the_names_of_files(self, tmp_path):
        root = self.folder(tmp_path / "x", ["a", "b"], per=12)
        source = open_data(f"folder({root}, group=prefix)")
        parts = [{*one.attributes.words["prefix"].tolist()} for one in (source.train, source.test)]
        assert not parts[0] & parts[1]
        assert parts[0] | parts[1] == {f"{c}/{t:05d}" for c in "ab" for t in range(6)}
        with refused("unknown group of a folder 'track'", "csv(PATH, group=COLUMN)"):
            open_data(f"folder({root}, group=track)")
        with refused("group=folder finds 0 groups"):
            open_data(f"folder({root}, group=folder)")


def test_words_are_numbered_whatever_they_are():
    known = Attributes.of({"t": ["b", "", "a", "b", ""]}, whole="t")
    numbers = known.together.tolist()
    assert numbers[0] == numbers[3]
    assert len(set(numbers)) == 4
    assert np.array_equal(np.unique(numbers), np.arange(4))
