import math

import pytest
import torch
from refusals import refused
from short_runs import same_weights, short_run
from test_objective import N, softmax, world
from test_policies import double_settings

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import Feedback
from classwise.laws.made_up import write_teacher
from classwise.methods.zhao2024_absld import CLEAN, ROBUST, Temperatures
from classwise.objective import Outer, total
from classwise.recipe_text import parse_recipe

RATE, LOW, HIGH = 0.1, 0.5, 5.0


def counts_of(losses, sizes):
    losses, sizes = torch.tensor(losses, dtype=torch.float64), torch.tensor(sizes)
    return ClassCounts(torch.diag(sizes), losses={"label_ce": losses * sizes})


def straight_step(temperatures, losses, sizes, rate):
    """One update, class by class; `losses` are means over a class."""
    present = [k for k, size in enumerate(sizes) if size]
    mean = sum(losses[k] for k in present) / len(present)
    widest = max(abs(losses[k] - mean) for k in present)
    after = list(temperatures)
    for k in present:
        if widest > 0:
            after[k] -= rate * (losses[k] - mean) / widest
        after[k] = min(HIGH, max(LOW, after[k]))
    return after


@pytest.mark.parametrize("num_classes", [2, 3, 10])
@pytest.mark.parametrize("missing", [False, True])
def test_temperatures_over_the_epochs_equal_a_straight_loop(num_classes, missing):
    rng = torch.Generator().manual_seed(num_classes)
    sizes = torch.randint(3, 30, (num_classes,), generator=rng).tolist()
    if missing:
        sizes[0] = 0
    policy = Temperatures(RATE, LOW, HIGH, (0.5, 0.8))
    base = double_settings(num_classes)
    expected = {CLEAN: [1.0] * num_classes, ROBUST: [1.0] * num_classes}
    for epoch in range(11):
        counts = {}
        if epoch:
            rate = RATE * 0.1 ** ((epoch >= 5) + (epoch >= 8))
            for seen in (CLEAN, ROBUST):
                losses = (3 * torch.rand(num_classes, generator=rng)).tolist()
                counts[seen] = counts_of(losses, sizes)
                expected[seen] = straight_step(expected[seen], losses, sizes, rate)
        assert policy.needs(epoch) == frozenset(counts)
        settings, policy = policy.update(base, Feedback(epoch, 10, torch.tensor(sizes), counts))
        assert settings.clean_temperature.tolist() == pytest.approx(expected[CLEAN], rel=1e-12)
        assert settings.robust_temperature.tolist() == pytest.approx(expected[ROBUST], rel=1e-12)
    if not (missing and num_classes == 2):
        assert expected[CLEAN] != expected[ROBUST]


def test_with_equal_class_sizes_summed_losses_give_the_same_step():
    """The released code sums over a class; the mean differs only where classes differ in size."""
    losses, size = [0.5, 2.0, 1.25], 40
    sums = [size * loss for loss in losses]
    gap = [s - sum(sums) / 3 for s in sums]
    expected = [1 - RATE * g / max(map(abs, gap)) for g in gap]
    seen = counts_of(losses, [size] * 3)
    settings, _ = Temperatures(RATE, LOW, HIGH).update(
        double_settings(3), Feedback(1, 10, torch.ones(3), {CLEAN: seen, ROBUST: seen})
    )
    assert settings.robust_temperature.tolist() == pytest.approx(expected, rel=1e-12)
    assert expected[1] < 1 < expected[0]  # the harder class gets the sharper label


def test_temperatures_stay_in_their_range_and_equal_losses_change_nothing():
    policy, base = Temperatures(1.0, LOW, HIGH), double_settings(2)
    seen = counts_of([0.1, 3.0], [5, 5])
    for epoch in range(1, 20):
        settings, policy = policy.update(
            base, Feedback(epoch, 20, torch.ones(2), {CLEAN: seen, ROBUST: seen})
        )
    assert settings.robust_temperature.tolist() == [HIGH, LOW]
    even = counts_of([0.7, 0.7], [5, 9])
    fresh, _ = Temperatures(1.0, LOW, HIGH).update(
        base, Feedback(1, 20, torch.ones(2), {CLEAN: even, ROBUST: even})
    )
    assert fresh.clean_temperature.tolist() == pytest.approx([1, 1])


@pytest.mark.parametrize("num_classes", [2, 3, 10])
@pytest.mark.parametrize("average", ["element", "sample"])
def test_the_loss_equals_a_straight_loop(num_classes, average):
    outputs, labels, settings = world(num_classes)
    rng = torch.Generator().manual_seed(8)
    teacher = 3 * torch.randn(N, num_classes, generator=rng, dtype=torch.float64)
    hot = torch.rand(num_classes, generator=rng, dtype=torch.float64) + 0.5
    cold = torch.rand(num_classes, generator=rng, dtype=torch.float64) + 1.5
    changed = {"robust_temperature": hot, "clean_temperature": cold}
    names = type(settings).__dataclass_fields__
    settings = type(settings)(**{n: changed.get(n, getattr(settings, n)) for n in names})
    objective = parse_recipe(f"absld(average={average})").slots.objective
    outer = Outer(outputs, labels, settings.rows(labels), teacher=teacher)
    found = total(objective.terms(outer), "mean")
    whole = 0.0
    for b, y in enumerate(labels.tolist()):
        weight = settings.robust_weight[y].item()
        for view, share, table in (("robust", 5 / 6, hot), ("clean", 1 / 6, cold)):
            q = softmax([z / table[y].item() for z in teacher[b].tolist()])
            p = softmax(outputs[view][b].tolist())
            kl = sum(a * math.log(a / c) for a, c in zip(q, p, strict=True))
            whole += weight * share * kl
    divisor = N * num_classes if average == "element" else N
    assert found.item() == pytest.approx(whole / divisor, rel=1e-12)


class TestTraining:
    def run(self, folder, source, text="absld(teacher='{}', steps=2)", **options):
        teacher = folder.parent / "teacher.safetensors"
        if not teacher.exists():
            write_teacher(teacher, source)
        return short_run(folder, text.format(teacher), source, **options)

    def test_temperatures_move_and_are_recorded(self, tiny, tmp_path):
        run = self.run(tmp_path / "run", tiny(classes=3), epochs=3)
        tables = [epoch["settings"]["robust_temperature"] for epoch in run.history]
        assert tables[0] == [1, 1, 1]
        assert tables[1] != tables[0]
        assert set(run.history[0]["train"]) == {"clean", "robust"}

    def test_the_teachers_content_decides_and_not_its_place(self, tiny, tmp_path):
        source, runs = tiny(), []
        for name, seed in (("a", 5), ("b", 5), ("c", 6)):
            (tmp_path / name).mkdir()
            write_teacher(tmp_path / name / "teacher.safetensors", source, seed)
            runs.append(self.run(tmp_path / name / "run", source))
        assert same_weights(runs[0], runs[1])
        assert not same_weights(runs[0], runs[2])

    def test_a_validation_statistic_under_the_own_attack_has_the_teacher_too(self, tiny, tmp_path):
        text = "absld(teacher='{}', steps=2)+wat"
        assert self.run(tmp_path / "run", tiny(), text).finished_epochs == 2

    def test_without_a_teacher_training_is_refused(self, tiny, tmp_path):
        with refused("absld", "teacher", "weights"):
            short_run(tmp_path / "run", "absld", tiny())

    def test_a_teacher_of_other_classes_is_refused(self, tiny, tmp_path):
        write_teacher(tmp_path / "teacher.safetensors", tiny(classes=4))
        with refused("teacher", "3 classes"):
            self.run(tmp_path / "run", tiny(classes=3))


class TestComposition:
    def test_it_attacks_the_teachers_labels_from_a_gaussian_start_in_eval_mode(self):
        inner = parse_recipe("absld").slots.inner
        assert (inner.reference, inner.start, inner.steps) == ("teacher", "gaussian", 10)
        assert inner.batchnorm == "eval"

    def test_the_rate_falls_where_the_released_code_drops_it(self):
        policy = parse_recipe("absld").slots.policies[0]
        assert [round(300 * drop) for drop in policy.drops] == [215, 260, 285]

    @pytest.mark.parametrize(
        "option",
        [
            *("robust_share=1.5", "rate=-1", "low=0", "low=2", "high=0.5", "drops=[-1]"),
            *("average=batch", "steps=-1", "teacher=3"),
        ],
    )
    def test_values_out_of_range_are_refused(self, option):
        with refused(f"absld({option.split('=')[0]}="):
            parse_recipe(f"absld({option})")
