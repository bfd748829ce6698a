"""Simulated audits: how often the answer is right, and how much work is saved."""

import numpy as np
import pytest
from refusals import refused

from classwise.auditing.question import Standing, parse_question


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
        parse_question(text, ("a", "b", "c", "d"))
