"""Both objectives, who beats whom, and when a run is hopeless."""

from classwise.tuning.judged import Judge, Pair, compromise, front, pair_of
from classwise.tuning.trial import is_hopeless


def test_with_many_classes_the_worst_tenth_counts():
    few = {"overall": 0.5, "by_class": [0.1, 0.2, *[0.6] * 17]}
    many = {"overall": 0.5, "by_class": [0.1, 0.2, *[0.6] * 18]}
    assert pair_of(few).worst == 0.1
    assert abs(pair_of(many).worst - 0.15) < 1e-12


def test_the_front_holds_all_that_nobody_beats():
    found = [("a", Pair(0.5, 0.1)), ("b", Pair(0.4, 0.3)), ("c", Pair(0.4, 0.2)),
             ("d", Pair(0.3, 0.3)), ("e", Pair(0.5, 0.1))]  # fmt: skip
    assert [name for name, _ in front(found)] == ["a", "e", "b"]
    assert compromise(front(found)) == "b"


def test_of_equals_the_first_is_the_compromise():
    found = [("a", Pair(0.5, 0.1)), ("b", Pair(0.5, 0.1))]
    assert front(found) == found
    assert compromise(found) == "a"


def test_the_live_model_stands_in_for_an_average_without_weights():
    rates = {"pgd-10": {"overall": 0.5, "by_class": [0.5]}}
    better = {"pgd-10": {"overall": 0.7, "by_class": [0.7]}}
    judge = Judge("pgd-10", "ema")
    assert judge.pair({"valid": {"live": rates}}) == (Pair(0.5, 0.5), "live")
    assert judge.pair({"valid": {"live": rates, "ema": better}}) == (Pair(0.7, 0.7), "ema")


def test_equals_and_trade_offs_are_never_hopeless():
    assert not is_hopeless(Pair(0.1, 0.1), [Pair(0.1, 0.1)] * 9)
    assert not is_hopeless(Pair(0.1, 0.4), [Pair(0.6, 0.3)] * 9)
    assert is_hopeless(Pair(0.1, 0.1), [Pair(0.2, 0.1)] * 2 + [Pair(0.0, 0.0)] * 2)
    assert not is_hopeless(Pair(0.1, 0.1), [Pair(0.2, 0.1)] * 2 + [Pair(0.0, 0.0)] * 3)
