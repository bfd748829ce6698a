"""Wide convolutions by tiles are torch's own, and only where they pay."""

import pytest
import torch
from torch import nn

from classwise.models import winograd
from classwise.models.winograd import fewer_products

WIDE = 32  # stands for 256 where speed is not the question


def made(*, inner=WIDE, outer=WIDE, bias=True, dtype=torch.float64, **options):
    torch.manual_seed(1)
    layer = nn.Conv2d(inner, outer, 3, bias=bias, **{"padding": 1, **options})
    return layer.to(dtype).to(memory_format=torch.channels_last)


def images(*shape, dtype=torch.float64):
    torch.manual_seed(2)
    values = torch.randn(*shape, dtype=dtype).to(memory_format=torch.channels_last)
    return values.requires_grad_()


def answers(layer, asked):
    found = layer(asked)
    torch.manual_seed(3)
    (slope,) = torch.autograd.grad(found, asked, torch.randn_like(found))
    return found, slope


@pytest.fixture(autouse=True)
def small_is_enough(request, monkeypatch):
    """Small layers by tiles, too, but where a test is about what pays."""
    if "pays" not in request.function.__name__:
        monkeypatch.setattr(winograd, "_CHANNELS", WIDE)
        monkeypatch.setattr(winograd, "_PAIRS", 1)


@pytest.fixture
def tiled(monkeypatch):
    """How many tiles each convolution by tiles had."""
    seen, real = [], winograd._Products.apply

    def counting(asked, filters):
        seen.append(asked.shape[0] * asked.shape[2] * asked.shape[3] // 16)
        return real(asked, filters)

    monkeypatch.setattr(winograd._Products, "apply", counting)
    return seen


@pytest.mark.parametrize("outer", [WIDE, WIDE + 3])
@pytest.mark.parametrize("shape", [(33, 4, 4), (64, 4, 4), (8, 4, 16), (6, 12, 8), (128, 8, 8)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("few", [True, False])
def test_values_and_slopes_are_those_of_torch(outer, shape, bias, few, tiled, monkeypatch):
    monkeypatch.setattr(winograd, "_FEW", 0 if few else WIDE)
    layer, asked = made(outer=outer, bias=bias), images(shape[0], WIDE, *shape[1:])
    found, slope = answers(layer, asked)
    with fewer_products(layer):
        quick, its_slope = answers(layer, asked)
    assert len(tiled) == 1
    torch.testing.assert_close(quick, found, rtol=0, atol=1e-12)
    torch.testing.assert_close(its_slope, slope, rtol=0, atol=1e-12)
    for one in (quick, its_slope):  # what comes after is quick in this layout only
        assert one.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("few", [True, False])
def test_single_precision_rounds_a_few_times_as_much(few, monkeypatch):
    monkeypatch.setattr(winograd, "_FEW", 0 if few else WIDE)
    layer, asked = made(), images(32, WIDE, 8, 8)
    true, true_slope = answers(layer, asked)
    layer, asked = layer.float(), asked.detach().float().requires_grad_()
    with fewer_products(layer):
        found, slope = answers(layer, asked)
    for one, other in ((found, true), (slope, true_slope)):
        assert float((one - other).detach().norm() / other.detach().norm()) < 2e-5


@pytest.mark.parametrize(
    "options",
    [
        {"inner": WIDE - 1},
        {"outer": WIDE - 1},
        {"stride": 2},
        {"dilation": 2, "padding": 2},
        {"padding": 0},
        {"groups": 2},
        {"padding_mode": "circular"},
    ],
    ids=str,
)
def test_other_convolutions_are_left_alone(options, tiled):
    layer = made(**options)
    asked = images(32, layer.in_channels, 8, 8)
    found, _ = answers(layer, asked)
    with fewer_products(layer):
        quick, _ = answers(layer, asked)
    assert not tiled
    assert torch.equal(quick, found)


@pytest.mark.parametrize("shape", [(32, 8, 6), (32, 6, 8), (31, 4, 4)])
def test_sizes_that_do_not_pay_are_summed_directly(shape, tiled):
    layer, asked = made(), images(shape[0], WIDE, *shape[1:])
    found, slope = answers(layer, asked)
    with fewer_products(layer):
        quick, its_slope = answers(layer, asked)
    assert not tiled
    assert torch.equal(quick, found)
    assert torch.equal(its_slope, slope)


@pytest.mark.parametrize(("count", "times"), [(22, 0), (23, 1)])
def test_a_layer_by_tiles_pays_with_enough_of_them(count, times, tiled):
    layer = made(inner=256, outer=256, dtype=torch.float32)
    asked = images(count, 256, 8, 8, dtype=torch.float32)
    with fewer_products(layer):
        layer(asked)
    assert len(tiled) == times


def test_another_layout_is_kept(tiled):
    layer, asked = made(), images(32, WIDE, 8, 8).detach().contiguous().requires_grad_()
    with fewer_products(layer):
        quick, _ = answers(layer, asked)
    assert not tiled
    torch.testing.assert_close(quick, layer(asked), rtol=0, atol=1e-12)


def test_weights_that_change_meanwhile_are_noticed():
    layer, asked = made(), images(32, WIDE, 4, 4)
    with fewer_products(layer):
        before = layer(asked)
        with torch.no_grad():
            layer.weight.mul_(2)
            layer.bias.zero_()
        after = layer(asked)
    torch.testing.assert_close(after, layer(asked), rtol=0, atol=1e-12)
    assert not torch.allclose(before, after)


def test_filters_are_transformed_once_for_all_steps(monkeypatch):
    made_anew, real = [], winograd._transformed
    monkeypatch.setattr(
        winograd, "_transformed", lambda *given: made_anew.append(1) or real(*given)
    )
    layer, asked = made(), images(32, WIDE, 4, 4)
    with fewer_products(layer):
        for _ in range(3):
            answers(layer, asked)
    assert len(made_anew) == 2, "for images, and turned round for slopes"


def test_the_layer_is_itself_again_whatever_happens():
    layer = made()
    with pytest.raises(RuntimeError), fewer_products(layer):
        layer(images(32, 3, 4, 4))  # not the channels that it takes
    assert "forward" not in vars(layer)
    layer(images(32, WIDE, 4, 4)).sum().backward()
    assert layer.weight.grad is not None


def test_a_forward_of_somebody_else_stays(tiled):
    layer = made()
    layer.forward = lambda asked: asked * 3
    with fewer_products(layer):
        assert torch.equal(layer(images(32, WIDE, 4, 4)), images(32, WIDE, 4, 4) * 3)
    assert "forward" in vars(layer)
    assert not tiled
