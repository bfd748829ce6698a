import copy

import pytest
import torch
import torch.nn.functional as F
from plain_steps import STILL, assert_same_models, descend, images_of, part, settings_of, step_of
from refusals import refused
from short_runs import same_weights, short_run

from classwise.attacks.inner import Moment
from classwise.data.augment import Noisy, fit_augment
from classwise.data.dataset import Allowed
from classwise.draws import Draws
from classwise.recipe_text import parse_recipe


@pytest.mark.parametrize("sigma", [0.05, 0.5])
def test_steps_equal_a_straight_transcription(net, sigma):
    model = net().train()
    straight, data = copy.deepcopy(model), images_of(8)
    text = f"clean+noise(sigma={sigma})"
    augment = fit_augment(STILL, Allowed(8), parse_recipe(text).slots.noise)
    step, settings = step_of(text, model, augment), settings_of([0.0] * 4, [0.1] * 4)
    for epoch, rows in enumerate(([0, 1, 2, 3], [5, 1, 4])):
        batch = part(data, rows)
        step(batch, settings, {}, Moment(7, epoch, 3), frozenset(), False)
        seen = []
        for image, number in zip(batch.images, batch.index, strict=True):
            z = Draws(7, "noise", epoch).noise(number[None], (1, 8, 8)).double()
            seen.append(image + sigma * z[0])
        descend(straight, F.cross_entropy(straight(torch.stack(seen)), batch.labels))
    assert_same_models(model, straight)


class TestDraws:
    NOISY = Noisy(STILL, 0.3)

    def test_they_depend_on_seed_epoch_and_sample_only(self):
        images, index = torch.full((3, 1, 4, 4), 0.5), torch.tensor([4, 9, 2])
        whole = self.NOISY(images, index, 0, 1)
        alone = self.NOISY(images[1:2], index[1:2], 0, 1)
        assert torch.equal(whole[1:2], alone)
        assert not torch.allclose(whole[0], whole[1])
        for other in (self.NOISY(images, index, 1, 1), self.NOISY(images, index, 0, 2)):
            assert not torch.allclose(other, whole)

    def test_they_are_normal_and_not_clipped(self):
        images, index = torch.zeros(400, 1, 8, 8), torch.arange(400)
        noise = self.NOISY(images, index, 0, 0)
        assert abs(noise.mean()) < 0.01
        assert abs(noise.std() - 0.3) < 0.01
        assert (noise < -0.3).any()
        assert (noise.abs() > 0.9).double().mean() == pytest.approx(0.0027, abs=0.002)


def test_a_run_under_noise_is_another_run(tiny, tmp_path):
    runs = {
        text: short_run(tmp_path / str(number), text, tiny())
        for number, text in enumerate(["clean", "clean+noise(sigma=0.3)", "noise(sigma=0.3)"])
    }
    plain, noisy, implied = runs.values()
    assert not same_weights(plain, noisy)
    assert same_weights(noisy, implied)  # a loss must come from somewhere: clean


@pytest.mark.parametrize("base", ["at", "trades", "mart", "at+fast", "trades+free", "trades+cfa"])
def test_an_attack_inside_the_picture_would_cut_it_off(base):
    with refused("noise trains on images", "cut the noise off; use clean"):
        parse_recipe(f"{base}+noise")


def test_company():
    for text in ("crop(padding=zero)", "idbh", "balanced", "resample", "ldam", "cosine", "ema"):
        slots = parse_recipe(f"clean+noise(sigma=0.5)+{text}").slots
        assert slots.noise == 0.5
    with refused("noise(sigma=0)"):
        parse_recipe("clean+noise(sigma=0)")
