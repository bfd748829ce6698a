"""PGD as a search: its verdicts, restarts, targets and passes."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from asked import attacked, parse_attack, perturb
from refusals import refused
from searches import COUNT, prepared, searched
from torch import nn

from classwise.attacks.ball import LINF, parse_norm


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
