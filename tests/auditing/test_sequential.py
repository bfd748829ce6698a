"""An audit that stops when its question is answered."""

import io
import math

import numpy as np
import pytest
import torch
from asked import view_of
from ledgers import verdicts
from refusals import refused
from rich.console import Console

from classwise.auditing import sequential
from classwise.auditing.question import parse_question
from classwise.auditing.sequential import Limits
from classwise.data.batches import Batches
from classwise.report.partial import partial_table


def examine(batches, names, judge, *, clock=None, advance=None, **limits):
    """Walk through made-up images; `judge` is shown those of each step."""

    def shown(view):
        rows = torch.from_numpy(view.numbers)
        return judge(Batches(batches.images[rows], batches.labels[rows], rows, len(rows)))

    more = {"clock": clock} if clock else {}
    found = view_of(batches, names)
    return sequential.examine(found, shown, Limits(**limits), advance=advance, **more)


def setting(chances, per_class, seed=0):
    """Data, and a judge for two conditions whose second one is right with these chances."""
    random = np.random.default_rng(seed)
    labels = np.tile(np.arange(len(chances)), per_class)
    right = random.random(len(labels)) < np.asarray(chances)[labels]
    shown = []

    def judge(batch):
        rows = batch.origin.numpy()
        shown.append(rows)
        told = np.where(right[rows], labels[rows], (labels[rows] + 1) % len(chances))
        return [
            verdicts(rows, labels=labels[rows], condition="clean"),
            verdicts(rows, predicted=told, labels=labels[rows]),
        ]

    images = torch.zeros(len(labels), 1, 1, 1)
    batches = Batches(images, torch.from_numpy(labels), torch.arange(len(labels)), 64)
    return batches, judge, right, shown


NAMES = ("a", "b", "c", "d")


class TestExamine:
    def test_a_clear_question_is_answered_with_a_fraction_of_the_work(self):
        batches, judge, right, shown = setting([0.05, 0.6, 0.7, 0.8], 500)
        found = examine(batches, NAMES, judge, question=parse_question("worst>=0.2", NAMES))
        assert (found.answer, found.stopped) == (False, "settled")
        assert found.saved > 5
        rows = np.concatenate(shown)
        assert len(set(rows.tolist())) == len(rows) == found.standing.seen.sum()
        assert np.array_equal(found.found[1].sample, np.sort(rows))
        assert np.array_equal(found.found[1].correct, right[np.sort(rows)])
        for word in ("worst>=0.2 under pgd-2: no", "below the bar: a", "times less", "not needed"):
            assert word in found.words
        yes = examine(batches, NAMES, judge, question=parse_question("c>=0.5", NAMES))
        assert yes.answer is True
        assert yes.standing.seen[[0, 1, 3]].sum() == 0
        assert set(yes.unexamined) <= {"c"}

    def test_the_walk_is_the_same_every_time_and_for_every_ledger(self):
        first, second = (setting([0.2, 0.6, 0.7, 0.8], 100) for _ in range(2))
        for batches, judge, _, _ in (first, second):
            examine(batches, NAMES, judge, question=parse_question("worst>=0.3", NAMES))
        assert all(map(np.array_equal, first[3], second[3]))

    def test_without_question_or_limit_it_is_the_full_audit(self):
        batches, judge, right, _ = setting([0.2, 0.6, 0.7, 0.8], 30)
        found = examine(batches, NAMES, judge, batch_size=17)
        assert (found.answer, found.stopped) == (None, "complete")
        assert np.array_equal(found.found[1].correct, right)
        assert found.unexamined == {}
        low, high = found.intervals
        assert np.array_equal(low, high)

    def test_time_is_kept_and_what_was_left_is_said(self):
        batches, judge, _, shown = setting([0.1, 0.6, 0.7, 0.8], 400)
        now = [0.0]

        def slow(batch):
            now[0] += 7.0
            return judge(batch)

        found = examine(batches, NAMES, slow, minutes=1, clock=lambda: now[0])
        assert found.stopped == "time"
        assert found.seconds <= 60
        assert len(shown) == 8  # a ninth would not have fitted
        assert sum(found.unexamined.values()) == 1600 - found.standing.seen.sum()
        assert found.standing.seen[0] > found.standing.seen[3]  # the rival for the worst class
        assert "not examined (time was up)" in found.words

    def test_many_classes_are_no_reason_for_a_large_first_step(self):
        batches, judge, _, shown = setting([0.5] * 100, 10)
        names = tuple(f"c{k}" for k in range(100))
        now = [0.0]

        def slow(batch):
            now[0] += 25.0
            return judge(batch)

        found = examine(batches, names, slow, minutes=1, batch_size=32, clock=lambda: now[0])
        assert found.stopped == "time"
        assert [len(rows) for rows in shown] == [32, 32]
        assert sorted(found.standing.seen.tolist()) == [0] * 36 + [1] * 64  # nobody twice yet
        every = examine(batches, names, judge, batch_size=32)
        assert every.stopped == "complete"

    def test_an_open_question_is_undecided_and_says_which_classes_are_open(self):
        batches, judge, _, _ = setting([0.2, 0.6, 0.7, 0.8], 400)
        now = iter(range(0, 10_000, 40))
        found = examine(
            batches,
            NAMES,
            judge,
            question=parse_question("worst>=0.2", NAMES),
            minutes=1.5,
            clock=lambda: next(now),
        )
        assert found.answer is None
        assert "undecided" in found.words
        assert "not settled: a" in found.words

    def test_intervals_hold_under_every_condition_although_one_chose_the_images(self):
        """The walk follows the last condition; the first one is tied to it as clean is."""
        held = []
        for seed in range(60):
            batches, judge, right, _ = setting([0.15, 0.3, 0.7], 60, seed)
            labels = batches.labels.numpy()
            easier = right | (np.random.default_rng(seed + 999).random(len(right)) < 0.4)

            def both(batch, judge=judge, labels=labels, easier=easier):
                rows = batch.origin.numpy()
                told = np.where(easier[rows], labels[rows], (labels[rows] + 1) % 3)
                first = verdicts(rows, predicted=told, labels=labels[rows], condition="clean")
                return [first, judge(batch)[1]]

            names = ("a", "b", "c")
            asked = parse_question("worst>=0.25", names)
            found = examine(batches, names, both, question=asked, batch_size=10, seed=seed)
            for one, truth in zip(found.found, (easier, right), strict=True):
                low, high = found.intervals_under(one)
                rates = [truth[labels == k].mean() for k in range(3)]
                held.append((low <= rates) & (rates <= high))
            assert np.array_equal(found.intervals, found.intervals_under(found.found[1]))
        assert np.mean(held) >= 0.95

    def test_the_table_has_intervals_and_what_was_left_out_but_no_average(self):
        names = ("a|<b>", "b\nb", "c", "d", "nobody")
        batches, judge, _, _ = setting([0.05, 0.6, 0.7, 0.8], 100)
        found = examine(batches, names, judge, question=parse_question("worst>=0.2", names))
        console = Console(width=110, record=True, file=io.StringIO())
        console.print(partial_table(found, "at", everything=False, command="all of it"))
        text = console.export_text()
        rows = text.splitlines()[4:8]
        low, high = found.intervals
        assert rows[0].startswith("a|<b>")
        seen = found.standing.seen
        for k, name in enumerate(("a|<b>", "b b", "c", "d")):
            (row,) = [row for row in rows if row.startswith(name)]
            assert f"{seen[k]} of 100" in row
            assert row.rstrip().endswith(f"{100 * low[k]:.1f}–{100 * high[k]:.1f}")
        assert "Left out (not asked about, or without images): nobody" in text
        pooled = found.standing.hits.sum() / seen.sum()
        assert f"{100 * pooled:.1f}" not in text

    @pytest.mark.parametrize("count", [2, 10, 100, 1000])
    def test_many_classes_make_a_short_table(self, count):
        names = tuple(f"c{k}" for k in range(count))
        batches, judge, _, _ = setting(np.linspace(0.2, 0.9, count), 10)
        now = iter(range(0, 10**6, 20))
        found = examine(
            batches, names, judge, minutes=2, batch_size=2 * count, clock=lambda: next(now)
        )
        assert not found.whole
        for everything in (False, True):
            console = Console(width=100, record=True, file=io.StringIO())
            console.print(partial_table(found, "at", everything=everything, command="all of it"))
            text = " ".join(console.export_text(clear=False).split())
            lines = [line for line in console.export_text().splitlines() if " of 10 " in line]
            assert len(lines) == (count if everything or count <= 20 else 10)
            assert ("all of it" in text) == (not everything and count > 20)

    def test_classes_without_images_are_left_out(self):
        batches, judge, _, _ = setting([0.9, 0.8], 100)
        names = ("a", "b", "nobody")
        found = examine(batches, names, judge, question=parse_question("worst>=0.2", names))
        assert found.answer is True
        with refused("no images"):
            examine(batches, names, judge, question=parse_question("nobody>=0.2", names))


@pytest.mark.parametrize("facts", [{"minutes": 0}, {"minutes": math.nan}, {"batch_size": 0},
                                   {"level": 95}])  # fmt: skip
def test_budgets_that_make_no_sense(facts):
    batches, judge, _, _ = setting([0.5, 0.5], 10)
    with refused(next(iter(facts))):
        examine(batches, ("a", "b"), judge, **facts)
