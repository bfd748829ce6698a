"""A training in a folder that somebody else took over meanwhile: it writes nothing more there."""

import pytest
from refusals import refused
from taken_over import take_over

from classwise.training.loop import Trainer


@pytest.mark.parametrize(("when", "written"), [("run_epoch", 1), ("boundary", 1), ("watch", 2)])
def test_it_stops_before_it_writes_whatever_it_was_at(go, tmp_path, monkeypatch, when, written):
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
