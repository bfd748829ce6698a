"""Ours beside `imagecorruptions-imaug`, and the reader of the scripts' constants."""

from pathlib import Path

import numpy as np
import pytest

from classwise.corruptions.severities import C19

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = """
import wand  # what cannot be imported is never run

def fog(x, severity=1):
    c = [(.2,3), (.5,3), (0.75,2.5), (1,2), (1.5,1.75)][severity - 1]

def zoom_blur(x, severity=1):
    c = [np.arange(1, 1.06, 0.01), np.arange(1, 1.11, 0.01), np.arange(1, 1.16, 0.01),
         np.arange(1, 1.21, 0.01), np.arange(1, 1.26, 0.01)][severity - 1]

def contrast(x, severity=1):
    c = [.75, .5, .4, .3, 0.16][severity - 1]

def elastic_transform(image, severity=1):
    IMSIZE = 32
    c = [(IMSIZE*0, IMSIZE*0, IMSIZE*0.08),
         (IMSIZE*0.05, IMSIZE*0.2, IMSIZE*0.07),
         (IMSIZE*0.08, IMSIZE*0.06, IMSIZE*0.06),
         (IMSIZE*0.1, IMSIZE*0.04, IMSIZE*0.05),
         (IMSIZE*0.1, IMSIZE*0.03, IMSIZE*0.03)][severity - 1]
"""


@pytest.fixture
def replayed(monkeypatch):
    pytest.importorskip("imagecorruptions")
    monkeypatch.syspath_prepend(BENCHMARKS)
    import replayed

    return replayed


def picture(side=144):
    """Smooth shades, an edge and some grain; no large pixel ends in the middle of a small one,
    where the package rounds otherwise than the scripts."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:side, :side] / side
    shades = np.stack([x, y, (x + y) / 2], 2) * 200 + 20 * (x > 0.6)[..., None]
    return np.clip(shades + rng.normal(0, 8, shades.shape), 0, 255).astype(np.uint8)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in C19 if n not in ("shot_noise", "impulse_noise")])
def test_no_value_differs_by_more_than_a_level(replayed, name):
    for severity in (1, 3, 5):
        theirs, ours = replayed.both(picture(), name, severity, seed=severity)
        apart = np.abs(theirs.astype(int) - ours)
        assert apart.max() <= 1
        assert (apart > 0).mean() < 0.2


def test_constants_are_read_and_differences_found(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import scripts

    (tmp_path / "script.txt").write_text(SCRIPT)
    found, count = scripts.differences(tmp_path / "script.txt", 32)
    assert count == 205
    named = [words for words in found if words.startswith(("fog", "zoom", "contrast", "elastic"))]
    assert named == ["contrast-5: [0.15] here, [0.16] there"]
    assert len(found) == 1 + 5 * (19 - 4)  # what a script lacks is a difference
