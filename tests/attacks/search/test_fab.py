"""FAB and its projection against straight-line transcriptions, one sample at a time."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize
from searches import COUNT, gradient, searched, teamwork

from classwise.attacks.ball import parse_norm
from classwise.attacks.targets import likeliest_others


@pytest.mark.parametrize("norm", ["Linf", "L2"])
class TestProjection:
    def case(self, n, fraction):
        rng = np.random.default_rng(n)
        x = np.clip(rng.uniform(-0.2, 1.2, 9), 0, 1)
        w = rng.normal(size=9)
        w[n % 9] = 0
        rise = rng.choice([-1, 1])
        room = np.where(np.sign(w) * rise > 0, 1 - x, x)
        return x, w, rise * fraction * (np.abs(w) @ room)

    def ours(self, x, w, rise, norm):
        shape = (1, 1, 3, 3)
        point, normal = torch.tensor(x).view(shape), torch.tensor(w).view(shape)
        found = parse_norm(norm).toward_plane(point, normal, torch.tensor([rise]))
        return found.flatten().numpy()

    @pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.9, 0.999])
    @pytest.mark.parametrize("n", range(6))
    def test_it_is_the_shortest_way_to_the_plane(self, norm, n, fraction):
        x, w, rise = self.case(n, fraction)
        found = self.ours(x, w, rise, norm)
        assert w @ found == pytest.approx(rise, abs=1e-9)
        assert ((x + found >= -1e-12) & (x + found <= 1 + 1e-12)).all()
        if norm == "Linf":
            both = np.vstack((np.hstack((np.eye(9), -np.ones((9, 1)))),
                              np.hstack((-np.eye(9), -np.ones((9, 1))))))  # fmt: skip
            best = linprog(
                [0] * 9 + [1], both, np.zeros(18), [[*w, 0]], [rise],
                [*zip(-x, 1 - x, strict=True), (0, None)],
            ).fun  # fmt: skip
            assert np.abs(found).max() == pytest.approx(best, abs=1e-7)
        else:
            best = minimize(
                lambda d: d @ d, np.zeros(9), jac=lambda d: 2 * d,
                bounds=[*zip(-x, 1 - x, strict=True)],
                constraints={"type": "eq", "fun": lambda d: w @ d - rise, "jac": lambda _: w},
            )  # fmt: skip
            assert found @ found <= best.fun + 1e-5

    def test_a_plane_outside_the_cube_gives_the_nearest_corner(self, norm):
        x, w, rise = self.case(3, 1.7)
        found = self.ours(x, w, rise, norm)
        move = np.sign(w) * np.sign(rise)
        corner = np.where(move > 0, 1 - x, np.where(move < 0, -x, 0))
        assert found == pytest.approx(corner)

    def test_no_slope_no_move(self, norm):
        assert self.ours(np.full(9, 0.5), np.zeros(9), 0.3, norm) == pytest.approx(np.zeros(9))


def straight_fab(model, image, label, target, radius, steps, norm):
    """FAB towards one class, with the projection above taken one sample at a time."""
    length = (lambda d: d.abs().max()) if norm == "Linf" else (lambda d: d.norm())
    x, count = image, 0
    for _ in range(steps + 1):
        count += 1
        fooled = model(x[None])[0].argmax().item() != label
        if fooled and length(x - image) <= radius:
            return x, count, True
        if fooled:
            x = 0.1 * image + 0.9 * x
        lead, w = gradient(model, x, lambda z: z[target] - z[label])

        def to_plane(point, rise, w=w):
            up = torch.tensor([rise]).double()
            return parse_norm(norm).toward_plane(point[None], w[None], up)[0]

        here = to_plane(x, -lead)
        there = to_plane(image, -lead + ((x - image) * w).sum().item())
        alpha = min((length(here) / (length(here) + length(there))).item(), 0.1)
        x = ((1 - alpha) * (x + 1.05 * here) + alpha * (image + 1.05 * there)).clamp(0, 1)
    return x, count, False


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_fab(model, batch, norm):
    radius = {"Linf": 0.035, "L2": 0.13}[norm]
    *_, found = searched(model, batch, "fab-t(steps=12)", radius, norm)
    rivals = likeliest_others(model(batch.images), batch.labels)
    for n in range(COUNT):
        facts = (batch.images[n], batch.labels[n].item())
        rounds = [straight_fab(model, *facts, k, radius, 12, norm) for k in rivals[n].tolist()]
        image, spent, fell = teamwork(rounds)
        assert found.fallen[n].item() == fell
        assert found.spent[n].item() == spent
        if fell:
            torch.testing.assert_close(found.images[n], image, rtol=0, atol=1e-8)
    assert found.fallen.any()
    assert not found.fallen.all()
