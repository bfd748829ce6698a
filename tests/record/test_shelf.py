"""Files are read once, whatever is asked for."""

import numpy as np
from ledgers import Counting, complete, data, stamp, verdicts

from classwise.auditing import run as run_module
from classwise.auditing.run import LOST, pieces
from classwise.record import ledger as ledger_module
from classwise.record.ledger import Ledger
from classwise.record.rows import select
from classwise.record.shelf import Shelf


class TestShelf:
    """What a ledger knows is read once and looked up by sample number."""

    def test_files_are_read_once_however_many_pieces_are_asked_for(self, tmp_path, monkeypatch):
        ledger = Ledger(tmp_path)
        complete(ledger, stamp(), data(), Counting(), tidy=False)
        opened = []
        real = ledger_module.open_table
        monkeypatch.setattr(
            ledger_module, "open_table", lambda *where: opened.append(1) or real(*where)
        )
        fresh, judge = Ledger(tmp_path), Counting()
        for number in range(20):
            part = data(count=1, first=number)
            assert complete(fresh, stamp(), part, judge, tidy=False).sample.tolist() == [number]
        assert len(opened) == 1
        assert judge.shown == []

    def test_rows_come_in_the_order_asked_for_from_any_part(self):
        whole = verdicts(range(10))
        shelf = Shelf(select(whole, np.array([7, 2])), None)
        shelf.add(select(whole, np.array([9, 0, 2])))
        wanted = np.array([0, 7, 9, 2])
        assert shelf.rows(wanted).sample.tolist() == wanted.tolist()
        assert np.array_equal(shelf.rows(wanted).predicted, whole.predicted[wanted])
        assert shelf.has(np.array([1, 2, 50])).tolist() == [False, True, False]
        assert shelf.samples.tolist() == [0, 2, 7, 9]

    def test_a_slow_model_is_saved_often_and_a_quick_one_in_whole_batches(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(run_module, "monotonic", lambda: now[0])

        def sizes(seconds, most=256):
            found = []
            for part in pieces(np.arange(1000), most):
                now[0] += seconds * len(part)
                found.append(len(part))
            assert sum(found) == 1000
            return found

        assert sizes(1e-3)[:2] == [16, 256]
        slow = sizes(3.5)  # AutoAttack on a large network: 15 minutes for a batch of 256
        assert max(one * 3.5 for one in slow) <= LOST
        assert set(sizes(200.0)[1:]) == {1}

    def test_steady_pieces_do_not_follow_the_clock(self):
        assert [len(part) for part in pieces(np.arange(10), 4, steady=True)] == [4, 4, 2]
