"""Networks that torch may crash on in channels last are trained in the usual layout."""

import forked
import pytest
import torch
from plain_steps import images_of, settings_of, step_of
from torch import nn

from classwise.attacks.inner import Moment
from classwise.models import build_model
from classwise.models.layout import training_layout

CPU = torch.device("cpu")


def built(name, channels=1):
    facts = {"num_classes": 4, "mean": (0.5,) * channels, "deviation": (0.2,) * channels}
    return build_model(name, channels=channels, **facts)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("preactresnet18(width=4)", True),
        ("preactresnet18(width=2)", True),
        ("resnet18(width=8)", True),
        ("preactresnet18(width=16)", False),
        ("resnet9(width=2)", False),
        ("cnn(width=2)", False),
    ],
)
def test_few_channels_and_a_stride_at_one_pixel_are_at_risk(name, plain):
    expected = torch.contiguous_format if plain else torch.channels_last
    assert training_layout(built(name), CPU) == expected
    assert training_layout(built(name), torch.device("cuda")) == torch.channels_last


def test_of_a_strangers_model_too():
    assert training_layout(nn.Conv2d(3, 64, 1, 2), CPU) == torch.contiguous_format
    for harmless in (nn.Conv2d(3, 64, 1), nn.Conv2d(3, 64, 3, 2), nn.Conv2d(64, 128, 1, 2)):
        assert training_layout(harmless, CPU) == torch.channels_last


def test_in_a_step_such_a_convolution_sees_the_usual_layout():
    model = built("preactresnet18(width=4)").double()
    seen = []
    convolution = model.features.stage2[0].shortcut
    convolution.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    step, batch = step_of("at(steps=2)", model), images_of(6)
    last = batch.images.contiguous(memory_format=torch.channels_last)
    step = type(step)(**{**vars(step), "augment": lambda *_: last})
    settings = settings_of([0.1] * 4, [0.05] * 4)
    step(batch, settings, {}, Moment(0, 0, 1), frozenset(), count_robust=False)
    assert len(seen) == 3
    assert all(one.is_contiguous() for one in seen)


def test_the_command_that_crashed_ends_well(tmp_path):
    words = ["at", "--data", "digits", "--subset", "128", "--epochs", "1", "--quiet"]
    words += ["--model", "preactresnet18(width=4)", "--out", str(tmp_path / "run")]
    words += ["--set", "at.steps=2", "--set", "valid_attack=clean"]
    code, _, wrong = forked.start("train", *words).end()  # a crash would end the tests, too
    assert code == 0, wrong
    assert (tmp_path / "run" / "weights" / "last.safetensors").exists()
