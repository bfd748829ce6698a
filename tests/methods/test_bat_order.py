"""BatchNorm's running statistics see BAT's three views in the order of the released code."""

import copy

import torch
from inner_attacks import batch_of
from short_runs import QUICK

from classwise.attacks.ball import LINF
from classwise.attacks.inner import Moment
from classwise.recipe_text import parse_recipe
from classwise.training.config import TrainConfig
from classwise.training.step import Step


def test_a_step_shows_last_correct_first_adversarial_and_clean_images_in_this_order(net):
    slots, batch, moment = parse_recipe("bat").slots, batch_of(24), Moment(0, 1, 10)
    model = net().float().train()
    batch = type(batch)(batch.images.float(), batch.labels, batch.index)
    settings = slots.alike(4, 0.2)
    rows = settings.rows(batch.labels)
    facts = {"radius": rows.margin, "step": rows.step, "ball": LINF}
    views = slots.inner.perturb(copy.deepcopy(model), batch, moment, **facts)
    views["clean"] = batch.images
    norm = copy.deepcopy(model.norm)
    convolved = {name: model.conv(x).detach() for name, x in views.items()}
    shown = []
    model.register_forward_pre_hook(lambda _, given: shown.append(given[0].detach().clone()))
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    cpu = torch.device("cpu")
    step = Step(model, optimiser, slots, TrainConfig(**QUICK), lambda x, *_: x, LINF, None, 4, cpu)
    step(batch, settings, {}, moment, frozenset(), count_robust=False)
    order = [name for x in shown[-3:] for name, y in views.items() if torch.equal(x, y)]
    assert order == ["lastclean", "robust", "clean"]
    for name in order:  # the last one counts most in a running mean
        norm(convolved[name])
    torch.testing.assert_close(model.norm.running_mean, norm.running_mean)
    assert not torch.equal(views["robust"], views["lastclean"])
