"""What a study will cost: every audit counts, with its images and its weights."""

import pytest
from torch.nn.modules.module import register_module_forward_hook

from classwise.studies.audit_costs import (
    STANDING,
    Stopwatch,
    seconds_of_audits,
    seconds_of_features,
)
from classwise.studies.costs import cost_of
from classwise.studies.planned import plan
from classwise.studies.study import load_study, parse_study

STUDY = """
title = "x"
[[runs]]
recipe = "{recipe}"
data = "madeup(digits, size=8)"
model = "cnn(width=1)"
[[audit]]
attacks = {attacks}
weights = {weights}
limit = {limit}
[[artefact]]
kind = "table"
title = "t"
"""


def planned(attacks='["clean"]', weights='["averaged-last"]', limit=0, recipe="at"):
    text = STUDY.format(recipe=recipe, attacks=attacks, weights=weights, limit=limit)
    (run,) = plan(parse_study(text, "x", "x.toml"), "smoke")
    return run


class Fixed:
    """A second for an image that is attacked in any way, ten milliseconds for one that is not."""

    def per_image(self, _, attack):
        return 0.01 if attack == "clean" else 1.0

    def images(self, _, split):
        return 80 if split == "test" else 200


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ({}, 0.8),
        ({"limit": 30}, 0.3),
        ({"limit": 500}, 0.8),
        ({"attacks": '["clean", "pgd-2", "square", "corruption:fog-3"]'}, 240.8),
        ({"recipe": "at+ema"}, 0.8),  # the average alone
        ({"recipe": "at+ema", "weights": '["last", "averaged-last", "best"]'}, 2.4),
        ({"weights": '["last", "averaged-last"]'}, 0.8),  # without an average both are one
    ],
)
def test_every_audit_counts_with_its_images_and_weights(asked, seconds):
    assert seconds_of_audits(planned(**asked), Fixed()) == pytest.approx(seconds)


def test_features_cost_their_steps():
    runs = {run.labels["row"]: run for run in plan(load_study("benz-features"), "minutes")}
    made = {row: seconds_of_features(run, Fixed()) for row, run in runs.items()}
    assert made["robust features"] == pytest.approx(10_000 * 100 / 10)
    assert made["random features"] == pytest.approx(10_000 * 20 / 10)
    assert made["all features"] == made["plain model"] == 0


def test_seconds_are_of_one_image():
    ticks = iter(range(1000))
    watch = Stopwatch(lambda: float(next(ticks)))
    config = planned().config
    assert watch.per_image(config, "clean") == 1 / 64
    assert watch.per_image(config, "corruption:fog-3") == 1 / 64
    assert watch.per_image(config, "square(queries=2)") == STANDING / 16


def test_a_search_is_timed_to_its_end():
    """Each image of an untrained network would be broken in the first steps."""
    asked = [0]

    def count(*_):
        asked[0] += 1

    hook = register_module_forward_hook(count)
    try:
        ten, forty = (
            Stopwatch(lambda: asked[0]).per_image(
                planned().config, f"suite(apgd-ce(steps={steps}))"
            )
            for steps in (10, 40)
        )
    finally:
        hook.remove()
    assert forty > 2.5 * ten


def test_all_kinds_of_runs_have_a_cost():
    run = planned('["clean", "square(queries=2)", "corruption:fog-3"]')
    cost = cost_of([run])
    assert list(cost.seconds) == [run.key]
    assert not cost.unknown
    assert "1 runs: about" in cost.words(1)
