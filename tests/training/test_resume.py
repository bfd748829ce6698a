"""Whatever stops a run, it goes on bit for bit."""

import os
import random
import signal
import time
from dataclasses import fields
from pathlib import Path

import forked
import pytest
import torch
from cases import CASES
from refusals import refused
from short_runs import weights_of
from training_records import assert_same_record, forwards_of, record

from classwise.record.tensors import read_tensors
from classwise.slots import Slots
from classwise.training.run import Run


def slots_filled(case):
    """What a run with this method keeps and does besides: the slots that its recipe fills."""
    slots, none = case.recipe.slots, Slots()
    return frozenset(
        f.name for f in fields(Slots) if getattr(slots, f.name) != getattr(none, f.name)
    )


# the first method of every set of slots; a method that fills others joins by itself
OF_EVERY_KIND = list({slots_filled(case): case for case in reversed(CASES)}.values())[::-1]


class TestResume:
    def interrupted_at_forward(self, go, own, number, **options):
        own.forwards, own.trouble_at, own.trouble = 0, number, "interrupt"
        with pytest.raises(KeyboardInterrupt):
            go("broken", **options)
        own.forwards, own.trouble_at = 0, None
        return go("broken", resume=True, **options)

    @pytest.mark.parametrize("moment", ["first batch", "boundary", "mid-epoch", "last batch"])
    @pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
    def test_an_interrupted_run_goes_on_bit_for_bit(self, go, own, moment, optimiser):
        options = {"model": f"{own.__name__}:Own(hidden=7)", "optimiser": optimiser, "lr": 0.01}
        straight, forwards = forwards_of(own, lambda: go("straight", **options))
        per_epoch = forwards // 3
        number = {
            "first batch": 1,
            "boundary": per_epoch + 1,
            "mid-epoch": per_epoch + per_epoch // 2,
            "last batch": forwards,
        }[moment]
        resumed = self.interrupted_at_forward(go, own, number, **options)
        assert_same_record(resumed, straight)

    @pytest.mark.parametrize("case", OF_EVERY_KIND, ids=str)
    def test_every_kind_of_method_goes_on_bit_for_bit(self, case, go, own):
        """With a model of the user's; the law of broken runs has every method with one of ours."""
        options = {"recipe": case.text, "model": f"{own.__name__}:Own", "epochs": 4}
        if case.recipe.slots.head:
            pytest.skip("only built-in models have another head; test_laws.py has those")
        straight, forwards = forwards_of(own, lambda: go("straight", **options))
        assert forwards % 4 == 0 or case.recipe.slots.stop  # an attack that stops early
        resumed = self.interrupted_at_forward(go, own, 3 * forwards // 4 + 2, **options)
        assert_same_record(resumed, straight)

    def test_a_crash_at_any_write_loses_nothing(self, go, monkeypatch):
        real, writes, fatal = Path.replace, 0, None

        def counting(self, target):
            nonlocal writes
            writes += 1
            if writes == fatal:
                raise KeyboardInterrupt
            return real(self, target)

        monkeypatch.setattr(Path, "replace", counting)
        straight = go("straight", epochs=2)
        total = writes
        assert total > 8
        for fatal in range(1, total + 1):
            writes = 0
            with pytest.raises(KeyboardInterrupt):
                go(f"broken {fatal}", epochs=2)
            writes = -(10**6)
            assert_same_record(go(f"broken {fatal}", epochs=2, resume=True), straight)

    def test_a_torn_line_of_history_is_written_again(self, go, own):
        options = {"model": f"{own.__name__}:Own"}
        straight, forwards = forwards_of(own, lambda: go("straight", **options))
        own.forwards, own.trouble_at, own.trouble = 0, forwards - 1, "interrupt"
        with pytest.raises(KeyboardInterrupt):
            go("broken", **options)
        own.trouble_at = None
        history = straight.path.parent / "broken" / "history.jsonl"
        with history.open("a") as stream:
            stream.write('{"epoch": 3, "lr": 0.0')
        assert_same_record(go("broken", resume=True, **options), straight)

    def test_what_a_kill_left_of_the_first_write_is_no_obstacle(self, go, tmp_path):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / ".run.json.4242.part").write_text("{")
        assert go("run", epochs=1).finished_epochs == 1

    def test_resuming_a_finished_run_changes_nothing(self, go):
        run = go("run", epochs=2)
        before = record(run)
        assert record(go("run", epochs=2, resume=True)) == before

    def test_another_number_of_threads_is_told(self, go, stopped, monkeypatch, capsys):
        with stopped():
            go("broken", epochs=1)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
        run = go("broken", epochs=1, resume=True)  # and is no other run
        assert run.about["threads"] == 1
        said = " ".join(capsys.readouterr().err.split())
        assert "the number of threads was 1 and is now 7" in said
        go("broken", epochs=1, resume=True)  # nothing is left to do
        assert "threads" not in capsys.readouterr().err

    @pytest.mark.parametrize("damage", ["pickle", "other run"])
    def test_a_state_that_is_not_ours_is_refused_and_nothing_lost(self, go, damage):
        run = go("run", epochs=1)
        state = run.path / "state.safetensors"
        if damage == "pickle":
            torch.save({}, state)
        else:
            other = go("other", epochs=1, seed=3)
            state.write_bytes((other.path / "state.safetensors").read_bytes())
        before = record(run)
        with refused("state.safetensors"):
            go("run", epochs=1, resume=True)
        assert record(run) == before


class TestDivergence:
    @pytest.mark.parametrize("recipe", ["clean", "at(steps=1)", "trades(steps=1)+ccm+ema"])
    def test_a_rate_too_high_stops_with_epoch_and_batch(self, go, tmp_path, recipe):
        with refused("epoch 1", "batch", "lr"):
            go("run", recipe, lr=1e20, epochs=2)
        tensors, about = read_tensors(tmp_path / "run" / "state.safetensors")
        assert about["epoch"] == 0
        assert all(torch.isfinite(t).all() for t in tensors.values() if t.is_floating_point())

    def test_the_last_good_checkpoint_stays(self, go, own):
        options = {"model": f"{own.__name__}:Own", "epochs": 3, "schedule": "constant"}
        straight, forwards = forwards_of(own, lambda: go("straight", "clean", **options))
        batches = forwards // 3
        own.forwards, own.trouble_at, own.trouble = 0, 2 * batches + 2, "nan"
        with refused("epoch 3", f"batch 2 of {batches}", "epoch 2 is kept"):
            go("run", "clean", **options)
        run = Run(straight.path.parent / "run")
        assert run.finished_epochs == 2
        assert read_tensors(run.weights_path("last"))[1]["epoch"] == 2
        assert all(torch.isfinite(t).all() for t in weights_of(run).values())
        own.trouble_at = None
        assert_same_record(go("run", "clean", resume=True, **options), straight)


def test_a_killed_run_resumes_bit_for_bit(tmp_path):
    seed = int(os.environ.get("KILL_SEED", random.SystemRandom().randrange(10**6)))
    print(f"repeat with KILL_SEED={seed}")
    chance = random.Random(seed)
    recipe = "at(steps=2)+ccm+ema(start=1)"
    options = ["--data", "digits", "--subset", "200", "--model", "cnn(width=4)", "--eps", "0.2"]
    options += ["--epochs", "14", "--valid", "first:4"]

    def start(folder, *more):
        return forked.start("train", recipe, *options, "--out", tmp_path / folder, *more)

    def finish(process):
        code, _, said = process.end()
        assert code == 0, said

    def epochs():
        history = tmp_path / "killed" / "history.jsonl"
        return len(history.read_text().splitlines()) if history.exists() else 0

    def wait_for(count, process):
        while epochs() < count and process.poll() is None:
            time.sleep(0.002)
        return time.monotonic()

    straight = start("straight")
    for more in ([], ["--resume"]):
        process, done = start("killed", *more), epochs()
        usual = -wait_for(done + 1, process) + wait_for(done + 2, process)
        time.sleep(chance.uniform(0, 1.5 * usual))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it ended before it was killed"
    assert 4 <= epochs() < 14
    finish(start("killed", "--resume"))
    finish(straight)
    assert_same_record(Run(tmp_path / "killed"), Run(tmp_path / "straight"))
