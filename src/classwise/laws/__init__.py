"""What must hold for every method, ours or yours.

from classwise.laws import check_method
check_method(Boost(rate=0.3), beside="at(steps=2)")
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from classwise.laws import running, steering, terms, writing
from classwise.laws.made_up import Subject
from classwise.recipe import Method

LAWS: tuple[Callable[[Subject, Path], None], ...] = (
    writing.it_does_something,
    writing.options_decide,
    writing.the_order_of_methods_does_not_matter,
    writing.all_spellings_are_one_recipe,
    terms.renaming_classes_leaves_the_loss,
    terms.terms_are_sound,
    terms.attacks_stay_inside_their_balls,
    steering.renaming_classes_renames_the_settings,
    steering.settings_are_sound,
    steering.only_declared_settings_change,
    steering.policies_go_on_from_their_fields,
    running.any_number_of_classes_trains,
    running.randomness_is_left_alone,
    running.the_same_seed_gives_the_same_bytes,
    running.a_broken_run_goes_on_bit_for_bit,
)


class BrokenLaw(AssertionError):
    """A method does not do what every method must; says which law it breaks, and how."""


def check_method(method: Method, beside: str = "") -> None:
    """Hold a method against every law; a broken one is named. Takes some seconds.

    `beside` is what else a recipe with it needs, quick to train, such as `at(steps=2)`. A method
    with a teacher gets an untrained one if it names it by a relative path. Give options that are
    not the defaults, so that their spelling is tried, too.
    """
    subject = Subject(method, beside)
    with tempfile.TemporaryDirectory() as folder:
        for number, law in enumerate(LAWS):
            place = Path(folder) / str(number)
            place.mkdir()
            try:
                law(subject, place)
            except Exception as reason:  # whatever a stranger's method may raise
                words = " ".join(f"{type(reason).__name__}: {reason}".split())
                raise BrokenLaw(
                    f"{method.name} breaks the law {law.__name__} ({law.__doc__}): {words}"
                ) from reason
