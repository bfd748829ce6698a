"""Architectures of our own beside torchvision's and timm's; each is trained and attacked."""

from pathlib import Path

import pytest
import torch
from refusals import refused
from torch import nn
from zoo_libraries import library

import classwise
from classwise.models import MODELS, build_model
from classwise.models.fitting import fit
from classwise.models.layouts import layouts_of
from classwise.record.opening import load_whole

# Parameters with 3 channels and 1000 classes, as torchvision's and timm's pages have them; without
# the auxiliary heads of GoogLeNet and Inception-v3.
PUBLISHED = {
    "resnet18-224": ("torchvision:resnet18", 11_689_512),
    "resnet34-224": ("torchvision:resnet34", 21_797_672),
    "resnet50": ("torchvision:resnet50", 25_557_032),
    "vgg16-224": ("torchvision:vgg16", 138_357_544),
    "vgg19-224": ("torchvision:vgg19", 143_667_240),
    "densenet121-224": ("torchvision:densenet121", 7_978_856),
    "densenet169-224": ("torchvision:densenet169", 14_149_480),
    "googlenet-224": ("torchvision:googlenet", 6_624_904),
    "inception-v3-299": ("torchvision:inception_v3", 23_834_568),
    "vit-s-224": ("timm:vit_small_patch16_224", 22_050_664),
    "xcit-s12-224": ("timm:xcit_small_12_p16_224", 26_253_304),
}
# What a small form changes, and nothing else.
STEMS = {
    ("resnet18", "resnet18-224"): {"features.stem.weight"},
    ("resnet34-32", "resnet34-224"): {"features.stem.weight"},
    ("resnet50-32", "resnet50"): {"features.stem.weight"},
    ("densenet121-32", "densenet121-224"): {"features.stem.weight"},
    ("densenet169-32", "densenet169-224"): {"features.stem.weight"},
    ("googlenet-32", "googlenet-224"): {"features.conv1.conv.weight"},
    ("inception-v3-32", "inception-v3-299"): set(),  # strides and padding alone
    ("vit-s-32", "vit-s-224"): {"features.patches.weight", "features.positions"},
}
TINY = {
    "resnet50": 2, "resnet50-32": 2, "wrn": None, "wrn-28-10": None, "wrn-34-10": None,
    "wrn-silu": None, "vgg16-224": 1, "vgg19-224": 1, "vgg16-32": 4, "vgg19-32": 4, "lenet": 3,
    "densenet121-32": 2, "densenet121-224": 2, "densenet169-32": 2, "densenet169-224": 2,
    "googlenet-32": 4, "googlenet-224": 4, "inception-v3-32": 2, "inception-v3-299": 2,
}  # fmt: skip
DEEP = {"vit-s-32": 6, "vit-s-224": 6, "xcit-s12-32": 8, "xcit-s12-224": 8}


def build(spec, num_classes=1000, **more):
    statistics = {"mean": [0.0] * 3, "deviation": [1.0] * 3}
    return build_model(spec, num_classes=num_classes, channels=3, **statistics, **more)


def shapes(model):
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


def theirs(name, **options):
    kind, _, network = name.partition(":")
    if kind == "timm":
        return library("timm").create_model(network, **options)
    if network in ("googlenet", "inception_v3"):
        options |= {"aux_logits": False, "init_weights": False}
    return library("torchvision").models.get_model(network, **options)


@pytest.mark.parametrize("spec", PUBLISHED)
def test_published_sizes(spec):
    with torch.device("meta"):
        model = build(spec)
    assert sum(weight.numel() for weight in model.parameters()) == PUBLISHED[spec][1]


def test_lenet_has_the_published_size():
    with torch.device("meta"):
        model = build_model("lenet", num_classes=10, channels=1, mean=[0.0], deviation=[1.0])
    assert sum(weight.numel() for weight in model.parameters()) == 61_706


@pytest.mark.parametrize("spec", PUBLISHED)
def test_every_tensor_of_the_library_has_its_place(spec):
    library(PUBLISHED[spec][0].partition(":")[0])
    with torch.device("meta"):
        ours, other = build(spec), theirs(PUBLISHED[spec][0])
    found = fit(other.state_dict(), ours.state_dict(), layouts_of(spec)).tensors
    buffers = {"mean": (1, 3, 1, 1), "deviation": (1, 3, 1, 1)}
    assert {n: tuple(v.shape) for n, v in found.items()} | buffers == shapes(ours)


def shaken(model):
    """Other numbers wherever a network begins with zeros or ones."""
    draw = torch.Generator().manual_seed(0)
    for name, value in model.state_dict().items():
        if value.is_floating_point() and value.ndim <= 1:
            low = 0.5 if name.endswith("var") else 0.1
            value.copy_(low + 0.5 * torch.rand(value.shape, generator=draw))
    return model.double().eval()


def same_logits(spec, other, size):
    model = build(spec).double().eval()
    fitted = fit(other.state_dict(), model.state_dict(), layouts_of(spec))
    state = model.state_dict()
    fitted.tensors.update({name: state[name] for name in ("mean", "deviation")})
    load_whole(model, fitted, Path("theirs"), spec)
    images = torch.rand(2, 3, size, size, dtype=torch.float64)
    with torch.no_grad():
        ours, expected = model(images), other(images)
    assert expected.std() > 0
    assert (ours - expected).abs().max() <= 1e-9 * expected.abs().max()


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ("resnet18-224", 64),
        ("resnet34-224", 32),
        ("resnet50", 64),
        ("densenet121-224", 64),
        ("densenet169-224", 32),
        ("googlenet-224", 64),
        ("inception-v3-299", 80),
        ("vit-s-224", 224),
        ("xcit-s12-224", 64),
    ],
)
def test_equal_logits_in_float64(spec, size):
    library(PUBLISHED[spec][0].partition(":")[0])
    same_logits(spec, shaken(theirs(PUBLISHED[spec][0])), size)


@pytest.mark.parametrize("layers", [16, 19])
def test_equal_logits_of_a_narrow_vgg(layers):
    """Its hidden layers take a gigabyte: theirs is made of their own parts, at a 16th."""
    vgg = library("torchvision").models.vgg
    plan = [n if n == "M" else n // 16 for n in vgg.cfgs["D" if layers == 16 else "E"]]
    other = vgg.VGG(vgg.make_layers(plan), init_weights=False)
    for place, (inside, outside) in {0: (32 * 49, 256), 3: (256, 256), 6: (256, 1000)}.items():
        other.classifier[place] = nn.Linear(inside, outside)
    same_logits(f"vgg{layers}-224(width=4)", shaken(other), 96)


@pytest.mark.parametrize("pair", STEMS, ids=lambda pair: pair[0])
def test_the_small_form_changes_the_stem_alone(pair):
    with torch.device("meta"):
        small, large = (shapes(build(spec)) for spec in pair)
    assert {n for n in small | large if small.get(n) != large.get(n)} == STEMS[pair]


def test_the_small_xcit_has_two_of_the_four_convolutions():
    with torch.device("meta"):
        small, large = (shapes(build(f"xcit-s12-{size}")) for size in (32, 224))
    differing = {name for name in small | large if small.get(name) != large.get(name)}
    assert {name[: len("features.stem.")] for name in differing} == {"features.stem."}
    assert len([n for n in small if n.startswith("features.stem.") and n.endswith("0.weight")]) == 2
    assert small["features.stem.0.0.weight"] == (192, 3, 3, 3)


def tiny(name):
    if name in DEEP:
        return f"{name}(width={DEEP[name]}, depth=1)"
    if name.startswith("wrn"):
        return f"{'wrn-silu' if name == 'wrn-silu' else 'wrn'}(depth=10, widen=1)"
    return f"{name}(width={TINY.get(name, 4)})"


@pytest.mark.parametrize("name", MODELS)
def test_each_trains_and_is_attacked(name):
    size = 224 if name == "vit-s-224" else 75 if name.endswith("299") else 32
    model = build(tiny(name), num_classes=3)
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(4, 3, size, size, generator=draw)
    labels = torch.arange(4) % 3
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    model.train()
    nn.functional.cross_entropy(model(images), labels).backward()
    assert [n for n, weight in model.named_parameters() if weight.grad is None] == []
    before = model.head.weight.clone()
    optimiser.step()
    assert not torch.equal(model.head.weight, before)
    moved = classwise.audit(model, images, labels, attacks="clean,fgsm", eps=8 / 255)
    assert list(moved) == ["clean", "fgsm"]


def test_widths_and_sizes_that_cannot_be():
    with refused("width=7", "take 6"):
        build("vit-s-32(width=7)")
    with refused("32×32", "64×64", "xcit-s12-32"):
        build("vit-s-32(width=6, depth=1)")(torch.rand(1, 3, 64, 64))
