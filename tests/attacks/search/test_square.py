"""Square against its rules: sides, stripes, proposals, and what is kept."""

import math

import pytest
import torch
from searches import COUNT, SIZE, prepared

from classwise.attacks.search.square import Square, side_of_square
from classwise.attacks.search.square_moves import bump, two_sided_bump
from classwise.attacks.search.state import take


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
