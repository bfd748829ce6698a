"""Runs shared between studies: what they are known by, and whose looks they take."""

from dataclasses import replace

import pytest

from classwise.sealed import sealed_text
from classwise.studies.choosing import chosen
from classwise.studies.planned import plan, run_key
from classwise.studies.runs_folder import Looks, RunsFolder, job_of, looks_of, together
from classwise.studies.study import parse_study
from classwise.training.config import TrainConfig
from classwise.training.loop import train

STUDY = """
title = "x"
[[runs]]
recipe = ["at", "at+ema"]
{more}
[[artefact]]
kind = "table"
title = "t"
"""


def planned(more="", scale="smoke", **how):
    return plan(parse_study(STUDY.format(more=more), "x", "x.toml"), scale, **how)


def put(folder, run, epochs=0):
    """A run folder with nothing but what says who it is, and so many lines of history."""
    folder.mkdir(parents=True)
    card = {
        "identity": "0", "recipe_name": run.recipe.name, "recipe": run.recipe.canonical,
        "config": run.config.model_dump(mode="json"), "data": {"class_names": ["a", "b"]},
    }  # fmt: skip
    (folder / "run.json").write_bytes(sealed_text(card))
    lines = "".join(f'{{"epoch": {n + 1}}}\n' for n in range(epochs))
    (folder / "history.jsonl").write_text(lines)


class TestKeys:
    def test_all_that_decides_a_result_is_in_it_and_nothing_else(self):
        one = planned()[0]
        assert one.key == planned()[0].key
        assert planned('data = "cifar10"\nmodel = "resnet9"')[0].key == planned(
            'data = "cifar10"\nmodel = "resnet18"')[0].key  # one stands for both  # fmt: skip
        for more in (
            'eps = "4/255"',
            "lr = 0.3",
            '"at.steps" = 2',
            'data = "mnist"',
            "seeds = [7]",
        ):
            assert planned(more)[0].key != one.key
        assert planned(scale="minutes")[0].key != one.key
        for passive in ("keep_every = 1", '[watch]\nlooks = "test:clean"'):
            assert planned(passive)[0].key == one.key

    def test_a_run_that_was_trained_has_the_key_that_was_planned(self, tmp_path):
        for run in planned('data = "cifar10"\n[watch]\nlooks = "test:clean"'):
            trained = train(run.recipe, run.config, out=tmp_path / run.key, quiet=True)
            about = trained.about
            assert run_key(about["recipe"], about["config"], about.get("sources")) == run.key
        assert set(RunsFolder.of(tmp_path).runs) == {p.name for p in tmp_path.iterdir()}


class TestLooks:
    def test_what_covers_what(self):
        none, few = Looks(), Looks(frozenset({"a"}), 2)
        many = Looks(frozenset({"a", "b"}), 1)
        assert many.cover(few)
        assert few.cover(none)
        assert none.cover(none)
        assert not few.cover(many)
        assert not none.cover(few)
        assert not Looks(few.names, 4).cover(few)
        assert not Looks(few.names, 3).cover(few)
        assert few | Looks(frozenset({"b"}), 3) == many
        assert none | few == few

    def test_studies_that_are_run_together_have_the_union_taken(self):
        one = planned('[watch]\nlooks = "test:clean"\nevery = 2')
        other = planned(
            '[watch]\nlooks = "test:pgd-10, test:pgd-10@ema"\n[audit]\nattacks = "clean"'
        )
        both = together([*one, *other])
        assert set(both) == {run.key for run in one}
        at, ema = both[one[0].key], both[one[1].key]
        assert looks_of(at.config) == Looks(frozenset({"test:clean", "test:pgd-10"}), 1)
        assert "test:pgd-10@ema" in looks_of(ema.config).names
        assert len(at.audits) == 2

    def test_a_run_that_took_the_looks_is_used_and_another_stands_beside(self, tmp_path):
        plain, watched = planned()[0], planned('[watch]\nlooks = "test:clean"')[0]
        empty = RunsFolder.of(tmp_path)
        first, second = empty.place(plain), empty.place(watched)
        assert first != second
        put(first, plain)
        kept = RunsFolder.of(tmp_path)
        assert kept.place(plain) == first
        assert kept.covering(watched) is None
        assert kept.place(watched) == second
        put(second, watched, epochs=2)
        kept = RunsFolder.of(tmp_path)
        assert kept.place(watched) == second
        assert kept.place(plain) == second  # it is farther, and took more looks than are wanted

    def test_runs_that_lack_their_data_are_no_jobs(self):
        runs = planned('need = "imagenet"', scale="minutes")
        assert "data unobtainable (imagenet)" in runs[0].lacking
        assert together(runs) == {}


def test_what_is_no_run_is_passed_over(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.json").write_text("{")
    (tmp_path / "b").mkdir()
    assert RunsFolder.of(tmp_path).runs == {}
    assert RunsFolder.of(tmp_path / "nowhere").runs == {}


def test_a_job_says_all_of_a_run_in_words(tmp_path):
    run = planned('"at.steps" = 3')[1]
    job = job_of(run, RunsFolder.of(tmp_path))
    assert job.recipe == "at(steps=3, step=eps/2)+ema"
    assert (job.config, job.imports) == (run.config, ())
    assert isinstance(job.config, TrainConfig)
    assert job.path.name == f"at+ema-s0-{run.key}"


def test_audits_of_the_same_images_are_made_in_one_go(tmp_path):
    asked = '[[audit]]\nattacks = {}\n[[audit]]\nattacks = "square"\nlimit = 5'
    runs = [
        planned(asked.format(words))[0] for words in ('["clean", "pgd-2"]', '["pgd-2", "fgsm"]')
    ]
    (run,) = together(runs).values()
    found = [(one.attacks, one.limit) for one in job_of(run, RunsFolder.of(tmp_path)).audits]
    assert found == [("clean,pgd-2,fgsm", 0), ("square(queries=2)", 5)]


def test_only():
    runs = planned('eps = ["2/255", "4/255"]')
    assert len(chosen(runs, ())) == 4
    assert [run.labels["recipe"] for run in chosen(runs, ["*EMA*"])] == ["at+ema"] * 2
    assert len(chosen(runs, ["eps=4/255"])) == 2
    assert len(chosen(runs, ["eps=4/255", "at"])) == 3
    with pytest.raises(ValueError, match="unknown run"):
        chosen(runs, ["*cfa*"])
    assert replace(runs[0]).title == "at, seed 0"


def test_only_those_that_fit_every_part():
    runs = planned('eps = ["2/255", "4/255"]')
    (one,) = chosen(runs, ["recipe=*ema, EPS=4/255"])
    assert (one.labels["recipe"], one.labels["eps"]) == ("at+ema", "4/255")
    assert len(chosen(runs, ["*ema,eps=4/255", "at"])) == 3
    named = planned('row = ["AT, plainly", "AT, averaged"]')
    assert len(chosen(named, ["AT, plainly"])) == 1  # a label with a comma is a label still
    with pytest.raises(ValueError, match=r"unknown run .* 'eps=9/255'"):
        chosen(runs, ["*ema,eps=9/255"])
    with pytest.raises(ValueError, match="none all of them"):
        chosen(runs, ["recipe=at,recipe=at+ema"])


class TestSeedsOfRows:
    ROWS = 'row = ["AT", "AT + EMA"]\nseeds = 3\n[scale.minutes.seeds_of]\n"{}" = {}'

    def seeds(self, pattern, many, **how):
        runs = planned(self.ROWS.format(pattern, many), "minutes", **how)
        return [(run.labels["row"], run.labels["seed"]) for run in runs]

    def test_rows_have_as_many_as_the_scale_says_unless_the_user_does(self):
        plain = [("AT", "0"), ("AT", "1"), ("AT", "2")]
        assert self.seeds("* + EMA", 1) == [*plain, ("AT + EMA", "0")]
        assert len(self.seeds("* + EMA", 1, seeds=2)) == 4
        assert len(self.seeds("AT*", 5)) == 6  # at most, never more than there are

    def test_rows_that_are_not_there_and_no_seeds_are_refused(self):
        with pytest.raises(ValueError, match=r"seeds_of\] '\* \+ CFA'"):
            self.seeds("* + CFA", 1)
        with pytest.raises(ValueError, match="give at least 1"):
            self.seeds("AT", 0)
