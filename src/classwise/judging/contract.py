"""What a model must keep, as people write it: a contract of rules in TOML."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from classwise.errors import ClasswiseError
from classwise.files import given_path
from classwise.judging.groups import CLASS
from classwise.spelling import parse_eps, spell_eps
from classwise.texts import parse_toml, read_text


def parse_share(value: Any) -> float:
    """Read a share as people write it; a bare 15 is refused, since it might be 15 % or 1500 %.

    >>> parse_share("15 %"), parse_share("3 points"), parse_share(0.4)
    (0.15, 0.03, 0.4)
    """
    text = re.fullmatch(r"\s*([0-9.]+)\s*(%|per cent|percent|points?)\s*", str(value))
    try:
        share = float(text[1]) / 100 if text else float(value)
    except (TypeError, ValueError, OverflowError):
        share = math.nan
    if isinstance(value, bool) or not 0 <= share <= 1:
        raise ValueError(f'{value!r} is no share; write 0.15, "15 %" or "3 points"')
    return share


Share = Annotated[float, BeforeValidator(parse_share)]
_DEMANDS = (
    *("no_class_below", "no_group_below", "at_least", "overall_at_least"),
    *("no_class_drops_more_than", "no_group_drops_more_than"),
    *("drops_at_most", "overall_drops_at_most"),
)
_OF_GROUPS = ("no_group_below", "group", "no_group_drops_more_than")


class Rule(BaseModel):
    """One demand under one attack, on classes or on the `groups` of another grouping.

    Without `confidence` the observed rates decide, except about drops; with it a rule fails only
    where the data prove it broken. `strict` closes the gate on what they leave undecided, `sure`
    demands that they prove the rule kept.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    under: str
    no_class_below: Share | None = None
    class_name: str | None = Field(None, alias="class")
    at_least: Share | None = None
    overall_at_least: Share | None = None
    no_class_drops_more_than: Share | None = None
    drops_at_most: Share | None = None
    overall_drops_at_most: Share | None = None
    groups: str | None = None  # a grouping, such as camera; group is one of it, such as rear
    group: str | None = None
    no_group_below: Share | None = None
    no_group_drops_more_than: Share | None = None
    confidence: float | None = Field(None, gt=0.5, lt=1)
    strict: bool = False
    sure: bool = False
    # a contract does not know the norm, so it may ask for any radius
    eps: Annotated[float | None, BeforeValidator(lambda eps: parse_eps(eps, math.inf))] = None

    @model_validator(mode="after")
    def _one_demand(self) -> Rule:
        given = [name for name in _DEMANDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"a rule makes one demand, this one {len(given)}; give one of {', '.join(_DEMANDS)}"
            )
        of_one = self.at_least is not None or self.drops_at_most is not None
        if self.class_name is None and (self.group is not None) != of_one:
            raise ValueError(
                "at_least and drops_at_most are for one class or group: "
                'class = "person", or groups = "camera" and group = "rear", with at_least = "40 %"'
            )
        if self.class_name is not None and (not of_one or self.group is not None):
            raise ValueError(
                'a named class needs both: class = "person" and at_least = "40 %" or '
                'drops_at_most = "3 points"'
            )
        if self.sure and self.strict:
            raise ValueError("sure = true already demands more than strict = true; give one")
        of_groups = [name for name in _OF_GROUPS if getattr(self, name) is not None]
        if (self.groups is None) == bool(of_groups):
            raise ValueError(
                f'groups = "camera" belongs with one of {", ".join(_OF_GROUPS)}, and they with it'
            )
        return self

    @property
    def grouping(self) -> str:
        """Whose groups the rule is about."""
        return CLASS if self.groups is None else self.groups

    @property
    def member(self) -> str | None:
        """The one class or group that it is about."""
        return self.group if self.class_name is None else self.class_name

    @property
    def floor(self) -> float | None:
        """What none of them may be below."""
        return self.no_group_below if self.no_class_below is None else self.no_class_below

    @property
    def drop(self) -> float | None:
        """What none of them may lose against the baseline."""
        drops = (
            *(self.no_class_drops_more_than, self.no_group_drops_more_than),
            *(self.drops_at_most, self.overall_drops_at_most),
        )
        return next((drop for drop in drops if drop is not None), None)

    @property
    def overall(self) -> bool:
        """Whether it is about all images together."""
        return self.overall_at_least is not None or self.overall_drops_at_most is not None

    @property
    def level(self) -> float:
        """Confidence of its intervals, which also those show that do not decide by them."""
        return 0.95 if self.confidence is None else self.confidence

    @property
    def words(self) -> str:
        """The rule as a sentence."""
        eps = "" if self.eps is None else f" at eps {spell_eps(self.eps)}"
        by_interval = self.confidence is not None or self.sure or self.drop is not None
        level = f" ({100 * self.level:g} % confidence)" if by_interval else ""
        demand = f"{'surely ' if self.sure else ''}{self._demand}"
        return f"{demand} under {self.under}{eps}{level}"

    @property
    def _demand(self) -> str:
        one = "class" if self.groups is None else f"group of {self.groups}"
        of = "" if self.groups is None else f" ({self.groups})"
        whose = "overall" if self.overall else f"{self.member}{of}"
        if self.floor is not None:
            return f"no {one} below {percent(self.floor)}"
        if self.drop is None:
            bar = self.at_least if self.overall_at_least is None else self.overall_at_least
            return f"{whose} at least {percent(bar or 0)}"
        lost = f"{100 * self.drop:.3g} points against the baseline"
        if self.member is None and not self.overall:
            return f"no {one} drops more than {lost}"
        return f"{whose} drops at most {lost}"


class Contract(BaseModel):
    """What a model must keep, rule by rule; `strict` holds for rules that say nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: list[Rule] = Field(min_length=1)
    name: str = "classwise gate"
    strict: bool = False
    weights: str = ""
    split: str = ""  # the test part, or the only one that was audited

    def rules(self, *, strict: bool = False) -> list[Rule]:
        """All rules, with the contract's strictness or, if asked for, without any lenience."""

        def tightened(rule: Rule) -> bool:
            silent = "strict" not in rule.model_fields_set
            return not rule.sure and (strict or (self.strict and silent))

        return [
            rule.model_copy(update={"strict": True}) if tightened(rule) else rule
            for rule in self.rule
        ]


def load_contract(path: Path) -> Contract:
    """Read a contract; every mistake is named with its rule."""
    try:
        content = parse_toml(read_text(given_path(path)), path)
    except OSError as reason:
        raise ClasswiseError(f"cannot read {path}: {reason.strerror}") from None
    try:
        return Contract.model_validate(content)
    except ValidationError as reason:
        words = []
        for error in reason.errors():
            place = [str(p + 1) if isinstance(p, int) else str(p) for p in error["loc"]]
            words.append(f"{' '.join(place)}: {error['msg'].removeprefix('Value error, ')}")
        raise ClasswiseError(f"{path}: {'; '.join(words)}") from None


def percent(share: float) -> str:
    """Write a share as people read it."""
    return f"{100 * share:.1f} %"
