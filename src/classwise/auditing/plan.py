"""All that an audit is: who is asked, about which images, under which conditions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from classwise.attacks.condition import Condition
from classwise.data.splits import balanced_order
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
            if not 0 <= one.limit <= len(self.data):
                raise ClasswiseError(
                    f"{one.name} on {one.limit}: this audit has {len(self.data)} images; give a "
                    "number up to that, or leave it out for all of them"
                )
        needy = [one.name for one in self.conditions if one.needs_gradient]
        if needy and self.subject.black_box:
            why = f" ({', '.join(self.subject.words)})" if self.subject.words else ""
            raise ClasswiseError(
                f"{', '.join(needy)} needs gradients, but the model is a black box{why}; "
                "use clean,square, or under L2 smoothing"
            )

    def images_of(self, condition: Condition) -> View:
        """The images that a condition is for: all, or as many as it says, balanced.

        They are the first of the whole data set that are here, as a `--limit` takes them, so that
        of two conditions the one with fewer has some of the other's, and none besides.
        """
        if not condition.limit:
            return self.data
        place = balanced_order(self.data.labels.cpu()).argsort()
        here = place if self.data.rows is None else place[self.data.rows.cpu()]
        return self.data.take(here.argsort()[: condition.limit].sort().values)

    def part_of(self, condition: Condition) -> Plan:
        """The plan of one condition, where it has images of its own; otherwise this one."""
        if not condition.limit:
            return self
        return replace(self, data=self.images_of(condition), conditions=(condition,))

    @property
    def asked(self) -> list[tuple[Condition, View]]:
        """Every condition with its images."""
        return [(one, self.images_of(one)) for one in self.conditions]

    @property
    def limits(self) -> str:
        """Which conditions have fewer images than all, in words; nothing where none has."""
        fewer = [one for one in self.conditions if one.limit]
        return ", ".join(f"{one.name} on {one.limit} of them, balanced" for one in fewer)
