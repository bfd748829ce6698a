"""Every corruption beside SciPy, Pillow or a transcription of its equations with plain loops."""

import colorsys
import heapq
import math
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats

from classwise.corruptions import blurs, digital, filters, noises, spatter, weather
from classwise.corruptions.chance import Chance
from classwise.corruptions.severities import TABLES

RNG = np.random.default_rng(5)


@dataclass
class Given:
    """Chance that a test knows."""

    normals: dict = field(default_factory=dict)
    uniforms: dict = field(default_factory=dict)

    def normal(self, part, shape):
        return torch.as_tensor(self.normals[part]).float().reshape(-1, *shape)

    def uniform(self, part, shape):
        return torch.as_tensor(self.uniforms[part]).float().reshape(-1, *shape)


NONE = Given()


def batch(*arrays):
    """Height × width × channel arrays as a batch."""
    return torch.from_numpy(np.stack(arrays).transpose(0, 3, 1, 2).copy()).float()


def array(tensor, row=0):
    return tensor[row].permute(1, 2, 0).double().numpy()


def levels(height, width, channels=3):
    return RNG.integers(0, 256, (height, width, channels)) / 255


@pytest.mark.parametrize("edge", ["nearest", "reflect"])
@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.5, 40.0])
def test_gaussian_is_scipys(edge, sigma):
    image = levels(19, 26)
    wanted = ndimage.gaussian_filter(image, (sigma, sigma, 0), mode=edge, truncate=3.0)
    found = filters.gaussian(batch(image), sigma, 3.0, edge)
    assert np.abs(array(found) - wanted).max() < 1e-5


@pytest.mark.parametrize(
    ("radius", "soft"), [(0.4, 0.5), (1.5, 0.1), (3, 0.1), (8, 0.5), (10, 0.5)]
)
def test_a_disk_is_laid_on_every_pixel(radius, soft):
    image, kernel = levels(33, 40), filters.disk(radius, soft).double().numpy()
    # where a disk fills its square, softening mirrors the rim into it: so do the scripts
    assert kernel.sum() == pytest.approx(1, abs=0.02 if radius >= 8 else 1e-6)
    wanted = np.stack(
        [ndimage.correlate(image[..., c], kernel, mode="mirror") for c in range(3)], 2
    )
    found = blurs.defocus_blur(batch(image), (radius, soft), NONE)
    assert np.abs(array(found) - wanted).max() < 1e-5


@pytest.mark.parametrize("zoom", [1.0, 1.06, 1.25, 1.75, 2.25, 4.5])
def test_a_zoom_is_scipys(zoom):
    image = levels(32, 40)
    cut = [math.ceil(side / zoom) for side in (32, 40)]
    top, left = (32 - cut[0]) // 2, (40 - cut[1]) // 2
    middle = image[top : top + cut[0], left : left + cut[1]]
    wanted = ndimage.zoom(middle, (zoom, zoom, 1), order=1)
    found = filters.clipped_zoom(batch(image), zoom)
    assert np.abs(array(found) - wanted).max() < 1e-5


def test_zoom_blur_is_the_mean_over_views_and_the_image():
    image, steps = levels(32, 32), TABLES[32]["zoom_blur"][1]
    views = [array(filters.trimmed(filters.clipped_zoom(batch(image), z), 32, 32))
             for z in np.arange(*steps)]  # fmt: skip
    wanted = (image + sum(views)) / (len(views) + 1)
    assert np.abs(array(blurs.zoom_blur(batch(image), steps, NONE)) - wanted).max() < 1e-5


@pytest.mark.parametrize("degrees", [-45.0, -10.0, 0.0, 33.0, -90.0, -135.0])
def test_motion_follows_its_line(degrees):
    image, radius, sigma = levels(9, 30), 6, 2.0
    weights = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(2 * radius + 1)]
    wanted = np.zeros_like(image)
    for i, weight in enumerate(weights):
        down = math.ceil(i * math.sin(math.radians(degrees)) - 0.5)
        right = math.ceil(i * math.cos(math.radians(degrees)) - 0.5)
        if abs(down) >= 9 or abs(right) >= 30:
            break
        for y in range(9):
            for x in range(30):
                from_y, from_x = min(max(y + down, 0), 8), min(max(x + right, 0), 29)
                wanted[y, x] += weight / sum(weights) * image[from_y, from_x]
    found = filters.motion(batch(image), radius, sigma, torch.tensor([degrees]))
    assert np.abs(array(found) - wanted).max() < 1e-5


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_glass_copies_pixels_from_the_last_to_the_first(reach):
    height, width = 15, 18
    drawn = RNG.random((3, height - 2 * reach, width - 2 * reach, 2))
    source = blurs._copied_from(height, width, reach, Given({}, {"glass 0": drawn}), 0)
    for row, steps in enumerate((drawn.astype(np.float32) * 2 * reach).astype(int) - reach):
        held = np.arange(height * width).reshape(height, width)
        for h in range(height - reach, reach, -1):
            for w in range(width - reach, reach, -1):
                right, down = steps[h - reach - 1, w - reach - 1]
                held[h, w] = held[h + down, w + right]
        assert source[row].tolist() == held.flatten().tolist()


@pytest.mark.parametrize("photons", [3.0, 60.0, 500.0])
def test_shot_noise_is_poissons(photons):
    value = torch.tensor([0, 1, 40, 128, 255])
    images = (value / 255).view(5, 1, 1, 1).expand(5, 1, 200, 200)
    found = noises.shot_noise(images, photons, Chance(0, "test", torch.arange(5))) * photons
    assert not found[0].any()
    for row in range(1, 5):
        counts = found[row].flatten().round().long().numpy()
        rate = photons * int(value[row]) / 255
        middle = int(stats.poisson.median(rate))
        for most in {middle, middle + max(1, int(1.5 * rate**0.5)), max(0, middle - 1)}:
            share, wanted = (counts <= most).mean(), stats.poisson.cdf(most, rate)
            assert abs(share - wanted) < 4.5 * math.sqrt(0.25 / counts.size)
    quantile = noises._quantile(torch.tensor([255, 255]), torch.tensor([0.0, 0.9999999]), photons)
    assert quantile[0] == max(0, stats.poisson.ppf(2**-25, photons))
    assert abs(int(quantile[1]) - stats.poisson.ppf(0.9999999, photons)) <= 2


def test_noise_has_the_spread_it_should():
    grey = torch.full((4, 3, 100, 100), 0.5)
    chance = Chance(3, "test", torch.arange(4))
    assert float((noises.gaussian_noise(grey, 0.1, chance) - 0.5).std()) == pytest.approx(
        0.1, rel=0.02
    )
    assert float((noises.speckle_noise(grey, 0.2, chance) - 0.5).std()) == pytest.approx(
        0.1, rel=0.02
    )
    salted = noises.impulse_noise(grey, 0.1, chance)
    for value in (0.0, 1.0):
        assert float((salted == value).double().mean()) == pytest.approx(0.05, abs=0.003)


def test_brightness_and_saturation_are_those_of_the_colour_space():
    image = levels(9, 9)
    image[0, 0], image[0, 1] = 0.0, 0.3  # black, and grey: the hue of both is red
    for change, made in (
        (lambda h, s, v: (h, s, min(v + 0.3, 1)), digital.brightness(batch(image), 0.3, NONE)),
        (
            lambda h, s, v: (h, min(2 * s + 0.1, 1), v),
            digital.saturate(batch(image), (2, 0.1), NONE),
        ),
        (lambda h, s, v: (h, 0.1 * s, v), digital.saturate(batch(image), (0.1, 0), NONE)),
    ):
        wanted = [
            colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*one))) for one in image.reshape(-1, 3)
        ]
        assert np.abs(array(made).reshape(-1, 3) - wanted).max() < 1e-5


@pytest.mark.parametrize("size", [(40, 33), (120, 120), (32, 32)])
@pytest.mark.parametrize("share", [0.95, 0.75, 0.6, 0.5, 0.4, 0.25])
def test_large_pixels_are_pillows(share, size):
    image = RNG.integers(0, 256, (*size, 3)).astype(np.uint8)
    few = (int(size[1] * share), int(size[0] * share))
    small = Image.fromarray(image).resize(few, Image.Resampling.BOX)
    wanted = np.asarray(small.resize(size[::-1], Image.Resampling.BOX))
    found = array(digital.pixelate(batch(image / 255), share, NONE)) * 255
    assert np.array_equal(found.round(), wanted)


def test_an_elastic_field_is_scipys():
    image, drawn = levels(32, 32), RNG.random((2, 32, 32)).astype(np.float32)
    strength, sigma = 32 * 0.1, 32 * 0.04
    corners = Given({}, {"field": drawn, "corners": np.full((3, 2), 0.5)})  # the corners stay
    how = {"sigma": sigma, "mode": "reflect", "truncate": 3}
    right, down = (ndimage.gaussian_filter(2.0 * one - 1, **how) * strength for one in drawn)
    y, x = np.mgrid[:32, :32]
    wanted = np.stack(
        [ndimage.map_coordinates(image[..., c], (y + down, x + right), order=1, mode="reflect")
         for c in range(3)], 2)  # fmt: skip
    found = digital.elastic_transform(batch(image), (strength, sigma, 32 * 0.05), corners)
    assert np.abs(array(found) - wanted).max() < 1e-4


def test_three_corners_of_a_square_are_moved():
    drawn = RNG.random((3, 2))
    rows, columns = digital._affine(30, 40, 2.5, Given({}, {"corners": drawn}))
    before = np.array([[25, 30], [25, 10], [5, 10]], float)  # as (x, y), as the scripts have it
    after = before + 2.5 * (2 * drawn - 1)
    matrix = np.linalg.solve(np.c_[after, np.ones(3)], before)
    for y, x in ((0, 0), (29, 39), (7, 31)):
        from_x, from_y = np.array([x, y, 1]) @ matrix
        assert float(rows[0, y, x]) == pytest.approx(from_y, abs=1e-3)
        assert float(columns[0, y, x]) == pytest.approx(from_x, abs=1e-3)


def test_a_fractal_is_made_of_squares_and_diamonds():
    side, decay = 8, 1.7
    drawn = {f"height {8 >> k}": RNG.random((3, 2**k, 2**k)).astype(np.float32) for k in range(3)}
    held, step, rough = np.zeros((side, side)), side, 100.0
    while step >= 2:
        half, wobble = step // 2, rough * rough * (2.0 * drawn[f"height {step}"] - 1)

        def at(y, x):
            return held[y % side, x % side]

        cells = [(i, j) for i in range(side // step) for j in range(side // step)]
        for i, j in cells:
            y, x = i * step, j * step
            corners = at(y, x) + at(y + step, x) + at(y, x + step) + at(y + step, x + step)
            held[y + half, x + half] = corners / 4 + wobble[0, i, j]
        for i, j in cells:
            y, x = i * step, j * step
            here = at(y + half, x + half) + at(y, x)
            held[y, x + half] = (here + at(y - half, x + half) + at(y, x + step)) / 4 + wobble[
                1, i, j
            ]
            held[y + half, x] = (here + at(y + half, x - half) + at(y + step, x)) / 4 + wobble[
                2, i, j
            ]
        step, rough = half, rough / decay
    wanted = (held - held.min()) / (held.max() - held.min())
    found = weather.plasma(side, decay, Given({}, drawn))[0].double().numpy()
    assert np.abs(found - wanted).max() < 1e-5


def test_distances_are_the_shortest_of_three_moves():
    marked = torch.zeros(1, 1, 9, 12, dtype=torch.bool)
    marked[0, 0, 1, 2] = marked[0, 0, 6, 11] = True
    moves = {(a, b): length for length, pairs in
             ((1.0, [(0, 1)]), (1.4, [(1, 1)]), (2.1969, [(1, 2)]))
             for p, q in pairs for a, b in {(p, q), (q, p)}}  # fmt: skip
    wanted = np.full((9, 12), np.inf)
    open_ = [(0.0, 1, 2), (0.0, 6, 11)]
    while open_:
        far, y, x = heapq.heappop(open_)
        if not (0 <= y < 9 and 0 <= x < 12) or far >= wanted[y, x]:
            continue
        wanted[y, x] = far
        for (a, b), length in moves.items():
            for i, j in ((a, b), (a, -b), (-a, b), (-a, -b)):
                heapq.heappush(open_, (far + length, y + i, x + j))
    found = spatter.distances(marked)[0, 0].numpy()
    assert np.abs(found - wanted).max() < 1e-4


def test_contrast_keeps_the_mean_of_each_channel():
    image = levels(8, 8)
    mean = image.mean((0, 1), keepdims=True)
    found = array(digital.contrast(batch(image), 0.3, NONE))
    assert np.abs(found - (mean + 0.3 * (image - mean))).max() < 1e-6


def test_fog_and_snow_by_their_equations():
    image = levels(16, 16)
    chance = Chance(1, "test", torch.tensor([4]))
    cloud = weather.plasma(16, 2.0, chance)[0].double().numpy()[..., None]
    wanted = (image + 1.5 * cloud) * image.max() / (image.max() + 1.5)
    assert np.abs(array(weather.fog(batch(image), (1.5, 2.0), chance)) - wanted).max() < 1e-5
    level = TABLES[32]["snow"][0]
    still = Given({"flakes": np.full((16, 16), -9.0)}, {"wind": np.array(0.3)})  # no flake falls
    grey = (image @ [0.299, 0.587, 0.114])[..., None]
    pale = level.kept * image + (1 - level.kept) * np.maximum(image, 1.5 * grey + 0.5)
    assert np.abs(array(weather.snow(batch(image), level, still)) - pale).max() < 1e-5
