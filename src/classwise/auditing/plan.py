"""All that an audit is: who is asked, about which images, under which conditions."""

from __future__ import annotations

from dataclasses import dataclass

from classwise.attacks.condition import Condition
from classwise.data.view import View
from classwise.errors import ClasswiseError
from classwise.models.subject import Subject


@dataclass(frozen=True, eq=False)
class Plan:
    """Read and checked once, where the user's words come in; nothing runs before that.

    Whoever chooses images (a question, a time limit, one machine of many) runs a plan with
    `replace(plan, data=plan.data.take(rows))`.
    """

    subject: Subject
    data: View
    conditions: tuple[Condition, ...]
    with_images: bool = False  # give back where the verdicts were found

    def __post_init__(self) -> None:
        if not len(self.data):
            raise ClasswiseError("no images given; an audit needs at least one")
        for one in self.conditions:
            if one.shift is not None:
                one.shift.check(self.data)
        needy = [one.name for one in self.conditions if one.needs_gradient]
        if needy and self.subject.black_box:
            why = f" ({', '.join(self.subject.words)})" if self.subject.words else ""
            raise ClasswiseError(
                f"{', '.join(needy)} needs gradients, but the model is a black box{why}; "
                "use clean,square, or under L2 smoothing"
            )
