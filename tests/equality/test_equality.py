import pytest
import torch

from equality import fat, frl
from equality.comparison import EXACT
from equality.laboratory import float64, world
from equality.table import COMPARISONS, PAGE, line


@pytest.mark.parametrize("row", COMPARISONS, ids=lambda row: row.name)
def test_ours_equals_the_released_step(row):
    for quantity, figure in row.figures.items():
        if quantity in row.apart:
            assert figure > row.bound, f"{quantity} is equal by now: take it out of `apart`"
        else:
            assert figure < row.bound, quantity
    assert set(row.apart) <= set(row.figures)


def test_what_is_loose_says_why():
    for row in COMPARISONS:
        assert all(row.apart.values())
        assert row.bound == EXACT or "1e-10" in row.remark
    names = [row.name for row in COMPARISONS]
    assert len(set(names)) == len(names)


def written() -> list[list[str]]:
    """Cells of the page's table."""
    rows = [text for text in PAGE.read_text().splitlines() if text.startswith("| ")][2:]
    return [[cell.strip() for cell in text.strip("|").split(" | ")] for text in rows]


def named(cell: str) -> dict[str, float]:
    """Figures by quantity; a name may hold commas."""
    found, name = {}, ""
    for piece in cell.split(", "):
        words, _, figure = f"{name}{piece}".rpartition(" ")
        try:
            found[words], name = float(figure), ""
        except ValueError:
            name = f"{name}{piece}, "
    return found


def test_the_page_lists_these_comparisons_and_no_others():
    """Last digits may differ from machine to machine; what is equal and what is not may not."""
    expected = [[cell.strip() for cell in line(row).strip("|").split(" | ")] for row in COMPARISONS]
    found = written()
    cells = (0, 1, 2, 4)
    assert [[r[c] for c in cells] for r in found] == [[r[c] for c in cells] for r in expected], (
        "run `make equality`"
    )
    for row, (_, _, _, figures, _) in zip(COMPARISONS, found, strict=True):
        told = named(figures)
        assert list(told) == list(row.figures)
        for quantity, figure in row.figures.items():
            if quantity in row.apart:
                assert told[quantity] == pytest.approx(figure, rel=0.6)
            else:
                assert told[quantity] < row.bound


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
