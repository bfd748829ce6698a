"""Suites, working batches, second looks and precision."""

import numpy as np
import pytest
import torch
from asked import attacked, judge, parse_attack
from search_scenes import ATTACKS, COUNT, RADII, batch_of, run
from torch import nn

from classwise.attacks.ball import LINF, parse_norm
from classwise.types import Batch


def test_a_suite_is_its_attacks_one_after_another(scene):
    names = ["apgd-ce(steps=3)", "fab-t(steps=3)", "square(queries=20)"]
    standing = torch.ones(COUNT, dtype=torch.bool)
    for upto in range(1, 4):
        found = run(scene, f"suite({','.join(names[:upto])})")
        alone = run(scene, names[upto - 1])
        now = standing & (found.fell_to == -1)
        assert torch.equal(now, found.fell_to == -1), "a sample stood up again"
        # the draws of an attack do not depend on the suite it stands in
        assert torch.equal(standing & (alone.fell_to == -1), now)
        standing = now
        assert found.attacks == ("clean", *names[:upto])


def test_what_broke_a_sample_is_the_first_attack_that_can(scene):
    found = run(scene, "suite(square(queries=30),apgd-ce(steps=12))")
    square, apgd = run(scene, "square(queries=30)"), run(scene, "apgd-ce(steps=12)")
    expected = torch.where(
        square.fell_to >= 0, square.fell_to, torch.where(apgd.fell_to == 1, 2, apgd.fell_to)
    )
    assert torch.equal(found.fell_to, expected)
    assert (expected == 2).any()


def test_rows_of_the_record(scene):
    model, batch, ball, radius = scene
    name = "suite(square(queries=60),apgd-ce(steps=5))"
    found = judge(model, batch, name, num_classes=4, radius=radius, ball=ball, seed=3)
    assert (found.condition, found.verdict, found.norm, found.seed) == (name, "any", ball.name, 3)
    assert np.array_equal(found.radius, radius.numpy())
    assert np.array_equal(found.sample, batch.index.numpy())
    assert np.array_equal(found.broken_by == None, found.correct)  # noqa: E711
    assert set(found.broken_by) == {None, "clean", "apgd-ce(steps=5)", "square(queries=60)"}


def test_another_seed_is_another_search(scene):
    one, same, other = (
        run(scene, "square(queries=40)", seed=seed).iterations for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


class Recorder(nn.Module):
    """Remembers how many images each call brought, and how often it met each image."""

    def __init__(self, inside):
        super().__init__()
        self.inside, self.sizes = inside, []

    def forward(self, x):
        self.sizes.append(len(x))
        return self.inside(x)


@pytest.mark.parametrize("attack", ["apgd-ce(steps=20)", "square(queries=60)"])
def test_the_working_batch_stays_full_while_samples_wait(scene, attack):
    model, batch, ball, radius = scene
    watched = Recorder(model)
    found = run((watched, batch, ball, radius), attack, width=16)
    assert max(watched.sizes) == 16
    clean_calls, confirmations = 1 + 1 + 4, 4
    inside = watched.sizes[clean_calls:-confirmations]
    # as many rows as iterations were spent: nobody is evaluated after the fall
    spent = 2 + 2 + COUNT + int(found.iterations.sum()) + int((found.fell_to > 0).sum())
    if "square" in attack:  # it asks ahead where there is room, and some of that in vain
        assert spent <= sum(watched.sizes) < 1.5 * spent
    else:
        assert sum(watched.sizes) == spent
    waiting = int(0.5 * len(inside))
    assert min(inside[:waiting]) >= 12, "free places are filled at a quarter of the batch"


@pytest.mark.parametrize(("lies", "broken"), [((3, 4), True), ((3,), False), ((3, 6, 7), True)])
def test_only_a_second_look_at_the_model_itself_counts(lies, broken):
    """In float32, or on the twin, an answer may differ; what is right when asked again stands.

    Its search ended too soon, so it is searched again, with a second look at every fall.
    """
    given = batch_of(6, 2)
    batch = Batch(given.images, torch.zeros(6, dtype=torch.int64), given.index)
    calls = []

    def moody(x):
        # 1: the probe, 2: clean images, 3: the start, 4: the second look; then, if that was right,
        # 5: the start again, 6: the step, 7: a second look at once, if the step was wrong
        calls.append(len(x))
        first = 0 * x.flatten(1).sum(1) + (0.0 if len(calls) in lies else 1.0)
        return torch.stack((first, 1 - first), 1)

    found = judge(moody, batch, "pgd-1(verdict=any)", num_classes=2, radius=0.1, ball=LINF)
    assert calls == [2, 6, 6, 6] + [6] * {(3, 4): 0, (3,): 2, (3, 6, 7): 3}[lies]
    assert set(found.broken_by) == ({"pgd-1(verdict=any)"} if broken else {None})
    assert (found.correct == (not broken)).all()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attack", ["apgd-ce(steps=12)", "square(queries=60)", "pgd-5"])
def test_half_precision_models_are_attacked_in_single(scene, kind, attack):
    model, batch, ball, radius = scene
    radius = radius.clamp(min=0.02)
    small = Batch(batch.images.float(), batch.labels, batch.index)
    single = run((model.float(), small, ball, radius), attack)
    half = run((model.to(kind), small, ball, radius), attack)
    assert half.images.dtype == torch.float32
    assert (
        (single.predicted == batch.labels) != (half.predicted == batch.labels)
    ).double().mean() < 0.15
    offset = (half.images - small.images).double().flatten(1)
    length = offset.abs().amax(1) if ball.name == "Linf" else offset.norm(dim=1)
    assert (length <= radius + 1e-6).all()


def test_batches_of_7_64_and_500_disagree_on_few_verdicts_in_single_precision(net):
    model, given = net(4).eval().float(), batch_of(600, seed=3)
    with torch.no_grad():
        model.head.weight *= 6
        images = given.images.float()
        labels = model(images).argmax(1)
    attack = "suite(apgd-ce(steps=12),apgd-t(steps=8),fab-t(steps=6),square(queries=40))"
    facts = {"num_classes": 4, "radius": 0.12, "ball": LINF}
    stands = []
    for width in (7, 64, 500):
        batch = Batch(images, labels, given.index)
        found = attacked(model, batch, parse_attack(attack), width=width, **facts)
        stands.append(found.predicted == labels)
    assert 0.2 < stands[0].double().mean() < 0.8
    for other in stands[1:]:
        assert (other != stands[0]).double().mean() <= 0.005


def test_scores_that_tie_give_the_same_square_one_by_one_and_several_at_once():
    """Class 1 always ties with 2, and now and then with 0, which then comes first."""

    def ties(x):
        now = (1000 * x.flatten(1).sum(1)).floor() % 37 == 0
        return torch.stack((now.double(), torch.ones(len(x)), torch.ones(len(x))), 1)

    given = batch_of(40, 3, seed=5)
    batch = Batch(given.images, torch.ones_like(given.labels), given.index)
    facts = {"num_classes": 3, "radius": 0.05, "ball": LINF}
    found = [
        attacked(ties, batch, parse_attack("square(queries=60)"), width=width, **facts)
        for width in (1, 400)
    ]
    assert torch.equal(found[0].predicted, found[1].predicted)
    assert torch.equal(found[0].iterations, found[1].iterations)
    assert 0.05 < (found[0].predicted == 1).double().mean() < 0.6


def test_a_masked_class_does_not_hide_a_fall(net):
    """Rounding is that of the two logits that are compared, not of one at −10⁹."""
    model, batch = net(4).eval(), batch_of(40, seed=7)
    with torch.no_grad():
        labels = model(batch.images)[:, :3].argmax(1)

    def masked(x):
        z = model(x)
        return torch.cat([z[:, :3], z[:, 3:] * 0 - 1e9], 1).float()

    def three(x):
        return model(x)[:, :3].float()

    found = [
        judge(
            one,
            Batch(batch.images, labels, batch.index),
            "apgd-ce(steps=10)",
            num_classes=count,
            radius=0.2,
            ball=LINF,
        )
        for one, count in ((masked, 4), (three, 3))
    ]
    assert found[1].correct.mean() < 0.8
    assert np.array_equal(found[0].correct, found[1].correct)


def test_a_model_that_draws_random_numbers_is_not_saved_by_a_lucky_second_look(net):
    """A fall that is not confirmed must not end the search: the reference goes on climbing, too."""
    model, batch = net(4).eval().float(), batch_of(200, seed=7)
    with torch.no_grad():
        model.head.weight *= 6
        images = batch.images.float()
        labels = model(images).argmax(1)

    class Noisy(nn.Module):
        def forward(self, x):
            return model(x) + 0.3 * torch.randn(len(x), 4)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        shares = {}
        for name, one in (("steady", model), ("noisy", Noisy().eval())):
            found = judge(
                one, Batch(images, labels, batch.index), "apgd-ce(steps=20)",
                num_classes=4, radius=0.2, ball=LINF,
            )  # fmt: skip
            shares[name] = found.correct.mean()
    assert shares["noisy"] <= shares["steady"] + 0.02


def test_it_runs_in_single_precision_with_few_disagreements(scene):
    model, batch, ball, radius = scene
    double = run(scene, "suite(apgd-ce(steps=12),square(queries=40))")
    small = Batch(batch.images.float(), batch.labels, batch.index)
    single = run(
        (model.float(), small, ball, radius), "suite(apgd-ce(steps=12),square(queries=40))"
    )
    assert single.images.dtype == torch.float32
    assert ((single.fell_to >= 0) != (double.fell_to >= 0)).double().mean() <= 0.05


def test_a_model_without_gradient_is_refused_in_words(scene):
    from refusals import refused

    _, batch, ball, radius = scene
    with refused("gradient", "square"):
        run((lambda x: x.flatten(1)[:, :4].detach(), batch, ball, radius), "apgd-ce")


def test_a_model_that_views_its_input_is_given_plain_images(norm):
    weight = torch.randn(75, 4, generator=torch.Generator().manual_seed(0))
    images = torch.rand(30, 3, 5, 5, generator=torch.Generator().manual_seed(1))

    def viewing(x):
        return x.view(len(x), -1) @ weight

    batch = Batch(images, viewing(images).argmax(1), torch.arange(30))
    facts = {"num_classes": 4, "ball": parse_norm(norm), "radius": RADII[norm]}
    for attack in ("clean", "pgd-3", *ATTACKS):
        found = judge(viewing, batch, attack, width=7, **facts)
        assert attack == "clean" or not found.correct.all()
