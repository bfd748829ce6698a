"""Work in a folder that somebody else took over meanwhile: nothing more is written there."""

import pytest
from refusals import refused
from rich.console import Console
from taken_over import take_over

from classwise import quickstart
from classwise.training.loop import Trainer


@pytest.mark.parametrize(("when", "written"), [("run_epoch", 1), ("boundary", 1), ("watch", 2)])
def test_a_training_stops_before_it_writes_whatever_it_was_at(
    go, tmp_path, monkeypatch, when, written
):
    real, calls = getattr(Trainer, when), []

    def overtaken(self, *words):
        found = real(self, *words)
        calls.append(when)
        if len(calls) == 2:
            take_over(self.run.path)
            kept.append((self.run.path / "state.safetensors").read_bytes())
        return found

    kept = []
    monkeypatch.setattr(Trainer, when, overtaken)
    with refused("was taken over by process", "on far"):
        go("run", "clean", epochs=3)
    run = tmp_path / "run"
    assert len((run / "history.jsonl").read_bytes().splitlines()) == written
    assert (run / "state.safetensors").read_bytes() == kept[0]


def test_a_quickstart_writes_no_report(tmp_path, monkeypatch):
    monkeypatch.setattr(quickstart, "train", lambda *_, **__: take_over(tmp_path))
    monkeypatch.setattr(quickstart, "audit_target", lambda _: [])
    monkeypatch.setattr(quickstart, "load_runs", lambda _: [])
    wrote = []
    monkeypatch.setattr(quickstart, "write_report", lambda *words: wrote.append(words))
    with refused("was taken over by", "on far"):
        quickstart.run_quickstart(tmp_path, device="cpu", quiet=True, console=Console())
    assert wrote == []
