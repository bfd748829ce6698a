"""What holds for every corruption, whatever it does."""

import pytest
import torch

from classwise.corruptions.corrupting import corrupt
from classwise.corruptions.severities import C15, C19, COLOURED, SETS, TABLES, nominal_size
from classwise.corruptions.weather import frozen
from classwise.errors import ClasswiseError

STILL = (
    *("gaussian_blur", "defocus_blur", "zoom_blur", "contrast", "brightness", "saturate"),
    *("pixelate", "jpeg_compression"),
)
every = pytest.mark.parametrize("name", C19)


def pictures(count=4, channels=3, height=40, width=32, seed=0):
    """Smooth images with edges, at whole levels."""
    rng = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, channels, 5, 5, generator=rng)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    smooth[:, :, height // 3 : height // 2, width // 4 :] *= 0.4
    return (255 * smooth).round() / 255


@every
@pytest.mark.parametrize("severity", [1, 3, 5])
def test_an_image_has_its_own_whoever_is_beside_it(name, severity):
    images, index = pictures(5), torch.tensor([7, 0, 123456, 3, 8])
    whole = corrupt(images, name, severity, index, seed=4)
    order = torch.tensor([3, 1, 4, 0, 2])
    assert torch.equal(corrupt(images[order], name, severity, index[order], seed=4), whole[order])
    assert torch.equal(corrupt(images[2:3], name, severity, index[2:3], seed=4), whole[2:3])


@every
def test_pieces_are_cut_anywhere(name, monkeypatch):
    images = pictures(5)
    whole = corrupt(images, name, 3)
    monkeypatch.setattr("classwise.corruptions.corrupting._AT_A_TIME", 2 * images[0].numel() // 8)
    assert torch.equal(corrupt(images, name, 3), whole)


@every
def test_levels_are_whole_and_the_same_in_every_precision(name):
    images = pictures(3)
    found = corrupt(images, name, 2)
    assert found.dtype == torch.float32
    assert found.min() >= 0
    assert found.max() <= 1
    levels = (255 * found).round()
    assert torch.equal((levels / 255), found)
    double = corrupt(images.double(), name, 2)
    assert double.dtype == torch.float64
    assert torch.equal((255 * double).round().float(), levels)
    assert torch.equal(corrupt((255 * images).round().to(torch.uint8), name, 2).float(), levels)


@every
def test_chance_follows_seed_number_and_severity(name):
    images = pictures(1).expand(2, -1, -1, -1)
    one, other = corrupt(images, name, 4, index=[0, 1])
    again = corrupt(images[:1], name, 4, index=[0], seed=1)[0]
    assert torch.equal(one, other) == torch.equal(one, again) == (name in STILL)


def test_draws_are_of_one_corruption_and_severity():
    grey = torch.full((1, 1, 60, 60), 128 / 255)
    light, heavy = (corrupt(grey, "impulse_noise", severity) != grey for severity in (1, 5))
    share = float(heavy[light].double().mean())
    assert light.sum() > 20
    assert share < 0.5  # the light noise is no part of the heavy one


@every
def test_severities_grow(name):
    images = pictures(8, height=32)
    far = [float((corrupt(images, name, s) - images).abs().mean()) for s in (1, 5)]
    if name == "elastic_transform":  # at 32 pixels the first has the widest affine map
        assert min(far) > 0
    else:
        assert 0 < far[0] < far[1]


@every
@pytest.mark.parametrize("size", [(6, 6), (8, 8), (28, 28), (17, 33), (70, 50), (130, 140)])
def test_any_size_colour_or_grey(name, size):
    for channels in (1, 3):
        images = pictures(2, channels, *size)
        if channels == 1 and name in COLOURED:
            with pytest.raises(ClasswiseError, match="grey; leave it out, as c15 does"):
                corrupt(images, name, 3)
            continue
        for severity in (1, 4, 5):
            found = corrupt(images, name, severity)
            assert found.shape == images.shape
            assert bool(((found >= 0) & (found <= 1)).all())


def test_a_black_and_a_white_image_stay_numbers():
    for name in C19:
        for level in (0.0, 1.0):
            assert bool(corrupt(torch.full((1, 3, 32, 32), level), name, 5).isfinite().all()), name


def test_tables_have_every_corruption_at_five_severities():
    for table in TABLES.values():
        assert sorted(table) == sorted(C19)
        assert {len(levels) for levels in table.values()} == {5}
    assert [len(SETS[name]) for name in ("c15", "c18", "c19")] == [15, 18, 19]
    assert set(C19) - set(SETS["c18"]) == {"glass_blur"}
    assert set(C19) - set(C15) == {"speckle_noise", "gaussian_blur", "spatter", "saturate"}


def test_the_shorter_side_decides_whose_constants():
    assert [nominal_size(h, w) for h, w in ((47, 400), (48, 48), (119, 500), (120, 120))] == [
        *(32, 64, 64, 224),
    ]


def test_frost_takes_a_texture():
    images = pictures(3)
    given = (torch.full((3, 50, 50), 0.5),)
    made = corrupt(images, "frost", 2, textures=given)
    wanted = (images + 0.3 * 0.5).clamp(max=1)
    assert (made - wanted).abs().max() <= 1 / 255
    assert not torch.equal(corrupt(images, "frost", 2), made)
    small = (torch.rand(3, 9, 9),)  # enlarged until a window fits
    assert corrupt(images, "frost", 2, textures=small).shape == images.shape


@pytest.mark.parametrize("nominal", [32, 64, 224])
def test_procedural_frost_is_as_bright_and_as_fine_as_the_photographs(nominal):
    """Those of ImageNet-C: means of grey, deviations, and neighbours against the deviation."""
    photographs = [(0.51, 0.07), (0.80, 0.09), (0.80, 0.09), (0.59, 0.11), (0.48, 0.17)]
    for texture, (mean, deviation) in zip(frozen(nominal), photographs, strict=True):
        grey = texture.mean(0)
        assert float(grey.mean()) == pytest.approx(mean, abs=0.03)
        assert float(grey.std()) == pytest.approx(deviation, rel=0.25)
        assert 0.3 < float(grey.diff(dim=1).abs().mean() / grey.std()) < 0.55


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "fogg"}, "fogg.*did you mean|fogg.*fog"),
        ({"severity": 6}, "severity is 6; it is a whole number from 1 to 5"),
        ({"severity": True}, "severity is True"),
        ({"images": torch.rand(2, 4, 8, 8)}, r"grey or colour images .* got \(2, 4, 8, 8\)"),
        ({"textures": (torch.rand(3, 9, 9),)}, "fog takes no texture; frost does"),
        ({"name": "frost", "textures": (torch.rand(9, 9),)}, r"shape \(3, height, width\)"),
        ({"name": "frost", "textures": (torch.rand(3, 9, 9) * 2,)}, r"values in \[0, 1\]"),
    ],
)
def test_what_is_refused(change, words):
    given = {"images": pictures(2), "name": "fog", "severity": 3} | change
    with pytest.raises(ClasswiseError, match=words):
        corrupt(**given)
