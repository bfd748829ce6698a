"""What an audit cannot use is refused in words."""

import math

import pytest
import torch
from refusals import refused
from torch import nn

from classwise.doors.audit import audit


class TestBadInput:
    def images(self):
        return torch.full((6, 1, 8, 8), 0.5)

    def refuse(self, *words, model=None, images=None, labels=None, **options):
        plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        with refused(*words):
            audit(
                plain if model is None else model,
                self.images() if images is None else images,
                torch.arange(6) % 3 if labels is None else labels,
                **{"eps": 0.1, "attacks": "clean,pgd-2", **options},
            )

    @pytest.mark.parametrize("eps", [8, "8", 8.0, 255])
    def test_eps_in_grey_levels(self, eps):
        self.refuse("eps", "[0, 1]", "/255", eps=eps)

    @pytest.mark.parametrize("eps", [-0.1, math.nan, math.inf, "much", None, True, "8/0"])
    def test_eps_that_makes_no_sense(self, eps):
        self.refuse("eps", eps=eps)

    @pytest.mark.parametrize("pixel", [math.nan, math.inf, -0.01, 1.01, 255.0])
    def test_pixels_out_of_range(self, pixel):
        images = self.images()
        images[3, 0, 2, 2] = pixel
        word = "[0, 1]" if math.isfinite(pixel) else "NaN"
        self.refuse(word, images=images)

    @pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.int8, torch.bool])
    def test_pixels_that_are_whole_numbers_but_not_bytes(self, dtype):
        self.refuse("uint8", images=self.images().to(dtype), attacks="clean")

    @pytest.mark.parametrize("shape", [(6, 8, 8), (6, 64), (6,)])
    def test_images_of_another_shape(self, shape):
        self.refuse("shape", images=torch.zeros(shape))

    def test_no_images(self):
        self.refuse("no images", images=torch.zeros(0, 1, 8, 8), labels=torch.zeros(0).long())

    @pytest.mark.parametrize(
        ("labels", "word"),
        [
            ([0, 1, 2, 0, 1], "6 images"),
            ([0, 1, 2, 0, 1, 2, 0], "6 images"),
            ([[0], [1], [2], [0], [1], [2]], "6 images"),
            ([0, 1, 2, 0, 1, 3], "3 classes"),
            ([0, 1, 2, 0, 1, -1], "-1"),
            ([0.0, 1.0, 2.0, 0.0, 1.0, 2.0], "whole class numbers"),
        ],
    )
    def test_labels(self, labels, word):
        self.refuse(word, labels=labels)

    @pytest.mark.parametrize("attacks", ["clean,pgd-2", "pgd-2", "fgsm"])
    @pytest.mark.parametrize("outputs", [2, 4])
    def test_the_wrong_number_of_outputs(self, outputs, attacks):
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, outputs))
        self.refuse(str(outputs), "3 classes", model=model, class_names="abc", attacks=attacks)

    @pytest.mark.parametrize("attacks", ["clean", "pgd-2"])
    @pytest.mark.parametrize("names", [None, "abc"])
    def test_outputs_that_are_no_logits(self, names, attacks):
        for model in (lambda x: (x.flatten(1), x.flatten(1)), lambda _: None, lambda x: x):
            self.refuse("logits", model=model, class_names=names, attacks=attacks)

    def test_logits_that_are_not_finite(self):
        self.refuse("NaN", model=lambda x: x.flatten(1)[:, :3] * math.nan, attacks="clean")

    @pytest.mark.parametrize(
        ("attacks", "words"),
        [
            ("pdg-20", ("'pdg-20'", "did you mean 'pgd-", "clean", "fgsm")),
            ("clean,fgms", ("'fgms'", "did you mean 'fgsm'")),
            ("pgd-0", ("pgd-0",)),
            ("pgd", ("pgd-K",)),
            ("pgd-2(stp=0.1)", ("'stp'", "did you mean 'step'")),
            ("pgd-2(step=2)", ("step",)),
            ("pgd-2(step=big)", ("step",)),
            ("pgd-2(start=middle)", ("middle", "uniform")),
            ("pgd-2(0.1)", ("pgd-2",)),
            ("fgsm(step=0.1)", ("step",)),
            ("clean(3)", ("clean",)),
            ("clean,clean", ("twice",)),
            ("", ("no attack",)),
        ],
    )
    def test_attacks(self, attacks, words):
        self.refuse(*words, attacks=attacks)

    def test_an_unknown_norm(self):
        self.refuse("L7", "Linf", norm="L7")

    @pytest.mark.parametrize("batch_size", [0, -3])
    def test_a_batch_of_nothing(self, batch_size):
        self.refuse("batch_size", batch_size=batch_size)

    def test_names_that_appear_twice(self):
        self.refuse("'a'", "twice", class_names=["a", "b", "a"])

    @pytest.mark.parametrize("groups", [[0, 1], [0, 1, 0, 1], [0, -1, 1]])
    def test_superclasses_that_do_not_fit_the_classes(self, groups):
        self.refuse("superclass", superclass_of=groups)

    @pytest.mark.parametrize("words", [["x"], []])
    def test_names_of_superclasses_that_do_not_fit(self, words):
        self.refuse("superclass", superclass_of=[0, 1, 1], superclass_names=words)
