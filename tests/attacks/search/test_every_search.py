"""Laws that every attack with the verdict `any` keeps."""

import pytest
import torch
from asked import judge
from search_scenes import ATTACKS, COUNT, RADII, batch_of, labelled, run

from classwise.attacks.ball import LINF, parse_norm


@pytest.mark.parametrize("attack", ATTACKS)
class TestEveryAttack:
    def test_some_fall_and_some_stand(self, scene, attack):
        found = run(scene, attack)
        fallen = found.fell_to > 0
        assert fallen.any(), "the laws below would hold for an attack that does nothing"
        assert (found.fell_to == -1).any()

    def test_found_images_are_in_the_ball_and_fool_the_plain_model(self, scene, attack):
        model, batch, ball, radius = scene
        found = run(scene, attack)
        assert found.images.min() >= 0
        assert found.images.max() <= 1
        offset = (found.images - batch.images).flatten(1)
        length = offset.abs().amax(1) if ball is LINF else offset.norm(dim=1)
        assert (length <= radius + 1e-9).all()
        with torch.no_grad():
            again = model(found.images).argmax(1)
        fallen = found.fell_to > 0
        assert torch.equal(again[fallen], found.predicted[fallen])
        assert torch.equal(found.images[~fallen], batch.images[~fallen])
        standing = found.fell_to == -1
        assert torch.equal(standing, found.predicted == batch.labels)
        assert torch.equal(standing, found.logit_gap > 0)

    def test_images_that_were_wrong_are_left_alone(self, scene, attack):
        model, batch, _, _ = scene
        found = run(scene, attack)
        with torch.no_grad():
            clean = model(batch.images).argmax(1)
        wrong = clean != batch.labels
        assert wrong.any()
        assert torch.equal(found.fell_to == 0, wrong)
        assert torch.equal(found.predicted[wrong], clean[wrong])
        assert (found.iterations[wrong] == 0).all()
        assert (found.iterations[~wrong] > 0).all()

    def test_neither_working_batch_nor_order_nor_company_matter(self, scene, attack):
        whole = run(scene, attack, width=500)
        part = run(scene, attack, width=7)
        assert torch.equal(part.predicted, whole.predicted)
        assert torch.equal(part.fell_to, whole.fell_to)
        assert torch.equal(part.iterations, whole.iterations)
        torch.testing.assert_close(part.images, whole.images, rtol=0, atol=1e-9)
        order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(0))[:37]
        some = run(scene, attack, rows=order, width=10)
        assert torch.equal(some.predicted, whole.predicted[order])
        assert torch.equal(some.iterations, whole.iterations[order])

    def test_no_radius_breaks_nothing(self, scene, attack):
        model, batch, ball, radius = scene
        found = run((model, batch, ball, 0 * radius), attack)
        assert (found.fell_to <= 0).all()

    def test_a_sample_that_fell_left_early(self, scene, attack):
        found = run(scene, attack)
        fallen, standing = found.fell_to > 0, found.fell_to == -1
        # deepfool and pgd at a radius of 0 go on to the end, as all that stand do
        assert (found.iterations[standing] == found.iterations[standing][0]).all()
        assert (found.iterations[fallen] <= found.iterations[standing][0]).all()
        assert found.iterations[fallen].min() < found.iterations[standing][0]

    @pytest.mark.usefixtures("untouched_random_state")
    def test_the_model_is_left_as_it_was(self, scene, attack):
        model = scene[0].train()
        model.head.eval()
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        images = scene[1].images.clone()
        run(scene, attack, width=16)
        assert model.training
        assert not model.head.training
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert all((p.grad == 1).all() and p.requires_grad for p in model.parameters())
        assert torch.equal(scene[1].images, images)

    @pytest.mark.parametrize("num_classes", [2, 3])
    def test_two_and_three_classes(self, net, norm, attack, num_classes):
        model = net(num_classes).eval()
        with torch.no_grad():
            model.head.weight *= 6
        batch = labelled(model, batch_of(num_classes=num_classes))
        found = judge(
            model,
            batch,
            attack,
            num_classes=num_classes,
            radius=3 * RADII[norm],
            ball=parse_norm(norm),
            width=16,
        )
        assert (found.predicted < num_classes).all()
        assert set(found.broken_by) - {None, "clean"}
