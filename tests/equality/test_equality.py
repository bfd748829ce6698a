import pytest
import torch

from equality import avmixup, awp, bat, fat, frl, mart, trades
from equality.comparison import EXACT
from equality.laboratory import float64, ours, world
from equality.table import COMPARISONS, PAGE


def cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.strip("|").split(" | ")]


def page_rows() -> dict[str, list[str]]:
    """The table of docs/equality.md by method and recipe."""
    lines = [text for text in PAGE.read_text().splitlines() if text.startswith("| ")][2:]
    return {f"{row[0]}: {row[1].strip('`')}": row for row in map(cells, lines)}


def figures_of(cell: str) -> dict[str, float]:
    """Figures by quantity; the name of a quantity may hold commas."""
    found, name = {}, ""
    for piece in cell.split(", "):
        words, _, figure = f"{name}{piece}".rpartition(" ")
        try:
            found[words], name = float(figure), ""
        except ValueError:
            name = f"{name}{piece}, "
    return found


@pytest.mark.parametrize("row", COMPARISONS, ids=lambda row: row.name)
def test_ours_equals_the_released_step_and_the_page_says_so(row):
    """On the page last digits may differ from machine to machine, what is equal may not."""
    _, _, code, figures, verdict = page_rows()[row.name]
    told = figures_of(figures)
    assert (code, verdict, list(told)) == (str(row.code), row.verdict, list(row.figures))
    assert set(row.apart) <= set(row.figures)
    for quantity, figure in row.figures.items():
        if quantity in row.apart:
            assert figure > row.bound, f"{quantity} is equal by now: take it out of `apart`"
            assert told[quantity] == pytest.approx(figure, rel=0.6)
        else:
            assert figure < row.bound, quantity
            assert told[quantity] < row.bound


def test_the_page_lists_these_comparisons_and_no_others():
    assert list(page_rows()) == [row.name for row in COMPARISONS], "run `make equality`"


def test_what_is_loose_says_why():
    for row in COMPARISONS:
        assert all(row.apart.values())
        assert row.bound == EXACT or "1e-10" in row.remark


@pytest.mark.parametrize(
    ("module", "right", "wrong"),
    [
        (trades, trades.RECIPE, "trades(step=0.007, beta=5.999)"),
        (trades, trades.RECIPE, "trades(step=0.00701)"),
        (trades, trades.RECIPE, "trades(step=0.007, batchnorm=batch)"),
        (mart, mart.RECIPE, "mart(step=0.007, beta=5.001)"),
        (avmixup, avmixup.RECIPE, "at+avmixup(vertex_share=0.101)"),
        (avmixup, avmixup.RECIPE, "at+avmixup(batchnorm=eval)"),
        (bat, bat.RECIPE, "trades(step=0.007)+bat(patience=0)"),
        (awp, "trades+awp(start=0)", "trades+awp(start=0, size=0.00501)"),
    ],
)
def test_a_small_departure_would_be_seen(module, right, wrong):
    eps = getattr(module, "EPS", 8 / 255)
    here = world(10, eps=eps, step=getattr(module, "STEP", 2 / 255))
    theirs = module.trades_step(here) if module is awp else module.step(here)
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    seen = ("examples", "loss", "gradients")
    near, far = (ours(text, here).beside(theirs) for text in (right, wrong))
    assert max(near[quantity] for quantity in seen) < 1e-10
    assert max(far[quantity] for quantity in seen) > 1e-6


class TestTheWorldIsNotTooEasy:
    @pytest.mark.parametrize("num_classes", [4, 10])
    def test_attacks_meet_every_kind_of_sample(self, num_classes):
        """Right at first and wrong later, right throughout, and wrong from the start."""
        here = world(num_classes, eps=fat.EPS, step=fat.STEP)
        _, emitted = fat.at_step(here, 0)
        begin = (here.images + (2 * here.uniform() - 1) * fat.EPS).clamp(0, 1)
        model = here.fresh().eval()
        first = model(begin).argmax(1) == here.labels
        moved = (emitted.in_batch_order() != begin).flatten(1).any(1)
        last = model(emitted.in_batch_order()).argmax(1) == here.labels
        assert torch.equal(moved, first)
        assert (first & ~last).any()
        assert (first & last).any()
        assert (~first).any()

    def test_pixels_reach_both_ends_of_the_ball_and_of_the_range(self):
        here = world(4)
        assert (here.images == 0).any()
        assert (here.images == 1).any()

    @pytest.mark.parametrize("variant", frl.SCRIPTS)
    def test_frl_moves_weights_and_margins(self, variant):
        seen = [frl.validation(10, epoch) for epoch in range(90)]
        rows = list(frl.multipliers(frl.SCRIPTS[variant], seen))
        for part, still in enumerate(("", "remargin", "reweight")):
            spread = max(rows[-1][part]) - min(rows[-1][part])
            assert (spread > 1e-3) == (variant != still)


def test_float64_is_left_behind():
    with float64():
        assert torch.ones(1).dtype == torch.ones(1).half().float().dtype == torch.float64
    assert torch.ones(1).dtype == torch.ones(1).half().float().dtype == torch.float32
