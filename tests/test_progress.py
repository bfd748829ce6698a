"""Progress fits a terminal of 80 columns; a log file gets a line a minute with the time left."""

import io

import pytest
import torch
from rich.console import Console

from classwise.auditing.progress import Bar
from classwise.progress import EVERY, Course
from classwise.training.progress import TrainProgress

LONG = "trades+ccm+ema[1]: suite(apgd-ce,apgd-dlr,fab,square): 1234 of 5678 stand after apgd-ce"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def to_a_file():
    return Console(file=io.StringIO(), force_terminal=False, width=80)


def test_a_terminal_of_80_columns_sees_one_line_with_the_time_left():
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    course = Course(quiet=False, console=console)
    course.begin(LONG, 100)
    course.advance(40)
    with console.capture() as caught:
        console.print(course._bar.get_renderable())
    lines = caught.get().splitlines()
    assert len(lines) == 1
    assert len(lines[0].rstrip()) <= 80
    assert lines[0].startswith("trades+ccm+ema[1]: suite(")
    assert "…" in lines[0]
    assert lines[0].rstrip().endswith("left")


def test_what_comes_between_two_pieces_counts_in_the_time_left():
    clock = Clock()
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    course = Course(quiet=False, console=console, clock=clock)
    course.begin("at", 4)
    for clock.now in (10, 20):  # two batches
        course.advance()
    clock.now = 70  # validation, and one more
    course.advance()
    with console.capture() as caught:
        console.print(course._bar.get_renderable())
    assert caught.get().rstrip().endswith("23 s left")


def test_a_file_gets_a_line_a_minute():
    clock, console = Clock(), to_a_file()
    with Course(quiet=False, console=console, clock=clock) as course:
        course.begin("audit: pgd-20", 100, done=10)
        for clock.now in range(20, 201, 20):  # ten steps of 20 seconds
            course.advance(5)
    assert console.file.getvalue().splitlines() == [
        "audit: pgd-20 (25 of 100, 5 min left)",
        "audit: pgd-20 (40 of 100, 4 min left)",
        "audit: pgd-20 (55 of 100, 3 min left)",
    ]


def test_a_suite_speaks_inside_a_long_piece():
    clock, console = Clock(), to_a_file()
    bar = Bar(quiet=False, title="mine")
    bar._course = Course(quiet=False, console=console, clock=clock)
    bar.begin("autoattack", 100)
    bar.tell("apgd-ce", torch.tensor([True, False]))
    assert not console.file.getvalue()
    clock.now = EVERY
    bar.tell("apgd-ce", torch.tensor([True, False]))
    assert console.file.getvalue() == "mine: autoattack: 1 of 2 stand after apgd-ce (0 of 100)\n"


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_is_quiet(quiet):
    clock, console = Clock(), to_a_file()
    with Course(quiet=quiet, console=console, clock=clock) as course:
        course.begin("words", 3)
        clock.now = EVERY
        course.advance()
    assert bool(console.file.getvalue()) is not quiet


def test_training_says_its_epochs_with_the_time_left():
    clock, console = Clock(), to_a_file()
    progress = TrainProgress("at+ema", 10, 0, 2, quiet=False)
    progress.course = Course(quiet=False, console=console, clock=clock)
    progress.course.begin("at+ema", 20)
    for finished in (1, 2):
        clock.now += 5
        progress.batch()
        progress.batch()
        progress.epoch(finished, 1.5, 0.5, 0.25, "pgd-10")
    said = "at+ema: epoch 2/10, loss 1.500, pgd-10 50 %, worst class 25 % (4 of 20, 40 s left)\n"
    assert console.file.getvalue() == said
