"""What `classwise study` says of a mistake: what was got, what is allowed, what to do."""

import pytest
from tiny_studies import TEXT, study, write_study

from classwise.studies.costs import Cost


def said(result):
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("lst", "unknown study 'lst'; did you mean 'list'?"),
        ("list wei-toy", "list is no study, and stands alone: classwise study list"),
        ("nowhere.toml", "No such file or directory; name a file that is there, or one of what"),
        ("three.toml --device gpu0", "--device gpu0: device 'gpu0' is not known; write auto, cpu"),
        ("three.toml --on ray --device gpu0", "--device gpu0: device 'gpu0' is not known"),
        ("three.toml --from empty --budget 0", "--budget has no effect with --from empty"),
        ("three.toml --from none", "no such folder of records; keep some with --records"),
        ("three.toml other/three.toml", "two studies are called three and would write one page"),
        ("all --only zzz", "--only zzz: no run has a label like 'zzz'; write AXIS=VALUE"),
        ("all --only data=zzz", "unknown run (--only) 'data=zzz'; Known: data=cifar10, data=cif"),
    ],
)
def test_of_the_command(tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path / "other"):
        folder.mkdir(exist_ok=True)
        write_study(folder)
    (tmp_path / "empty").mkdir()
    assert says in said(study(*words.split()))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ('title = "Three', 'titel = "Three', "unknown key of the study 'titel'; did you mean 'ti"),
        ('title = "Three recipes"', "", "the study has no title; add title = …"),
        ("recipe =", "recipes =", "unknown option 'recipes'; did you mean 'reci"),
        ('model = "cnn"', 'data.x = "cnn"', "three.toml is not TOML"),
        ('"pgd-2"]\nweights = ["averaged-last"]\n\n[scale',
         '"pgd-2"]\nmeasures = "average"\n\n[scale', "measures = 'average': input should be a"),
        ("{data}", "cifra10", "unknown data set 'cifra10'; did you mean 'cifar10'? Known: "
         "cifar10, cifar100, csv"),
    ],
)  # fmt: skip
def test_of_a_file(tmp_path, right, wrong, says):
    assert right in TEXT
    text = TEXT.replace(right, wrong, 1).format(data="madeup(digits, size=6)", epochs=1)
    (tmp_path / "three.toml").write_text(text)
    assert says in said(study(tmp_path / "three.toml", "--out", tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_a_seed_is_not_offered_where_seeds_are_meant(tmp_path):
    text = TEXT.replace("model =", "sed = 1\nmodel =", 1).format(data="x", epochs=1)
    (tmp_path / "three.toml").write_text(text)
    known = said(study(tmp_path / "three.toml")).partition("Known: ")[2].split(", ")
    assert "seeds" in known
    assert "seed" not in known


class TestBudget:
    @pytest.mark.parametrize(
        ("seconds", "unknown", "says"),
        [
            ({"a": 7200.0}, {}, "over the budget of 1 hours; choose a smaller --scale"),
            ({"a": 7200.0}, {"b": "no data"}, "over the budget of 1 hours"),
            ({"a": 60.0}, {"b": "no data"}, "of 1 runs it is not known (no data); put that right"),
        ],
    )
    def test_what_is_over_it_or_cannot_be_known_is_refused(
        self, tmp_path, monkeypatch, seconds, unknown, says
    ):
        monkeypatch.setattr(
            "classwise.studies.costs.cost_of", lambda *_, **__: Cost(seconds, unknown)
        )
        words = ("--budget", "1", "--out", tmp_path / "runs", "--workers", "1")
        assert says in said(study(write_study(tmp_path), *words))
        assert not (tmp_path / "runs").exists()


def test_where_no_run_is_needed_nothing_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr("classwise.studies.costs.cost_of", None)
    result = study("wei-toy", "--out", tmp_path / "runs", "--dry-run", "--budget", "0")
    assert result.exit_code == 0, result.output
    assert result.output.strip() == "0 runs are there, 0 are left"


def test_a_page_of_holes_says_where_nothing_was_found(tmp_path):
    (tmp_path / "empty").mkdir()
    result = study(write_study(tmp_path), "--from", tmp_path / "empty")
    assert "6 of 6 runs missing: none is in" in " ".join(result.output.split())
    assert result.output.split()[-2:] == ["scale", "smoke"]
