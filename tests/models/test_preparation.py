"""What stands before a model: sizes, crops, channels, normalisation, and who says so."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import refused
from torch import nn

import classwise
from classwise.judging.audits import read_ledger
from classwise.models.outputs import Output
from classwise.models.preparation import Normalisation, Preparation, Resizing, from_config
from classwise.models.prepared import Front, Prepared
from classwise.models.subject import Subject

RGB = torch.rand(4, 3, 12, 10, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(4) % 2


class Sees(nn.Module):
    """Keeps what it was given."""

    def __init__(self, **more):
        super().__init__()
        self.head = nn.Linear(3, 2)
        for name, value in more.items():
            setattr(self, name, value)

    def forward(self, x):
        self.seen = x
        return self.head(x.mean((2, 3)))


def seen(**words):
    model = Sees()
    subject = Subject.of(model, RGB, 2, wants=Preparation.of(**words))
    with subject.asked():
        subject.logits(RGB)
    return model.seen


class TestFront:
    @pytest.mark.parametrize("way", ["bilinear", "bicubic"])
    @pytest.mark.parametrize("size", [(8, 7), (20, 30)])
    def test_it_resizes_as_pillow_does(self, way, size):
        found = seen(resize=f"{size[0]}x{size[1]}:{way}")
        kind = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[way]
        for ours, image in zip(found, RGB, strict=True):
            theirs = [
                np.asarray(Image.fromarray(channel.numpy()).resize(size[::-1], kind))
                for channel in image
            ]
            wanted = torch.from_numpy(np.stack(theirs)).clamp(0, 1)
            torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5)

    def test_the_order_is_resize_crop_normalise_channels(self):
        found = seen(resize=20, crop=16, normalise=((0.1, 0.2, 0.3), (1, 2, 3)), channels="bgr")
        whole = nn.functional.interpolate(RGB, (24, 20), mode="bilinear", antialias=True)
        cut = whole[:, :, 4:20, 2:18]
        shift, scale = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1.0, 2, 3])
        wanted = ((cut - shift.view(1, 3, 1, 1)) / scale.view(1, 3, 1, 1)).flip(1)
        torch.testing.assert_close(found, wanted)

    def test_grey_images_as_three_channels(self):
        front = Front(Preparation.of(channels="bgr"), (1, 4, 4))
        assert front(torch.ones(2, 1, 4, 4)).shape == (2, 3, 4, 4)
        with refused("three channels", "have 2"):
            Front(Preparation.of(channels="bgr"), (2, 4, 4))

    def test_gradients_reach_the_data_and_the_radius_is_theirs(self):
        model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 36, 2))
        front = Front(Preparation.of(resize=8, crop=6), (3, 12, 10))
        attack = classwise.PGD(Prepared(model, front, Output()), eps=0.03)
        moved = attack(RGB, LABELS)
        assert moved.shape == RGB.shape
        assert 0.02 < float((moved - RGB).abs().max()) < 0.0301

    def test_half_precision(self):
        model = Sees().half()
        subject = Subject.of(model, RGB, 2, wants=Preparation.of("imagenet", resize=6))
        with subject.asked():
            assert subject.logits(subject.take(RGB)).isfinite().all()
        assert model.seen.dtype == torch.float16

    def test_one_that_changes_nothing_is_none(self):
        assert torch.equal(seen(resize="12x10", crop="12x10"), RGB)


class TestWords:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ({"resize": "big"}, ("resize 'big'", "224x224")),
            ({"resize": 0}, ("resize 0",)),
            ({"resize": 10**6}, ("from 1 to 4096",)),
            ({"resize": "8x8x8"}, ("HEIGHTxWIDTH",)),
            ({"resize": "8:cubic"}, ("'bicubic'",)),
            ({"crop": 2.5}, ("crop 2.5",)),
            ({"channels": "gbr"}, ("order of channels", "bgr")),
            ({"normalise": "imagenette"}, ("'imagenet'",)),
        ],
    )
    def test_refusals(self, words, said):
        with refused(*said):
            Preparation.of(**words)

    def test_a_crop_larger_than_the_images(self):
        with refused("crop 16×16", "12×10", "--resize"):
            seen(crop=16)

    def test_it_is_told_and_makes_another_model(self, tmp_path):
        facts = {"attacks": ["clean"], "out": tmp_path / "kept", "name": "net"}
        model = Sees().eval()
        for words in ({}, {"resize": 8}, {"resize": 8, "crop": 6}, {"channels": "bgr"}, {}):
            found = classwise.audit(lambda x: model(x), RGB, LABELS, **words, **facts)
        assert "asked" not in found.about
        kept = {str(one.report.about.get("asked", "")) for one in read_ledger(tmp_path / "kept")}
        assert kept == {
            "",
            "['images are resized to 8 (bilinear)']",
            "['images are resized to 8 (bilinear), cropped to 6×6']",
            "['images are given as BGR']",
        }

    def test_a_model_of_another_size_is_told_what_to_say(self):
        model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 36, 2))
        with refused("cannot be asked about images of 3×12×10", "--resize"):
            classwise.audit(model, RGB, LABELS, attacks=["clean"])
        assert classwise.audit(model, RGB, LABELS, attacks=["clean"], resize="6x6")


TIMM = {
    "architecture": "resnet18",
    "input_size": (3, 224, 224),
    "crop_pct": 0.95,
    "interpolation": "bicubic",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "num_classes": 1000,
}


class TestConfiguration:
    def test_of_timm(self):
        found = from_config(TIMM, 300, 400)
        assert found.resize == Resizing((235,), "bicubic")
        assert (found.crop, found.normalisation) == ((224, 224), Normalisation.of("imagenet"))

    def test_images_of_the_right_size_stay_as_they_are(self):
        found = from_config(TIMM, 224, 224)
        assert (found.resize, found.crop) == (None, None)
        assert found.normalisation == Normalisation.of("imagenet")

    @pytest.mark.parametrize(
        ("said", "resize", "crop"),
        [
            ({"size": {"height": 224, "width": 224}, "resample": 2}, (224, 224), None),
            ({"size": 224, "resample": 3}, (224, 224), None),
            (
                {"size": {"shortest_edge": 256}, "crop_size": 224, "do_center_crop": True},
                (256,),
                (224, 224),
            ),
            ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, (256,), (224, 224)),
            ({"size": 224, "do_resize": False}, None, None),
        ],
    )
    def test_of_an_image_processor(self, said, resize, crop):
        given = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], **said}
        found = from_config(given, 300, 400)
        assert (found.resize and found.resize.sides, found.crop) == (resize, crop)
        assert found.normalisation == Normalisation((0.5,) * 3, (0.5,) * 3)
        assert from_config({**given, "do_normalize": False}, 300, 400).normalisation is None

    @pytest.mark.parametrize("wrapped", [False, True])
    def test_a_model_that_carries_one_gets_it_by_default_and_it_is_said(self, wrapped):
        said = {**TIMM, "input_size": (3, 8, 8), "crop_pct": 0.8}
        given = SimpleNamespace(to_dict=lambda: said) if wrapped else said
        model = Sees(pretrained_cfg=given)
        report = classwise.audit(model, RGB, LABELS, attacks=["clean"])
        assert model.seen.shape[2:] == (8, 8)
        (words,) = report.about["asked"]
        assert "resized to 10 (bicubic), cropped to 8×8, normalised by mean 0.485" in words
        assert words.endswith("as the configuration of resnet18 says")

    def test_what_the_user_says_wins(self):
        model = Sees(pretrained_cfg={**TIMM, "input_size": (3, 8, 8)})
        report = classwise.audit(
            model, RGB, LABELS, attacks=["clean"], resize="none", normalise="none"
        )
        assert "asked" not in report.about
        assert torch.equal(model.seen[-1], RGB[-1])
        report = classwise.audit(model, RGB, LABELS, attacks=["clean"], resize=6)
        assert "resized to 6 (bilinear), normalised" in report.about["asked"][0]
