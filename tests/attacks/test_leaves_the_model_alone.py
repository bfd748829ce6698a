"""An attack changes images and nothing else, in every mode of BatchNorm."""

import pytest
import torch
import torch.nn.functional as F
from inner_attacks import batch_of, inner, view
from torch import nn

from classwise.models.asking import batchnorm_mode


class Broken(nn.Module):
    """Raises at the given forward."""

    def __init__(self, inside, at):
        super().__init__()
        self.inside, self.left = inside, at

    def forward(self, x):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("out of memory")
        return self.inside(x)


def snapshot(model):
    return {
        "modes": [part.training for part in model.modules()],
        "tracking": [getattr(part, "track_running_stats", None) for part in model.modules()],
        "needs grad": [p.requires_grad for p in model.parameters()],
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "state": {name: value.clone() for name, value in model.state_dict().items()},
    }


def assert_untouched(model, before, but=()):
    after = snapshot(model)
    for what in ("modes", "tracking", "needs grad"):
        assert after[what] == before[what]
    for old, new in zip(before["grads"], after["grads"], strict=True):
        assert (old is None and new is None) or torch.equal(old, new)
    for name, value in after["state"].items():
        if name not in but:
            assert torch.equal(value, before["state"][name]), name


@pytest.mark.usefixtures("untouched_random_state")
class TestLeavesTheModelAlone:
    some = torch.full((6,), 0.1, dtype=torch.float64)

    def prepared(self, net, grads, frozen, training):
        model = net()
        if grads:
            model(torch.ones(2, 1, 8, 8).double()).sum().backward()
        model.conv.weight.requires_grad_(not frozen)
        model.train(training)
        model.head.eval()  # a mixture of modes must come back as it was
        return model

    @pytest.mark.parametrize("mode", ["eval", "batch"])
    @pytest.mark.parametrize("reference", ["label", "clean"])
    @pytest.mark.parametrize("grads", [True, False], ids=["grads", "no grads"])
    @pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "not frozen"])
    @pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])
    def test_mode_grads_and_buffers(self, net, mode, reference, grads, frozen, training):
        model = self.prepared(net, grads, frozen, training)
        before, batch = snapshot(model), batch_of()
        images = batch.images.clone()
        view(inner(batchnorm=mode, reference=reference), model, batch, self.some, self.some)
        assert_untouched(model, before)
        assert torch.equal(batch.images, images)
        assert not batch.images.requires_grad

    @pytest.mark.parametrize("grads", [True, False], ids=["grads", "no grads"])
    def test_train_mode_moves_the_running_statistics_and_nothing_else(self, net, grads):
        model = self.prepared(net, grads, False, False)
        before = snapshot(model)
        view(inner(batchnorm="train", steps=3), model, batch_of(), self.some, self.some)
        moved = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
        assert_untouched(model, before, but=moved)
        after = model.state_dict()
        assert (
            int(after["norm.num_batches_tracked"])
            - int(before["state"]["norm.num_batches_tracked"])
            == 3
        )
        assert not torch.equal(after["norm.running_mean"], before["state"]["norm.running_mean"])

    @pytest.mark.parametrize("mode", ["eval", "batch", "train"])
    @pytest.mark.parametrize("at", [0, 2])
    def test_also_when_the_model_raises(self, net, mode, at):
        model = Broken(self.prepared(net, True, True, True), at)
        before = snapshot(model)
        with pytest.raises(RuntimeError, match="out of memory"):
            view(inner(batchnorm=mode), model, batch_of(), self.some, self.some)
        statistics = {f"inside.norm.{n}" for n in ("running_mean", "running_var")}
        counter = {"inside.norm.num_batches_tracked"}
        assert_untouched(model, before, but=(statistics | counter) if mode == "train" else ())

    def test_within_no_grad_it_still_climbs(self, net):
        batch = batch_of()
        outside = view(inner(), net(), batch, self.some, self.some)
        with torch.no_grad():
            within = view(inner(), net(), batch, self.some, self.some)
            assert not torch.is_grad_enabled()
        assert torch.equal(within, outside)

    def test_only_the_inputs_gradient_is_computed(self, net):
        model, asked = net(), []
        model.conv.weight.register_hook(asked.append)
        view(inner(), model, batch_of(), self.some, self.some)
        assert asked == []
        model(batch_of().images).sum().backward()
        assert len(asked) == 1  # the hook does work

    def test_images_that_need_a_gradient_keep_theirs(self, net):
        batch = batch_of()
        batch.images.requires_grad_()
        found = view(inner(), net(), batch, self.some, self.some)
        assert batch.images.requires_grad
        assert batch.images.grad is None
        assert not found.requires_grad


class TestBatchNormModes:
    def forward(self, model, mode, images):
        with batchnorm_mode(model, mode):
            return model(images)

    def by_hand(self, model, images, mean, variance):
        x = model.conv(images)
        x = (x - mean.view(1, -1, 1, 1)) / (variance.view(1, -1, 1, 1) + model.norm.eps).sqrt()
        x = x * model.norm.weight.view(1, -1, 1, 1) + model.norm.bias.view(1, -1, 1, 1)
        return model.head(F.adaptive_avg_pool2d(torch.tanh(x), 4).flatten(1))

    @pytest.mark.parametrize("training", [True, False])
    @pytest.mark.parametrize("mode", ["batch", "train"])
    def test_batch_and_train_use_batch_statistics(self, net, mode, training):
        model, images = net().train(training), batch_of().images
        x = model.conv(images)
        expected = self.by_hand(model, images, x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0))
        torch.testing.assert_close(self.forward(model, mode, images), expected)

    @pytest.mark.parametrize("training", [True, False])
    def test_eval_uses_running_statistics(self, net, training):
        model, images = net().train(training), batch_of().images
        norm = model.norm
        expected = self.by_hand(model, images, norm.running_mean, norm.running_var)
        torch.testing.assert_close(self.forward(model, "eval", images), expected)
