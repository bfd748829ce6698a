"""APGD against a straight-line transcription of its equations."""

import pytest
import torch
from searches import (
    COUNT,
    gradient,
    prepared,
    project,
    searched,
    straight_dlr,
    straight_targeted_dlr,
    teamwork,
    uphill,
)

from classwise.attacks.search.apgd import checkpoints


def straight_apgd(model, image, label, start, radius, steps, height, norm):
    """Algorithm 1 of Croce and Hein; every iterate, up to the first that fools."""
    seen = []

    def look(x):
        seen.append(x)
        return gradient(model, x, height)

    def fooled(x):
        return model(x[None])[0].argmax().item() != label

    eta, marks = 2 * radius, checkpoints(steps)
    before, x = start, start
    value, slope = look(x)
    if fooled(x):
        return seen
    best, best_value, best_slope = x, value, slope
    rises, last_mark, mark_value, mark_halved = 0, 0, value, False
    for k in range(1, steps + 1):
        z = project(x + eta * uphill(slope, norm), image, radius, norm)
        share = 1.0 if k == 1 else 0.75
        ahead = project(x + share * (z - x) + (1 - share) * (x - before), image, radius, norm)
        before, x = x, ahead
        old = value
        value, slope = look(x)
        if fooled(x):
            return seen
        rises += value > old
        if value > best_value:
            best, best_value, best_slope = x, value, slope
        if k in marks:
            few = rises < 0.75 * (k - last_mark)
            still = not mark_halved and best_value <= mark_value
            mark_halved = few or still
            if mark_halved:
                eta /= 2
                x, value, slope = best, best_value, best_slope
            rises, last_mark, mark_value = 0, k, best_value
    return seen


def cross_entropy(label):
    return lambda z: torch.logsumexp(z, 0) - z[label]


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("loss", ["ce", "dlr"])
def test_apgd(model, batch, norm, loss):
    radius = {"Linf": 0.035, "L2": 0.13}[norm]
    search, rows, scene, found = searched(model, batch, f"apgd-{loss}(steps=30)", radius, norm)
    starts = search.begin(scene, rows).point
    for n in range(COUNT):
        label = batch.labels[n].item()
        height = cross_entropy(label) if loss == "ce" else straight_dlr(label)
        seen = straight_apgd(model, batch.images[n], label, starts[n], radius, 30, height, norm)
        fell = model(seen[-1][None])[0].argmax().item() != label
        assert found.fallen[n].item() == fell
        assert found.spent[n].item() == len(seen)
        if fell:
            torch.testing.assert_close(found.images[n], seen[-1], rtol=0, atol=1e-9)
    assert found.fallen.any()
    assert not found.fallen.all()


def test_apgd_on_targets_takes_the_likeliest_first_and_then_all_others_at_once(model, batch):
    radius = 0.04
    search, rows, scene, found = searched(model, batch, "apgd-t(steps=20)", radius, "Linf")
    clean = model(batch.images)
    late = 0
    for n in range(COUNT):
        label, rounds = batch.labels[n].item(), []
        order = sorted(set(range(4)) - {label}, key=lambda k: -clean[n, k].item())
        for round_number, target in enumerate(order):
            rows.round.fill_(round_number)
            start = search.begin(scene, rows).point[n]
            height = straight_targeted_dlr(label, target)
            seen = straight_apgd(model, batch.images[n], label, start, radius, 20, height, "Linf")
            broke = model(seen[-1][None])[0].argmax().item() != label
            rounds.append((seen[-1], len(seen), broke))
        image, spent, fell = teamwork(rounds)
        late += fell and not rounds[0][2]
        assert found.fallen[n].item() == fell
        assert found.spent[n].item() == spent
        if fell:
            torch.testing.assert_close(found.images[n], image, rtol=0, atol=1e-9)
    assert late, "some sample falls in a later round"
    assert len(set(found.spent[found.fallen].tolist())) > 1
    assert not found.fallen.all()


def test_starts_differ_between_rounds_and_lie_in_the_ball(model, batch):
    search, rows, scene = prepared(model, batch, "apgd-ce(steps=1)", 0.1, "Linf")
    first = search.begin(scene, rows).point
    rows.round.fill_(1)
    second = search.begin(scene, rows).point
    for start in (first, second):
        assert ((start - batch.images).abs() <= 0.1 + 1e-12).all()
    assert not torch.equal(first, second)


def test_checkpoints_follow_the_formula():
    for steps in (1, 5, 20, 100, 250):
        p, expected = [0, 22], []
        while p[-1] < 100:
            p.append(p[-1] + max(p[-1] - p[-2] - 3, 6))
        expected = sorted({-(-share * steps // 100) for share in p[1:]})
        assert checkpoints(steps) == [w for w in expected if 0 < w < steps]
