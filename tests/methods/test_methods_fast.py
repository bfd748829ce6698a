import math
from dataclasses import replace

import pytest
import torch
from inner_attacks import batch_of, inner, view
from plain_steps import images_of, settings_of, step_of
from refusals import refused
from short_runs import same_weights, short_run

from classwise.attacks.ball import LINF
from classwise.attacks.inner import Moment
from classwise.classes.counts import ClassCounts
from classwise.classes.settings import Chain, Feedback
from classwise.laws.made_up import base_settings
from classwise.methods.wong2020_fast import FGSM, PGD, OverfittingGuard
from classwise.recipe_text import parse_recipe
from classwise.spelling import QUARTER
from classwise.training.presets import apply_preset
from classwise.training.state import Progression, load_state, remarks, save_state


def counts_of(hits, sizes):
    """Class statistics with so many hits of so many samples; misses go to the next class."""
    confusion = torch.zeros(len(sizes), len(sizes), dtype=torch.int64)
    for k, (hit, size) in enumerate(zip(hits, sizes, strict=True)):
        confusion[k, k] += hit
        confusion[k, (k + 1) % len(sizes)] += size - hit
    return ClassCounts(confusion)


def play(guard, epochs, sizes):
    """`finer` after each epoch, and the guard's words."""
    found, words = [], []
    for epoch, (pgd, fgsm) in enumerate(epochs, 1):
        counts = {PGD: counts_of(pgd, sizes), FGSM: counts_of(fgsm, sizes)}
        feedback = Feedback(epoch, len(epochs), torch.tensor(sizes), counts)
        settings, guard = guard.update(base_settings(len(sizes)), feedback)
        finer = [1] * len(sizes) if settings.finer is None else settings.finer.tolist()
        found.append([int(n) for n in finer])
        words.append(guard.news)
    return found, words


def straight(epochs, sizes, drop, rescue):
    """The rule, class by class."""
    found = [[1] * len(sizes) for _ in epochs]
    for k, size in enumerate(sizes):
        best = then = None
        fallen = False
        for epoch, (pgd, fgsm) in enumerate(epochs):
            hard, easy = (hits[k] / size if size else 0.0 for hits in (pgd, fgsm))
            if best is None:
                best, then = hard, easy
                continue
            spread = 0.0
            for share in (best, hard):
                drawn = (share * size + 1) / (size + 2)
                spread += drawn * (1 - drawn) / (size + 2)
            collapsed = best - hard > max(drop, 3 * math.sqrt(spread)) and easy > then - drop / 2
            fallen = collapsed or (fallen and best - hard > drop / 2)
            if hard > best:
                best, then = hard, easy
            found[epoch][k] = rescue if fallen else 1
    return found


@pytest.mark.parametrize("classes", [2, 7, 40])
def test_the_guard_equals_a_straight_loop(classes):
    rng = torch.Generator().manual_seed(classes)
    sizes = torch.randint(0, 90, (classes,), generator=rng).tolist()  # unbalanced, some empty
    epochs = []
    for _ in range(12):
        shares = torch.rand(2, classes, generator=rng)
        epochs.append([[int(s * n) for s, n in zip(row.tolist(), sizes, strict=True)]
                       for row in shares])  # fmt: skip
    found, _ = play(OverfittingGuard(0.2, 10), epochs, sizes)
    assert found == straight(epochs, sizes, 0.2, 10)
    flat = [n for row in found for n in row]
    assert 1 in flat
    assert 10 in flat


class TestGuard:
    def test_a_class_that_only_single_steps_spare_gets_many_until_it_is_back(self):
        sizes = [100, 100]
        epochs = [([50, 50], [60, 60]), ([5, 48], [80, 58]), ([20, 50], [70, 60]),
                  ([45, 50], [60, 60])]  # fmt: skip
        found, words = play(OverfittingGuard(0.2, 10, ("cat", "dog")), epochs, sizes)
        assert found == [[1, 1], [10, 1], [10, 1], [1, 1]]
        assert "cat (PGD 50 -> 5 %, FGSM 80 %)" in words[1]
        assert "dog" not in words[1]
        assert [bool(one) for one in words] == [False, True, False, False]

    def test_a_class_that_falls_under_both_attacks_is_no_alarm(self):
        found, _ = play(OverfittingGuard(0.2, 10), [([50], [60]), ([10], [20])], [100])
        assert found == [[1], [1]]

    def test_a_few_images_fall_by_chance(self):
        found, _ = play(OverfittingGuard(0.2, 10), [([2], [3]), ([1], [3])], [3])
        assert found == [[1], [1]]

    def test_the_steps_of_a_class_that_fell_are_in_the_checkpoint(self, net, tmp_path):
        slots, model = parse_recipe("fast").slots, net(2)
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        start = Progression.beginning(slots, Chain(slots.policies), slots.alike(2, 0.1), None)
        finer = torch.tensor([10.0, 1.0])
        state = replace(start, settings=replace(start.settings, finer=finer))
        path = tmp_path / "state.safetensors"
        save_state(path, "me", model, optimiser, state, {})
        found, _ = load_state(path, "me", model, optimiser, start, torch.device("cpu"))
        assert torch.equal(found.settings.finer, finer)

    def test_it_speaks_where_a_run_stands(self):
        guard = OverfittingGuard(0.2, 10, news="cat has fallen")
        slots = parse_recipe("fast").slots
        state = Progression.beginning(slots, Chain([guard]), base_settings(2), torch.arange(2))
        assert list(remarks(state, 10)) == [("cat has fallen", "cat has fallen")]

    def test_it_looks_at_validation_data_only(self):
        (guard,) = parse_recipe("fast").slots.policies
        assert {seen.split for seen in guard.needs(3)} == {"valid"}

    def test_without_validation_images_it_says_what_to_do(self, tiny, tmp_path):
        with refused("fast", "validation images", "valid="):
            short_run(tmp_path / "run", "fast", tiny(), valid="0")
        assert not (tmp_path / "run").exists()
        assert short_run(tmp_path / "run", "fast(guard=false)", tiny(), valid="0").history


class TestFiner:
    """n > 1: n times the steps, each 2/n as long; ten of FGSM's 5/4 are AT's ten of 1/4."""

    @pytest.mark.parametrize("start", ["none", "uniform"])
    def test_every_sample_has_its_own_steps(self, net, start):
        model, batch = net(4).eval(), batch_of(6)
        radius = torch.linspace(0.05, 0.3, 6, dtype=torch.float64)
        finer = torch.tensor([1.0, 10, 1, 3, 10, 1], dtype=torch.float64)
        found = inner(start, steps=1).perturb(
            model, batch, Moment(0, 1, 10), radius=radius, step=1.25 * radius, ball=LINF,
            finer=finer,
        )["robust"]  # fmt: skip
        for n in (1, 3, 10):
            step = 1.25 * radius * (1 if n == 1 else 2 / n)
            alike = view(inner(start, steps=n), model, batch, radius, step)
            rows = finer == n
            torch.testing.assert_close(found[rows], alike[rows], rtol=0, atol=1e-14)

    def test_a_step_attacks_so_often_and_others_stay_quick(self, net):
        model, forwards = net(4).train(), []
        model.register_forward_hook(lambda *_: forwards.append(1))
        step, data = step_of("fast", model), images_of(6)
        settings = settings_of([0.1] * 4, [0.1] * 4)
        step(data, settings, {}, Moment(0, 0, 2), frozenset(), False)
        assert len(forwards) == 2
        fallen = replace(settings, finer=torch.tensor([5.0, 1, 1, 1], dtype=torch.float64))
        forwards.clear()
        step(data, fallen, {}, Moment(0, 0, 2), frozenset(), False)
        assert len(forwards) == 6


@pytest.mark.parametrize("base", ["at", "trades"])
def test_it_is_one_step_of_the_base_from_a_uniform_start(base, tiny, tmp_path):
    fast = short_run(tmp_path / "fast", f"{base}+fast", tiny())
    bare = short_run(tmp_path / "bare", f"{base}+fast(guard=false)", tiny())
    assert same_weights(fast, bare)  # to look on changes nothing
    if base == "at":
        plain = short_run(tmp_path / "plain", "at(steps=1, step=eps/0.8)", tiny())
        assert same_weights(plain, bare)
    slots = parse_recipe(f"{base}+fast").slots
    assert (slots.steps, slots.start, slots.step.of(8)) == (1, "uniform", 10)


class TestSchedule:
    @pytest.mark.parametrize("base", ["at", "trades", "mart"])
    def test_one_that_never_changes_is_the_number(self, base, tiny, tmp_path):
        plain = short_run(tmp_path / "plain", f"{base}(steps=2)", tiny())
        same = short_run(tmp_path / "same", f"{base}(steps={{0: 2, 0.5: 2}})", tiny())
        other = short_run(tmp_path / "other", f"{base}(steps={{0: 1, 0.5: 2}})", tiny())
        assert same_weights(plain, same)
        assert not same_weights(plain, other)

    def test_every_epoch_has_its_steps(self, net):
        model, batch, forwards = net(4).eval(), batch_of(3), []
        model.register_forward_hook(lambda *_: forwards.append(1))
        attack = parse_recipe("at(steps={0: 1, 0.25: 2, 6: 5}, batchnorm=eval)").slots.inner
        radius, taken = torch.full((3,), 0.1).double(), []
        for epoch in range(8):
            forwards.clear()
            attack.perturb(model, batch, Moment(0, epoch, 8), radius=radius, step=radius, ball=LINF)
            taken.append(len(forwards))
        assert taken == [1, 1, 2, 2, 2, 2, 5, 5]

    @pytest.mark.parametrize(("steps", "reaches"), [("{0: 1, 0.5: 10}", True), ("{0: 1}", False)])
    def test_a_preset_takes_its_longest_attack_for_the_length_of_a_step(self, steps, reaches):
        found, _ = apply_preset("paper", parse_recipe(f"at(steps={steps})"), {})
        assert found.slots.step == (2 / 255 if reaches else QUARTER)

    @pytest.mark.parametrize("steps", ["{1: 2}", "{0: 1.5}", "-1", "[]", "{0: -1}"])
    def test_what_is_none_is_refused(self, steps):
        with refused("at(steps="):
            parse_recipe(f"at(steps={steps})")


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("clean+fast", ("fast", "clean has none")),
        ("at(steps=3)+fast", ("at(steps=3)", "fast has its own")),
        ("trades(step=0.01)+fast", ("trades(step=0.01)",)),
        ("fast+atta", ("atta", "fast")),
        ("trades+bat+fast", ("bat", "fast")),
        ("fast(rescue=1)", ("fast(rescue=1)",)),
        ("fast(drop=0)", ("fast(drop=0",)),
    ],
)
def test_company_that_makes_no_sense_is_refused(recipe, words):
    with refused(*words):
        parse_recipe(recipe)


@pytest.mark.parametrize("other", ["ccm", "cfa", "fairtat", "labelaug", "idbh", "resample", "awp"])
def test_others_stand_beside_it(other):
    assert parse_recipe(f"fast+{other}").owners["steps"] == "fast"
