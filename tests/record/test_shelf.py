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

        def sizes(seconds, fixed=0.0, most=256):
            found = []
            for part in pieces(np.arange(1000), most):
                now[0] += fixed + seconds * len(part)
                found.append(len(part))
            assert sum(found) == 1000
            return found

        assert sizes(1e-3)[:5] == [2, 8, 32, 128, 256]
        for slow in (3.5, 15.0, 25.0):  # AutoAttack on large networks, from the first piece on
            assert max(one * slow for one in sizes(slow)) <= LOST
        assert sizes(200.0) == [2, *[1] * 998]  # nothing smaller is left to save
        quick = sizes(0.01, fixed=1.3)  # AutoAttack on a small network
        assert quick[:5] == [2, 8, 32, 128, 256]

    def test_what_a_piece_costs_however_small_makes_no_smaller_pieces(self, monkeypatch):
        """On a GPU thousands of passes take as long for one image as for a hundred."""
        now = [0.0]
        monkeypatch.setattr(run_module, "monotonic", lambda: now[0])
        found = []
        for part in pieces(np.arange(5000), 512):
            took = 43.0 + 0.1 * len(part)
            now[0] += took
            found.append(len(part))
            assert took <= 2 * 43.1
        assert found[:5] == [2, 1, 2, 4, 8]
        assert now[0] <= 2.5 * 5000 * 0.1 + 10 * 43  # it does not take for ever

    def test_images_that_fall_at_once_promise_nothing_of_the_next(self, monkeypatch):
        """The first two are wrong without an attack; every other takes twenty seconds."""
        now = [0.0]
        monkeypatch.setattr(run_module, "monotonic", lambda: now[0])
        lost = []
        for part in pieces(np.arange(200), 512):
            lost.append(20.0 * (len(part) if len(lost) else 0))
            now[0] += lost[-1]
        assert max(lost) <= 8 * 20
        assert max(lost[2:]) <= LOST

    def test_steady_pieces_do_not_follow_the_clock(self):
        assert [len(part) for part in pieces(np.arange(10), 4, steady=True)] == [4, 4, 2]
