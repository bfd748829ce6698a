"""The built-in networks: published sizes, any input, seeded weights, K logits to the world."""

import math

import pytest
import torch

from classwise.errors import ClasswiseError
from classwise.models import MODELS, build_model

# Small enough for two cores, and still every kind of block.
LIGHT = ["cnn", "resnet9(width=4)", "resnet18(width=4)", "preactresnet18(width=4)"]
LIGHT += ["wrn(depth=10, widen=1)", "wrn(depth=16, widen=2)", "resnet50(width=2)"]


def build(spec, *, num_classes=10, channels=3, **more):
    statistics = {"mean": [0.4] * channels, "deviation": [0.2] * channels}
    return build_model(spec, num_classes=num_classes, channels=channels, **statistics, **more)


def parameters(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("spec", "published"),
    [
        ("resnet18", 11_173_962),
        ("preactresnet18", 11_172_170),
        ("wrn-28-10", 36_479_194),
        ("wrn-34-10", 46_160_474),
    ],
)
def test_parameter_counts_are_the_published_ones(spec, published):
    with torch.device("meta"):
        model = build(spec)
    assert parameters(model) == published


def test_resnet50_has_the_published_size_and_resolutions():
    with torch.device("meta"):
        model = build("resnet50", num_classes=1000)
        shapes = {}
        for name, module in model.features.named_children():
            module.register_forward_hook(
                lambda _m, _i, out, name=name: shapes.__setitem__(name, tuple(out.shape[1:]))
            )
        assert model.features(torch.rand(2, 3, 224, 224)).shape == (2, 2048)
    assert parameters(model) == 25_557_032
    assert shapes["stem"] == (64, 112, 112)
    assert shapes["shrink"] == (64, 56, 56)
    assert [shapes[f"stage{n}"] for n in (1, 2, 3, 4)] == [
        *((256, 56, 56), (512, 28, 28), (1024, 14, 14), (2048, 7, 7)),
    ]
    assert [len(getattr(model.features, f"stage{n}")) for n in (1, 2, 3, 4)] == [3, 4, 6, 3]


def test_resnet50_keeps_the_stride_in_the_3x3_convolution():
    first = build("resnet50(width=2)").features.stage2[0]
    strides = [first.conv1.stride, first.conv2.stride, first.conv3.stride, first.shortcut[0].stride]
    assert strides == [(1, 1), (2, 2), (1, 1), (2, 2)]
    assert first.conv2.kernel_size == (3, 3)


def test_a_bottleneck_is_the_formula():
    block = build("resnet50(width=4)").features.stage1[0].double().eval()
    for norm in (block.norm1, block.norm2, block.norm3, block.shortcut[1]):
        torch.nn.init.uniform_(norm.weight)
        torch.nn.init.normal_(norm.running_mean)
    x = torch.randn(2, 4, 5, 5, dtype=torch.float64)

    def normed(norm, y):
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        return (y - norm.running_mean[:, None, None]) * scale[:, None, None]

    def mixed(conv, y):  # a 1×1 convolution is a matrix over channels
        return torch.einsum("oi,bihw->bohw", conv.weight[:, :, 0, 0], y)

    inner = normed(block.norm1, mixed(block.conv1, x)).clamp(min=0)
    wide = torch.nn.functional.pad(inner, [1] * 4)
    middle = sum(
        torch.einsum(
            "oi,bihw->bohw", block.conv2.weight[:, :, i, j], wide[..., i : i + 5, j : j + 5]
        )
        for i in range(3)
        for j in range(3)
    )
    branch = normed(block.norm3, mixed(block.conv3, normed(block.norm2, middle).clamp(min=0)))
    expected = (branch + normed(block.shortcut[1], mixed(block.shortcut[0], x))).clamp(min=0)
    assert torch.allclose(block(x), expected, atol=1e-12)


def test_preactresnet18_without_its_last_batchnorm_has_the_other_published_count():
    with torch.device("meta"):
        model = build("preactresnet18")
    assert parameters(model) - parameters(model.features.norm) == 11_171_146


def test_the_general_wide_resnet_is_the_named_one():
    with torch.device("meta"):
        named, general = build("wrn-34-10"), build("wrn(depth=34, widen=10)")
    shapes = [{k: v.shape for k, v in m.state_dict().items()} for m in (named, general)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("spec", LIGHT)
@pytest.mark.parametrize(("channels", "num_classes"), [(1, 2), (3, 100)])
@pytest.mark.parametrize("size", [8, 28, 32, 64])
def test_any_channels_classes_and_sizes(spec, channels, num_classes, size):
    model = build(spec, channels=channels, num_classes=num_classes)
    logits = model(torch.rand(2, channels, size, size))
    assert logits.shape == (2, num_classes)
    assert logits.isfinite().all()


@pytest.mark.parametrize(
    ("spec", "resolution"),
    [("resnet18(width=4)", 4), ("preactresnet18(width=4)", 4), ("wrn(depth=10, widen=1)", 8)],
)
def test_cifar_form_keeps_the_resolution_in_the_stem(spec, resolution):
    features = build(spec).features
    sizes = {}
    for name, module in features.named_children():
        module.register_forward_hook(
            lambda _m, _i, out, name=name: sizes.__setitem__(name, out.shape[-1])
        )
    features(torch.rand(1, 3, 32, 32))
    last = "stage4" if "stage4" in sizes else "stage3"
    assert (sizes["stem"], sizes["stage1"], sizes[last]) == (32, 32, resolution)


@pytest.mark.parametrize("spec", LIGHT)
def test_channels_last_is_the_same_function(spec):
    model = build(spec).double().eval()
    images = torch.rand(3, 3, 16, 16, dtype=torch.float64)
    plain = model(images)
    other = model.to(memory_format=torch.channels_last)(
        images.to(memory_format=torch.channels_last)
    )
    torch.testing.assert_close(other, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("spec", LIGHT)
def test_seeded_weights_and_an_untouched_global_stream(spec):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (build(spec, seed=s).state_dict() for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("spec", LIGHT)
def test_extra_outputs_hide_behind_the_k_logits(spec):
    plain, extended = (build(spec, num_classes=4, extra=m).eval() for m in (0, 3))
    images = torch.rand(2, 3, 8, 8)
    assert extended(images).shape == (2, 4)
    outputs = extended.outputs(images)
    assert outputs.shape == (2, 7)
    assert torch.equal(outputs[:, :4], extended(images))
    assert torch.equal(outputs[:, 4:], torch.zeros(2, 3))  # idle at first
    assert plain.outputs(images).shape == (2, 4)


def test_wide_resnet_convolutions_start_from_hes_law():
    weight = build("wrn(depth=10, widen=4)").features.stage3[0].conv1.weight
    assert weight.shape == (256, 128, 3, 3)  # outputs count, not inputs
    assert weight.detach().std().item() == pytest.approx(math.sqrt(2 / (256 * 9)), rel=0.01)


def test_a_pre_activated_block_is_the_identity_when_its_branch_is_silent():
    block = build("wrn(depth=16, widen=1)").features.stage1[1].eval()
    torch.nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 16, 5, 5)
    assert torch.equal(block(x), x)


@pytest.mark.parametrize("spec", ["wrn(depth=10, widen=1)", "preactresnet18(width=4)"])
def test_where_the_shape_changes_the_shortcut_sees_the_activated_input(spec):
    block = build(spec).features.stage2[0].eval()
    torch.nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, block.conv1.in_channels, 6, 6)
    assert torch.equal(block(x), block.shortcut(block.norm1(x).relu()))
    assert block(x).shape[-1] == 3


def test_a_residual_block_rectifies_the_sum():
    block = build("resnet18(width=4)").features.stage1[0].eval()
    torch.nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 5, 5)
    assert torch.equal(block(x), x.relu())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("wrn(depth=27)", "6·N \\+ 4 .* take 28"),
        ("wrn(depth=4)", "take 10"),
        ("wrn-28-10(widen=2)", "no options; write just wrn-28-10"),
        ("wrn-28-10(2)", "no options"),
        ("resnet18(16)", "name the options, as in resnet18\\(width=16\\)"),
        ("resnet18(depth=3)", "unknown option of resnet18 'depth'"),
        ("resnet18(width=0)", "whole number from 1 to 4096"),
        ("resnet-18", "did you mean 'resnet18'"),
    ],
)
def test_refusals_say_what_to_write(spec, words):
    with pytest.raises(ClasswiseError, match=words):
        build(spec)


def test_every_model_says_what_it_is():
    assert all(maker.__doc__ for maker in MODELS.values())
