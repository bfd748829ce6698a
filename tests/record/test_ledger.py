"""Nothing is judged twice, and no crash loses more than a batch."""

import shutil
import textwrap
import time
from pathlib import Path

import duckdb
import forked
import numpy as np
import pytest
from ledgers import ABOUT, Counting, Told, complete, data, missing, stamp, verdicts
from refusals import refused

from classwise.judging.audits import read_audits, read_ledger
from classwise.record.ledger import Ledger
from classwise.record.rows import in_order_of, select


class TestCompletion:
    def test_nothing_is_judged_twice(self, tmp_path):
        ledger, first, second = Ledger(tmp_path), Counting(), Counting()
        found = complete(ledger, stamp(), data(), first)
        again = complete(ledger, stamp(), data(batch_size=3), second)
        assert np.concatenate(first.shown).tolist() == list(range(20))
        assert second.shown == []
        for column in ("sample", "label", "predicted", "logit_gap", "radius", "broken_by"):
            assert np.array_equal(getattr(found, column), getattr(again, column))

    def test_only_what_is_missing_is_judged(self, tmp_path):
        ledger, judge = Ledger(tmp_path), Counting()
        ledger.append(verdicts([3, 4, 11]), stamp())
        assert missing(ledger, stamp(), np.arange(5)).tolist() == [0, 1, 2]
        found = complete(ledger, stamp(), data(), judge)
        assert np.concatenate(judge.shown).tolist() == [n for n in range(20) if n not in (3, 4, 11)]
        assert found.sample.tolist() == list(range(20))
        assert found.predicted[[3, 4, 11]].tolist() == [0, 1, 2]

    @pytest.mark.parametrize("other", [
        {"model": "m2"}, {"data": "d2"}, {"eps": 0.2}, {"seed": 1}, {"attack": "pgd-3"},
    ])  # fmt: skip
    def test_another_model_data_or_attack_is_another_question(self, tmp_path, other):
        ledger = Ledger(tmp_path)
        complete(ledger, stamp(), data(), Counting())
        assert len(missing(ledger, stamp(**other), np.arange(20))) == 20

    def test_a_part_comes_back_in_the_order_it_was_asked_for(self, tmp_path):
        ledger = Ledger(tmp_path)
        whole = complete(ledger, stamp(), data(), Counting())
        order = np.array([7, 2, 19])
        part = in_order_of(order, whole)
        assert part.sample.tolist() == [7, 2, 19]
        assert np.array_equal(part.predicted, whole.predicted[order])
        assert select(whole, np.array([1])).sample.tolist() == [1]

    def test_the_same_weights_under_another_name_get_rows_but_no_attack(self, tmp_path):
        ledger, judge = Ledger(tmp_path, ABOUT), Counting()
        complete(ledger, stamp("last"), data(), Counting())
        complete(ledger, stamp("best"), data(count=9), judge)
        assert judge.shown == []
        best, last = read_audits(tmp_path, ABOUT)
        assert (best.weights, last.weights) == ("best", "last")
        assert best.report["pgd-2"].counts.sizes.sum() == 9
        assert last.report["pgd-2"].counts.sizes.sum() == 20

    def test_shards_are_compacted_without_losing_a_row(self, tmp_path):
        ledger = Ledger(tmp_path)
        for n in range(5):
            ledger.append(verdicts([n, n + 5]), stamp())
        ledger.append(verdicts([1]), stamp("best"))
        assert len(list(tmp_path.iterdir())) == 6
        before = ledger.read(stamp())
        ledger.compact(stamp())
        assert len(list(tmp_path.iterdir())) == 2
        assert np.array_equal(ledger.read(stamp()).sample, before.sample)
        ledger.compact(stamp())
        assert len(list(tmp_path.iterdir())) == 2

    def test_progress_begins_with_what_was_there_already(self, tmp_path):
        ledger, told = Ledger(tmp_path), Told()
        ledger.append(verdicts([0, 1]), stamp())
        complete(ledger, stamp(), data(), Counting(), listener=told)
        assert (told.known, told.steps) == (2, [2, 6, 6, 4])


class TestCrash:
    def test_a_model_that_raises_keeps_the_batches_before(self, tmp_path):
        ledger, judge = Ledger(tmp_path), Counting(fail_at=2)
        words = ("samples 8 to 13", "RuntimeError: the model broke", "8 of 20")
        with refused(*words, str(tmp_path)):
            complete(ledger, stamp(), data(), judge)
        assert missing(ledger, stamp(), np.arange(20)).tolist() == list(range(8, 20))
        judge = Counting()
        complete(ledger, stamp(), data(), judge)
        assert judge.shown == [[8, 9], list(range(10, 16)), list(range(16, 20))]

    def test_a_kill_loses_at_most_one_batch_and_the_rest_is_the_same(self, tmp_path):
        script = textwrap.dedent(
            """
            import sys, time, torch
            from pathlib import Path
            from ledgers import Counting, complete, data, stamp
            from classwise.record.ledger import Ledger
            class Slow(Counting):
                def judge(self, *words):
                    if len(self.shown) == 3:
                        print("ready", flush=True)
                        time.sleep(60)
                    return super().judge(*words)
            complete(Ledger(Path(sys.argv[1])), stamp(), data(), Slow())
            """
        )
        folder = tmp_path / "killed"
        child = forked.start(folder, code=script)
        assert child.first_line() == "ready"
        child.kill()
        ledger, judge = Ledger(folder), Counting()
        assert missing(ledger, stamp(), np.arange(20)).tolist() == [
            *range(14, 20)
        ]  # pieces of 2, 6 and 6
        resumed = complete(ledger, stamp(), data(), judge)
        straight = complete(Ledger(tmp_path / "straight"), stamp(), data(), Counting())
        assert [one for piece in judge.shown for one in piece] == [*range(14, 20)]
        assert np.array_equal(resumed.predicted, straight.predicted)
        # Compacted, the two ledgers are the same file, name included.
        names = [sorted(p.name for p in f.iterdir()) for f in (folder, tmp_path / "straight")]
        assert names[0] == names[1]

    def test_a_real_audit_goes_on_after_a_kill_as_if_nothing_had_happened(self, tmp_path):
        (tmp_path / "plain_net.py").write_text(
            "import torch\nfrom torch import nn\n"
            "def make(num_classes):\n"
            "    torch.manual_seed(0)\n"
            "    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(),\n"
            "                         nn.Linear(288, num_classes)).eval()\n"
        )
        attacks = "suite(apgd-ce(steps=10),apgd-t(steps=10,targets=3),square(queries=100))"

        def audit(folder):
            words = (
                "audit plain_net:make --data digits --limit 200 --eps 0.002 --batch-size 15 --quiet"
            )
            given = (*words.split(), "--out", folder, "--attacks", attacks)
            return forked.start(*given, path=tmp_path)

        def rows(folder):
            columns = "sample, label, predicted, iterations, broken_by"
            return duckdb.sql(
                f"SELECT {columns} FROM '{folder}/predictions/*.parquet' ORDER BY sample"
            ).fetchall()

        def gaps(folder):
            table = f"'{folder}/predictions/*.parquet'"
            return duckdb.sql(f"SELECT logit_gap FROM {table} ORDER BY sample").fetchnumpy()[
                "logit_gap"
            ]

        straight, killed = tmp_path / "straight", tmp_path / "killed"
        assert audit(straight).wait() == 0
        child = audit(killed)
        while len(list(killed.glob("predictions/*.parquet"))) < 3:
            assert child.poll() is None, "it was over before it could be killed"
            time.sleep(0.002)
        child.kill()
        before = rows(killed)
        assert 2 + 8 + 30 <= len(before) < len(rows(straight))  # the first pieces are small ones
        assert audit(killed).wait() == 0
        assert rows(killed) == rows(straight)
        # in float32 the last digits of a gap depend on the batch that an image stands in
        assert np.allclose(gaps(killed), gaps(straight), atol=1e-5)
        assert {broken for *_, broken in rows(straight)} > {None, "clean"}

    def test_a_full_disk_is_one_line_and_keeps_what_was_written(self, tmp_path):
        script = textwrap.dedent(
            """
            import resource, sys
            from pathlib import Path
            import numpy as np
            from ledgers import stamp, verdicts
            from classwise.record.ledger import Ledger
            from classwise.errors import ClasswiseError
            ledger = Ledger(Path(sys.argv[1]))
            ledger.append(verdicts([0, 1]), stamp())
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            try:
                ledger.append(verdicts(np.arange(2, 5000)), stamp())
            except ClasswiseError as reason:
                print(reason)
            """
        )
        code, said, wrong = forked.start(tmp_path, code=script).end()
        assert (code, said.count("\n")) == (0, 1), wrong
        assert "cannot write" in said
        assert "stays" in said
        assert Ledger(tmp_path).read(stamp()).sample.tolist() == [0, 1]
        assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]


class TestMerging:
    def test_files_copied_together_are_one_ledger(self, tmp_path):
        whole = complete(Ledger(tmp_path / "whole"), stamp(), data(), Counting())
        merged = tmp_path / "merged"
        merged.mkdir()
        for name, first, count in (("a", 0, 12), ("b", 8, 12)):
            part = data(count=count, first=first)
            complete(Ledger(tmp_path / name), stamp(), part, Counting())
            for path in (tmp_path / name).iterdir():
                assert not (merged / path.name).exists()
                shutil.copy(path, merged)
        ledger, judge = Ledger(merged), Counting()
        assert np.array_equal(ledger.read(stamp()).predicted, whole.predicted)
        complete(ledger, stamp(), data(), judge)
        assert judge.shown == []
        assert len(list(merged.iterdir())) == 1

    @pytest.mark.parametrize("turned", [False, True])
    def test_where_machines_disagree_the_sample_fell(self, tmp_path, turned):
        ledger = Ledger(tmp_path, ABOUT)
        both = [verdicts([0, 1], predicted=[0, 2]), verdicts([0, 1], predicted=[0, 1])]
        for one in reversed(both) if turned else both:
            ledger.append(one, stamp())
        assert ledger.read(stamp()).predicted.tolist() == [0, 2]
        (audited,) = read_ledger(tmp_path)
        assert audited.report["pgd-2"].by_class == {"a": 1.0, "b": 0.0, "c": None}


def test_a_file_that_another_process_compacts_away_is_no_failure(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path)
    for n in range(3):
        ledger.append(verdicts([n]), stamp())
    seen = Path.glob
    glances = []

    def glance(folder, pattern):
        found = list(seen(folder, pattern))
        glances.append(len(found))
        if len(glances) == 1:  # between looking and reading, the files become one
            monkeypatch.setattr(Path, "glob", seen)
            ledger.compact(stamp())
            monkeypatch.setattr(Path, "glob", glance)
        return iter(found)

    monkeypatch.setattr(Path, "glob", glance)
    assert ledger.read(stamp()).sample.tolist() == [0, 1, 2]
    assert glances == [3, 1]
