"""How attacks are written, and the one name each of them has."""

import pytest
from asked import parse_attack
from refusals import refused

from classwise.attacks.attack_names import KNOWN_ATTACKS
from classwise.attacks.names import parse_condition, parse_conditions
from classwise.attacks.search.suite import Suite
from classwise.attacks.threat import Threat

THREAT = Threat.of(8 / 255)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("pgd-20", "pgd-20"),
        (" pgd-20 ( start = uniform ) ", "pgd-20"),
        ("pgd-20(verdict=any, step=2/255)", "pgd-20(step=2/255,verdict=any)"),
        ("pgd-20(step=0.0078431372549019607)", "pgd-20(step=2/255)"),
        ("pgd-20(step=0.02)", "pgd-20(step=0.02)"),
        ("pgd-20(step=eps/4)", "pgd-20"),
        ("pgd-20(step=eps/8.0, eps=4/255)", "pgd-20(eps=4/255,step=eps/8)"),
        ("pgd-20(eps=0.01568627450980392)", "pgd-20(eps=4/255)"),
        ("cw-5(verdict=any,eps=1.5)", "cw-5(eps=1.5,verdict=any)"),
        ("fgsm( eps = 0.03 )", "fgsm(eps=0.03)"),
        ("autoattack(eps=4/255)", "autoattack(eps=4/255)"),
        ("suite( eps=4/255, apgd-ce, square(queries=5000) )", "suite(apgd-ce,square,eps=4/255)"),
        ("pgd-20(start=none)", "pgd-20(start=none)"),
        ("pgd-20(target=3,restarts=2)", "pgd-20(target=3,restarts=2)"),
        ("cw-5(verdict=last)", "cw-5"),
        ("pgd-5(labels=predicted,logits=all)", "pgd-5(logits=all,labels=predicted)"),
        ("apgd-ce(steps=100,eot=1)", "apgd-ce"),
        ("apgd-t(targets=3)", "apgd-t(targets=3)"),
        ("square(p=0.8,queries=5000)", "square"),
        ("autoattack", "autoattack"),
        ("autoattack-rand()", "autoattack-rand"),
        ("suite( apgd-ce , square(queries = 100) )", "suite(apgd-ce,square(queries=100))"),
        ("suite(pgd-20,suite(fab-t,deepfool))", "suite(pgd-20,fab-t,deepfool)"),
    ],
)
def test_every_spelling_has_one_name_that_reads_as_itself(text, name):
    attack = parse_attack(text)
    assert attack.name == name
    assert parse_attack(name) == attack


def test_the_standard_suite_is_the_fields():
    ce, targeted, fab, square = parse_attack("autoattack").searches
    assert (ce.name, ce.loss, ce.steps, ce.rounds(10)) == ("apgd-ce", "ce", 100, 1)
    assert (targeted.loss, targeted.steps, targeted.rounds(10)) == ("dlr-t", 100, 9)
    assert (fab.steps, fab.rounds(10)) == (100, 9)
    assert (square.queries, square.p) == (5000, 0.8)


@pytest.mark.parametrize(("num_classes", "targets"), [(2, 1), (3, 2), (10, 9), (1000, 9)])
def test_targets_are_at_most_nine_and_at_most_the_others(num_classes, targets):
    _, targeted, fab, _ = parse_attack("autoattack").searches
    assert targeted.rounds(num_classes) == fab.rounds(num_classes) == targets


def test_the_suite_for_random_models_averages_twenty_passes():
    first, second = parse_attack("autoattack-rand").searches
    assert (first.loss, second.loss, first.eot, second.eot) == ("ce", "dlr", 20, 20)


def test_verdicts():
    verdicts = [parse_attack(text).verdict for text in ("pgd-2", "pgd-2(verdict=any)", "square")]
    assert verdicts == ["last", "any", "any"]
    assert isinstance(parse_attack("pgd-2(verdict=any)"), Suite)


def test_only_clean_and_square_do_without_gradients():
    names = ["clean", "fgsm", "pgd-2", "apgd-ce", "square", "suite(square,fab-t)", "suite(square)"]
    free = [n for n in names if not parse_condition(n, THREAT).needs_gradient]
    assert free == ["clean", "square", "suite(square)"]


def test_a_list_keeps_its_order_and_its_brackets():
    names = [
        one.name for one in parse_conditions("clean, suite(fab-t,square), pgd-3(step=0.1)", THREAT)
    ]
    assert names == ["clean", "suite(fab-t,square)", "pgd-3(step=0.1)"]


def test_what_is_listed_can_be_parsed():
    for name in KNOWN_ATTACKS:
        if ":" not in name:  # code of the user's own
            threat = Threat.of(0.25, "L2") if name.startswith("smooth") else THREAT
            parse_condition(name.replace("-K", "-3").replace("(A,B,…)", "(fgsm)"), threat)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("autoatack", ("autoatack", "did you mean 'autoattack'")),
        ("apgd", ("apgd", "apgd-ce")),
        ("square(query=5)", ("'query'", "did you mean 'queries'")),
        ("square(queries=0)", ("queries", "0", "whole number from 1")),
        ("square(p=1)", ("p of square", "between 0 and 1")),
        ("apgd-ce(steps=2.5)", ("steps", "2.5")),
        ("apgd-ce(steps=true)", ("steps", "True")),
        ("pgd-20(verdict=first)", ("'first'", "any", "last")),
        ("pgd-20(target=dog)", ("target", "dog", "likely", "whole number")),
        ("cw-20(target=1)", ("cw-20", "pgd-20")),
        ("pgd-5(logits=all,verdict=any)", ("pgd-5", "verdict")),
        ("suite()", ("suite()", "empty")),
        ("suite(clean)", ("clean",)),
        ("suite(square,square)", ("twice",)),
        ("suite(apgd-ce,sqare)", ("sqare", "square")),
        ("autoattack(steps=3)", ("steps",)),
        ("clean(eps=4/255)", ("option of clean", "'eps'")),
        ("pgd-20(eps=-1)", ("eps", "-1", "0 or more")),
        ("pgd-20(eps=big)", ("eps", "'big'", "8/255")),
        ("pgd-20(eps=eps/2)", ("eps", "8/255")),
        ("pgd-20(step=fast)", ("step of pgd-20", "2/255", "eps/4")),
        ("square(p=eps/4)", ("p of square", "between 0 and 1")),
        ("suite(apgd-ce(eps=4/255),square)", ("apgd-ce(eps=4/255)", "suite(apgd-ce,square,eps=")),
        ("suite(autoattack(eps=4/255))", ("autoattack(eps=4/255)", "suite(")),
        ("suite(eps=4/255)", ("empty",)),
        ("pgd-20,pgd-20(start=uniform)", ("twice",)),
    ],
)
def test_refusals(text, words):
    with refused(*words):
        parse_conditions(text, THREAT)
