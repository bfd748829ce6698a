import io
import itertools
import math

import numpy as np
import pytest
import torch
from asked import audit_target, view_of
from ledgers import verdicts
from refusals import refused
from rich.console import Console

from classwise.attacks.condition import Condition
from classwise.auditing import sequential
from classwise.auditing.question import Standing, parse_question
from classwise.auditing.sequential import Limits
from classwise.data.batches import Batches
from classwise.judging.audits import read_ledger
from classwise.report.partial import partial_table
from classwise.statistics.evidence import confidence_sequence, evidence


def examine(batches, names, judge, *, clock=None, advance=None, **limits):
    """Walk through made-up images; `judge` is shown those of each step."""

    def shown(view):
        rows = torch.from_numpy(view.numbers)
        return judge(Batches(batches.images[rows], batches.labels[rows], rows, len(rows)))

    more = {"clock": clock} if clock else {}
    found = view_of(batches, names)
    return sequential.examine(found, shown, Limits(**limits), advance=advance, **more)


def likelihood(total, size, hits, misses):
    """Chance of one given order of hits and misses, drawn without returning."""
    chance, right, wrong, left = 1.0, total, size - total, size
    for is_hit in [True] * hits + [False] * misses:
        chance *= (right if is_hit else wrong) / left
        right, wrong, left = right - is_hit, wrong - (not is_hit), left - 1
    return chance


def logarithm(number):
    return math.log(number) if number > 0 else -math.inf


class TestEvidence:
    def test_it_is_the_likelihood_ratio_of_the_straight_way(self):
        for size, bar in ((6, 2), (9, 5), (5, 5), (4, 1)):
            for hits, misses in itertools.product(range(size + 1), repeat=2):
                if hits + misses > size:
                    continue
                chance = [likelihood(total, size, hits, misses) for total in range(size + 1)]
                low, high = np.mean(chance[:bar]), np.mean(chance[bar:])
                below, meets = evidence(hits, hits + misses, size, bar)
                if low == 0:
                    assert below == -math.inf
                else:
                    expected = low / chance[bar] if chance[bar] else math.inf
                    assert below == pytest.approx(logarithm(expected))
                if high == 0:
                    assert meets == -math.inf
                else:
                    expected = high / chance[bar - 1] if chance[bar - 1] else math.inf
                    assert meets == pytest.approx(logarithm(expected))

    def test_its_mean_stays_at_one_at_the_bar_and_below_one_beyond(self):
        """All orders of a small class, weighed by their chance: the martingale itself."""
        size, bar = 7, 3
        for total in range(bar, size + 1):
            previous = 1.0
            for seen in range(size):
                mean = 0.0
                for hits in range(max(0, seen - (size - total)), min(seen, total) + 1):
                    ways = math.comb(seen, hits) * likelihood(total, size, hits, seen - hits)
                    mean += ways * math.exp(evidence(hits, seen, size, bar)[0])
                assert mean <= previous + 1e-9
                if total == bar and seen <= size - bar:  # later, some orders are impossible
                    assert mean == pytest.approx(1.0)
                previous = mean

    def test_after_the_last_image_all_is_proven(self):
        hits = np.arange(11)
        below, meets = evidence(hits, 10, 10, 4)
        assert np.array_equal(below == math.inf, hits < 4)
        assert np.array_equal(meets == math.inf, hits >= 4)
        low, high = confidence_sequence(hits, 10, 10)
        assert np.array_equal(low, hits / 10)
        assert np.array_equal(high, hits / 10)

    def test_looking_after_every_image_errs_as_seldom_as_promised(self):
        random, size, bar = np.random.default_rng(0), 200, 60
        outcomes = np.zeros((2000, size), int)
        outcomes[:, :bar] = 1  # exactly at the bar
        outcomes = random.permuted(outcomes, axis=1)
        seen = np.arange(1, size)
        hits = outcomes.cumsum(1)[:, :-1]
        below = np.concatenate(
            [evidence(rows, seen, size, bar)[0] for rows in np.array_split(hits, 20)]
        )
        for alpha in (0.05, 0.2):
            wrong = (below >= -math.log(alpha)).any(1).mean()
            assert wrong <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / 2000)
        assert wrong > 0.02  # the bound is not an idle one

    def test_a_confidence_sequence_holds_at_all_times(self):
        random, size, total = np.random.default_rng(0), 100, 35
        outcomes = np.zeros((500, size), int)
        outcomes[:, :total] = 1
        hits = random.permuted(outcomes, axis=1).cumsum(1)
        low, high = confidence_sequence(hits, np.arange(1, size + 1), size, 0.9)
        held = ((low <= total / size) & (total / size <= high)).all(1).mean()
        assert held >= 0.9

    def test_empty_classes_have_no_interval(self):
        low, high = confidence_sequence([0, 1], [0, 2], [0, 10])
        assert np.isnan(low[0])
        assert np.isnan(high[0])
        assert low[1] <= 0.5 <= high[1]


def simulate(totals, size, bar, audits=1000, batch=40, seed=0):
    """Whole audits at once: (answers, images judged) of each."""
    random = np.random.default_rng(seed)
    totals = np.asarray(totals)
    ranks = random.random((audits, len(totals), size)).argsort(-1)
    hits_after = np.zeros((audits, len(totals), size + 1), np.int64)
    hits_after[..., 1:] = (ranks < totals[:, None]).cumsum(-1)
    seen = np.zeros((audits, len(totals)), np.int64)
    sizes = np.full_like(seen, size)
    active = np.arange(audits)
    answers = np.full(audits, np.nan)
    while len(active):
        hits = np.take_along_axis(hits_after[active], seen[active][..., None], -1)[..., 0]
        standing = Standing(hits, seen[active], sizes[active], bar)
        answers[active] = standing.answer()
        seen[active] += standing.allocate(batch)
        active = active[np.isnan(answers[active])]
    return answers, seen.sum(-1)


# (totals right of 100 images in each class, the right answer, least work saved)
SCENES = {
    "clearly yes": ([45, 50, 55, 60, 65, 70, 75, 80, 85, 90], True, 4.0),
    "clearly no": ([5, 50, 55, 60, 65, 70, 75, 80, 85, 90], False, 5.0),
    "all exactly at the bar": ([20] * 10, True, 1.0),
    "one just below the bar": ([19, *[20] * 9], False, 1.0),
    "all just below the bar": ([19] * 10, False, 1.0),
    "worst exactly at the bar": ([20, *[60] * 9], True, 3.0),
    "one a little below": ([14, *[45] * 9], False, 3.0),
    "two classes": ([15, 60], False, 1.2),
}


@pytest.mark.parametrize("scene", SCENES)
def test_the_answer_is_right_in_95_of_100_audits_and_work_is_saved(scene):
    totals, truth, least = SCENES[scene]
    answers, work = simulate(totals, 100, 0.2)
    assert not np.isnan(answers).any()
    assert (answers == truth).mean() >= 0.95
    assert len(totals) * 100 / work.mean() >= least


def test_many_classes_need_no_more_than_their_share():
    random = np.random.default_rng(1)
    totals = random.integers(20, 45, 100)
    answers, work = simulate(totals, 50, 0.2, audits=100)
    assert (answers == 1).mean() >= 0.95
    assert work.mean() < 0.7 * 100 * 50


class TestStanding:
    def test_a_settled_class_gets_no_more_images(self):
        standing = Standing(
            np.array([60, 20, 20]), np.array([64, 64, 64]), np.full(3, 200), bar=0.3
        )
        take = standing.allocate(30)
        assert take[0] == 0
        assert take[1:].tolist() == [15, 15]

    def test_a_class_that_looks_too_low_gets_the_whole_batch(self):
        standing = Standing(np.array([30, 16, 20]), np.full(3, 64), np.full(3, 200), bar=0.3)
        assert standing.allocate(30).tolist() == [0, 30, 0]

    def test_every_class_is_tried_before_any_is_preferred(self):
        standing = Standing(np.array([0, 0, 0]), np.array([8, 3, 0]), np.array([200, 200, 5]), 0.3)
        assert standing.allocate(30).tolist() == [0, 5, 5]

    def test_a_class_below_ends_it(self):
        standing = Standing(np.array([0, 20]), np.full(2, 64), np.full(2, 200), bar=0.3)
        assert standing.answer() == 0
        assert standing.allocate(30).tolist() == [0, 0]

    def test_without_a_bar_only_rivals_for_the_worst_are_examined_first(self):
        standing = Standing(np.array([5, 8, 60]), np.full(3, 64), np.full(3, 200))
        assert standing.allocate(30).tolist() == [15, 15, 0]
        over = Standing(np.array([5, 8, 60]), np.array([200, 200, 64]), np.full(3, 200))
        assert over.allocate(30).tolist() == [0, 0, 30]


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("worst", ("worst>=0.2",)),
        ("worst>0.2", ("worst>=0.2",)),
        ("worst>=20", ("bar",)),
        ("worst>=0", ("bar",)),
        ("worst>=1.2.3", ("bar",)),
        ("wrost>=0.2", ("did you mean 'worst'",)),
    ],
)
def test_questions_that_cannot_be_read(text, words):
    with refused(text.split(">")[0], *words):
        parse_question(text, NAMES)


@pytest.mark.parametrize("facts", [{"minutes": 0}, {"minutes": math.nan}, {"batch_size": 0},
                                   {"level": 95}])  # fmt: skip
def test_budgets_that_make_no_sense(facts):
    batches, judge, _, _ = setting([0.5, 0.5], 10)
    with refused(next(iter(facts))):
        examine(batches, ("a", "b"), judge, **facts)


@pytest.fixture
def linear(tmp_path, monkeypatch):
    """A linear net for digits, by name, that knows some classes better than others."""
    (tmp_path / "asked_net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "from classwise.data.sources import open_data\n"
        "def make(num_classes):\n"
        "    train = open_data('digits').train\n"
        "    x, y = train.images.flatten(1).float() / 255, train.labels\n"
        "    net = nn.Linear(64, num_classes)\n"
        "    means = torch.stack([x[y == k].mean(0) for k in range(num_classes)])\n"
        "    with torch.no_grad():\n"
        "        net.weight.copy_(means)\n"
        "        net.bias.copy_(-means.square().sum(1) / 2)\n"
        "    return nn.Sequential(nn.Flatten(), net)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "asked_net:make"


def test_a_target_is_asked_and_its_ledger_goes_on(linear, tmp_path, monkeypatch):
    shown, judge = [], Condition.judge

    def counting(self, subject, batch, tell):
        shown.append(len(batch))
        return judge(self, subject, batch, tell)

    monkeypatch.setattr(Condition, "judge", counting)
    facts = {"data": "digits", "attacks": "clean,pgd-5", "eps": 0.2, "quiet": True}
    folder = tmp_path / "kept"
    (found,) = audit_target(linear, folder=folder, question="worst>=0.5", **facts)
    assert "worst>=0.5 under pgd-5: no" in found.report.about["note"]
    first = sum(shown)
    (again,) = audit_target(linear, folder=folder, question="worst>=0.5", **facts)
    judged = int(found.partial.standing.seen.sum())
    assert (found.partial.known, again.partial.known) == (0, judged)
    known = f", {judged} of them known from before"
    assert again.report.about["note"].replace(known, "") == found.report.about["note"]
    assert known in again.report.about["note"]
    assert sum(shown) == first  # all from the ledger
    assert len(list((folder / "predictions").iterdir())) == 2  # compacted
    (whole,) = audit_target(linear, folder=folder, **facts)
    count = int(whole.report["pgd-5"].counts.sizes.sum())
    assert sum(shown) == 2 * count  # nothing twice
    assert first <= 2 * count / 5
    assert whole.report["pgd-5"].worst < 0.5
    (timed,) = audit_target(linear, minutes=1e-6, **facts)
    assert "time was up" in timed.report.about["note"]
    with refused("unknown class in a question"):
        audit_target(linear, question="zreo>=0.5", **facts)


def test_a_note_says_what_the_ledger_lacks_not_what_an_audit_did(linear, tmp_path):
    facts = {"data": "digits", "attacks": "clean", "quiet": True}

    def note(folder):
        (kept,) = read_ledger(folder)
        return kept.report.about.get("note", "")

    # in full, and then a question that needs few: nothing is missing
    audit_target(linear, folder=tmp_path / "a", **facts)
    (asked,) = audit_target(linear, folder=tmp_path / "a", question="worst>=0.99", **facts)
    assert "not examined" in asked.report.about["note"]
    assert note(tmp_path / "a") == ""
    # a question, and then a few images: what the question chose is still there
    audit_target(linear, folder=tmp_path / "b", question="worst>=0.99", **facts)
    audit_target(linear, folder=tmp_path / "b", limit=10, **facts)
    assert "not examined" in note(tmp_path / "b")
    # a class in full is not the whole
    audit_target(linear, folder=tmp_path / "c", question="three>=1", **facts)
    assert "three>=1" in note(tmp_path / "c")
    for folder in "bc":
        audit_target(linear, folder=tmp_path / folder, **facts)
        assert note(tmp_path / folder) == ""


def test_what_was_begun_and_broken_off_is_no_audit(linear, tmp_path, monkeypatch):
    facts = {"data": "digits", "attacks": "clean,pgd-5", "eps": 0.2, "quiet": True}
    folder = tmp_path / "kept"
    calls, judge = [], Condition.judge

    def breaks(*words):
        calls.append(1)
        if len(calls) > 6:
            raise KeyboardInterrupt
        return judge(*words)

    with monkeypatch.context() as patch:
        patch.setattr(Condition, "judge", breaks)
        with pytest.raises(KeyboardInterrupt):
            audit_target(linear, folder=folder, question="worst>=0.5", **facts)
    (kept,) = read_ledger(folder)
    assert all("broken off" in one.unfinished for one in kept.report.values())
    (whole,) = audit_target(linear, folder=folder, **facts)
    (kept,) = read_ledger(folder)
    assert not any(one.unfinished for one in [*kept.report.values(), *whole.report.values()])
