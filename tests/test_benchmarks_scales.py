"""Choosing a scale: who judges, what qualifies, and that a second call trains nothing."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from found_scenes import report

from classwise.data.sources import open_data

PATH = Path(__file__).parents[1] / "benchmarks" / "scales.py"


@pytest.fixture(scope="module")
def scales():
    spec = importlib.util.spec_from_file_location("benchmark_scales", PATH)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(importlib.sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


def test_training_images_judge_and_the_test_part_is_not_there(scales):
    source = open_data("madeup(cifar10, size=4)")
    divided = scales.divided(source)
    assert divided.train.sizes.tolist() == [18] * 10
    assert divided.test.sizes.tolist() == [2] * 10

    def known(data):
        return {image.numpy().tobytes() for image in data.images}

    assert known(divided.train) | known(divided.test) == known(source.train)
    assert not known(divided.test) & (known(source.test) | known(divided.train))


def judged(scales, hits, size, setting=None):
    table = torch.zeros(len(hits), len(hits), dtype=torch.long)
    for place, right in enumerate(hits):
        table[place, place], table[place, place - 1] = right, size - right
    names = [str(number) for number in range(len(hits))]
    found = report("pgd-10", table, names)
    trial = scales.Trial(setting or scales.GRID[0], "cifar10", "cnn", Path("cifar10-x"))
    return scales.Judged(trial, 60.0, found, found)


@pytest.mark.parametrize(
    ("hits", "size", "missed"),
    [
        ([50, 100, 150, 200] * 5, 500, ""),  # 25 % on average, of 20 classes
        ([20, 30, 40, 60] * 5, 500, "average below 10%"),  # 7.5 %
        ([125] * 20, 500, "classes too alike"),
        ([1, 2, 2, 3] * 5, 6, "classes too alike"),  # few images: such a spread is chance
        ([5, 10, 15, 20] * 10, 500, "average below 12%"),  # of 40 classes five times chance
    ],
)
def test_the_rule(scales, hits, size, missed):
    assert judged(scales, hits, size).missed == missed


def test_equal_classes_differ_by_the_deviation_of_a_binomial(scales):
    draw = torch.Generator().manual_seed(0)
    many = torch.stack([torch.binomial(torch.full((10,), 500.0), torch.full((10,), 0.3),
                                       generator=draw) for _ in range(2000)])  # fmt: skip
    seen = float(((many / 500).std(1, correction=0) ** 2).mean().sqrt())
    assert judged(scales, [150] * 10, 500).by_chance == pytest.approx(seen, rel=0.03)


def test_least_work_is_chosen_of_those_that_qualify_on_all_data(scales):
    good, bad, (small, middle, large) = [50, 200] * 5, [150] * 10, scales.GRID[:3]
    made = [
        [judged(scales, hits, 500, setting) for hits in both]
        for setting, both in ((small, (good, bad)), (large, (good, good)), (middle, (good, good)))
    ]
    words = f"{middle.images} images, {middle.epochs} epochs"
    assert words in scales.table(made).splitlines()[-1]
    assert "of 2 settings" in scales.table(made)
    assert "No setting qualifies" in scales.table(made[:1])
    assert replace(small, images=2 * small.images).work == 2 * small.work


def test_it_runs_and_what_was_trained_is_not_trained_again(scales, tmp_path):
    words = ["--smoke", "--runs", str(tmp_path / "runs"), "--page", str(tmp_path / "page.md")]
    text = scales.main(words)
    assert text == (tmp_path / "page.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| cifar")]
    assert [line.split()[1] for line in lines] == ["cifar10", "cifar100"] * 2
    assert all(line.count("|") == scales.HEAD.count("|") for line in lines)

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert scales.main(words) == text
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
