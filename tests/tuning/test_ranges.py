"""What may vary: read, checked against the recipe, and refused before anything runs."""

import pytest

from classwise.errors import ClasswiseError
from classwise.tuning.ranges import DEFAULTS, Choice, Range, default_search, parse_search
from classwise.tuning.start import Start

TRADES = Start("trades+ccm")


def test_numbers_logarithms_and_choices():
    found = parse_search("trades.beta=1..10, lr=log:1/100..0.4,schedule=step|cosine", TRADES)
    assert found == (
        Range("trades.beta", 1, 10),
        Range("lr", 0.01, 0.4, log=True),
        Choice("schedule", ("step", "cosine")),
    )


def test_an_option_that_is_whole_is_drawn_whole():
    steps, beta = parse_search("trades.steps=1..8,trades.beta=1..8", TRADES)
    assert (steps.whole, beta.whole) == (True, False)
    assert parse_search("batch_size=100..200", TRADES)[0].whole
    assert parse_search("batch_size=log:100..300", TRADES)[0].tidy(128.0) == 128


def test_drawn_numbers_are_short_and_stay_inside():
    one = Range("lr", 0.01, 0.4)
    assert one.tidy(0.0123456) == 0.01235
    assert Range("lr", 0.012343, 0.4).tidy(0.012343) == 0.012343
    assert Range("lr", 0.01, 0.012347).tidy(0.012347) == 0.012347


def test_choices_may_be_shares_of_eps_and_calls():
    step, model = parse_search("trades.step=eps/4|eps/2,model=cnn(width=2)|cnn(width=4)", TRADES)
    assert TRADES.made({"trades.step": step.tidy("eps/2")})
    assert TRADES.made({"model": model.tidy("cnn(width=4)")})[1].model == "cnn(width=4)"
    assert step.drawn_as(TRADES.value_of("trades.step")) == "eps/4"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trades.bta=1..10", "did you mean 'beta'"),
        ("at.steps=1..10", "a method of trades"),
        ("lrr=0.1..0.4", "did you mean 'lr'"),
        ("lr=0.4..0.1", "the lower end comes first"),
        ("lr=0.1..0.1", "the lower end comes first"),
        ("lr=log:0..0.1", "a logarithm needs a lower end above 0"),
        ("lr=0..0.1", "greater than 0"),
        ("lr=nan..0.1", "is no number"),
        ("lr=1e999..2", "is no number"),
        ("lr=a..b", "is no number"),
        ("ccm.margin_floor=0.5..3", "less than or equal to 1"),
        ("momentum=0.5..1", "less than 1"),
        ("schedule=step|cosin", "schedule"),
        ("schedule=step", "nothing to search"),
        ("schedule=step|step", "twice"),
        ("lr=log:step|cosine", "write OPTION=LOW..HIGH"),
        ("lr", "write OPTION=LOW..HIGH"),
        ("", "write OPTION=LOW..HIGH"),
        ("lr=0.1..0.2,lr=0.1..0.3", "names lr twice"),
        ("epochs=1..9", "judged alike"),
        ("valid=0.1..0.3", "judged alike"),
        ("seed=0..9", "judged alike"),
        ("watch_share=0.1..0.3", "changes no result"),
    ],
)
def test_what_makes_no_sense_is_refused(words, said):
    with pytest.raises(ClasswiseError, match="--search") as told:
        parse_search(words, TRADES)
    assert said in str(told.value)


def test_defaults_are_for_the_methods_in_the_recipe():
    assert [str(one) for one in default_search(TRADES)] == [
        "trades.beta=log:1..10",
        "ccm.margin_floor=0.2..0.9",
        "lr=log:0.02..0.4",
    ]


def test_what_is_written_stays_as_it_is():
    start = Start("trades(beta=6)+ccm", {"ccm.margin_floor": 0.4}, {"lr": 0.1})
    assert default_search(start) == ()


def test_every_default_is_an_option_of_its_method():
    for one in DEFAULTS:
        name = one.option.partition(".")[0]
        beside = {"ccr": "trades+", "cfa": "trades+", "awp": "trades+"}.get(name, "")
        beside = beside or ("" if name in ("trades", "mart") else "at+")
        assert one.option in {d.option for d in default_search(Start(beside + name))}
