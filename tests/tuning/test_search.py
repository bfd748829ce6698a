"""A search from its first trial to its page; broken off, gone on with, and refused."""

import json
from dataclasses import replace

import pytest
from refusals import refused
from taken_over import take_over
from tuning_scenes import START, small_search

from classwise.errors import ClasswiseError
from classwise.locks import Held
from classwise.training.run import Run
from classwise.tuning import search as searching
from classwise.tuning import trial
from classwise.tuning.judged import Judge, Pair
from classwise.tuning.page import write_page
from classwise.tuning.search import Budget, Search, tune
from classwise.tuning.summary import Summary
from classwise.tuning.trial import Job, Outcome, data_without_test, run_trial
from classwise.tuning.trials import Trials, load_optuna


def constant(job: Job) -> Outcome:
    return Outcome(job.number, f"run{job.number}", Pair(0.5, 0.25), "live")


def remembered(monkeypatch, run):
    """Count what is run."""
    ran = []

    def counted(job):
        ran.append(job.number)
        return run(job)

    monkeypatch.setattr(searching, "run_trial", counted)
    return ran


def test_trials_are_real_runs_judged_by_validation(tmp_path):
    found = tune(small_search(), tmp_path / "a", Budget(2))
    assert [one.state for one in found.trials] == ["complete"] * 2
    first = found.trials[0]  # what the user has now, where it lies inside: lr does not
    assert first.values["ccm.margin_floor"] == 0.5
    run = Run(tmp_path / "a" / "runs" / first.about["identity"])
    rates = run.history[-1]["valid"]["live"]["pgd-1"]
    assert first.pair == Pair(rates["overall"], min(rates["by_class"]))
    assert run.about["config"]["lr"] == first.values["lr"]
    assert sum(found.valid_sizes) == sum(size for size in found.valid_sizes if size) > 100
    # and nothing of it is done again
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "a" / "runs").rglob("*") if p.is_file()}
    again = tune(small_search(), tmp_path / "a", Budget(2))
    assert again.trials == found.trials
    assert before == {p: p.stat().st_mtime_ns for p in before}


def test_a_search_that_is_broken_off_goes_on_as_it_would_have(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "run_trial", falling)
    whole = tune(small_search(), tmp_path / "whole", Budget(14))

    def killed(job):
        if job.number == 5:
            raise KeyboardInterrupt
        return falling(job)

    ran = remembered(monkeypatch, killed)
    with pytest.raises(KeyboardInterrupt):
        tune(small_search(), tmp_path / "broken", Budget(14))
    assert ran == [0, 1, 2, 3, 4, 5]
    ran = remembered(monkeypatch, falling)
    found = tune(small_search(), tmp_path / "broken", Budget(14))
    assert ran == list(range(5, 14))
    assert found.trials == whole.trials
    assert len({one.values["lr"] for one in whole.trials}) == 14  # each has a draw of its own


@pytest.mark.parametrize("number", [0, 5])
def test_a_trial_that_was_broken_off_among_its_values_never_was(tmp_path, monkeypatch, number):
    monkeypatch.setattr(searching, "run_trial", falling)
    whole = tune(small_search(), tmp_path / "whole", Budget(7))
    drawn, kind = [], load_optuna().trial.Trial
    real = kind._suggest

    def killed(self, *words):
        drawn.append(words)
        if len(drawn) == 2 * number + 2:  # two options are searched
            raise KeyboardInterrupt
        return real(self, *words)

    monkeypatch.setattr(kind, "_suggest", killed)
    with pytest.raises(KeyboardInterrupt):
        tune(small_search(), tmp_path / "broken", Budget(7))
    found = tune(small_search(), tmp_path / "broken", Budget(7))
    assert [one.values for one in found.trials] == [one.values for one in whole.trials]
    assert {one.state for one in found.trials} == {"complete"}


def falling(job):
    """Better with a smaller rate in one objective, with a larger one in the other."""
    lr = job.values["lr"]
    return Outcome(job.number, f"{lr}", Pair(1 - 10 * lr, 10 * lr), "live")


def test_a_constant_objective(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "run_trial", constant)
    found = tune(small_search(), tmp_path / "a", Budget(12))
    summary = Summary.of(found)
    assert len(summary.rows) == 12
    assert summary.best.number == 0
    assert any("nothing to choose between" in line for line in summary.words)
    assert write_page(found).exists()


def test_hopeless_runs_are_stopped_and_others_are_not(tmp_path):
    judge = Judge("pgd-1", "live")
    job = Job(0, START, {}, judge, tmp_path, True, "cpu")

    def at(lr, **more):
        return run_trial(replace(job, values={"lr": lr}, **more))

    good = [at(lr) for lr in (0.01, 0.011, 0.012, 0.013)]
    assert all(one.pair is not None for one in good)
    bad = at(1e-9)
    assert (bad.pair, bad.stopped) == (None, 1)  # of 3 epochs: a third is every run's
    assert len(Run(tmp_path / bad.identity).history) == 1
    whole = at(1e-9, prune=False)  # and it can go on from there
    assert whole.identity == bad.identity
    assert whole.pair is not None
    assert 2 * sum(one.pair.beats(whole.pair) for one in good) >= len(good)


def test_runs_are_compared_after_the_same_epoch(tmp_path, monkeypatch):
    """Others that were worse then, and are better now, stop nobody."""

    def epoch(rate):
        return {"valid": {"live": {"pgd-1": {"overall": rate, "by_class": [rate]}}}}

    late = {name: [epoch(0.1), epoch(0.1), epoch(0.9)] for name in "abcd"}
    histories = {**late, "mine": [epoch(0.2), epoch(0.0)]}
    for name in histories:
        (tmp_path / name).mkdir()
    monkeypatch.setattr(trial, "_history", lambda path: histories[path.name])
    job = Job(0, START, {}, Judge("pgd-1", "live"), tmp_path, True, "cpu")
    ask = trial._Question(job, tmp_path / "mine", 3)
    ask(0)
    ask(1)
    with pytest.raises(trial.Hopeless):
        ask(2)


def test_a_trial_that_diverges_fails_alone(tmp_path, monkeypatch):
    def sometimes(job):
        failed = "training diverged" if job.number == 1 else ""
        return replace(constant(job), failed=failed)

    monkeypatch.setattr(searching, "run_trial", sometimes)
    found = tune(small_search(), tmp_path / "a", Budget(3))
    assert [one.state for one in found.trials] == ["complete", "failed", "complete"]
    assert "The first that failed: training diverged" in Summary.of(found).words


def test_a_search_in_which_everything_fails_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "run_trial", lambda job: Outcome(job.number, failed="no disk"))
    with pytest.raises(ClasswiseError, match="the first 3 trials failed; the last: no disk"):
        tune(small_search(), tmp_path / "a", Budget(9))


@pytest.mark.parametrize("at", ["ask", "tell"])
def test_a_search_that_was_taken_over_writes_no_more(tmp_path, monkeypatch, at):
    monkeypatch.setattr(searching, "run_trial", constant)
    real = getattr(Trials, "ask" if at == "tell" else "tell")

    def overtaken(*words):
        found = real(*words)
        take_over(tmp_path / "a")
        return found

    monkeypatch.setattr(Trials, "ask" if at == "tell" else "tell", overtaken)
    with refused("was taken over by", "on far"):
        tune(small_search(), tmp_path / "a", Budget(3))
    states = [one.state for one in Trials(tmp_path / "a", small_search().varied, 0).all]
    assert states == ["begun" if at == "tell" else "complete"]


def test_a_trial_whose_folder_was_taken_over_has_not_failed(tmp_path, monkeypatch):
    def overtaken(trainer, *_):
        take_over(trainer.run.path)
        raise Held("taken over")

    monkeypatch.setattr(trial._StoppableTrainer, "go", overtaken)
    with pytest.raises(Held):
        tune(small_search(), tmp_path / "a", Budget(3))
    (one,) = Trials(tmp_path / "a", small_search().varied, 0).all
    assert one.state == "begun"


def test_time_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "run_trial", constant)
    found = tune(small_search(), tmp_path / "a", Budget(9, minutes=0))
    assert found.trials == ()
    assert Summary.of(found).best_words.startswith("No trial has finished")
    assert write_page(found).exists()


def test_no_test_image_can_be_looked_at():
    assert len(data_without_test("digits").test) == 0
    assert len(data_without_test("digits").train) > 1000
    watching = START.with_values({"watch": "test:clean"})
    with pytest.raises(ClasswiseError, match="validation images alone"):
        small_search(start=watching)


def test_an_eps_that_varies_is_judged_at_the_one_that_was_given():
    found = small_search("eps=0.01..0.1")
    assert found.start.made({"eps": 0.05})[1].judge_eps == 0.02
    assert found.beginning == {"eps": 0.02}


def test_what_cannot_be_searched_is_refused():
    with pytest.raises(ClasswiseError, match="trains without an attack"):
        small_search("lr=0.1..0.2", start=replace(START, recipe="clean", methods={}))
    with pytest.raises(ClasswiseError, match="nothing to search"):
        Search.of(START, (), True, 0)


def test_another_search_and_strange_folders_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "run_trial", constant)
    tune(small_search(), tmp_path / "a", Budget(1))
    for other, words in (
        (small_search("lr=0.002..0.02"), "other ranges"),
        (small_search(prune=False), "other prune"),
        (small_search(start=START.with_values({"seed": 1})), "other recipe, data or settings"),
    ):
        with pytest.raises(ClasswiseError, match=words):
            tune(other, tmp_path / "a", Budget(1))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("mine")
    with pytest.raises(ClasswiseError, match="no search of ours"):
        tune(small_search(), tmp_path / "b", Budget(1))
    with pytest.raises(ClasswiseError, match="is a file"):
        tune(small_search(), tmp_path / "b" / "mine.txt", Budget(1))


def test_a_damaged_file_of_trials_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "run_trial", constant)
    tune(small_search(), tmp_path / "a", Budget(1))
    (tmp_path / "a" / "trials.sqlite").write_bytes(b"something else" * 1000)
    with pytest.raises(ClasswiseError, match="cannot be read as trials"):
        tune(small_search(), tmp_path / "a", Budget(1))


def test_a_class_without_validation_images_is_refused(tmp_path):
    start = START.with_values({"valid": "0"})
    with pytest.raises(ClasswiseError, match="has no validation image"):
        tune(small_search(start=start), tmp_path / "a", Budget(1))


def test_the_page_shows_words_and_obeys_none(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "run_trial", constant)
    found = tune(small_search(), tmp_path / "a", Budget(2))
    evil = "</script><script>alert(1)</script>"
    told = replace(found.trials[0], values={"lr": evil, "ccm.margin_floor": 0.5})
    start = replace(found.search.start, recipe=evil)
    shown = replace(found, trials=(told,), search=replace(found.search, start=start))
    text = write_page(shown).read_text()
    assert "<script>alert(1)" not in text
    assert "http" not in text[: text.index("<script>")]
    data = text[text.index("const found = ") + 14 :]
    points = json.loads(data[: data.index(";\n")].encode().decode("unicode_escape"))["points"]
    assert (points[0]["x"], points[0]["y"], points[0]["front"]) == (0.5, 0.25, True)


def test_the_file_of_another_search_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "run_trial", constant)
    tune(small_search(), tmp_path / "a", Budget(1))
    tune(small_search("at.step=0.01..0.02"), tmp_path / "b", Budget(1))
    (tmp_path / "b" / "trials.sqlite").replace(tmp_path / "a" / "trials.sqlite")
    with pytest.raises(ClasswiseError, match=r"another search, over at\.step"):
        tune(small_search(), tmp_path / "a", Budget(1))


def test_folders_may_be_called_anything(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "run_trial", constant)
    out = tmp_path / "a%20?#b é"
    tune(small_search(), out, Budget(1))
    assert (out / "trials.sqlite").exists()
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
