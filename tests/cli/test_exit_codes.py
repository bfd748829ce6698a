"""0 yes, 1 no, 2 wrong use, 3 undecided, 130 interrupted, 143 terminated."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import forked
import pytest
from typer.testing import CliRunner

from classwise import cli
from classwise.cli.app import Terminated
from classwise.cli.printing import question_code

NET = """
import time
import torch
from torch import nn
from classwise.data.sources import open_data

def make(num_classes):
    train = open_data("digits").train
    x, y = train.images.flatten(1).float() / 255, train.labels
    net = nn.Linear(64, num_classes)
    means = torch.stack([x[y == k].mean(0) for k in range(num_classes)])
    with torch.no_grad():
        net.weight.copy_(means)
        net.bias.copy_(-means.square().sum(1) / 2)
    return nn.Sequential(nn.Flatten(), net)

class Slow(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        time.sleep(0.05)
        return self.net(x)

def slow(num_classes):
    return Slow(make(num_classes))
"""


def run(*words):
    return CliRunner().invoke(cli.app, list(words))


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "asked_here.py").write_text(NET)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


ASKED = ["audit", "asked_here:make", "--data", "digits", "--attacks", "clean,pgd-5", "--eps", "0.2"]


@pytest.mark.usefixtures("here")
class TestQuestions:
    @pytest.mark.parametrize(
        ("question", "limits", "code", "answer"),
        [
            ("three>=0.01", ["--attacks", "fgsm", "--eps", "0.001"], 0, "yes"),
            ("worst>=0.5", [], 1, "no"),
            ("worst>=0.02", ["--minutes", "0.00001"], 3, "undecided"),
            ("wrost>=0.5", [], 2, None),
        ],
    )
    def test_the_answer_comes_first_and_is_the_exit_code(self, question, limits, code, answer):
        result = run(*ASKED, "--quiet", "--question", question, *limits)
        assert result.exit_code == code, result.output
        if answer is None:
            assert "did you mean 'worst'" in result.stderr
            return
        first = result.stdout.splitlines()[0]
        assert re.match(rf"{re.escape(question)} under [\w-]+: {answer}\b", first)
        assert "images judged" in first
        assert " avg" not in result.stdout  # the summary's averages
        assert "Wilson" not in result.stdout
        assert "chosen by what was seen" in " ".join(result.stdout.split())
        assert result.stdout.count("images judged") == 1

    def test_what_the_ledger_knew_is_said_to_be_known(self):
        words = [*ASKED, "--quiet", "--out", "kept", "--question", "worst>=0.5"]
        first, second = run(*words), run(*words)
        assert (first.exit_code, second.exit_code) == (1, 1)
        assert "known from before" not in first.stdout
        judged, whole = re.search(r"(\d+) of (\d+) images judged", first.stdout).groups()
        assert f"Audited: {judged} of the {whole} test images of digits." in first.stdout
        assert "images judged, all of them known from before" in second.stdout
        assert "less work" not in second.stdout
        more = run(*words[:-1], "worst>=0.4")  # nearer to the worst class, so it needs more
        assert re.search(r"judged, \d+ of them known from before and \d+ anew;", more.stdout)
        assert "less work" not in more.stdout

    def test_a_limit_of_time_that_was_enough_is_an_audit(self):
        result = run(*ASKED, "--quiet", "--minutes", "10", "--limit", "40")
        assert result.exit_code == 0, result.output
        assert " avg" in result.stdout
        assert "Wilson" in result.stdout
        part = run(*ASKED, "--quiet", "--minutes", "0.00001")
        assert part.exit_code == 0, part.output  # nothing was asked
        assert " avg" not in part.stdout
        assert "not examined (time was up)" in part.stdout

    def test_one_no_among_weights_is_a_no(self):
        def asked(*answers):
            return [SimpleNamespace(partial=SimpleNamespace(answer=one)) for one in answers]

        found = [question_code(asked(*some)) for some in
                 ([True, True], [True, None], [None, False], [None])]  # fmt: skip
        assert found == [0, 3, 1, 3]


@pytest.mark.usefixtures("here")
def test_classes_are_listed_in_full_on_demand():
    words = ["audit", "asked_here:make", "--data", "digits", "--attacks", "clean", "--quiet"]
    assert run(*words, "--limit", "20", "--classes", "all").exit_code == 0
    result = run(*words, "--classes", "al")
    assert result.exit_code == 2
    assert "did you mean 'all'" in result.stderr


class TestGate:
    def test_unfinished_is_3_and_wrong_use_is_2(self, here):
        run(*ASKED, "--quiet", "--out", "kept", "--question", "worst>=0.5")
        contract = here / "contract.toml"
        contract.write_text('[[rule]]\nunder = "pgd-5"\noverall_at_least = "0 %"\n')
        result = run("gate", "contract.toml", "kept")
        assert result.exit_code == 3, result.output
        assert "audit it in full" in result.stdout
        contract.write_text('[[rule]]\nunder = "pgd-7"\noverall_at_least = "0 %"\n')
        assert run("gate", "contract.toml", "kept").exit_code == 2
        assert run(*ASKED, "--quiet", "--out", "kept").exit_code == 0
        for share, code in (("0 %", 0), ("100 %", 1)):
            contract.write_text(f'[[rule]]\nunder = "pgd-5"\noverall_at_least = "{share}"\n')
            assert run("gate", "contract.toml", "kept").exit_code == code


class TestStopped:
    @pytest.mark.parametrize(("how", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
    @pytest.mark.parametrize(
        ("where", "words", "says"),
        [
            ("training.loop.train", ["train", "at", "--out", "new"], "repeat this command"),
            ("training.loop.train", ["train", "at", "--out", "old"], "with --resume to go on"),
            ("training.loop.train", ["train", "at", "--out", "old", "--resume"],
             "repeat this command to go on"),
            ("doors.targets.audit_target", ["audit", "m:n"], "with --out FOLDER"),
            ("doors.targets.audit_target", ["audit", "m:n", "--out", "k"],
             "finished batches are kept, repeat this command to go on"),
            ("quickstart.run_quickstart", ["quickstart"], "repeat this command to go on"),
            ("studies.grid.run_grid", ["study", "digits"], "repeat this command to go on"),
            ("doors.folders.load_runs", ["report", "old"], "repeat this command"),
        ],
    )  # fmt: skip
    def test_one_line_says_how_to_go_on_with_this_command(
        self, monkeypatch, tmp_path, how, code, where, words, says
    ):
        def stopped(*_, **__):
            raise how

        monkeypatch.chdir(tmp_path)
        (tmp_path / "old").mkdir()
        (tmp_path / "old" / "run.json").write_text("{}")
        monkeypatch.setattr("classwise.training.run.Run.finished_epochs", 0)
        monkeypatch.setattr(f"classwise.{where}", stopped)
        result = run(*words)
        assert result.exit_code == code, result.output
        (line,) = result.stderr.strip().splitlines()
        assert line.startswith(f"classwise: {'interrupted' if code == 130 else 'terminated'}; ")
        assert says in line
        assert "--resume" not in line or words[0] == "train"

    def real(self, words, cwd):
        """The command from the start of its interpreter to its end."""
        path = os.pathsep.join([str(cwd), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            [sys.executable, "-m", "classwise", *words],
            env={**os.environ, "PYTHONPATH": path},
            cwd=cwd,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            # whoever started the tests in the background has Ctrl-C ignored; a user has not
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def signalled(self, process, ready, which):
        """Send a signal to a process of its own once it is at work: its exit code and words."""
        try:
            end = time.monotonic() + 120
            while not ready() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
            running = process.poll() is None
            process.send_signal(which)
            forks = isinstance(process, forked.Fork)
            said = process.end()[2] if forks else process.communicate(timeout=60)[1]
            assert running, said
        finally:
            process.kill()
        return process.returncode, said

    @pytest.mark.parametrize(("which", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_an_audit_keeps_its_batches_and_goes_on(self, here, which, code):
        words = ["audit", "asked_here:slow", "--data", "digits", "--attacks", "pgd-5"]
        words += ["--eps", "0.2", "--limit", "120", "--batch-size", "10", "--quiet"]
        words += ["--out", "kept"]
        shards = here / "kept" / "predictions"
        done = lambda: len(list(shards.glob("*.parquet"))) >= 2  # noqa: E731
        start = self.real if which == signal.SIGINT else lambda w, cwd: forked.start(*w, cwd=cwd)
        left, said = self.signalled(start(words, here), done, which)
        assert (left, "repeat this command to go on" in said) == (code, True), said
        assert "Traceback" not in said
        kept = sorted(shards.glob("*.parquet"))
        assert 2 <= len(kept) < 12
        result = run(*words)
        assert result.exit_code == 0, result.output
        assert "120 samples" in " ".join(result.stdout.split())

    def test_a_training_that_is_terminated_keeps_its_epochs_and_resumes(self, here):
        words = ["train", "at(steps=1)", "--eps", "0.2", "--epochs", "400", "--subset", "100",
                 "--valid", "0.1", "--out", "run", "--quiet"]  # fmt: skip
        history = here / "run" / "history.jsonl"
        done = lambda: history.exists() and history.read_text().count("\n") >= 2  # noqa: E731
        left, said = self.signalled(forked.start(*words, cwd=here), done, signal.SIGTERM)
        assert (left, "with --resume to go on" in said) == (143, True), said
        kept = history.read_text().count("\n")
        assert 2 <= kept < 400
        left, said = self.signalled(
            forked.start(*words, "--resume", cwd=here),
            lambda: history.read_text().count("\n") > kept,
            signal.SIGTERM,
        )
        assert left == 143, said
        assert history.read_text().count("\n") > kept

    def test_a_study_that_is_terminated_does_not_wait_for_its_runs(self, here):
        words = ["study", "digits", "--seeds", "2", "--workers", "1", "--out", "study"]
        done = lambda: any((here / "study").glob("*/history.jsonl"))  # noqa: E731
        began = time.monotonic()
        left, said = self.signalled(self.real(words, here), done, signal.SIGTERM)
        assert (left, "repeat this command to go on" in said) == (143, True), said
        assert time.monotonic() - began < 120


def test_help_names_the_codes():
    words = " ".join(run("--help").output.replace("│", " ").split())
    for said in (
        "0 yes",
        "1 no",
        "2 wrong use",
        "3 undecided",
        "130 interrupted",
        "143 terminated",
    ):
        assert said in words
