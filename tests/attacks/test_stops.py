"""Stop rules against plain loops, on every pattern of ten inspections."""

import pytest
import torch
from stop_rules import EVERY, PATTERNS, RULES, STEPS, ZEROS, updates_made

from classwise.attacks.stops import CountingWatch, LastCorrectWatch, LimitedWatch, PatientWatch
from classwise.methods.zhang2020_fat import FriendlyStop


@pytest.mark.parametrize("patience", [0, 1, 2, 3, 9, 10])
@pytest.mark.parametrize("rule", ["original", "counter"])
def test_all_patterns_of_ten_inspections_against_a_loop(rule, patience):
    expected = [RULES[rule](pattern, patience) for pattern in PATTERNS]
    assert updates_made(FriendlyStop(rule, patience), EVERY) == expected


@pytest.mark.parametrize(("patience", "count"), [(1, 511), (2, 502), (3, 466)])
def test_how_often_the_two_rules_disagree(patience, count):
    one = updates_made(FriendlyStop("original", patience), EVERY)
    two = updates_made(FriendlyStop("counter", patience), EVERY)
    assert sum(a != b for a, b in zip(one, two, strict=True)) == count
    lasting = [p for p in PATTERNS if p == tuple(sorted(p, reverse=True))]  # once wrong, wrong
    assert len(lasting) == STEPS + 1
    for pattern in lasting:
        place = PATTERNS.index(pattern)
        assert one[place] == two[place]


def test_without_patience_the_counter_never_moves_but_the_original_does():
    assert set(updates_made(FriendlyStop("counter", 0), EVERY)) == {0}
    assert max(updates_made(FriendlyStop("original", 0), EVERY)) == STEPS


@pytest.mark.parametrize("kind", [PatientWatch, CountingWatch])
def test_samples_are_watched_apart(kind):
    rows = torch.randperm(len(PATTERNS), generator=torch.Generator().manual_seed(0))[:50]
    together, alone = kind(ZEROS, 2), [kind(ZEROS[:1], 2) for _ in rows]
    for right in EVERY.T:
        logits = torch.where(right, 1.0, -1.0)[:, None] * torch.tensor([[1.0, -1.0]])
        moving = together(logits).moving[rows]
        one_by_one = [w(logits[r : r + 1]).moving for w, r in zip(alone, rows, strict=True)]
        assert torch.equal(moving, torch.cat(one_by_one))


def test_another_rule_has_its_say_only_within_the_steps_of_a_sample():
    labels = torch.tensor([0, 0, 0])
    watch = LimitedWatch(torch.tensor([1, 3, 3]), LastCorrectWatch(labels))
    right, wrong = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    first = watch(torch.stack([right, right, right]))
    second = watch(torch.stack([wrong, wrong, right]))
    assert first.moving.tolist() == [True, True, True]
    assert second.moving.tolist() == [False, False, True]
    assert second.rewound.tolist() == [False, True, False]
