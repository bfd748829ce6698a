"""What a row of the ledger says a sample fell to is what it fell to."""

import pytest
import torch
from asked import condition_of, judge
from search_scenes import batch_of, labelled, spread_of

from classwise.attacks.ball import LINF
from classwise.attacks.judged import STANDING, Judged
from classwise.record.rows import Predictions, Verdicts
from classwise.types import Batch

NAMES = ("square(queries=15)", "pgd-2(verdict=any)", "apgd-ce(steps=12)")


def test_the_number_of_an_attack_becomes_its_name():
    fell_to = torch.tensor([2, STANDING, 0, 1, STANDING, 3])
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    predicted = torch.where(fell_to == STANDING, labels, (labels + 1) % 3)
    none = torch.zeros(6)
    batch = Batch(torch.rand(6, 1, 2, 2), labels, torch.arange(6) + 9)
    attacks = ("clean", "first", "second", "third")
    judged = Judged(predicted, none, none.int(), fell_to, attacks, batch.images)
    condition = condition_of("pgd-2", 0.1, LINF, 0, batch.index)
    rows = Predictions.of(Verdicts(condition, batch, judged))
    assert list(rows.broken_by) == ["second", None, "clean", "first", None, "third"]


@pytest.fixture(scope="module")
def scene():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        linear = torch.nn.Linear(64, 4).double()
    model = torch.nn.Sequential(torch.nn.Flatten(), linear, torch.nn.Tanh()).eval()
    batch = labelled(model, batch_of())
    return model, batch, spread_of("Linf")


def rows_of(scene, attack):
    model, batch, radius = scene
    return judge(model, batch, attack, num_classes=4, radius=radius, ball=LINF)


def test_a_suite_names_the_first_attack_that_breaks_the_sample_alone(scene):
    model, batch, _ = scene
    alone = [rows_of(scene, name) for name in NAMES]
    with torch.no_grad():
        wrong = model(batch.images).argmax(1) != batch.labels
    expected = []
    for n in range(len(batch)):
        fallen = [name for name, rows in zip(NAMES, alone, strict=True) if not rows.correct[n]]
        expected.append("clean" if wrong[n] else next(iter(fallen), None))
    assert list(rows_of(scene, f"suite({','.join(NAMES)})").broken_by) == expected
    assert set(expected) == {None, "clean", *NAMES}, "everything happens in this scene"


@pytest.mark.parametrize("attack", ["clean", "fgsm", "pgd-3"])
def test_an_attack_that_is_judged_where_it_ends_names_itself(scene, attack):
    rows = rows_of(scene, attack)
    assert list(rows.broken_by) == [None if right else attack for right in rows.correct]
    assert set(rows.broken_by) == {None, attack}
