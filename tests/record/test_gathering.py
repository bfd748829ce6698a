"""Small steps: their verdicts are known at once and written together."""

import json
import multiprocessing
import textwrap
from dataclasses import replace
from pathlib import Path

import forked
import numpy as np
import pytest
import torch
from ledgers import Counting, Named, Told, stamp, verdicts

from classwise.attacks.condition import Condition
from classwise.attacks.threat import Threat
from classwise.auditing import run as run_module
from classwise.auditing.plan import Plan
from classwise.auditing.question import Question
from classwise.auditing.run import HELD, LOST, Nobody
from classwise.auditing.sequential import Limits, audit_partly
from classwise.data.view import View
from classwise.models.subject import Subject
from classwise.record import ledger as ledger_module
from classwise.record import shard_files, shards
from classwise.record.ledger import Ledger

HERE = Path(__file__).parent


def plan_of(attack, count=200):
    condition = Condition(None, attack, Threat.of(0.1), 0)
    images = torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    data = View(images, torch.arange(count) % 3, torch.arange(count), tuple("abc"))
    return Plan(Subject(lambda x: x.flatten(1)[:, :3], 3), data, (condition,))


def in_steps(folder, attack, limits, listener=None):
    record = Named(folder, Ledger(folder), stamp())
    return audit_partly(plan_of(attack), record, listener or Nobody(), limits)


def shards_in(folder):
    return sorted(folder.glob("*.parquet"))


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    for module in (ledger_module, run_module):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


class TestGathering:
    def test_verdicts_are_known_at_once_and_written_together(self, tmp_path):
        ledger = Ledger(tmp_path)
        shelf = ledger.shelf(stamp())
        with ledger.gathering(1000):
            for number in range(5):
                ledger.keep(verdicts([number]), stamp())
                ledger.keep(verdicts([number], condition="pgd-3"), stamp(attack="pgd-3"))
            assert shelf.has(np.arange(6)).tolist() == [True] * 5 + [False]
            assert shards_in(tmp_path) == []
        assert len(shards_in(tmp_path)) == 2
        for name in ("pgd-2", "pgd-3"):
            assert Ledger(tmp_path).read(stamp(attack=name)).sample.tolist() == list(range(5))
        ledger.keep(verdicts([5]), stamp())  # nothing is gathered any more
        assert len(shards_in(tmp_path)) == 3

    def test_what_waits_is_written_after_the_stated_seconds(self, tmp_path, clock):
        ledger = Ledger(tmp_path)
        with ledger.gathering(10):
            written = []
            for number, seconds in enumerate((4, 4, 4, 9, 30, 3)):
                clock[0] += seconds
                ledger.keep(verdicts([number]), stamp())
                written.append(len(shards_in(tmp_path)))
        # a piece that took longer than that is never kept waiting
        assert written == [0, 0, 1, 1, 2, 2]
        assert len(shards_in(tmp_path)) == 3

    @pytest.mark.parametrize("end", [RuntimeError, KeyboardInterrupt, SystemExit])
    def test_whatever_ends_it_what_was_judged_stays(self, tmp_path, end):
        ledger = Ledger(tmp_path)

        def broken_off():
            with ledger.gathering(1000):
                ledger.keep(verdicts([3, 4]), stamp())
                raise end

        with pytest.raises(end):
            broken_off()
        assert Ledger(tmp_path).read(stamp()).sample.tolist() == [3, 4]

    def test_whoever_reads_sees_what_waits(self, tmp_path):
        ledger = Ledger(tmp_path)
        with ledger.gathering(1000):
            ledger.keep(verdicts([1]), stamp())
            assert ledger.read(stamp()).sample.tolist() == [1]
            ledger.keep(verdicts([2]), stamp())
            ledger.compact(stamp())
            assert len(shards_in(tmp_path)) == 1
            assert ledger.shelf(stamp()).samples.tolist() == [1, 2]

    def test_images_are_not_lost_beside_verdicts_without(self, tmp_path):
        ledger = Ledger(tmp_path)
        pictured = replace(verdicts([1]), image=np.array([b"pixels"], dtype=object))
        with ledger.gathering(1000):
            ledger.keep(verdicts([0]), stamp())
            ledger.keep(pictured, stamp())
        assert Ledger(tmp_path).read(stamp()).image.tolist() == [None, b"pixels"]

    def test_after_a_full_disk_the_same_ledger_goes_on(self, tmp_path):
        script = textwrap.dedent(
            """
            import resource, sys
            from pathlib import Path
            import numpy as np
            from ledgers import stamp, verdicts
            from classwise.record.ledger import Ledger
            from classwise.errors import ClasswiseError
            ledger, most = Ledger(Path(sys.argv[1])), resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most[1]))
            try:
                with ledger.gathering(1000):
                    ledger.keep(verdicts(np.arange(5000)), stamp())
            except ClasswiseError as reason:
                print(reason)
            resource.setrlimit(resource.RLIMIT_FSIZE, most)
            print(len(ledger.read(stamp()).sample))
            """
        )
        said = forked.start(tmp_path, code=script, path=HERE).end()[1].splitlines()
        assert "cannot write" in said[0]
        assert said[1:] == ["5000"]  # what could not be written still waits


class TestSteps:
    def test_few_files_are_written_however_many_steps_there_are(self, tmp_path, monkeypatch):
        written, real = [], ledger_module.write_rows
        monkeypatch.setattr(
            ledger_module, "write_rows", lambda *words: written.append(1) or real(*words)
        )
        monkeypatch.setattr(ledger_module, "monotonic", lambda: 0.0)
        attack = Counting()
        partly = in_steps(tmp_path, attack, Limits(minutes=1e6, batch_size=10))
        assert partly.stopped == "complete"
        assert len(attack.shown) >= 20
        assert len(written) == 1
        assert Ledger(tmp_path).read(stamp()).sample.tolist() == list(range(200))

    def test_a_step_is_cut_only_while_nobody_knows_the_pace(self, tmp_path):
        attack, told = Counting(), Told()
        in_steps(tmp_path, attack, Limits(minutes=1e6, batch_size=50), told)
        assert told.steps[:2] == [24, 50]  # a few of each class first
        assert [len(one) for one in attack.shown] == [2, 8, 14, *told.steps[1:]]

    def test_slow_images_are_cut_small_in_every_step(self, tmp_path, clock):
        class Slow(Counting):
            def judge(self, subject, batch, *words):
                clock[0] += 15.0 * len(batch)
                return super().judge(subject, batch, *words)

        attack = Slow()
        in_steps(tmp_path, attack, Limits(minutes=1e6, batch_size=50))
        assert HELD + 15.0 * max(len(one) for one in attack.shown) <= LOST
        assert sum(map(len, attack.shown)) == 200

    def test_a_model_that_raises_keeps_the_steps_before(self, tmp_path):
        attack = Counting(fail_at=6)
        with pytest.raises(Exception, match="the model broke"):
            in_steps(tmp_path, attack, Limits(Question("worst", 0.001), batch_size=10))
        kept = Ledger(tmp_path).read(stamp()).sample
        assert kept.tolist() == sorted(np.concatenate(attack.shown).tolist())

    def test_a_kill_loses_what_came_since_the_last_write(self, tmp_path):
        script = textwrap.dedent(
            """
            import sys, time
            from pathlib import Path
            from ledgers import Counting
            from test_gathering import in_steps
            from classwise.auditing.sequential import Limits
            from classwise.record import ledger
            now = [0.0]
            ledger.monotonic = lambda: now[0]
            class Slow(Counting):
                def judge(self, *words):
                    if len(self.shown) == 7:
                        print(self.shown, flush=True)
                        time.sleep(60)
                    now[0] += 4.0
                    return super().judge(*words)
            in_steps(Path(sys.argv[1]), Slow(), Limits(minutes=1e6, batch_size=10))
            """
        )
        child = forked.start(tmp_path, code=script, path=HERE)
        shown = json.loads(child.first_line())
        child.kill()
        # written after 12 and 24 seconds; the piece that ended after 28 is lost
        kept = Ledger(tmp_path).read(stamp()).sample
        assert kept.tolist() == sorted(np.concatenate(shown[:6]).tolist())
        attack = Counting()
        partly = in_steps(tmp_path, attack, Limits(minutes=1e6, batch_size=10))
        assert partly.known == len(kept)
        assert sum(map(len, attack.shown)) == 200 - partly.known


def test_a_key_is_found_once_however_many_radii_it_is_made_of(monkeypatch):
    asked, stated = [], Threat.stated
    monkeypatch.setattr(Threat, "stated", property(lambda t: asked.append(1) or stated.fget(t)))
    threat = Threat.of([0.1, 0.2], index=torch.arange(2))
    one, same = (Condition(None, Counting(), threat) for _ in range(2))
    assert one.key == one.key == same.key
    assert len(asked) == 2
    assert replace(one, seed=1).key != one.key


class TestEngine:
    def test_it_starts_once_and_tables_stay_apart(self, tmp_path, monkeypatch):
        started, real = [], shard_files.duckdb.connect
        shard_files._engine.cache_clear()
        monkeypatch.setattr(
            shard_files.duckdb, "connect", lambda **how: started.append(1) or real(**how)
        )
        for name in "ab":
            Ledger(tmp_path / name).append(verdicts([ord(name)]), stamp())
        with shards.open_table(tmp_path / "a") as one, shards.open_table(tmp_path / "b") as other:
            found = [base.execute("SELECT sample FROM rows").fetchall() for base in (one, other)]
        assert found == [[(97,)], [(98,)]]
        missing = pytest.raises(shard_files.duckdb.Error, match="shards")
        with shard_files.connected() as base, missing:
            base.execute("SELECT * FROM shards")
        assert len(started) == 1

    def test_a_forked_process_has_its_own(self, tmp_path):
        Ledger(tmp_path).append(verdicts([0]), stamp())
        child = multiprocessing.get_context("fork").Process(
            target=Ledger(tmp_path).append, args=(verdicts([1]), stamp())
        )
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert Ledger(tmp_path).read(stamp()).sample.tolist() == [0, 1]
