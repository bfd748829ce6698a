import numpy as np
import pytest
import torch
from scipy import stats

from classwise.attacks.ball import LINF
from classwise.attacks.inner import starting_images
from classwise.attacks.targets import draw_targets
from classwise.data.augment import CropFlip
from classwise.draws import Draws
from classwise.types import Batch

N, SIZE = 83, (2, 5, 6)
FIXED = torch.Generator().manual_seed(0)
WHOLE = Batch(
    torch.rand(N, *SIZE, generator=FIXED),
    torch.randint(7, (N,), generator=FIXED),
    torch.randperm(10 * N, generator=FIXED)[:N],  # samples of a larger data set
)
RADIUS = torch.rand(N, generator=FIXED) / 4
ODDS = torch.rand(N, 7, generator=FIXED)


def start(kind):
    def draw(rows):
        batch = Batch(WHOLE.images[rows], WHOLE.labels[rows], WHOLE.index[rows])
        return starting_images(kind, batch, RADIUS[rows], LINF, Draws(3, "start", 5))

    return draw


def augmentation(rows):
    return CropFlip(pad=2)(WHOLE.images[rows], WHOLE.index[rows], seed=3, epoch=5)


def targets(rows):
    return draw_targets(WHOLE.labels[rows], ODDS[rows], Draws(3, "targets", 5), WHOLE.index[rows])


DRAWN = {
    "uniform start": start("uniform"),
    "gaussian start": start("gaussian"),
    "augmentation": augmentation,
    "targets": targets,
    "beta": lambda rows: Draws(3, "mix", 5).beta(WHOLE.index[rows], 0.4, (2,), torch.float64),
}


@pytest.mark.parametrize("what", DRAWN)
@pytest.mark.parametrize("batch_size", [1, 7, 64, N])
@pytest.mark.parametrize("order", ["in order", "shuffled"])
@pytest.mark.usefixtures("untouched_random_state")
def test_every_batch_size_and_order_sees_the_same_draws(what, batch_size, order):
    draw = DRAWN[what]
    together = draw(torch.arange(N))
    rows = torch.arange(N)
    if order == "shuffled":
        rows = torch.randperm(N, generator=torch.Generator().manual_seed(batch_size))
    pieces = torch.cat([draw(some) for some in rows.split(batch_size)])
    assert torch.equal(pieces, together[rows])


@pytest.mark.parametrize("what", DRAWN)
def test_samples_do_not_share_their_draws(what):
    alike = Batch(WHOLE.images[:1].expand(N, *SIZE), WHOLE.labels[:1].expand(N), WHOLE.index)
    draws = Draws(3, "any", 5)
    if what == "targets":
        drawn = draw_targets(alike.labels, ODDS[:1].expand(N, 7), draws, alike.index)
        assert len(drawn.unique()) == 6  # every class but the sample's own
    elif what == "augmentation":
        drawn = CropFlip(pad=2)(alike.images, alike.index, 3, 5)
        assert len(drawn.unique(dim=0)) > 25  # of 50 windows
    else:
        drawn = starting_images(what.split()[0], alike, RADIUS[:1].expand(N), LINF, draws)
        assert len(drawn.unique(dim=0)) == N


def sample(seed=0, purpose="start", epoch=0, count=400, size=100):
    index = torch.arange(count)
    return Draws(seed, purpose, epoch).uniform(index, (size,), torch.float64).numpy()


def test_uniform_draws_are_uniform():
    drawn = sample()
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 0.01
    counts = np.histogram(drawn, bins=64, range=(0, 1))[0]
    assert stats.chisquare(counts).pvalue > 0.01


def test_uniform_draws_are_uniform_along_samples_and_along_elements():
    drawn = sample()
    for row in (drawn[0], drawn[399], drawn[:, 0], drawn[:, 99]):
        assert stats.kstest(row, "uniform").pvalue > 0.001


def test_normal_draws_are_normal():
    drawn = Draws(0, "start").normal(torch.arange(400), (100,), torch.float64)
    assert torch.isfinite(drawn).all()
    assert stats.kstest(drawn.numpy().ravel(), "norm").pvalue > 0.01


def test_noise_is_normal_in_every_part():
    drawn = Draws(0, "noise").noise(torch.arange(400), (3, 5, 5))
    flat = drawn.double().view(400, 75).numpy()
    assert stats.kstest(flat.ravel(), "norm").pvalue > 0.01
    for part in (flat[:, :37], flat[:, 38:]):  # cosines and sines of the same angles
        assert stats.kstest(part.ravel(), "norm").pvalue > 0.01
    assert_independent(flat[:, :37], flat[:, 38:])
    some = torch.tensor([17, 4, 399])
    assert torch.equal(Draws(0, "noise").noise(some, (3, 5, 5)), drawn[some])


def test_every_dtype_sees_the_same_draw():
    draws, index = Draws(0, "start"), torch.arange(50)
    assert torch.equal(
        draws.uniform(index, (9,)).double(), draws.uniform(index, (9,), torch.float64)
    )


@pytest.mark.parametrize(
    "other",
    [{"seed": 1}, {"purpose": "augment"}, {"epoch": 1}],
    ids=["seed", "purpose", "epoch"],
)
def test_other_keys_give_independent_draws(other):
    assert_independent(sample(), sample(**other))


def test_neighbouring_samples_and_elements_are_independent():
    drawn = sample()
    assert_independent(drawn[:-1], drawn[1:])
    assert_independent(drawn[:, :-1], drawn[:, 1:])


def assert_independent(one, other):
    one, other = one.ravel(), other.ravel()
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(one))
    table = np.histogram2d(one, other, bins=8, range=[[0, 1], [0, 1]])[0]
    assert stats.chi2_contingency(table).pvalue > 0.001


def test_keys_that_read_alike_are_different_streams():
    index = torch.arange(4)
    one = Draws(1, "a", 23).uniform(index, (8,))
    assert not torch.equal(one, Draws(12, "a", 3).uniform(index, (8,)))


def test_integers_cover_their_range_evenly():
    drawn = Draws(0, "x").integers(torch.arange(6000), 6)
    counts = torch.bincount(drawn, minlength=6)
    assert len(counts) == 6
    assert stats.chisquare(counts.numpy()).pvalue > 0.01


def test_choice_respects_the_odds_and_never_hits_zero_odds():
    odds = torch.tensor([0.0, 3.0, 0.0, 1.0, 6.0, 0.0])
    drawn = Draws(0, "targets").choice(torch.arange(20_000), odds.expand(20_000, 6))
    counts = torch.bincount(drawn, minlength=6).numpy()
    assert counts[[0, 2, 5]].tolist() == [0, 0, 0]
    assert stats.chisquare(counts[[1, 3, 4]], 20_000 * np.array([0.3, 0.1, 0.6])).pvalue > 0.01


def test_choice_uses_each_samples_own_row():
    rows = torch.eye(5)[torch.arange(100) % 5]
    assert torch.equal(Draws(0, "t").choice(torch.arange(100), rows), torch.arange(100) % 5)


def test_targets_are_never_the_samples_own_class():
    labels = torch.arange(3000) % 3
    odds = torch.tensor([[5.0, 1.0, 1.0]]).expand(3000, 3)
    drawn = draw_targets(labels, odds, Draws(0, "targets"), torch.arange(3000))
    assert not (drawn == labels).any()


def test_a_row_without_odds_aims_at_all_others_alike():
    labels = torch.zeros(3000, dtype=torch.int64)
    odds = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).expand(3000, 4)  # only odds for the class itself
    drawn = draw_targets(labels, odds, Draws(0, "targets"), torch.arange(3000))
    counts = torch.bincount(drawn, minlength=4).numpy()
    assert counts[0] == 0
    assert stats.chisquare(counts[1:]).pvalue > 0.01


@pytest.mark.usefixtures("untouched_random_state")
def test_order_is_a_permutation_that_changes_with_the_epoch():
    one, other = (Draws(0, "order", epoch).order(1000) for epoch in (0, 1))
    assert torch.equal(one.sort().values, torch.arange(1000))
    assert not torch.equal(one, other)
    assert abs(stats.spearmanr(one, other).statistic) < 0.13
    assert torch.equal(one, Draws(0, "order", 0).order(1000))


class TestBeta:
    @pytest.mark.parametrize("a", [0.2, 0.5, 0.8, 1.0, 1.5, 4.0, 50.0, 1e4])
    def test_the_distribution_is_scipys(self, a):
        found = Draws(3, "mix", 2).beta(torch.arange(100_000), a, (), torch.float64).numpy()
        assert stats.kstest(found, stats.beta(a, a).cdf).pvalue > 0.01
        # and it would have shown a concentration that is off by a tenth
        assert stats.kstest(found, stats.beta(1.1 * a, 1.1 * a).cdf).pvalue < 1e-6

    @pytest.mark.parametrize("a", [0.01, 0.1])
    def test_small_numbers_keep_their_digits(self, a):
        found = Draws(3, "mix", 2).beta(torch.arange(100_000), a, (), torch.float64)
        low = found[found < 0.5].numpy()
        assert (low > 0).mean() > 0.99
        assert stats.kstest(low, lambda x: 2 * stats.beta(a, a).cdf(x)).pvalue > 0.01
        assert stats.binomtest(len(low), len(found)).pvalue > 0.01

    @pytest.mark.parametrize("a", [0.3, 2.0, 7.5])
    def test_each_number_is_students_ratio_of_two_uniform_ones(self, a):
        draws, index = Draws(1, "mix", 4), torch.arange(40) * 7
        whole = draws.uniform(index, (6,), torch.float64) + 2.0**-25  # three U, then three V
        found = draws.beta(index, a, (3,), torch.float64)
        for n in range(len(index)):
            for place in range(3):
                u, v = whole[n, place].item(), whole[n, 3 + place].item()
                cosine = np.cos(2 * np.pi * v)
                t = np.sqrt(2 * a * (u ** (-1 / a) - 1)) * cosine
                expected = 0.5 + 0.5 * t / np.sqrt(2 * a + t * t)
                assert found[n, place].item() == pytest.approx(expected, rel=1e-9, abs=1e-15)

    def test_one_is_the_uniform_draw_itself(self):
        draws, index = Draws(1, "mix"), torch.arange(50)
        assert torch.equal(draws.beta(index, 1, (2,)), draws.uniform(index, (2,)))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
    @pytest.mark.parametrize("a", [1e-3, 0.5, 3.0, 1e300])
    def test_it_stays_within_the_unit_interval(self, a, dtype):
        found = Draws(0, "mix").beta(torch.arange(5000), a, (2,), dtype)
        assert found.dtype == dtype
        assert found.shape == (5000, 2)
        assert ((found >= 0) & (found <= 1)).all()
