import copy
import math

import pytest
import torch
import torch.nn.functional as F
from plain_steps import (
    STILL,
    assert_same_models,
    descend,
    images_of,
    memory_of,
    part,
    settings_of,
    step_of,
)
from refusals import refused
from short_runs import same_weights, short_run

from classwise.attacks.carried import CARRIED
from classwise.attacks.inner import Moment
from classwise.data.augment import CropFlip
from classwise.draws import Draws
from classwise.recipe_text import parse_recipe

MARGINS, STEPS = [0.05, 0.1, 0.2, 0.0], [0.03, 0.06, 0.15, 0.1]
COUNT, SIZE, RESET, EPOCHS, INNER = 7, 4, 2, 4, 2
ORDERS = [[[3, 1, 0, 6], [5, 4, 2]], [[6, 5, 4, 3], [2, 1, 0]], [[0, 2, 4, 6], [1, 3, 5]]]


def order_of(epoch):
    return ORDERS[epoch % len(ORDERS)]


def windows(index, pad, flip, epoch):
    """Row and column in the frame of every pixel that an image shows in an epoch."""
    draws = Draws(0, "augment", epoch).uniform(torch.tensor([index]), (3,), torch.float64)[0]
    top, left = (int(value * (2 * pad + 1)) for value in draws[:2].tolist())
    mirrored = flip and bool(draws[2] < 0.5)
    for a in range(SIZE):
        for b in range(SIZE):
            yield a, b, top + a, left + (SIZE - 1 - b if mirrored else b)


def straight(model, data, pad, flip):
    """Image by image and pixel by pixel: recall, attack in eval mode, step, put back."""
    past = [{} for _ in range(COUNT)]
    for epoch in range(EPOCHS):
        if epoch % RESET == 0:
            past = [{} for _ in range(COUNT)]
        for rows in order_of(epoch):
            batch = part(data, rows)
            mirror = CropFlip(pad, flip, "zero")(batch.images, batch.index, 0, epoch)
            start = Draws(0, "start", epoch).uniform(batch.index, (1, SIZE, SIZE), torch.float64)
            x = mirror.clone()
            for i, row in enumerate(rows):
                radius = MARGINS[batch.labels[i]]
                for a, b, r, c in windows(int(batch.index[i]), pad, flip, epoch):
                    fresh = (2 * float(start[i, 0, a, b]) - 1) * radius
                    offset = past[row].get((r, c), fresh)
                    image = float(mirror[i, 0, a, b])
                    moved = min(max(image + offset, image - radius), image + radius)
                    x[i, 0, a, b] = min(max(moved, 0.0), 1.0)
            model.eval()
            for _ in range(INNER):
                x = x.detach().requires_grad_()
                (slope,) = torch.autograd.grad(F.cross_entropy(model(x), batch.labels), x)
                x = x.detach()
                for i, label in enumerate(batch.labels.tolist()):
                    moved = x[i] + STEPS[label] * slope[i].sign()
                    low, high = mirror[i] - MARGINS[label], mirror[i] + MARGINS[label]
                    x[i] = moved.clamp(low, high).clamp(0, 1)
            model.train()
            descend(model, F.cross_entropy(model(x), batch.labels))
            for i, row in enumerate(rows):
                for a, b, r, c in windows(int(batch.index[i]), pad, flip, epoch):
                    offset = x[i, 0, a, b] - mirror[i, 0, a, b]
                    past[row][r, c] = float(offset.half())
    return past


@pytest.mark.parametrize(("pad", "flip"), [(0, False), (1, True)])
def test_steps_equal_a_straight_transcription(net, pad, flip):
    model, data = net(4).train(), images_of(COUNT, seed=3, size=SIZE)
    plain = copy.deepcopy(model)
    recipe = f"at(batchnorm=eval)+atta(steps={INNER}, reset={RESET})"
    step = step_of(recipe, model, CropFlip(pad, flip, "zero"))
    kept = memory_of(step, data.index.flip(0))
    settings = settings_of(MARGINS, STEPS)
    for epoch in range(EPOCHS):
        for rows in order_of(epoch):
            step(part(data, rows), settings, kept, Moment(0, epoch, 9), frozenset(), False)
    expected = straight(plain, data, pad, flip)
    assert_same_models(model, plain)
    side = SIZE + 2 * pad
    assert kept[CARRIED]["offsets"].shape == (COUNT, side, side, 1)
    for row, places in enumerate(expected):
        for r in range(side):
            for c in range(side):
                found = float(kept[CARRIED]["offsets"][row, r, c, 0])
                known = places.get((r, c), math.nan)
                assert found == pytest.approx(known, abs=1e-6, nan_ok=True)


def test_it_begins_where_the_last_epoch_ended(net):
    """With no step at all the images of the second epoch are those of the first."""
    model, data, seen = net(4).train(), images_of(COUNT, size=SIZE), []
    step = step_of("atta(steps=0, reset=9)", model)
    kept = memory_of(step, data.index)
    model.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().clone()))
    for epoch in range(2):
        step(data, settings_of(MARGINS, STEPS), kept, Moment(0, epoch, 9), frozenset(), False)
    assert not torch.equal(seen[0], data.images)
    torch.testing.assert_close(seen[0], seen[1], rtol=0, atol=2e-4)  # kept in half precision


@pytest.mark.parametrize("base", ["at", "trades"])
def test_reset_every_epoch_is_the_base_bit_for_bit(base, tiny, tmp_path):
    plain = short_run(tmp_path / "plain", f"{base}(steps=2, step=eps/2)", tiny())
    anew = short_run(tmp_path / "anew", f"{base}+atta(steps=2, reset=1)", tiny())
    kept = short_run(tmp_path / "kept", f"{base}+atta(steps=2, reset=2)", tiny())
    assert same_weights(plain, anew)
    assert not same_weights(plain, kept)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("atta+resample", ("resample", "atta", "several times")),
        ("atta+idbh", ("idbh", "atta", "crop")),
        ("trades+bat+atta", ("bat", "atta")),
        ("trades+wat+atta", ("wat", "validation", "atta")),
        ("clean+atta", ("atta", "clean has none")),
        ("at(steps=3)+atta", ("at(steps=3)", "atta has its own")),
        ("atta(reset=0)", ("atta(reset=0)",)),
    ],
)
def test_company_that_makes_no_sense_is_refused(recipe, words):
    with refused(*words):
        parse_recipe(recipe)


@pytest.mark.parametrize("other", ["ccm", "cfa", "fairtat", "fat", "labelaug", "crop", "ema"])
def test_others_stand_beside_it(other):
    slots = parse_recipe(f"atta+{other}").slots
    assert (slots.steps, slots.carry.reset) == (1, 10)


def test_places_are_where_the_transform_takes_its_pixels_from():
    data = images_of(5, size=6)
    crop = CropFlip(2, True, "zero")
    rows, columns = crop.places(data.images.shape, data.index, 0, 3)
    framed = F.pad(data.images, [2] * 4).permute(0, 2, 3, 1)
    assert framed.shape[1:3] == crop.frame(data.images.shape)
    taken = framed[torch.arange(5)[:, None, None], rows, columns].permute(0, 3, 1, 2)
    assert torch.equal(taken, crop(data.images, data.index, 0, 3))
    assert STILL.frame(data.images.shape) == (6, 6)
