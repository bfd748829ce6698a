"""Class statistics of FRL's world, played through its policy."""

import torch
from boundaries import draw_confusion, plain_settings

from classwise.classes.counts import ClassCounts
from classwise.classes.settings import Chain, Feedback
from classwise.methods.xu2021_frl import ATTACKED, CLEAN
from classwise.recipe_text import parse_recipe

SIZES = [2, 3, 10]


def world(num_classes, epoch, missing=()):
    """Clean and attacked validation tables; the attack costs some classes more than others."""
    clean = draw_confusion(num_classes, epoch, missing) + torch.diag(
        torch.tensor([0 if k in missing else 40 for k in range(num_classes)])
    )
    attacked = clean.clone()
    for k in range(num_classes):
        lost = int(clean[k, k]) * (k + 1 + epoch) // (2 * num_classes + epoch)
        attacked[k, k] -= lost
        attacked[k, (k + 1) % num_classes] += lost
    return clean, attacked


def play(text, num_classes, epochs=3, missing=(), of=40):
    """Settings at each boundary from e = 0 on."""
    chain = Chain(parse_recipe(text).slots.policies)
    found = []
    for epoch in range(epochs):
        counts = {}
        if chain.needs(epoch):
            assert chain.needs(epoch) == {CLEAN, ATTACKED}
            clean, attacked = world(num_classes, epoch, missing)
            counts = {CLEAN: ClassCounts(clean), ATTACKED: ClassCounts(attacked)}
        settings, chain = chain.update(
            plain_settings(num_classes, margin=8 / 255, step=2 / 255),
            Feedback(epoch, of, torch.ones(num_classes), counts),
        )
        found.append(settings)
    return found, chain
