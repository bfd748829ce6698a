"""Under which key a ledger knows a verdict: all that decides it, and nothing else."""

import pytest
import torch
from asked import attack_key

from classwise.attacks.names import parse_condition
from classwise.attacks.threat import Threat

FACTS = {"attack": "pgd-3", "eps": 0.1, "norm": "Linf", "seed": 0}


def key_of(**other):
    facts = {**FACTS, **other}
    threat = Threat.of(facts["eps"], facts["norm"], torch.arange(3))
    return parse_condition(facts["attack"], threat, facts["seed"]).key


@pytest.mark.parametrize(
    "other",
    [
        {"attack": "pgd-4"},
        {"attack": "pgd-3(verdict=any)"},
        {"eps": 0.2},
        {"eps": torch.tensor([0.1, 0.1, 0.2])},
        {"norm": "L2"},
        {"seed": 1},
    ],
    ids=str,
)
def test_another_attack_radius_norm_or_seed_is_another_key(other):
    assert key_of(**other) != key_of()


def test_the_key_is_the_one_that_ledgers_know_from_the_beginning():
    assert key_of() == attack_key("pgd-3", 0.1, "Linf", 0, "last")
    searched = "pgd-3(verdict=any)"
    assert key_of(attack=searched, seed=2) == attack_key(searched, 0.1, "Linf", 2, "any")


@pytest.mark.parametrize("other", [{"eps": 0.2}, {"norm": "L2"}, {"seed": 1}], ids=str)
def test_clean_images_are_the_same_for_every_threat_and_seed(other):
    assert key_of(attack="clean", **other) == key_of(attack="clean")
    assert key_of(attack="clean") == attack_key("clean", 0.1, "Linf", 0, "last")
