"""Methods of other people: trained, resumed, audited, compared and studied."""

import json
import sys
from pathlib import Path

import pytest
from foreign_method import NAME, TEXT, blocks, boost, run
from refusals import refused
from short_runs import QUICK

from classwise.methods import at
from classwise.recipe_text import parse_recipe
from classwise.studies.grid import Job, jobs_of, run_grid, run_job
from classwise.training.config import TrainConfig
from classwise.training.loop import train
from classwise.training.run import Run


class TestRuns:
    def test_train_resume_audit_report_diff_gate(self, package, forget):
        words = [TEXT, "--eps", "0.2", "--epochs", "2", "--subset", "60", "--quiet"]
        words += ["--model", "cnn(width=2)", "--out", "run"]
        result = run("train", *words)
        assert result.exit_code == 0, result.output
        assert "already" in run("train", *words, "--resume").output
        # From here on the code is gone, and a trap in its place: reading must not touch it.
        (package / "boost.py").write_text("import pathlib\npathlib.Path('sprung').mkdir()\n")
        forget()
        Path("contract.toml").write_text(
            'weights = "last"\n[[rule]]\nunder = "clean"\noverall_at_least = "0 %"\n'
        )
        for command in (
            ["audit", "run", "--attacks", "clean", "--limit", "40", "--quiet"],
            ["audit", "--from", "run"],
            ["report", "run", "--out", "page.html"],
            ["report", "run", "--out", "page.md"],
            ["diff", "run", "run", "--weights", "last"],
            ["gate", "contract.toml", "run"],
        ):
            result = run(*command)
            assert result.exit_code == 0, result.output
        assert NAME in Path("page.md").read_text()
        found = Run(Path("run"))
        assert "last" in found.weights
        assert found.model().training is False
        with refused(NAME, 'read_recipe(imports=("mypackage.boost",))'):
            _ = found.recipe
        assert not Path("sprung").exists()
        assert "mypackage" not in sys.modules
        (package / "boost.py").write_text(blocks("python")[0])
        assert found.read_recipe(imports=("mypackage.boost",)) == parse_recipe(TEXT)

    @pytest.mark.parametrize(
        "name", ["os:system", "trap:Boost", "trap:Boost+ema", "trapped", "mine.toml", "trap:"]
    )
    def test_run_json_of_a_stranger_imports_nothing(
        self,
        tmp_path,
        monkeypatch,
        tiny,
        forget,  # noqa: ARG002
        install,
        name,
    ):
        (tmp_path / "trap.py").write_text("import pathlib\npathlib.Path('sprung').mkdir()\n")
        (tmp_path / "mine.toml").write_text('compose = "at+trap:Boost"\n')
        monkeypatch.chdir(tmp_path)
        install("trapped = trap:Boost")
        train("at(steps=1)+ema(start=0)", out="run", source=tiny(), quiet=True, **QUICK)
        card = json.loads(Path("run/run.json").read_text())
        del card["checksum"]  # changed by hand
        card["recipe"][name] = {"command": "mkdir sprung"}
        card["recipe_name"] = f"at+{name}"
        Path("run/run.json").write_text(json.dumps(card))
        Path("contract.toml").write_text('[[rule]]\nunder = "clean"\noverall_at_least = "0 %"\n')
        commands = (
            ["audit", "run", "--data", "digits", "--attacks", "clean", "--limit", "40", "-q"],
            ["report", "run", "--out", "page.html"],
            ["report", "run", "--out", "page.md"],
            ["diff", "run", "run", "--weights", "last"],
            ["gate", "contract.toml", "run"],
        )
        for command in commands:
            result = run(*command)
            assert result.exception is None or isinstance(result.exception, SystemExit)
            assert result.exit_code < 2, result.output
        assert Run(Path("run")).weights
        assert Run(Path("run")).model() is not None
        with refused():
            _ = Run(Path("run")).recipe
        assert not Path("sprung").exists()
        assert "trap" not in sys.modules

    def test_python_trains_it_and_goes_on_bit_for_bit(self, package, tiny):  # noqa: ARG002
        one = train(at(steps=2) | boost(rate=0.3), out="one", source=tiny(), quiet=True, **QUICK)
        two = train(TEXT, out="two", source=tiny(), quiet=True, **QUICK)
        for file in ("run.json", "history.jsonl", "state.safetensors"):
            assert (one.path / file).read_bytes() == (two.path / file).read_bytes()
        weights = one.history[1]["settings"]["label_weight"]
        rates = one.history[0]["train"]["robust"]["by_class"]
        assert weights == pytest.approx([1 + 0.3 * (1 - rate) for rate in rates], rel=1e-6)

    def test_another_implementation_is_another_run(self, package, tiny, forget):
        def identity():
            forget()
            return train(TEXT, out=f"run{len(seen)}", source=tiny(), quiet=True, **QUICK).about

        seen = []
        text = blocks("python")[0]
        helped = text.replace("(1 - accuracy)", "share(accuracy)")
        helped = "from mypackage.help import share\n" + helped.replace('"""Boost:', '"""Boost;')
        for source, beside in [
            (text, ""),
            (text.replace("1 + self.rate", "2 + self.rate"), ""),
            (helped, "def share(a): return 1 - a\n"),
            (helped, "def share(a): return 2 - a\n"),
        ]:
            (package / "boost.py").write_text(source)
            (package / "help.py").write_text(beside)
            seen.append(identity()["identity"])
        assert len(set(seen)) == 4
        (package / "boost.py").write_text(text)
        with refused("holds another run", "code of its methods differs"):
            forget()
            train(TEXT, out="run3", source=tiny(), resume=True, quiet=True, **QUICK)
        assert "sources" not in train("at(steps=1)", out="x", source=tiny(), **QUICK).about


def test_a_study_trains_it_in_processes_of_its_own(package, tmp_path, capsys):  # noqa: ARG001
    from rich.console import Console

    config = TrainConfig(**{**QUICK, "data": "digits", "subset": 60})
    refused_jobs = jobs_of([f"at(steps=1)+{NAME}"], 2, config, "clean", tmp_path / "study")
    assert isinstance(refused_jobs[0], Job)
    with refused("--import mypackage.boost"):
        run_job(refused_jobs[0])
    assert not (tmp_path / "study").exists()
    given = ("mypackage.boost",)
    jobs = jobs_of([f"at(steps=1)+{NAME}"], 2, config, "clean", tmp_path / "study", given)
    for path in run_grid(jobs, workers=1, console=Console(quiet=True)):
        assert Run(path).about["recipe_name"] == f"at+{NAME}"
        assert Run(path).finished_epochs == 2
