"""The benchmark of training measures what it says: our own loop, equal work, honest ratios."""

from pathlib import Path

import pytest
import torch

from classwise.data.dataset import Dataset, DataSource
from classwise.models import build_model

FOLDER = Path(__file__).parents[1] / "benchmarks"
NETWORK = "resnet9(width=8)"


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


def made_up(count=16, classes=4):
    rng = torch.Generator().manual_seed(0)
    images = torch.randint(256, (count, 3, 16, 16), generator=rng, dtype=torch.uint8)
    names = tuple(f"class {number}" for number in range(classes))
    data = Dataset(images, torch.arange(count) % classes, names, mirrored=False, moved=0)
    return DataSource("made up", data, data)


@pytest.mark.usefixtures("benchmarks")
def test_one_turn_of_ours_is_one_batch_of_the_loop_with_the_passes_it_needs():
    from counting import Work
    from sides import Task, ours

    train = ours(made_up(), Task("at", "at", NETWORK, 16, Path()), valid="0")
    channels = {"channels": 3, "mean": (0.5,) * 3, "deviation": (0.5,) * 3}
    model = build_model(NETWORK, num_classes=4, **channels)
    with Work() as once, torch.no_grad():
        model(torch.rand(16, 3, 16, 16))
    with Work() as whole:
        robust = train()
    assert 0 <= robust <= 1
    # 10·(1 + 1) in the attack, 1 + 2 to learn: nobody needs the weights' gradients in between
    assert 22.5 < whole.flops / once.flops <= 23


@pytest.mark.usefixtures("benchmarks")
def test_every_recipe_of_the_table_is_one_and_has_its_script():
    import released
    import training

    from classwise import load_recipe

    for row in training.ROWS:
        assert load_recipe(row.recipe).attacks
        assert row.script in released.STEPS
        assert row.floor.keys() == row.goal.keys()
        assert all(row.floor[network] < row.goal[network] for network in row.floor)


@pytest.mark.usefixtures("benchmarks")
def test_what_depends_on_training_is_measured_on_the_trained_network_alone():
    import training

    assert training.rows_at(training.NINE) == training.ROWS
    other = training.rows_at(training.EIGHTEEN)
    assert not any(row.title.startswith(("FAT", "BAT")) for row in other)
    assert len(other) == len(training.ROWS) - 4
    few = training.rows_at(training.EIGHTEEN, everything=False)
    assert [row.title for row in few] == ["AT", "AT, bfloat16"]


@pytest.mark.usefixtures("benchmarks")
def test_an_epoch_with_many_classes_is_timed_with_its_policies_and_its_state(tmp_path, monkeypatch):
    import bookkeeping

    monkeypatch.setattr(bookkeeping, "NET", "resnet9(width=8)")
    monkeypatch.setattr(bookkeeping, "BATCH", 2)
    data = bookkeeping.made_up(30, count=2, side=8)
    monkeypatch.setattr(bookkeeping, "made_up", lambda classes: data)  # noqa: ARG005
    step, after = bookkeeping.one_epoch("at(steps=1)+ccm+fairtat", 30, tmp_path / "run")()
    assert step > 0
    assert after > 0
    assert (tmp_path / "run" / "state.safetensors").exists()
    assert (tmp_path / "run" / "history.jsonl").read_text().count("\n") == 1


@pytest.mark.usefixtures("benchmarks")
def test_a_fresh_process_is_timed_by_the_clock_and_by_processors():
    import starting

    spent = starting.fresh("import time, sys; sys.argv[1]; time.sleep(0.2)")
    assert spent.wall >= 0.2 > spent.processor > 0


@pytest.mark.usefixtures("benchmarks")
def test_ratios_are_of_rounds_and_of_the_best():
    import training

    assert training.ratio([2.0, 4.0, 9.0], [1.0, 1.0, 3.0]) == (3.0, 2.0)


@pytest.mark.usefixtures("benchmarks")
def test_networks_of_other_people_answer_and_have_the_shape_they_are_named_for():
    import strangers

    torch.manual_seed(0)
    for make in (strangers.scaled, strangers.grouped):
        model = make()
        assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)
        assert not any("BatchNorm" in type(part).__name__ for part in model.modules())
    model = strangers.depthwise()
    assert model(torch.rand(1, 3, 64, 64)).shape == (1, 1000)
    assert sum(weight.numel() for weight in model.parameters()) == 4_652_008


@pytest.mark.usefixtures("benchmarks")
def test_a_plain_loop_stays_in_its_ball():
    import others

    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 4))
    images, labels = torch.rand(5, 3, 4, 4), torch.tensor([0, 1, 2, 3, 0])
    moved = others.plain(model, images, labels, eps=0.1, steps=3, width=2)
    assert 0.09 < float((moved - images).abs().max()) <= 0.1 + 1e-6
    assert 0 <= float(moved.min()) <= float(moved.max()) <= 1
