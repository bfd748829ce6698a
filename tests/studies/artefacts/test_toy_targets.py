"""Three classes in a plane: the networks really train, and the caption is tried as it stands."""

import pytest
from pydantic import ValidationError

from classwise.studies.artefacts.toy_targets import (
    ToyTargetsOptions,
    _verdict,
    sentences,
    toy_targets,
)
from classwise.studies.found import Found
from classwise.studies.toys.plane import METHODS, Scene, Trained, network, places, trained

QUICK = {"images": 50, "epochs": 3, "seeds": 1}


class Facts:
    title, paper, source = "Targets in a plane", "medi", "figure 2"


FOUND = Found(Facts(), "smoke", ())


def test_standard_training_tells_the_classes_apart():
    found = trained(Scene(images=50, epochs=8), "standard", 0)
    assert found.clean[2] > 0.9  # green lies apart
    assert min(found.clean[:2]) > 0.6  # red and blue overlap, but chance is a third
    assert max(found.clean[:2]) < 0.97
    assert found.robust < found.clean


def test_the_picture_shows_every_place_in_every_panel():
    made = toy_targets(FOUND, ToyTargetsOptions(title="Figure 2", **QUICK))
    assert [panel.title for panel in made.figure.panels] == list(METHODS)
    for panel in made.figure.panels:
        shown = {place for one in panel.series for place in zip(one.x, one.y, strict=True)}
        assert shown == set(places())
    assert [row[0].words for row in made.rows] == list(METHODS)
    worst = made.head.index("worst, clean")
    for row in made.rows:
        assert row[worst].rates == (min(cell.rates[0] for cell in row[1:4]),)
    assert any("a sketch without data" in note for note in made.notes)


def test_it_is_the_same_every_time():
    first = trained(Scene(images=50, epochs=1), "targeted, C_FPS", 0)
    trained.cache_clear()
    assert trained(Scene(images=50, epochs=1), "targeted, C_FPS", 0) == first
    assert trained(Scene(images=50, epochs=1), "untargeted", 0).regions != first.regions


def one(method, robust, boundary, to_green):
    return Trained(method, 0, (1.0, 1.0, 1.0), robust, to_green, boundary, ())


def test_the_sentences_agree_where_the_caption_is_right():
    as_drawn = {
        "standard": [one("standard", (0.5, 0.5, 0.6), 0.5, 0.1)],
        "untargeted": [one("untargeted", (0.4, 0.4, 0.9), 0.4, 0.0)],
        "targeted, C_FPS": [one("targeted, C_FPS", (0.5, 0.5, 0.7), 0.5, 0.1)],
    }
    assert all(sentence.by(as_drawn, 0) >= 0 for sentence in sentences())
    turned = {
        **as_drawn,
        "standard": [one("standard", (0.3, 0.3, 0.95), 0.3, 0.1)],
        "untargeted": [one("untargeted", (0.6, 0.6, 0.7), 0.6, 0.2)],
    }
    assert all(sentence.by(turned, 0) < 0 for sentence in sentences())


def test_a_verdict_needs_all_seeds():
    assert _verdict((0.1, 0.2)).words == "shown (2 of 2 seeds)"
    assert _verdict((0.1, -0.2)).words == "undecided (1 of 2 seeds)"
    assert _verdict((-0.1, -0.2)).words == "not shown (0 of 2 seeds)"
    assert _verdict((0.0,)).words == "shown (1 of 1 seeds)"


def test_what_it_would_not_use_is_refused():
    with pytest.raises(ValidationError, match="reads no runs"):
        ToyTargetsOptions(title="Figure 2", where={"seed": "0"})


def test_the_notes_count_the_weights():
    made = toy_targets(FOUND, ToyTargetsOptions(title="Figure 2", **QUICK))
    weights = sum(one.numel() for one in network(3).parameters())
    assert f"a network of {weights} weights" in made.notes[0]
