"""Runs that are kept at a URL: whole or as before, taken back while they grow, gone on with."""

import shutil
import time
import uuid
from dataclasses import replace

import fsspec
import pytest
from refusals import refused
from tiny_studies import Here, study, write_study

from classwise.studies.at_url import AtUrl, Home, brought_here
from classwise.studies.grid import attempt
from classwise.studies.making import plan_studies, work_of
from classwise.studies.runs_folder import RunsFolder
from classwise.training.loop import Checkpoints

LAST = "weights/last.safetensors"
ONE = ("--only", "clean", "--seeds", "1")


@pytest.fixture
def url():
    yield (found := f"memory://{uuid.uuid4().hex}/runs")
    fsspec.filesystem("memory").rm(found.removeprefix("memory:/").rpartition("/")[0], True)


@pytest.fixture
def made_here(tmp_path):
    folder = tmp_path / "run"
    (folder / "weights").mkdir(parents=True)
    for name in ("run.json", "state.safetensors", "weights/last.safetensors", ".writer.lock"):
        (folder / name).write_text(f"{name} of epoch 1")
    return folder


def content(folder):
    every = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in every}


class TestPushAndPull:
    def test_what_comes_back_is_what_was_there_without_locks(self, url, made_here, tmp_path):
        assert not AtUrl(url).pull("run", tmp_path / "none")
        assert not (tmp_path / "none").exists()
        AtUrl(url).push(made_here, "run")
        assert AtUrl(url).names() == ["run"]
        assert AtUrl(url).pull("run", tmp_path / "back")
        expected = content(made_here)
        del expected[".writer.lock"]
        assert content(tmp_path / "back") == expected

    def test_only_what_changed_is_sent_and_what_is_no_longer_named_goes(
        self, url, made_here, monkeypatch
    ):
        there, sent = AtUrl(url), []
        there.push(made_here, "run")
        write = AtUrl._write
        monkeypatch.setattr(
            AtUrl, "_write", lambda self, path, data: (sent.append(path), write(self, path, data))
        )
        there.push(made_here, "run")
        assert sent == []
        (made_here / "state.safetensors").write_text("epoch 2")
        there.push(made_here, "run")
        assert [path.rpartition("/")[0] for path in sent] == ["run/data", "run"]
        assert len(there._fs.ls(f"{there._root}/run/data")) == 3

    def test_a_push_that_is_cut_leaves_what_was_there(self, url, made_here, tmp_path, monkeypatch):
        AtUrl(url).push(made_here, "run")
        for path in made_here.rglob("*.safetensors"):
            path.write_text(f"{path.name} of epoch 2")
        write = AtUrl._write

        def cut_off(self, path, data):
            if b"last.safetensors of epoch 2" in data:
                raise OSError("the line is dead")
            write(self, path, data)

        monkeypatch.setattr(AtUrl, "_write", cut_off)
        with refused("cannot be written: the line is dead"):
            AtUrl(url).push(made_here, "run")
        AtUrl(url).pull("run", tmp_path / "back")
        assert all("epoch 1" in words for words in content(tmp_path / "back").values())

    def test_results_are_read_without_states_and_weights(self, url, made_here, tmp_path):
        AtUrl(url).push(made_here, "run")
        AtUrl(url).pull("run", tmp_path / "light", light=True)
        expected = {"run.json": "run.json of epoch 1", "weights/last.safetensors": ""}
        assert content(tmp_path / "light") == expected

    def test_damage_and_names_that_lead_out_are_refused(self, url, made_here, tmp_path):
        there = AtUrl(url)
        there.push(made_here, "run")
        first = there._fs.ls(f"{there._root}/run/data", detail=False)[0]
        there._fs.pipe_file(first, b"something else")
        with refused("is not as it was written"):
            there.pull("run", tmp_path / "back")
        there._fs.pipe_file(f"{there._root}/run/files.json", b'{"files": {"../../evil": "00"}}')
        with refused("which is not in its folder"):
            there.pull("run", tmp_path / "back")
        there._fs.pipe_file(f"{there._root}/run/files.json", b'{"files": {"a": "00"}}')
        with refused("names files that are not there"):
            there.pull("run", tmp_path / "back")


def test_what_grows_is_taken_back_meanwhile_and_at_the_end_also_of_a_failure(url, tmp_path):
    def grown(words):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if (
                AtUrl(url).pull("run", tmp_path / "seen")
                and words in content(tmp_path / "seen").values()
            ):
                return True
            time.sleep(0.01)
        return False

    def growing():
        with brought_here(url, ["run"], every=0.01) as folder:
            (folder / "run").mkdir()
            (folder / "run" / "state.safetensors").write_text("epoch 1")
            assert grown("epoch 1")
            (folder / "run" / "state.safetensors").write_text("epoch 2")
            raise RuntimeError(folder)

    with pytest.raises(RuntimeError) as failed:
        growing()
    assert grown("epoch 2")
    assert not failed.value.args[0].exists()


class TestStudies:
    def test_the_page_is_that_of_a_folder_and_nothing_is_done_twice(
        self, url, tmp_path, monkeypatch
    ):
        path, here = write_study(tmp_path), Here()
        for place, pages in ((tmp_path / "runs", "plain"), (url, "url")):
            words = (path, "--out", place, "--pages", tmp_path / pages, *ONE)
            result = study(*words, here=here, monkeypatch=monkeypatch)
            assert result.exit_code == 0, result.output
        assert len(here.jobs) == 2
        one, other = ((tmp_path / pages / "three" / "index.md").read_text()
                      for pages in ("plain", "url"))  # fmt: skip
        assert one == other
        words = (path, "--out", url, "--pages", tmp_path / "again", "--records", tmp_path / "kept")
        assert study(*words, *ONE, here=here, monkeypatch=monkeypatch).exit_code == 0
        assert len(here.jobs) == 2
        assert (tmp_path / "again" / "three" / "index.md").read_text() == one
        assert len(list((tmp_path / "kept").glob("*/predictions/*.parquet"))) == 1

    def test_why_a_run_failed_is_kept_there_until_it_does_not(self, url, tmp_path, monkeypatch):
        words = (write_study(tmp_path), "--out", url, "--pages", tmp_path / "pages", *ONE)
        with monkeypatch.context() as patch:
            patch.setattr("tiny_studies.attempt", lambda _: "no memory")
            assert study(*words, here=Here(), monkeypatch=patch).exit_code == 1
        home = Home.of(url)
        assert [RunsFolder.of(home.folder).failure(path.name.partition(".")[0])
                for path in home.folder.glob("*.failed.json")] == ["no memory"]  # fmt: skip
        assert study(*words, here=Here(), monkeypatch=monkeypatch).exit_code == 0
        home = Home.of(url)
        assert list(home.folder.glob("*.failed.json")) == []

    def test_a_snapshot_taken_while_training_goes_on_ends_in_the_same_run(
        self, url, tmp_path, monkeypatch
    ):
        """The state of the first epoch, and of all else what the second has left."""
        (planned,) = plan_studies([write_study(tmp_path)], "smoke", only=["*ema"], seeds=1)
        (job,) = work_of([planned], RunsFolder.of(tmp_path / "runs")).jobs.values()
        save = Checkpoints.save

        def copied(self, state, logs):
            save(self, state, logs)
            shutil.copytree(self.run.path, tmp_path / f"epoch-{state.epoch}")

        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "save", copied)
            assert attempt(job) == ""
        folder, write = shutil.copytree(tmp_path / "epoch-1", tmp_path / "moving"), AtUrl._write

        first = [(folder / name).read_bytes() for name in ("state.safetensors", LAST)]

        def going_on(self, path, data):
            if data in first:
                shutil.copytree(tmp_path / "epoch-2", folder, dirs_exist_ok=True)
            write(self, path, data)

        with monkeypatch.context() as patch:
            patch.setattr(AtUrl, "_write", going_on)
            AtUrl(url).push(folder, job.path.name)
        assert attempt(replace(job, home=url, audits=())) == ""
        AtUrl(url).pull(job.path.name, tmp_path / "back")
        for name in ("history.jsonl", *(f"weights/{one.name}" for one in
                                        (job.path / "weights").iterdir())):  # fmt: skip
            assert (tmp_path / "back" / name).read_bytes() == (job.path / name).read_bytes(), name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--out", "nowhere://a/b"), "cannot be opened: Protocol not known: nowhere"),
        (("--records", "s3://bucket/records"), "only --out may be a URL"),
        (("--pages", "s3://bucket/pages"), "only --out may be a URL"),
        (("--from", "s3://bucket/records"), "only --out may be a URL"),
    ],
)
def test_places_that_cannot_be(tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    result = study(write_study(tmp_path), *words, *(() if "--from" in words else ONE))
    assert result.exit_code == 2, result.output
    assert says in " ".join(result.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == ["three.toml"]
