import pytest
import torch
from refusals import refused
from scipy import stats
from short_runs import same_weights, short_run

from classwise.attacks.ball import LINF
from classwise.attacks.inner import Moment
from classwise.methods.lee2020_avmixup import VertexMix
from classwise.objective import Attacked
from classwise.recipe_text import parse_recipe
from classwise.types import Batch

MOMENT = Moment(seed=5, epoch=1, epochs=10)
N = 200


def batch_of(num_classes, reach=0.1):
    rng = torch.Generator().manual_seed(num_classes)
    images = torch.rand(N, 1, 2, 3, generator=rng, dtype=torch.float64)
    noise = torch.rand(N, 1, 2, 3, generator=rng, dtype=torch.float64)
    robust = (images + reach * (2 * noise - 1)).clamp(0, 1)
    labels = torch.randint(num_classes, (N,), generator=rng)
    return Batch(images, labels, torch.arange(N) + 50), {"clean": images, "robust": robust}


@pytest.mark.parametrize("num_classes", [2, 3, 10])
@pytest.mark.parametrize("width", [0, 2])
@pytest.mark.parametrize(("reach", "first", "second"), [(2.0, 1.0, 0.1), (1.5, 0.9, 0.7)])
def test_images_and_labels_equal_a_straight_loop(num_classes, width, reach, first, second):
    batch, views = batch_of(num_classes)
    outputs = num_classes + width
    inputs, soft = VertexMix(reach, first, second)(
        Attacked(batch, views, outputs, num_classes, MOMENT)
    )
    draws = MOMENT.draws("mix").uniform(batch.index, (), torch.float64).tolist()
    assert len(set(draws)) == N  # one per sample
    clipped = 0
    for b, y in enumerate(batch.labels.tolist()):
        u = draws[b]
        x = batch.images[b].flatten().tolist()
        attacked = views["robust"][b].flatten().tolist()
        expected = []
        for pixel, other in zip(x, attacked, strict=True):
            vertex = pixel + reach * (other - pixel)
            clipped += not 0 <= vertex <= 1
            vertex = min(1.0, max(0.0, vertex))
            expected.append(u * pixel + (1 - u) * vertex)
        assert inputs["robust"][b].flatten().tolist() == pytest.approx(expected, abs=1e-12)
        label = []
        for j in range(outputs):
            near = first if j == y else (1 - first) / (num_classes - 1)
            far = second if j == y else (1 - second) / (num_classes - 1)
            label.append(u * near + (1 - u) * far if j < num_classes else 0.0)
        assert soft["robust"][b].tolist() == pytest.approx(label, abs=1e-12)
        assert sum(label) == pytest.approx(1)
    assert clipped > 10
    assert torch.equal(inputs["clean"], batch.images)


def test_the_vertex_is_not_held_to_the_radius():
    batch, views = batch_of(3, reach=0.1)
    inputs, _ = VertexMix(2.0, 1.0, 0.1, weight=0.0)(Attacked(batch, views, 3, 3, MOMENT))
    assert 0.15 < (inputs["robust"] - batch.images).abs().max() <= 0.2 + 1e-12


def test_ten_classes_make_the_vertex_label_uniform():
    batch, views = batch_of(10)
    _, soft = VertexMix(2.0, 1.0, 0.1, weight=0.0)(Attacked(batch, views, 10, 10, MOMENT))
    torch.testing.assert_close(soft["robust"], torch.full((N, 10), 0.1).double())


@pytest.mark.parametrize("a", [0.3, 1.0, 4.0])
def test_the_weight_comes_from_a_symmetric_beta_distribution(a):
    batch, views = batch_of(3, reach=0.01)
    index = torch.arange(20_000)
    batch = Batch(batch.images[index % N], batch.labels[index % N], index)
    views = {view: images[index % N] for view, images in views.items()}
    mix = parse_recipe(f"at+avmixup(concentration={a}, vertex_share=0)").slots.mix
    _, soft = mix(Attacked(batch, views, 3, 3, MOMENT))
    u = soft["robust"].gather(1, batch.labels[:, None]).flatten()  # λ₁ = 1 and λ₂ = 0 leave u
    assert stats.kstest(u.numpy(), stats.beta(a, a).cdf).pvalue > 0.01


def test_a_concentration_for_a_weight_that_is_not_drawn_is_refused():
    with refused("avmixup(weight=0.5, concentration=2)", "leave one"):
        parse_recipe("at+avmixup(weight=0.5, concentration=2)")


@pytest.mark.parametrize("batch_size", [1, 7, 64])
@pytest.mark.parametrize("concentration", [1.0, 0.4])
def test_draws_depend_on_the_sample_alone(batch_size, concentration):
    batch, views = batch_of(4)
    mix = VertexMix(2.0, 1.0, 0.1, concentration=concentration)
    whole, soft = mix(Attacked(batch, views, 4, 4, MOMENT))
    order = torch.randperm(N, generator=torch.Generator().manual_seed(batch_size))
    for rows in order.split(batch_size):
        some = Batch(batch.images[rows], batch.labels[rows], batch.index[rows])
        part, labels = mix(Attacked(some, {v: x[rows] for v, x in views.items()}, 4, 4, MOMENT))
        assert torch.equal(part["robust"], whole["robust"][rows])
        assert torch.equal(labels["robust"], soft["robust"][rows])
    other, _ = mix(Attacked(batch, views, 4, 4, Moment(5, 2, 10)))
    assert not torch.equal(other["robust"], whole["robust"])


class TestReduction:
    @pytest.mark.parametrize("classes", [2, 10])
    def test_all_on_the_attacked_image_with_its_whole_label_is_at(self, tiny, tmp_path, classes):
        source = tiny(classes=classes)
        plain = short_run(tmp_path / "at", "at(steps=2, batchnorm=batch)", source)
        text = "at(steps=2)+avmixup(weight=0, reach=1, vertex_share=1)"
        assert same_weights(short_run(tmp_path / "same", text, source), plain)
        text = "at(steps=2)+avmixup(weight=0, reach=1, vertex_share=0.9)"
        assert not same_weights(short_run(tmp_path / "other", text, source), plain)

    def test_all_on_the_image_is_clean_training(self, tiny, tmp_path):
        plain = short_run(tmp_path / "clean", "clean", tiny())
        text = "at(steps=1, batchnorm=eval)+avmixup(weight=1, batchnorm=none)"
        assert same_weights(short_run(tmp_path / "same", text, tiny()), plain)


class TestCounts:
    def test_mixed_images_are_never_counted_as_attacked_ones(self, tiny, tmp_path):
        plain = short_run(tmp_path / "plain", "at(steps=2)+avmixup", tiny(), epochs=1)
        assert plain.history[0]["train"] == {}
        needed = short_run(tmp_path / "ccm", "at(steps=2)+avmixup+ccm", tiny(), epochs=1)
        assert set(needed.history[0]["train"]) == {"robust"}
        assert same_weights(needed, plain)  # the extra forward leaves no trace


def test_the_attack_uses_batch_statistics_and_leaves_the_running_ones(net):
    inner = parse_recipe("at(steps=3)+avmixup").slots.inner
    assert inner.batchnorm == "batch"
    model = net().train()
    images = torch.rand(6, 1, 8, 8, dtype=torch.float64)
    batch = Batch(images, torch.arange(6) % 4, torch.arange(6))
    radius = torch.full((6,), 0.1, dtype=torch.float64)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = inner.perturb(model, batch, MOMENT, radius=radius, step=radius / 4, ball=LINF)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    running = parse_recipe("at(steps=3, batchnorm=eval)").slots.inner
    other = running.perturb(model, batch, MOMENT, radius=radius, step=radius / 4, ball=LINF)
    assert not torch.equal(found["robust"], other["robust"])


class TestComposition:
    def test_it_takes_over_the_batchnorm_mode_alone(self):
        recipe = parse_recipe("at+avmixup")
        assert recipe.owners["batchnorm"] == "avmixup"
        assert recipe.owners["steps"] == recipe.owners["objective"] == "at"
        assert parse_recipe("at+avmixup(batchnorm=train)").slots.batchnorm == "train"
        left = parse_recipe("at(batchnorm=eval)+avmixup(batchnorm=none)")
        assert (left.slots.batchnorm, left.owners["batchnorm"]) == ("eval", "at")

    @pytest.mark.parametrize("base", ["clean", "trades", "mart", "absld"])
    def test_other_bases_are_refused(self, base):
        with refused("avmixup", base, "at"):
            parse_recipe(f"{base}+avmixup")

    @pytest.mark.parametrize(
        "option",
        [
            "reach=0",
            "concentration=0",
            "clean_share=1.1",
            "vertex_share=-0.1",
            "weight=2",
            "batchnorm=frozen",
        ],
    )
    def test_values_out_of_range_are_refused(self, option):
        with refused(f"avmixup({option.split('=')[0]}="):
            parse_recipe(f"at+avmixup({option})")
