"""Each attack against a straight-line transcription of its equations, one sample at a time."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from asked import attacked, parse_attack, perturb
from refusals import refused
from scipy.optimize import linprog, minimize
from torch import nn

from classwise.attacks.ball import LINF, parse_norm
from classwise.attacks.search.apgd import checkpoints
from classwise.attacks.search.dlr import dlr, targeted_dlr
from classwise.attacks.search.engine import Scene, run_search
from classwise.attacks.search.square import Square, side_of_square
from classwise.attacks.search.square_moves import bump, two_sided_bump
from classwise.attacks.search.state import Rows, take
from classwise.attacks.targets import likeliest_others
from classwise.types import Batch

COUNT, SIZE = 12, 5


class Curved(nn.Module):
    """Smooth, small, and with pixels that matter differently."""

    def __init__(self, num_classes=4, seed=0):
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.a = torch.randn(SIZE * SIZE, 9, generator=rng, dtype=torch.float64)
        self.b = torch.randn(9, num_classes, generator=rng, dtype=torch.float64)

    def forward(self, x):
        return torch.tanh((x - 0.5).flatten(1) @ self.a) @ self.b


@pytest.fixture
def model():
    return Curved()


@pytest.fixture
def batch(model):
    rng = torch.Generator().manual_seed(1)
    images = torch.rand(COUNT, 1, SIZE, SIZE, generator=rng, dtype=torch.float64)
    images = (images * 1.3 - 0.15).clamp(0, 1)
    return Batch(images, model(images).argmax(1), torch.arange(COUNT) + 50)


def prepared(model, batch, name, radius, norm):
    """Rows and scene as a suite prepares them."""
    (search,) = parse_attack(name).searches
    radii = torch.full((len(batch),), radius, dtype=torch.float64)
    rows = Rows(
        batch.images,
        batch.labels,
        batch.index,
        radii,
        likeliest_others(model(batch.images), batch.labels),
        torch.arange(len(batch)),
        torch.zeros_like(batch.labels),
    )
    return search, rows, Scene(model, parse_norm(norm), 0, 4, width=5)


def searched(model, batch, name, radius, norm):
    """The search alone, with no twin and no second look."""
    search, rows, scene = prepared(model, batch, name, radius, norm)
    return search, rows, scene, run_search(scene, search, rows)


def gradient(model, x, height):
    x = x.clone().requires_grad_()
    value = height(model(x[None])[0])
    return value.item(), torch.autograd.grad(value, x)[0]


def project(x, image, radius, norm):
    offset = x - image
    if norm == "Linf":
        offset = offset.clamp(-radius, radius)
    elif offset.norm() > radius:
        offset = offset * radius / offset.norm()
    return (image + offset).clamp(0, 1)


def uphill(slope, norm):
    return slope.sign() if norm == "Linf" else slope / slope.norm()


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


def straight_dlr(label):
    def height(z):
        top = sorted(range(len(z)), key=lambda k: -z[k].item())
        other = top[1] if top[0] == label else top[0]
        return (z[other] - z[label]) / (z[top[0]] - z[top[2]])

    return height


def straight_targeted_dlr(label, target):
    def height(z):
        top = sorted(z, key=lambda value: -value.item())
        return (z[target] - z[label]) / (top[0] - (top[2] + top[3]) / 2)

    return height


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


def teamwork(rounds):
    """Spent evaluations, verdict and image of (last image, evaluations, fell) per round.

    The first round is alone. The others walk in step; the first that breaks the sample, of several
    at a time the one of the likeliest class, ends them all.
    """
    image, spent, fell = rounds[0]
    if fell or len(rounds) == 1:
        return image, spent, fell
    quick = [count for _, count, broke in rounds[1:] if broke]
    end = min(quick, default=None)
    total = spent + sum(count if end is None else end for _, count, _ in rounds[1:])
    if end is None:
        return image, total, False
    winner = next(x for x, count, broke in rounds[1:] if broke and count == end)
    return winner, total, True


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


class TestRatio:
    logits = torch.randn(30, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(30) % 5

    def test_against_the_definition(self):
        targets = (self.labels + 2) % 5
        for n in range(30):
            y, t = self.labels[n].item(), targets[n].item()
            assert dlr(self.logits, self.labels)[n].item() == pytest.approx(
                straight_dlr(y)(self.logits[n]).item()
            )
            assert targeted_dlr(self.logits, self.labels, targets)[n].item() == pytest.approx(
                straight_targeted_dlr(y, t)(self.logits[n]).item()
            )

    def test_scaling_and_shifting_logits_change_nothing(self):
        moved = dlr(1000 * self.logits + 7, self.labels)
        torch.testing.assert_close(moved, dlr(self.logits, self.labels))

    def test_three_classes_use_the_third_logit(self):
        z = torch.tensor([[3.0, 1.0, -1.0]])
        assert targeted_dlr(z, torch.tensor([0]), torch.tensor([2])).item() == -1.0

    def test_two_classes_have_the_difference_alone(self):
        z = torch.tensor([[3.0, 1.0]])
        one = torch.tensor([0])
        assert dlr(z, one).item() == targeted_dlr(z, one, 1 - one).item() == -2.0

    def test_equal_logits_are_finite(self):
        assert torch.isfinite(dlr(torch.zeros(1, 4), torch.tensor([2]))).all()


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


class TestSquare:
    def test_the_side_shrinks_by_the_schedule(self):
        limits = [10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000]
        for query in (0, 10, 11, 50, 51, 200, 201, 3000, 9000):
            p = 0.8
            for limit in limits:
                p = p / 2 if query > limit else p
            assert side_of_square(query, 0.8, 32, 32) == max(round(math.sqrt(p * 32 * 32)), 1)

    def test_it_starts_from_stripes(self, model, batch):
        search, rows, scene = prepared(model, batch, "square(queries=1)", 0.1, "Linf")
        inside = batch.images.clone().fill_(0.5)
        rows.images = inside
        offset = search.begin(scene, rows).point - inside
        torch.testing.assert_close(offset.abs(), torch.full_like(offset, 0.1))
        assert (offset == offset[:, :, :1]).all(), "the same sign all the way down"
        assert 0.2 < (offset > 0).double().mean() < 0.8

    def test_linf_proposals_change_one_square_to_the_rim_of_the_ball(self, model, batch):
        search, rows, scene = prepared(model, batch, "square(queries=50)", 0.1, "Linf")
        state = search.begin(scene, rows)
        for clock in (1, 12, 30):
            state.best, state.clock = rows.images, torch.full((COUNT,), clock)
            point = search.proposals(scene, state)[0]
            changed = point != rows.images
            side = side_of_square(clock, 0.8, SIZE, SIZE)
            for n in range(COUNT):
                places = changed[n, 0].nonzero()
                reach = places.amax(0) - places.amin(0) + 1
                assert (reach <= side).all()
                square = point[n][changed[n]]
                image = rows.images[n][changed[n]]
                up, down = (image + 0.1).clamp(max=1), (image - 0.1).clamp(min=0)
                assert torch.equal(square, up) or torch.equal(square, down)

    def test_every_place_of_the_image_is_reached(self, model, batch):
        search, rows, scene = prepared(model, batch, "square(queries=9000)", 0.1, "Linf")
        state = search.begin(scene, rows)
        met = torch.zeros(SIZE, SIZE)
        for clock in range(8500, 8600):  # squares of one pixel
            state.best, state.clock = rows.images, torch.full((COUNT,), clock)
            met += (search.proposals(scene, state)[0] != rows.images).any(1).sum(0)
        assert (met > 0).all()

    def test_it_keeps_a_change_only_if_the_gap_shrinks(self, model, batch):
        search, rows, scene = prepared(model, batch, "square(queries=30)", 0.02, "Linf")
        state = search.begin(scene, rows)
        best = [math.inf] * COUNT
        point = [None] * COUNT
        for _ in range(30):
            candidates = search.proposals(scene, state)[0]
            search.evaluate(scene, state)
            for n in range(COUNT):
                z, y = model(candidates[n][None])[0], batch.labels[n].item()
                gap = (z[y] - max(z[k] for k in range(4) if k != y)).item()
                if gap < best[n]:
                    best[n], point[n] = gap, candidates[n]
                assert torch.equal(state.best[n], point[n])
                assert state.gap[n].item() == pytest.approx(best[n])

    @pytest.mark.parametrize("norm", ["Linf", "L2"])
    def test_several_queries_at_once_are_the_same_as_one_by_one(
        self, model, batch, norm, monkeypatch
    ):
        radius = {"Linf": 0.02, "L2": 0.1}[norm]
        search, rows, scene = prepared(model, batch, "square(queries=101)", radius, norm)
        walks = {}
        for depth in (1, 3, 8):
            monkeypatch.setattr(Square, "_depth", lambda *_, depth=depth: depth)
            state, met = search.begin(scene, rows), {}
            while bool((state.clock < 101).any()):
                state = take(state, state.clock < 101)
                search.evaluate(scene, state)
                for n, clock in enumerate(state.clock.tolist()):
                    met[state.rows.place[n].item(), clock] = state.gap[n].item()
            assert {clock for _, clock in met} >= {1, 101}
            walks[depth] = met
        for depth in (3, 8):
            assert len(walks[depth]) < len(walks[1])
            for key, gap in walks[depth].items():
                assert gap == pytest.approx(walks[1][key], abs=1e-12)

    @pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 3), (5, 2), (4, 6), (7, 3)])
    def test_the_bump_is_the_sum_of_rings(self, height, width):
        n, found = height // 2, bump(height, width)
        for r in range(1, height + 1):
            for s in range(1, width + 1):
                m = n - max(abs(r - height // 2 - 1), abs(s - width // 2 - 1))
                expected = sum(1 / (n + 1 - k) ** 2 for k in range(m + 1))
                assert found[r - 1, s - 1].item() == pytest.approx(expected)

    @pytest.mark.parametrize("side", range(1, 9))
    def test_a_two_sided_bump_has_length_one(self, side):
        assert two_sided_bump(side).norm().item() == pytest.approx(1)
        assert two_sided_bump(side).shape == (side, side)

    def test_l2_proposals_spend_the_whole_radius_away_from_the_faces(self, model, batch):
        search, rows, scene = prepared(model, batch, "square(queries=50)", 0.3, "L2")
        rows.images = batch.images.clone().fill_(0.5)
        state = search.begin(scene, rows)
        for clock in range(1, 20):
            lengths = (state.point - rows.images).flatten(1).norm(dim=1)
            torch.testing.assert_close(lengths, rows.radius, rtol=1e-6, atol=0)
            state.best, before = state.point, state.point
            state.clock = torch.full((COUNT,), clock)
            state.point = search.proposals(scene, state)[0]
            assert not torch.equal(state.point, before)


class TestDeepFool:
    @pytest.mark.parametrize("norm", ["Linf", "L2"])
    def test_on_a_linear_model_one_step_finds_the_distance(self, norm):
        rng = torch.Generator().manual_seed(3)
        weight = torch.randn(4, 25, generator=rng, dtype=torch.float64)
        images = 0.5 + 0.1 * torch.rand(COUNT, 1, 5, 5, generator=rng, dtype=torch.float64)

        def linear(x):
            return x.flatten(1) @ weight.T

        clean = linear(images)
        labels = clean.argmax(1)
        batch = Batch(images, labels, torch.arange(COUNT))
        for n in range(COUNT):
            y = labels[n].item()
            away = []
            for k in set(range(4)) - {y}:
                w = weight[k] - weight[y]
                dual = w.abs().sum() if norm == "Linf" else w.norm()
                away.append(((clean[n, y] - clean[n, k]) / dual).item())
            one = Batch(batch.images[n : n + 1], labels[n : n + 1], batch.index[n : n + 1])
            for factor, falls in ((1.03, True), (0.99, False)):
                *_, found = searched(linear, one, "deepfool", factor * min(away), norm)
                assert found.fallen.item() == falls


class TestPgd:
    @pytest.mark.parametrize("norm", ["Linf", "L2"])
    def test_any_is_the_same_walk_as_last_judged_all_along(self, model, batch, norm):
        radius = {"Linf": 0.03, "L2": 0.12}[norm]
        ball = parse_norm(norm)
        *_, found = searched(model, batch, "pgd-8(verdict=any)", radius, norm)
        first = torch.full((COUNT,), 99)
        for steps in range(9):
            # a prefix of the walk: the same start and as many steps
            plain = parse_attack("pgd-8")
            short = replace(plain, steps=steps) if steps else None
            facts = {"eps": radius, "ball": ball, "seed": 0}
            if short is None:
                search, rows, scene = prepared(model, batch, "pgd-8(verdict=any)", radius, norm)
                moved = search.begin(scene, rows).point
            else:
                moved = perturb(short, model, batch, **facts)
            wrong = model(moved).argmax(1) != batch.labels
            first = torch.where(wrong & (first == 99), steps, first)
        assert torch.equal(found.fallen, first < 99)
        assert torch.equal(found.spent, torch.where(first < 99, first + 1, 9).int())
        assert found.fallen.any()
        assert not found.fallen.all()

    def test_restarts_of_last_count_any_final_iterate(self, model, batch):

        facts = {"num_classes": 4, "radius": 0.028, "ball": LINF}
        once = parse_attack("pgd-3")
        many = attacked(model, batch, parse_attack("pgd-3(restarts=5)"), **facts)
        broken = torch.zeros(COUNT, dtype=torch.bool)
        for restart in range(5):
            moved = perturb(once, model, batch, eps=0.028, ball=LINF, seed=0, restart=restart)
            broken |= model(moved).argmax(1) != batch.labels
        assert torch.equal(many.fell_to == 0, broken)
        assert broken.sum() > (attacked(model, batch, once, **facts).fell_to == 0).sum()

    @pytest.mark.parametrize("verdict", ["last", "any"])
    def test_targets(self, model, batch, verdict):
        clean = model(batch.images)
        right = clean.argmax(1) == batch.labels
        for target in ("likely", "unlikely", "2"):
            attack = parse_attack(f"pgd-6(target={target},start=none,verdict={verdict})")
            eps = 0.01 if verdict == "last" else 0.05
            moved = perturb(attack, model, batch, eps=eps, ball=LINF, seed=0)
            # `any` leaves an image as it is if it was wrong from the start, or never fell
            met = torch.ones_like(right)
            if verdict == "any":
                met = right & (model(moved).argmax(1) != batch.labels)
                assert met.sum() >= 3
            for n in met.nonzero().flatten().tolist():
                others = sorted(
                    set(range(4)) - {batch.labels[n].item()}, key=lambda k: -clean[n, k].item()
                )
                # images of class 2 itself are not pushed towards it
                two = others[0] if batch.labels[n] == 2 else 2
                aim = {"likely": others[0], "unlikely": others[-1], "2": two}[target]
                label = torch.tensor([aim])
                before = F.cross_entropy(clean[n : n + 1], label)
                after = F.cross_entropy(model(moved[n : n + 1]), label)
                assert after < before

    @pytest.mark.parametrize("verdict", ["last", "any"])
    def test_a_target_that_is_no_class(self, model, batch, verdict):
        attack = parse_attack(f"pgd-2(target=4,verdict={verdict})")
        with refused("target=4", "4 classes", "0 to 3"):
            perturb(attack, model, batch, eps=0.1, ball=LINF, seed=0)

    def test_nobody_is_left_for_another_restart(self, batch):
        asked = []

        class Fallen(nn.Module):
            def forward(self, x):
                assert len(x), "an empty batch"
                asked.append(len(x))
                return torch.cat([x.flatten(1)[:, :3], x.flatten(1).sum(1, keepdim=True)], 1)

        labels = torch.zeros_like(batch.labels)
        facts = {"num_classes": 4, "radius": 0.1, "ball": LINF}
        attack = parse_attack("pgd-2(restarts=3)")
        found = attacked(Fallen(), replace(batch, labels=labels), attack, **facts)
        assert (found.iterations == 2).all()
        assert asked


def test_the_mean_over_passes_is_the_gradient_of_the_mean(batch):
    """With 20 passes a model that is random half the time is attacked through its mean."""
    calls = []

    class Flipping(nn.Module):
        def forward(self, x):
            calls.append(len(x))
            sign = 1.0 if len(calls) % 2 else -3.0
            z = sign * x.flatten(1)[:, :2]
            return z

    from classwise.attacks.search.engine import slope_at

    _, heights, slope = slope_at(Flipping(), batch.images, lambda z: z[:, 0], repeats=4)
    expected = torch.zeros_like(batch.images)
    expected[:, 0, 0, 0] = -1.0
    torch.testing.assert_close(slope, expected)
    torch.testing.assert_close(heights, -batch.images[:, 0, 0, 0])
    assert len(calls) == 4
