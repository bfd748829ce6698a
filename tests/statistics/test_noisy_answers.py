"""Certificates and predictions of a smoothed classifier beside the paper's algorithms."""

import numpy as np
import pytest
from scipy import stats

from classwise.statistics.smoothing import certify, farthest, predict


def straight_certify(selection, estimation, sigma, alpha):
    """CERTIFY (Cohen et al. 2019, section 3.2.2), one image after the other."""
    classes, radii = [], []
    for first, second in zip(selection, estimation, strict=True):
        best = max(range(len(first)), key=lambda k: (first[k], -k))
        hits, draws = int(second[best]), int(second.sum())
        # the lower end of a two-sided interval at 1 − 2α is one-sided at 1 − α
        low = stats.binomtest(hits, draws).proportion_ci(1 - 2 * alpha, method="exact").low
        classes.append(best)
        radii.append(sigma * stats.norm.ppf(low) if low > 0.5 else 0.0)
    return classes, radii


def straight_predict(counts, alpha):
    """PREDICT: the first of the two most frequent, or None."""
    found = []
    for row in counts:
        order = sorted(range(len(row)), key=lambda k: (-row[k], k))
        first, second = int(row[order[0]]), int(row[order[1]])
        p_value = stats.binomtest(first, first + second, 0.5).pvalue
        found.append(order[0] if p_value <= alpha else None)
    return found


def drawn(num_classes, draws, images=150, seed=0):
    rng = np.random.default_rng(seed)
    odds = rng.dirichlet(np.full(num_classes, 0.2), images)
    odds[0] = np.eye(num_classes)[1]  # all answers alike
    odds[1] = 1 / num_classes
    return [np.stack([rng.multinomial(n, p) for p in odds]) for n in (20, draws)]


@pytest.mark.parametrize("num_classes", [2, 10, 100])
@pytest.mark.parametrize(("draws", "alpha"), [(50, 0.05), (1000, 0.001), (100_000, 0.001)])
def test_certificates_equal_a_straight_transcription(num_classes, draws, alpha):
    selection, estimation = drawn(num_classes, draws)
    classes, radii = straight_certify(selection, estimation, 0.5, alpha)
    found = certify(selection, estimation, 0.5, alpha)
    assert found.classes.tolist() == classes
    assert found.abstained.tolist() == [radius == 0 for radius in radii]
    assert np.allclose(found.radius, radii, rtol=1e-9, atol=1e-12)
    assert 0 < found.abstained.sum() < len(radii)


@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.4])
def test_predictions_equal_a_straight_transcription(alpha):
    for num_classes in (2, 10):
        counts = drawn(num_classes, 60)[1]
        classes, sure = predict(counts, alpha)
        named = [k if certain else None for k, certain in zip(classes.tolist(), sure, strict=True)]
        assert named == straight_predict(counts, alpha)
        assert 0 < sure.sum() < len(sure)


@pytest.mark.parametrize("share", [0.5, 0.6, 0.9, 0.99])
@pytest.mark.parametrize("alpha", [0.001, 0.1])
def test_a_radius_is_too_long_no_more_often_than_alpha(share, alpha):
    """Exactly, over all outcomes: the true radius of a class of probability p is σ·Φ⁻¹(p)."""
    hits = np.arange(201)
    counts = np.stack([hits, 200 - hits], axis=1)
    first = np.tile([9, 1], (len(hits), 1))
    too_long = certify(first, counts, 1.0, alpha).radius > max(0.0, stats.norm.ppf(share))
    chance = stats.binom.pmf(hits, 200, share)[too_long].sum()
    assert chance <= alpha
    if share < 0.99:
        assert chance > alpha / 4  # and not by far


@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_a_prediction_is_another_class_no_more_often_than_alpha(alpha):
    hits = np.arange(201)
    classes, sure = predict(np.stack([hits, 200 - hits], axis=1), alpha)
    wrong = stats.binom.pmf(hits, 200, 0.5)[sure & (classes == 1)].sum()  # both are as likely
    assert alpha / 8 < wrong <= alpha


def test_the_farthest_radius_is_that_of_unanimous_answers():
    counts = np.array([[0, 300]])
    assert farthest(0.7, 300, 0.01) == pytest.approx(certify(counts, counts, 0.7, 0.01).radius[0])
