"""Every method keeps every law, and the laws tell methods that do not."""

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from cases import CASES

from classwise import ClassPolicy, Method, Slots
from classwise.classes.settings import TRAIN_ROBUST
from classwise.laws import LAWS, BrokenLaw, check_method
from classwise.objective import Term, label_loss


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_method_keeps_every_law(case, law, tmp_path, untouched_random_state):  # noqa: ARG001
    law(case.subject, tmp_path)


# What follows is wrong on purpose, each in one way.


@dataclass(frozen=True)
class Weigh(ClassPolicy):
    """Weigh each class by its robust training accuracy; the others spoil one thing of it."""

    writes: ClassVar[frozenset[str]] = frozenset({"label_weight", "robust_weight"})
    rate: float = 1.0

    def update(self, settings, feedback):
        if not feedback.epoch:
            return settings, self
        accuracy = feedback.counts[TRAIN_ROBUST].known_accuracy
        return settings.weighed(self.weight(accuracy)), self.after(accuracy)

    def weight(self, accuracy):
        return 1 + self.rate * accuracy

    def after(self, accuracy):  # noqa: ARG002
        return self


class TenClasses(Weigh):
    def weight(self, accuracy):  # noqa: ARG002
        return torch.linspace(1, 2, 10)


class FavoursTheFirst(Weigh):
    def weight(self, accuracy):
        return torch.cat([2 * accuracy[:1] + 1, accuracy[1:] + 1])


class FavoursANumber(Weigh):
    def weight(self, accuracy):
        return 1 + accuracy + (accuracy.cumsum(0) > 2)


class Negative(Weigh):
    def weight(self, accuracy):
        return accuracy - 0.5


class Undefined(Weigh):
    """Divides by zero where a class has no mistake."""

    def weight(self, accuracy):
        return 1 / (1 - accuracy)


class DrawsTorch(Weigh):
    def weight(self, accuracy):
        torch.rand(1)
        return 1 + accuracy


class DrawsPython(Weigh):
    def weight(self, accuracy):
        random.random()
        return 1 + accuracy


class Noisy(Weigh):
    def weight(self, accuracy):
        return 1 + accuracy + torch.rand(len(accuracy))


class Hidden(Weigh):
    """Remembers the last accuracy, but not in a field."""

    def weight(self, accuracy):
        return 1 + accuracy + getattr(self, "last", 0 * accuracy)

    def after(self, accuracy):
        successor = replace(self)
        object.__setattr__(successor, "last", accuracy)
        return successor


class Leaky(Weigh):
    """Counts in a place that all runs of a process share."""

    calls: ClassVar[list[int]] = []

    def weight(self, accuracy):
        self.calls.append(1)
        return 1 + accuracy / len(self.calls)


class Undeclared(Weigh):
    def update(self, settings, feedback):
        settings, after = super().update(settings, feedback)
        return replace(settings, margin=2 * settings.margin), after


class DoesNothing(Weigh):
    def update(self, settings, feedback):  # noqa: ARG002
        return settings, self


POLICIES = {
    kind.__name__: kind
    for kind in (
        *(Weigh, TenClasses, FavoursTheFirst, FavoursANumber, Negative, Undefined, DrawsTorch),
        *(DrawsPython, Noisy, Hidden, Leaky, Undeclared, DoesNothing),
    )
}


class Steered(Method):
    policy: str = "Weigh"
    rate: float = 1.0

    def fill(self):
        return Slots(policies=(POLICIES[self.policy](self.rate),))


class Reluctant(Steered):
    """Changes what it was given."""

    def resolve(self, among):  # noqa: ARG002
        return self.model_copy(update={"rate": 3.0})


class Jealous(Steered):
    """Depends on who came first."""

    def resolve(self, among):
        first = next(iter(among.given)) == self.name
        return self.model_copy(update={"policy": "Weigh" if first else "Negative"})


class Nothing(Method):
    rate: float = 1.0

    def fill(self):
        return Slots()


class Greedy(Steered):
    """Takes any option."""

    def __init__(self, **options):
        super().__init__(**{k: v for k, v in options.items() if k in type(self).model_fields})


@dataclass(frozen=True)
class Loss:
    kind: str

    @property
    def views(self):
        return ("robust",)

    def terms(self, outer):
        values = label_loss(outer, "robust")
        logits = outer.outputs["robust"]
        if self.kind == "noise":
            values = values * (1 + 0.1 * torch.rand_like(values))
        elif self.kind == "first class":
            values = values + F.softmax(logits, 1)[:, 0]
        elif self.kind == "bold":
            values = values + logits.exp().sum(1) / logits.exp().sum(1)
        elif self.kind == "mean":
            values = values.mean()
        return [Term("ce", values, outer.rows.label_weight)]


class Base(Method):
    base: ClassVar[bool] = True
    kind: str = "plain"

    def fill(self):
        return Slots(objective=Loss(self.kind), reference="label", steps=2)


@pytest.mark.parametrize(
    ("method", "law", "words"),
    [
        (Steered(policy="TenClasses"), "renaming_classes_renames_the_settings", "10"),
        (Steered(policy="FavoursTheFirst"), "renaming_classes_renames_the_settings", "order"),
        (Steered(policy="FavoursANumber"), "renaming_classes_renames_the_settings", "order"),
        (Steered(policy="Negative"), "settings_are_sound", "negative"),
        (Steered(policy="Undefined"), "settings_are_sound", "not finite with 2 classes"),
        (Steered(policy="DrawsTorch"), "randomness_is_left_alone", "moment.draws"),
        (Steered(policy="DrawsPython"), "randomness_is_left_alone", "moment.draws"),
        (Steered(policy="Noisy"), "renaming_classes_renames_the_settings", "label_weight"),
        (Steered(policy="Hidden"), "policies_go_on_from_their_fields", "in no field"),
        (Steered(policy="Leaky"), "renaming_classes_renames_the_settings", "label_weight"),
        (Steered(policy="Undeclared"), "only_declared_settings_change", "margin"),
        (Steered(policy="DoesNothing"), "only_declared_settings_change", "never changes"),
        (Reluctant(rate=2.0), "options_decide", "rate=2.0"),
        (Jealous(), "the_order_of_methods_does_not_matter", "order"),
        (Nothing(), "it_does_something", "no slot"),
        (Greedy(), "options_decide", "without a word"),
    ],
    ids=str,
)
def test_a_broken_law_is_named(method, law, words):
    with pytest.raises(BrokenLaw) as caught:
        check_method(method, beside="at(steps=2)")
    assert f"{method.name} breaks the law {law} " in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "law", "words"),
    [
        ("noise", "renaming_classes_leaves_the_loss", "not close"),
        ("first class", "renaming_classes_leaves_the_loss", "not close"),
        ("bold", "terms_are_sound", "ce is not finite"),
        ("mean", "terms_are_sound", "per sample"),
    ],
)
def test_a_broken_law_of_a_loss_is_named(kind, law, words):
    with pytest.raises(BrokenLaw) as caught:
        check_method(Base(kind=kind))
    assert f"test_laws:Base breaks the law {law} " in str(caught.value)
    assert words in str(caught.value)


def law_called(name):
    return next(law for law in LAWS if law.__name__ == name)


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [
        ("any_number_of_classes_trains", Steered(policy="TenClasses"), "10"),
        ("randomness_is_left_alone", Base(kind="noise"), "a step draws"),
        ("the_same_seed_gives_the_same_bytes", Steered(policy="Noisy"), "second run"),
        ("the_same_seed_gives_the_same_bytes", Steered(policy="Leaky"), "second run"),
        ("a_broken_run_goes_on_bit_for_bit", Steered(policy="Hidden"), "resumed after epoch 1"),
    ],
    ids=str,
)
def test_the_later_laws_see_what_the_earlier_ones_would_have_seen(name, method, words, tmp_path):
    from classwise.laws.made_up import Subject

    beside = "" if method.base else "at(steps=2)"
    with pytest.raises((AssertionError, RuntimeError), match=words):
        law_called(name)(Subject(method, beside), tmp_path)


def test_what_is_right_passes():
    check_method(Steered(rate=0.5), beside="at(steps=2)")
    check_method(Base())


def test_a_class_that_nobody_can_name_is_told():
    class Local(Steered):
        pass

    with pytest.raises(BrokenLaw, match=r"all_spellings_are_one_recipe.*<locals>"):
        check_method(Local(), beside="at(steps=2)")
