"""Networks of other people beside the runs of a study: audited, kept, marked, never executed."""

import csv
import json
import pickle
import shutil

import pytest
import torch
from refusals import refused
from tiny_studies import DATA, Here, study

from classwise.judging.audits import read_audits
from classwise.models import build_model
from classwise.record.card import read_run_json
from classwise.studies.theirs import Network, network_key

TEXT = """
title = "Who attracts mistakes"
[[runs]]
recipe = "clean"
data = "{data}"
model = ["cnn", "cnn(width=2)"]
[audit]
attacks = ["clean", "pgd-2"]
[[artefact]]
kind = "false-positives"
title = "Figure 1"
condition = "pgd-2"
[[artefact]]
kind = "table"
title = "Table 1"
conditions = ["pgd-2"]
[scale.smoke.settings]
epochs = 1
subset = 60
"""
HOW = "arch=cnn(width=3), normalise=none"


def write(folder, text=TEXT, data=DATA):
    path = folder / "fps.toml"
    path.write_text(text.format(data=data))
    return path


def weights_of_others(path, arch="cnn(width=3)", classes=10, seed=1):
    """A plain state dict as other people publish it: no normalisation, no description."""
    draw = torch.Generator().manual_seed(seed)
    made = build_model(arch, num_classes=classes, channels=1, mean=[0.0], deviation=[1.0])
    state = {n: t for n, t in made.state_dict().items() if n not in ("mean", "deviation")}
    state = {n: torch.randn(t.shape, generator=draw) if t.ndim > 1 else t for n, t in state.items()}
    torch.save({"state_dict": state}, path)
    return path


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    home = tmp_path_factory.mktemp("beside")
    file = weights_of_others(home / "theirs.pth")
    with pytest.MonkeyPatch.context() as patch:
        here = Here()
        words = (write(home), "--out", home / "runs", "--records", home / "records")
        result = study(*words, "--beside", f"Doe2020={file}, {HOW}", here=here, monkeypatch=patch)
    assert result.exit_code == 0, result.output
    assert len(here.jobs) == 2  # at this scale both of ours are one run
    return home


@pytest.fixture
def home(made_once, tmp_path):
    shutil.copytree(made_once, tmp_path / "home")
    return tmp_path / "home"


def columns(folder, name):
    """The numbers of an artefact, by its columns and rows."""
    found = {}
    with (folder / "fps" / f"{name}.csv").open() as stream:
        for line in csv.DictReader(stream):
            found.setdefault(line["column"], {})[line["row"]] = line["mean"]
    return found


def named(folder, name="figure-1"):
    return {who for who in ("Doe2020", "Roe2021") if who in " ".join(columns(folder, name))}


def test_they_are_more_lines_marked_as_not_ours_with_their_provenance(made_once):
    page = (made_once / "runs" / "fps" / "index.md").read_text()
    sha256 = Network.read(f"x={made_once / 'theirs.pth'}").sha256
    for words in ("Doe2020 (not trained here)", f"SHA-256 {sha256}", "as cnn(width=3)",
                  "mean 0, deviation 1", f"audited on {DATA}", "theirs.pth"):  # fmt: skip
        assert words in page, words
    assert str(made_once) not in page
    assert "Doe2020" not in (made_once / "runs" / "fps" / "table-1.csv").read_text()


def test_their_numbers_are_those_of_an_audit(made_once):
    shown = columns(made_once / "runs", "figure-1")[
        "C_FPS, Doe2020 (not trained here), cnn(width=3)"
    ]
    (folder,) = (made_once / "runs").glob("theirs-*")
    (audit,) = read_audits(folder, read_run_json(folder))
    shares = audit.report["pgd-2"].false_positive_share
    assert {name: float(mean) for name, mean in shown.items()} == pytest.approx(shares, abs=1e-4)


def test_a_record_is_enough_for_the_page_and_names_no_path(home):
    (home / "runs").rename(home / "before")
    (home / "theirs.pth").unlink()
    result = study(home / "fps.toml", "--from", home / "records", "--pages", home / "again")
    assert result.exit_code == 0, result.output
    again, before = (columns(home / place, "figure-1") for place in ("again", "before"))
    assert again == before
    (record,) = (home / "records").glob("theirs-*")
    assert str(home) not in json.dumps(read_run_json(record))
    assert str(home) not in (record / "theirs.json").read_text()
    shutil.rmtree(record)
    study(home / "fps.toml", "--from", home / "records", "--pages", home / "again")
    assert named(home / "again") == set()


def test_nothing_is_audited_twice_and_another_name_is_only_a_name(home, monkeypatch):
    words = (home / "fps.toml", "--out", home / "runs", "--beside")
    again = Here()
    study(*words, f"Doe2020={home / 'theirs.pth'}, {HOW}", here=again, monkeypatch=monkeypatch)
    assert again.jobs == []
    (folder,) = (home / "runs").glob("theirs-*/predictions")
    before = sorted(path.name for path in folder.iterdir())
    other = f"Roe2021={home / 'theirs.pth'}, {HOW}"
    assert study(*words, other, here=again, monkeypatch=monkeypatch).exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == before
    assert named(home / "runs") == {"Roe2021"}


def test_one_that_fails_is_a_hole_with_its_words(home, monkeypatch):
    other = weights_of_others(home / "other.pth", seed=2)
    monkeypatch.setattr("tiny_studies.attempt", lambda job: _kept_then(job, "no memory"))
    words = (home / "fps.toml", "--out", home / "runs", "--beside", f"Roe2021={other}, {HOW}")
    result = study(*words, here=Here(), monkeypatch=monkeypatch)
    assert result.exit_code == 1, result.output
    page = (home / "runs" / "fps" / "index.md").read_text()
    assert "failed: no memory" in page
    assert "Doe2020 (not trained here)" in page  # which was there


def _kept_then(job, why):
    """As `NetworkJob.run` begins, and then fails."""
    from classwise.sealed import sealed_text

    job.path.mkdir()
    (job.path / "theirs.json").write_bytes(sealed_text(job.about))
    return why


class TestRefused:
    def test_a_study_whose_artefacts_cannot_show_them(self, tmp_path):
        file = weights_of_others(tmp_path / "theirs.pth")
        result = study("wei-table1", "--out", tmp_path / "runs", "--beside", f"a={file}, {HOW}")
        assert result.exit_code == 2
        said = " ".join(result.stderr.split())
        assert "no artefact of study wei-table1 shows networks of others" in said
        assert "false-positives do, as in medi-fps" in said
        assert not (tmp_path / "runs").exists()

    def test_a_study_on_two_data_sets(self, tmp_path):
        file = weights_of_others(tmp_path / "theirs.pth")
        text = TEXT.replace('"{data}"', '["madeup(digits, size=6)", "madeup(digits, size=8)"]')
        text = text.replace('"cnn", ', "").replace('title = "Figure 1"', 'title = "Figure 1"\n'
                            'where = {{ data = "madeup(digits, size=6)" }}')  # fmt: skip
        path = write(tmp_path, text)
        result = study(path, "--out", tmp_path / "runs", "--beside", f"a={file}, {HOW}")
        assert result.exit_code == 2
        assert "one data set at one radius" in " ".join(result.stderr.split())

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            ("{file}", "it has no NAME=FILE"),
            ("a={file}.pt", "there is no file"),
            ("a={file}, arhc=cnn", "did you mean 'arch'"),
            ("a={file}, arch=cnn, limit=few", "limit=few; give a number of images"),
            ("a={file}, arch=cnn, arch=lenet", "arch is given 2 times"),
            ("a={file}, arch=cnn(width=3), normalise=cifra10", "did you mean 'cifar10'"),
            ("a={file}", "does not say what network they belong to"),
            ("a={file}, arch=cnn(width=3)", "does not say how its images are normalised"),
            ("a={file}, arch=cnn(width=4), normalise=none", "does not fit cnn(width=4)"),
        ],
    )
    def test_before_anything_runs(self, tmp_path, words, says):
        words = words.format(file=weights_of_others(tmp_path / "theirs.pth"))
        result = study(write(tmp_path), "--out", tmp_path / "runs", "--beside", words)
        assert result.exit_code == 2, result.output
        assert says in " ".join(result.stderr.split())
        assert not (tmp_path / "runs").exists()

    def test_what_is_no_tensor_is_never_run(self, tmp_path):
        class Evil:
            def __reduce__(self):
                return (open, (str(tmp_path / "ran"), "w"))

        (tmp_path / "evil.pth").write_bytes(pickle.dumps(Evil()))
        words = f"a={tmp_path / 'evil.pth'}, {HOW}"
        result = study(write(tmp_path), "--out", tmp_path / "runs", "--beside", words)
        assert result.exit_code == 2
        assert "holds more than tensors" in " ".join(result.stderr.split())
        assert not (tmp_path / "ran").exists()

    def test_twice(self, tmp_path):
        file = weights_of_others(tmp_path / "theirs.pth")
        both = ("--beside", f"a={file}, {HOW}", "--beside", f"b={file}, {HOW}")
        result = study(write(tmp_path), "--out", tmp_path / "runs", *both)
        assert "is the same network as a" in " ".join(result.stderr.split())


def test_a_network_is_known_by_its_content_and_how_it_was_opened(tmp_path):
    file = weights_of_others(tmp_path / "theirs.pth")

    def key(words):
        one = Network.read(words)
        return network_key(one.about(one.sha256, DATA, "as it is"))

    plain = key(f"a={file}, {HOW}")
    assert key(f"b={file}, {HOW}, limit=20") == plain
    for other in ("arch=cnn(width=3), normalise=half", "arch=cnn, normalise=none",
                  f"{HOW}, rename=a=b"):  # fmt: skip
        assert key(f"a={file}, {other}") != plain
    weights_of_others(file, seed=2)
    assert key(f"a={file}, {HOW}") != plain


def test_a_file_that_changes_in_between_is_not_taken_for_the_one_that_was_named(tmp_path):
    from classwise.studies.audit_jobs import NetworkJob

    one = Network.read(f"a={weights_of_others(tmp_path / 'theirs.pth')}, {HOW}")
    job = NetworkJob(one, one.about("0" * 64, DATA, ""), 0.1, "Linf", (), tmp_path / "runs")
    with refused("has changed since the study was begun"):
        job.run()
    assert not (tmp_path / "runs").exists()
