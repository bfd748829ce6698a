"""Runs on feature sets that another run of the study makes: whose they are, and how kept."""

import pytest
import torch
from refusals import refused

from classwise.data.sources import open_data
from classwise.record.card import audit_facts, read_run_json
from classwise.studies.feature_sets import Features
from classwise.studies.grid import run_job
from classwise.studies.planned import plan
from classwise.studies.runs_folder import RunsFolder, is_done, job_of, together
from classwise.studies.study import load_study, parse_study

DATA = "madeup(cifar10, size=8)"
MAKER = (
    f'[[runs]]\nrecipe = "clean"\nrow = "plain model"\ndata = "{DATA}"\nmodel = "cnn(width=1)"\n'
)
ARTEFACT = '[[artefact]]\nkind = "table"\ntitle = "t"\n'


def planned(features, maker=MAKER, seeds=1, scale="paper"):
    text = f'title = "x"\n{maker}seeds = 2\n[[runs]]\nrecipe = "clean"\nrow = "on features"\n'
    text += f'data = "{features}"\nmodel = "cnn(width=1)"\nsubset = 0\nseeds = {seeds}\n{ARTEFACT}'
    return plan(parse_study(text, "x", "x.toml"), scale)


class TestPlanned:
    def test_a_run_is_known_by_the_run_that_makes_its_data(self):
        name = "features('plain model', kind=random, steps=2)"
        *makers, first, second = planned(name, seeds=2)
        for maker, run in zip(makers, (first, second), strict=True):
            assert run.maker == maker  # of the same seed
            assert run.config.data == f"features({maker.key}, kind=random, images=0, steps=2)"
            assert run.labels["data"] == name
        other = planned(name, MAKER.replace("clean", "at"))[-1]
        assert other.key != first.key
        assert planned(name.replace("=2", "=3"))[-1].key != first.key
        assert planned(name)[-1].key == first.key

    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ("features('palin model', kind=robust)", "did you mean 'plain model'"),
            ("features('plain model', kind=rubust)", "unknown kind of features 'rubust'"),
            ("features('plain model', kind=robust, stesp=3)", "option of features 'stesp'"),
            ("features('plain model')", "says too little"),
            ("features('plain model', kind=robust, eps=1)", "has no effect"),
            ("features('plain model', kind=original, steps=1)", "leave out ['steps']"),
        ],
    )
    def test_what_cannot_be_made_is_refused_before_anything_runs(self, spec, words):
        with refused(words):
            planned(spec)

    def test_a_seed_that_nobody_made_is_refused(self):
        with refused("one with the same seed is needed"):
            planned("features('plain model', kind=random)", seeds=3)

    def test_makers_are_the_runs_that_other_studies_have(self):
        minutes = plan(load_study("benz-features"), "minutes")
        gaps = {run.key for run in plan(load_study("benz-gaps"), "minutes")}
        assert next(run for run in minutes if run.labels["row"] == "plain model").key in gaps
        assert not any(run.lacking for run in minutes)
        kinds = {run.features.kind: run.features for run in minutes if run.features}
        assert len(kinds) == 5
        assert {features.images for features in kinds.values()} == {10_000}

    def test_a_maker_takes_the_looks_that_others_want_of_it(self, tmp_path):
        maker, _, run = planned("features('plain model', kind=random)")
        looking = maker.config.model_copy(update={"watch": "test:clean", "watch_every": 1})
        every = together([maker, run, maker.__class__(maker.labels, maker.recipe, looking, ())])
        jobs = [job_of(every[one.key], RunsFolder.of(tmp_path)) for one in (maker, run)]
        assert jobs[1].maker.path == jobs[0].path
        assert jobs[1].maker.config.watch == "test:clean"


def test_features_are_made_by_the_run_they_name_and_judged_on_its_test_images(tmp_path):
    made = [
        planned(f"features('plain model', kind={kind}, images=100)", scale="smoke")[-1]
        for kind in ("random, steps=2", "original")
    ]
    for run in made:
        run_job(job_of(run, RunsFolder.of(tmp_path)))
        assert is_done(run, RunsFolder.of(tmp_path))
    runs = {path.parent: read_run_json(path.parent) for path in tmp_path.glob("*/run.json")}
    assert len(runs) == 3  # the plain model was trained, too, since it makes the features
    (maker,) = [run for run, about in runs.items() if about["config"]["data"] == DATA]
    original = Features(maker.name, "original", images=100).open(maker, tmp_path, "cpu")
    (file,) = (tmp_path / "features").glob("*random*.npz")
    features = open_data(f"npz:{file}")
    assert torch.equal(original.test.images, features.test.images)
    assert len(original.train) == len(features.train) == 100
    changed = (original.train.images.int() - features.train.images.int()).abs()
    assert 0 < changed.max() < 128  # each is its own image, with a little of a class
    hashes = {one["data_hash"] for run in runs for one in audit_facts(run)}
    assert len(hashes) == 1  # so that they can be paired
