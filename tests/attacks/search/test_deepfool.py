"""DeepFool on a linear model, where one step finds the distance."""

import pytest
import torch
from searches import COUNT, searched

from classwise.types import Batch


class TestDeepFool:
    @pytest.mark.parametrize("norm", ["Linf", "L2"])
    def test_on_a_linear_model_one_step_finds_the_distance(self, norm):
        rng = torch.Generator().manual_seed(3)
        weight = torch.randn(4, 25, generator=rng, dtype=torch.float64)
        images = 0.5 + 0.1 * torch.rand(COUNT, 1, 5, 5, generator=rng, dtype=torch.float64)

        def linear(x):
            return x.flatten(1) @ weight.T

        clean = linear(images)
        labels = clean.argmax(1)
        batch = Batch(images, labels, torch.arange(COUNT))
        for n in range(COUNT):
            y = labels[n].item()
            away = []
            for k in set(range(4)) - {y}:
                w = weight[k] - weight[y]
                dual = w.abs().sum() if norm == "Linf" else w.norm()
                away.append(((clean[n, y] - clean[n, k]) / dual).item())
            one = Batch(batch.images[n : n + 1], labels[n : n + 1], batch.index[n : n + 1])
            for factor, falls in ((1.03, True), (0.99, False)):
                *_, found = searched(linear, one, "deepfool", factor * min(away), norm)
                assert found.fallen.item() == falls
