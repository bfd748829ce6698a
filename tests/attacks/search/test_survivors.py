"""The whole state of samples that nothing breaks, step by step, against straight-line equations.

What fell shows where a search ended; only who stands shows every rule on the way.
"""

import pytest
import torch
from searches import COUNT, gradient, prepared, project, uphill
from torch import nn

from classwise.attacks.ball import parse_norm
from classwise.attacks.search.apgd import checkpoints
from classwise.types import Batch

CLOSE = {"rtol": 0, "atol": 1e-10}


class Scripted(nn.Module):
    """Heights from a table, by time and image, whatever the point; the slope is a fixed one.

    Real heights seldom tie, and seldom rise and rise without reaching the old best: these do.
    """

    def __init__(self, steps, count, seed=0):
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.table = torch.randint(6, (steps + 1, count), generator=rng).double()
        self.table[1:, : count // 2] = self.table[1:, : count // 2].cummax(0).values.clamp(max=3)
        self.table[0, : count // 4] = 5  # better than all that comes
        self.table[1:5, 0] = torch.arange(4)  # three rises of four, and yet nothing better
        self.slopes = torch.randn(steps + 1, count, 25, generator=rng, dtype=torch.float64)
        self.time, self.image = 0, slice(None)

    def forward(self, x):
        turn = (x.flatten(1) * self.slopes[self.time, self.image]).sum(1)
        other = self.table[self.time, self.image] - 10 + (turn - turn.detach())
        return torch.stack((torch.zeros_like(other), other), 1)


def cross_entropy(label):
    return lambda z: torch.logsumexp(z, 0) - z[label]


def straight_ascent(look, image, start, radius, steps, norm):
    """Algorithm 1 of Croce and Hein: what is known of one sample after every step."""
    eta, marks, states = 2 * radius, checkpoints(steps), []
    before, x = start, start
    value, slope = look(0, x)
    best, best_value, best_slope = x, value, slope
    rises, last_mark, mark_value, mark_halved = 0, 0, value, False
    for k in range(1, steps + 1):
        z = project(x + eta * uphill(slope, norm), image, radius, norm)
        share = 1.0 if k == 1 else 0.75
        ahead = project(x + share * (z - x) + (1 - share) * (x - before), image, radius, norm)
        before, x, old = x, ahead, value
        states.append((x, before, eta, value, best_value, mark_value, rises, mark_halved))
        value, slope = look(k, x)
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
    return states


def followed(search, scene, rows, steps, at=lambda _: None):
    """The state after each step of a search of its own, in which nobody falls."""
    state = search.begin(scene, rows)
    for k in range(steps):
        at(k)
        search.evaluate(scene, state)
        search.advance(scene, state)
        yield state


def compare_ascents(search, scene, rows, expected, steps, at=lambda _: None):
    names = ("point", "before", "step", "height", "best_height", "mark", "rises", "halved")
    for k, state in enumerate(followed(search, scene, rows, steps, at)):
        for place, name in enumerate(names):
            values = [states[k][place] for states in expected]
            wanted = torch.stack([torch.as_tensor(v, dtype=torch.float64) for v in values])
            found = getattr(state, name).double()
            torch.testing.assert_close(found, wanted, **CLOSE, msg=f"{name} after step {k + 1}")


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_every_step_of_apgd(model, batch, norm):
    steps, radius = 30, {"Linf": 0.004, "L2": 0.015}[norm]
    search, rows, scene = prepared(model, batch, f"apgd-ce(steps={steps})", radius, norm)
    starts = search.begin(scene, rows).point
    expected = []
    for n in range(COUNT):
        height = cross_entropy(batch.labels[n].item())
        facts = (batch.images[n], starts[n], radius, steps, norm)
        expected.append(straight_ascent(lambda _, x, h=height: gradient(model, x, h), *facts))
    compare_ascents(search, scene, rows, expected, steps)


def test_the_checkpoints_of_apgd_where_heights_tie_and_the_best_stays_behind():
    # windows of 4, 4, 3, 3, …: with four steps, three rises are just enough
    steps, count = 18, 48
    model = Scripted(steps, count)
    rng = torch.Generator().manual_seed(3)
    images = torch.rand(count, 1, 5, 5, generator=rng, dtype=torch.float64)
    batch = Batch(images, torch.zeros(count, dtype=torch.int64), torch.arange(count))
    search, rows, scene = prepared(model, batch, f"apgd-ce(steps={steps})", 0.1, "Linf")
    starts = search.begin(scene, rows).point
    expected = []
    for n in range(count):

        def look(k, x, n=n):
            model.time, model.image = k, slice(n, n + 1)
            return gradient(model, x, cross_entropy(0))

        expected.append(straight_ascent(look, images[n], starts[n], 0.1, steps, "Linf"))
    model.image = slice(None)
    compare_ascents(search, scene, rows, expected, steps, lambda k: setattr(model, "time", k))
    # the scene holds what it is for: some halved, some not, at one and the same checkpoint
    assert checkpoints(steps)[0] == 4
    assert len({states[5][2] for states in expected}) == 2
    assert [states[3][6] for states in expected[:1]] == [2], "and one more rise in the fourth step"
    assert [states[4][7] for states in expected[:1]] == [True], "halved, as nothing better was met"


def straight_approach(model, image, label, target, steps, norm):
    """FAB towards one class: its points, and whether each was beyond the boundary."""
    length = (lambda d: d.abs().max()) if norm == "Linf" else (lambda d: d.norm())
    x, points = image, []
    for _ in range(steps):
        fooled = model(x[None])[0].argmax().item() != label
        if fooled:
            x = 0.1 * image + 0.9 * x
        lead, w = gradient(model, x, lambda z: z[target] - z[label])

        def to_plane(point, rise, w=w):
            up = torch.tensor([rise], dtype=torch.float64)
            return parse_norm(norm).toward_plane(point[None], w[None], up)[0]

        here = to_plane(x, -lead)
        there = to_plane(image, -lead + ((x - image) * w).sum().item())
        alpha = min((length(here) / (length(here) + length(there))).item(), 0.1)
        x = ((1 - alpha) * (x + 1.05 * here) + alpha * (image + 1.05 * there)).clamp(0, 1)
        points.append((x, fooled))
    return points


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_every_step_of_fab(model, batch, norm):
    steps = 10
    # nothing beyond the boundary lies in so small a ball: every fooled point must step back
    search, rows, scene = prepared(model, batch, f"fab-t(steps={steps})", 1e-6, norm)
    targets = rows.target().tolist()
    expected = [
        straight_approach(model, batch.images[n], batch.labels[n].item(), targets[n], steps, norm)
        for n in range(COUNT)
    ]
    for k, state in enumerate(followed(search, scene, rows, steps)):
        wanted = torch.stack([points[k][0] for points in expected])
        torch.testing.assert_close(state.point, wanted, **CLOSE, msg=f"point after step {k + 1}")
        assert state.wrong.tolist() == [points[k][1] for points in expected]
    fooled = [[wrong for _, wrong in points] for points in expected]
    assert sum(map(any, fooled)) > COUNT / 2
