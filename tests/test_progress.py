"""Progress fits a terminal of 80 columns; a log file gets a line a minute with the time left."""

import io

import pytest
import torch
from rich.console import Console

from classwise.auditing.progress import Bar
from classwise.progress import EVERY, Course
from classwise.training.progress import TrainProgress
from classwise.training.record import headline

SEEN = ("clean", "pgd-10", "robust")
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


def told(course, console):
    """The line of now, without the words of the task."""
    course.line()
    return console.file.getvalue().splitlines()[-1].partition("(")[2]


@pytest.mark.parametrize("kind", ["training", "audit"])
def test_the_first_step_is_left_out_of_the_time_left(kind):
    if kind == "training":
        progress = TrainProgress("at", 5, 0, 2, quiet=False)
        course, step = progress.course, progress.batch
    else:
        bar = Bar(quiet=False)
        course, step = bar._course, lambda: bar.advance(1)
    course.console, course.clock = to_a_file(), Clock()
    course.begin("words", 10)
    course.clock.now = 50  # it loads and warms up
    step()
    assert told(course, course.console) == "1 of 10)"
    for course.clock.now in (52, 54):
        step()
    assert told(course, course.console) == "3 of 10, 14 s left)"


def test_a_step_larger_than_all_before_tells_more_than_they():
    clock, console = Clock(), to_a_file()
    course = Course(quiet=False, console=console, warms_up=True, clock=clock)
    course.begin("audit", 602, done=60)
    for images in (2, 8, 32):  # the first ones take as long as many
        clock.now += 10
        course.advance(images)
    assert told(course, console) == "102 of 602, 3 min left)"  # 500 at 3.2 a second
    clock.now += 10
    course.advance(32)
    assert told(course, console) == "134 of 602, 2 min left)"


def test_what_was_judged_before_is_no_work_of_now():
    bar, clock, console = Bar(quiet=False), Clock(), to_a_file()
    bar._course.console, bar._course.clock = console, clock
    bar.begin("pgd-20", 600, 500)
    for clock.now in (10, 20):
        bar.advance(10)
    assert told(bar._course, console) == "image 520 of 600, 80 s left)"


def test_a_file_gets_a_line_soon_and_then_one_a_minute():
    clock, console = Clock(), to_a_file()
    with Course(quiet=False, console=console, clock=clock) as course:
        course.begin("audit: pgd-20", 100, done=10, unit="image")
        for clock.now in range(20, 201, 20):  # ten steps of 20 seconds
            course.advance(5)
    assert console.file.getvalue().splitlines() == [
        "audit: pgd-20 (image 15 of 100, 6 min left)",
        "audit: pgd-20 (image 30 of 100, 5 min left)",
        "audit: pgd-20 (image 45 of 100, 4 min left)",
        "audit: pgd-20 (image 60 of 100, 3 min left)",
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
    assert (
        console.file.getvalue() == "mine: autoattack: 1 of 2 stand after apgd-ce (image 0 of 100)\n"
    )


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
    progress.course.begin("at+ema", 20, unit="step")
    for finished in (1, 2):
        clock.now += 5
        progress.batch()
        progress.batch()
        progress.epoch(finished, 1.5, 0.5, 0.25, "pgd-10")
    how = "2 of 10 epochs, loss 1.500, pgd-10 50 %, worst class 25 %"
    said = f"at+ema: {how} (step 4 of 20, 40 s left)"
    assert console.file.getvalue() == f"{said}\n"


def test_every_recipe_is_told_under_the_attack_that_all_are_judged_by():
    kinds = {name: {"overall": k / 4, "by_class": [k / 8, None]} for k, name in enumerate(SEEN)}
    assert headline({"valid": {"live": kinds}}) == (0.25, 0.125, "pgd-10")
    kinds.pop("pgd-10")
    assert headline({"valid": {"live": kinds}}) == (0.5, 0.25, "own attack")
    kinds.pop("robust")
    assert headline({"valid": {"live": {}}, "train": kinds}) == (0.0, 0.0, "clean")
