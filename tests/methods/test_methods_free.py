import copy

import pytest
import torch
import torch.nn.functional as F
from plain_steps import (
    assert_same_models,
    descend,
    images_of,
    memory_of,
    part,
    settings_of,
    step_of,
)
from refusals import refused

from classwise.attacks.carried import CARRIED
from classwise.attacks.inner import Moment
from classwise.draws import Draws
from classwise.recipe_text import parse_recipe
from classwise.training.presets import apply_preset

MARGINS, STEPS = [0.05, 0.1, 0.2, 0.0], [0.05, 0.07, 0.15, 0.1]
ROWS = [[0, 1, 2, 3, 4], [5, 6, 7], [1, 3, 5, 7, 6, 0]]  # shorter and longer batches follow


def train(step, data, settings, rows=ROWS):
    kept = memory_of(step, data.index)
    for number, some in enumerate(rows):
        step(part(data, some), settings, kept, Moment(0, number, 3), frozenset(), False)
    return kept[CARRIED]


def cut(offset, radius, norm):
    """The nearest offset in the ball."""
    if norm == "L2":
        length = sum(value**2 for value in offset.flatten().tolist()) ** 0.5
        return offset * min(1.0, radius / max(length, 1e-12))
    return offset.clamp(-radius, radius)


def straight(model, data, replays, loss_of, norm):
    """The algorithm, place by place: δ climbs with the gradient that moves the weights."""
    delta = [None] * 6
    for number, rows in enumerate(ROWS):
        batch = part(data, rows)
        noise = Draws(0, "start", number).normal(batch.index, (1, 8, 8), torch.float64)
        for _ in range(replays):
            for place, label in enumerate(batch.labels.tolist()):
                if delta[place] is None:  # TRADES has no slope where δ is 0
                    image = batch.images[place]
                    first = 0.001 * noise[place] * (loss_of is trades_loss)
                    delta[place] = (image + cut(first, MARGINS[label], norm)).clamp(0, 1) - image
                delta[place] = cut(delta[place], MARGINS[label], norm)
            seen = [(batch.images[i] + delta[i]).clamp(0, 1) for i in range(len(batch))]
            seen = torch.stack(seen).requires_grad_()
            descend(model, loss_of(model, batch, seen))
            for place, label in enumerate(batch.labels.tolist()):
                slope = seen.grad[place]
                if norm == "L2":
                    length = max(sum(v**2 for v in slope.flatten().tolist()) ** 0.5, 1e-12)
                    up = slope * (STEPS[label] / length)
                else:
                    up = STEPS[label] * slope.sign()
                delta[place] = cut(delta[place] + up, MARGINS[label], norm)
    return torch.stack(delta)


def at_loss(model, batch, seen):
    return F.cross_entropy(model(seen), batch.labels)


def trades_loss(model, batch, seen):
    clean, robust = model(batch.images), model(seen)
    p, q = clean.log_softmax(1), robust.log_softmax(1)
    gap = (p.exp() * (p - q)).sum(1).mean()
    return F.cross_entropy(clean, batch.labels) + 3 * gap  # β of the settings


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("replays", [1, 3])
@pytest.mark.parametrize(("base", "loss_of"), [("at", at_loss), ("trades", trades_loss)])
def test_steps_equal_a_straight_transcription(net, base, loss_of, replays, norm):
    model, data = net(4).train(), images_of(8)
    plain = copy.deepcopy(model)
    step = step_of(f"{base}+free(replays={replays})", model, norm=norm)
    kept = train(step, data, settings_of(MARGINS, STEPS))
    expected = straight(plain, data, replays, loss_of, norm)
    assert_same_models(model, plain)
    torch.testing.assert_close(kept["offset"], expected, rtol=1e-9, atol=1e-12)
    assert expected.abs().max() > 0


@pytest.mark.parametrize("replays", [1, 3])
def test_without_a_radius_it_is_clean_training_with_every_batch_replayed(net, replays):
    model, data, settings = net(4).train(), images_of(8), settings_of([0.0] * 4, STEPS)
    plain = copy.deepcopy(model)
    train(step_of(f"free(replays={replays})", model), data, settings)
    clean = step_of("clean", plain)
    for number, rows in enumerate(ROWS):
        for _ in range(replays):
            clean(part(data, rows), settings, {}, Moment(0, number, 3), frozenset(), False)
    for one, other in zip(model.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_a_step_costs_one_forward_and_counts_are_those_of_the_last_replay(net):
    model, data, forwards = net(4).train(), images_of(8), []
    model.register_forward_hook(lambda *_: forwards.append(1))
    step = step_of("free(replays=4)", model)
    kept = memory_of(step, data.index)
    settings = settings_of(MARGINS, STEPS)
    counts, _ = step(data, settings, kept, Moment(0, 0, 3), frozenset(), True)
    assert len(forwards) == 4
    assert [int(found.sizes.sum()) for found in counts.values()] == [8]


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("free+atta", ("atta", "free")),
        ("free+fast", ("fast", "free")),
        ("free+fat", ("fat", "free", "attack")),
        ("free+fairtat", ("fairtat", "free")),
        ("free+avmixup", ("avmixup", "free")),
        ("trades+bat+free", ("bat", "free")),
        ("trades+wat+free", ("wat", "validation", "free")),
        ("clean+free", ("free", "clean has none")),
        ("absld+free", ("absld", "free")),
        ("at(steps=3)+free", ("at(steps=3)", "free has its own")),
        ("at(batchnorm=eval)+free", ("at(batchnorm='eval')",)),
        ("free(replays=0)", ("free(replays=0)",)),
    ],
)
def test_company_that_makes_no_sense_is_refused(recipe, words):
    with refused(*words):
        parse_recipe(recipe)


@pytest.mark.parametrize("recipe", ["free", "fast", "atta", "trades+fast"])
@pytest.mark.parametrize("preset", ["minutes", "paper"])
def test_presets_leave_the_steps_to_who_owns_them(recipe, preset):
    found, _ = apply_preset(preset, parse_recipe(recipe), {})
    assert found.slots.steps == parse_recipe(recipe).slots.steps
    assert found.slots.step == parse_recipe(recipe).slots.step


@pytest.mark.parametrize("policy", ["ccm", "cfa", "cost", "awp", "frl", "dafa", "resample"])
def test_class_policies_stand_beside_it(policy):
    base = "trades" if policy in ("frl", "dafa") else "at"
    assert parse_recipe(f"{base}+free+{policy}").slots.carry.replays == 8
