"""Honest models raise no flag; masked and broken ones raise theirs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from digit_names import NAMES
from health_scenes import EPS, Wrapped, flags
from ledgers import verdicts
from torch import nn

from classwise.auditing.flags import check_records
from classwise.doors.health import check_health


class TestHonest:
    def test_an_honest_net_raises_no_flag(self, digits):
        assert flags(digits[0], digits) == {}
        assert flags(digits[0], digits, norm="L2", eps=0.5) == {}

    def test_so_does_a_linear_one_on_which_one_step_is_as_good_as_many(self, digits):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        _, images, labels = digits
        optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
        for _ in range(100):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimiser.step()
        assert flags(net.eval(), digits) == {}

    def test_two_classes_are_enough(self, digits):
        net, images, labels = digits
        few = labels < 2
        two = Wrapped(net, after=lambda z: z[:, :2])
        assert check_health(two, images[few], labels[few], eps=EPS) == []

    @pytest.mark.usefixtures("untouched_random_state")
    def test_the_model_is_left_as_it_was(self, digits, net):
        model = net(10).train()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        images = digits[1][:20].double()
        found = check_health(model, images, digits[2][:20], eps=EPS, steps=2, queries=5)
        assert model.training
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert all(p.grad is None and p.requires_grad for p in model.parameters())
        assert found[0].name == "train-mode"


class TestMasked:
    def test_huge_logits(self, digits):
        found = flags(Wrapped(digits[0], after=lambda z: 1e4 * z), digits)
        assert {"zero-gradients", "black-box-beats-white-box"} <= set(found)
        assert "cross-entropy" in found["zero-gradients"].words
        assert "0% for logit gap" in found["zero-gradients"].words
        assert len(found["zero-gradients"].classes) == 10

    def test_quantised_input(self, digits):
        rounded = Wrapped(digits[0], before=lambda x: (4 * x).round() / 4)
        found = flags(rounded, digits)
        assert {"zero-gradients", "black-box-beats-white-box"} <= set(found)
        assert "100% for cross-entropy and 100% for logit gap" in found["zero-gradients"].words

    def test_a_single_masked_class_is_named(self, digits):
        def hide(z):
            return torch.where((z.argmax(1) == 3)[:, None], z.detach(), z)

        found = flags(Wrapped(digits[0], after=hide), digits)
        assert found["zero-gradients"].classes == ("three",)
        assert found["black-box-beats-white-box"].classes in ((), ("three",))

    def test_gradients_that_lie_off_the_data_are_worse_with_more_steps(self, digits):
        class Lying(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                on_grid = ((15 * x - (15 * x).round()).abs() < 1e-3) | (x > 0.99)
                ctx.save_for_backward(on_grid.flatten(1).all(1))
                return x.clone()

            @staticmethod
            def backward(ctx, slope):
                (honest,) = ctx.saved_tensors
                return torch.where(honest[:, None, None, None], slope, -slope)

        images = (15 * digits[1]).round() / 15
        model = Wrapped(digits[0], before=Lying.apply)
        found = check_health(model, images, digits[2], eps=EPS, class_names=NAMES)
        assert "more-steps-weaker" in {flag.name for flag in found}

    def test_a_net_that_looks_the_nearest_image_up_survives_too_much(self, digits):
        _, images, labels = digits

        def cheat(x):
            distance = torch.cdist(x.flatten(1), images.flatten(1))
            return nn.functional.one_hot(labels[distance.argmin(1)], 10).float() + 0 * x.sum()

        found = flags(Wrapped(nn.Identity(), after=cheat), digits)
        assert "robust-at-huge-eps" in found
        assert "zero-gradients" in found

    def test_a_larger_radius_that_breaks_nothing_more(self):
        """It takes many images: a single robust class may well lose nobody."""

        def at(eps, count=300, fallen=50, **facts):
            labels = np.arange(count) % 3
            told = np.where(np.arange(count) < fallen, (labels + 1) % 3, labels)
            found = verdicts(range(count), predicted=told, labels=labels, **facts)
            return replace(found, radius=np.full(count, eps))

        names = ("a", "b", "c")
        (flag,) = check_records([at(2 / 255), at(4 / 255), at(8 / 255), at(16 / 255)], names)
        assert flag.name == "larger-eps-no-stronger"
        assert "none of the 250 images" in flag.words
        for honest in (
            [at(8 / 255), at(16 / 255, fallen=51)],  # one more falls
            [at(8 / 255, 250), at(16 / 255, 250)],  # too few
            [at(12 / 255), at(16 / 255)],  # not twice as far
            [at(1 / 255), at(2 / 255)],  # so near that nothing need fall
        ):
            assert check_records(honest, names) == []


class TestBroken:
    def test_a_model_that_refuses_what_is_no_image(self, digits):
        def checked(x):
            assert 0 <= x.min() <= x.max() <= 1
            return x

        assert flags(Wrapped(digits[0], before=checked), digits) == {}

    def test_randomness(self, digits):
        noise = torch.Generator().manual_seed(0)
        shaky = Wrapped(digits[0], after=lambda z: z + 0.1 * torch.randn(z.shape, generator=noise))
        assert "random" in flags(shaky, digits)

    def test_probabilities(self, digits):
        assert "probabilities" in flags(Wrapped(digits[0], after=lambda z: z.softmax(1)), digits)
        logs = flags(Wrapped(digits[0], after=lambda z: z.log_softmax(1)), digits)
        assert "probabilities" not in logs

    def test_answers_that_depend_on_the_batch(self, digits):
        def normed(x):
            return (x - x.mean(0)) / (x.std(0) + 0.1) if len(x) > 1 else 0 * x

        assert "batch-dependent" in flags(Wrapped(digits[0], before=normed), digits)

    def test_a_part_that_will_not_leave_train_mode(self, digits):
        class Stubborn(nn.Dropout):
            def train(self, mode=True):
                return super().train(mode or True)

        found = flags(nn.Sequential(Stubborn(0.0), digits[0]).eval(), digits)
        assert "such as 0" in found["train-mode"].words

    def test_normalisation_twice_or_never(self, digits):
        net, images, _ = digits
        mean, deviation = images.mean(), images.std()
        twice = flags(Wrapped(net, before=lambda x: (x - mean) / deviation), digits)
        assert "double-normalisation" in twice
        pale = 0.2 * images + 0.4
        never = Wrapped(net, before=lambda x: x * deviation + mean)
        found = check_health(never, pale, digits[2], eps=0.02, class_names=NAMES)
        assert "missing-normalisation" in {flag.name for flag in found}

    def test_grey_levels(self, digits):
        found = flags(Wrapped(digits[0], before=lambda x: x / 255), digits)
        assert "grey-levels" in found

    def test_a_black_box_is_checked_without_gradients(self, digits):
        from classwise.models.blackbox import BlackBox

        net = digits[0]

        def scores(array):
            with torch.no_grad():
                return net(torch.from_numpy(array)).softmax(1).numpy()

        assert set(flags(BlackBox(scores), digits)) == {"probabilities"}
