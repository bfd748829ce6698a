"""Models that only answer: functions of arrays and tensors."""

import numpy as np
import pytest
import torch
from asked import judge
from refusals import refused

import classwise
from classwise.attacks import BlackBox, Square
from classwise.attacks.ball import LINF
from classwise.models.blackbox import as_model
from classwise.types import Batch


class TestBlackBox:
    def numpy_model(self, model):
        weight = model.weight.detach().numpy()

        def scores(x):
            assert isinstance(x, np.ndarray)
            assert x.dtype == np.float32
            return (x - 0.5).reshape(len(x), -1) @ weight.T

        return scores

    def test_a_function_of_arrays_is_audited_with_square(self, model, data):
        report = classwise.audit(self.numpy_model(model), *data, eps=0.05)
        assert list(report) == ["clean", "square"]
        assert report.about["black_box"] is True
        assert report.overall["clean"] == pytest.approx(0.9)
        assert report.overall["square"] < 0.6

    def test_square_needs_no_gradient_and_gives_the_same_verdict(self, model, data):
        images, labels = data
        batch = Batch(images, labels, torch.arange(40))
        facts = {"num_classes": 4, "radius": 0.03, "ball": LINF}
        white = judge(model, batch, "square(queries=50)", **facts)
        black = judge(
            BlackBox(lambda x: model.eval()(x), arrays=False), batch, "square(queries=50)", **facts
        )
        assert np.array_equal(white.predicted, black.predicted)

    def test_a_torch_function_without_gradient(self, model, data):
        def quiet(x):
            with torch.no_grad():
                return model(x)

        report = classwise.audit(quiet, *data, attacks="clean,square(queries=20)", eps=0.03)
        assert report.about["black_box"] is True

    def test_a_differentiable_function_is_no_black_box(self, model, data):
        report = classwise.audit(lambda x: model(x), *data, attacks="pgd-2", eps=0.03)
        assert "black_box" not in report.about

    def test_gradient_attacks_are_refused(self, model, data):
        with refused("pgd-20", "black box", "square"):
            classwise.audit(self.numpy_model(model), *data, attacks="clean,pgd-20,square", eps=0.03)

    def test_scores_that_are_words(self, data):
        with refused("scores"):
            classwise.audit(lambda x: np.array(["cat"] * len(x)), *data)

    def test_a_module_is_never_taken_for_one(self, model, data):
        assert as_model(model, data[0]) is model

    def test_the_object_form(self, model, data):
        images, labels = data
        moved = Square(BlackBox(self.numpy_model(model)), eps=0.05, n_queries=60)(images, labels)
        assert (model.eval()(moved).argmax(1) == labels).double().mean() < 0.6
