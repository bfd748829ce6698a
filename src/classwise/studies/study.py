"""A study as its file declares it: blocks of runs, how they are audited, and what is made of them.

A file is a stranger's word: it is read as plain values, and whatever it names is looked up or
refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from classwise.attacks.corruption import with_corruptions
from classwise.errors import ClasswiseError, cut, unknown
from classwise.files import given_path
from classwise.studies.artefact import ArtefactOptions
from classwise.studies.settings import Settings, listed, seeds_of, settings_of
from classwise.texts import parse_toml, read_text

SCALES = ("smoke", "minutes", "hours", "paper")
ALONE = ("list", "effects", "digits", "digits-defaults")  # words of the command line
T = TypeVar("T", bound=BaseModel)


class Table(BaseModel):
    """A table of a study file: a key that it does not know is refused with the nearest one."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Audit(Table):
    """What is looked at once a run is trained, in the words of `classwise audit`.

    `averaged-last` are the last weights of a run's average, and of one without any its own. Weights
    that a run does not have are passed over, so that they show as a hole.
    """

    attacks: Annotated[tuple[str, ...], Field(min_length=1)] = ("clean", "pgd-20")
    corruptions: str = ""  # c15, or fog,snow; they are put among the attacks
    severity: str = ""  # of corruptions: 3, 1-5 or 1,3,5
    weights: tuple[str, ...] = ("last",)
    limit: Annotated[int, Field(ge=0)] = 0  # so many images, balanced; 0 is all
    seeds: Annotated[int, Field(ge=0)] = 0  # only of the first so many seeds; 0 is all
    split: str = "test"
    similarity: bool = False  # keep the mean logits of every class, too

    @field_validator("attacks", "weights", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return listed(value)

    @model_validator(mode="before")
    @classmethod
    def _corrupted(cls, table: Any) -> Any:
        """Put every corruption at every severity behind the attacks."""
        if not isinstance(table, dict) or not (table.get("corruptions") or table.get("severity")):
            return table
        wanted, severity = (table.get(name) or None for name in ("corruptions", "severity"))
        made = str(with_corruptions("clean", wanted, severity, None)).split(",")[1:]
        attacks = dict.fromkeys([*listed(table.get("attacks", ())), *made])
        return {**table, "attacks": tuple(attacks), "corruptions": "", "severity": ""}


class Watch(Table):
    """Passive looks while a run is trained, as in `classwise train --watch`."""

    looks: str
    every: Annotated[int, Field(ge=1)] = 1  # epochs


class Block(Table):
    """Runs that are the product of some axes; a list is an axis, a single value a setting."""

    rows: tuple[str, ...] = ()  # `wei 1`: rows of a paper's table; `wei 1: AT + CFA` one of them
    recipe: tuple[str, ...] = ()  # or recipes as people write them
    row: tuple[str, ...] = ()  # of recipes: what each, or all, is called in a table
    variants: bool = False  # of rows: also what the released code does instead
    preset: str = ""  # of recipes: what they leave open; of rows it is their own
    seeds: tuple[int, ...] = (0,)
    need: str = ""  # data that some scales cannot have
    scales: tuple[str, ...] = ()  # only at these; without at all
    settings: Settings = {}  # training options and METHOD.OPTION, each with all its values

    @model_validator(mode="before")
    @classmethod
    def _divided(cls, table: Any) -> Any:
        """Put what is neither of ours into `settings`, which knows what training can be told."""
        if not isinstance(table, dict):
            return table
        own = {name: table[name] for name in cls.model_fields if name in table}
        if "settings" in own:
            raise unknown("option of [[runs]]", "settings", _names(cls))
        rest = {name: value for name, value in table.items() if name not in own}
        found = {**own, "settings": settings_of(rest, _names(cls))}
        for name in ("rows", "recipe", "row", "scales"):
            found[name] = listed(own.get(name, ()))
        found["seeds"] = seeds_of(own.get("seeds", 1))
        return found

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if bool(self.rows) == bool(self.recipe):
            raise ClasswiseError('[[runs]] needs rows = "PAPER TABLE" or recipe = "…", one of them')
        if self.rows and self.preset:
            raise ClasswiseError(
                f"preset = {self.preset!r} is for recipes; rows of a table have their own"
            )
        if self.recipe and self.variants:
            raise ClasswiseError("variants is for rows of a table; recipes say what they are")
        if self.row and (self.rows or len(self.row) not in (1, len(self.recipe))):
            raise ClasswiseError(
                f"row names {len(self.row)} rows for {len(self.recipe)} recipes; give one for "
                "each, or one for all"
            )
        for name in self.scales:
            if name not in SCALES:
                raise unknown("scale", name, SCALES)
        return self


class AtScale(Table):
    """What a study does otherwise at one scale, over what the scale does with every study."""

    seeds: tuple[int, ...] | None = None
    seeds_of: dict[str, int] = {}  # rows, or patterns of them such as `* + EMA`: at most so many
    settings: dict[str, Any] = {}  # training options
    axes: Settings = {}  # other values for axes that the blocks have
    base: dict[str, Any] = {}  # options of the method that attacks, such as steps
    methods: dict[str, Any] = {}  # METHOD.OPTION, where a recipe has the method
    data: dict[str, str] = {}
    model: dict[str, str] = {}
    attacks: dict[str, str] = {}
    audit: tuple[dict[str, Any], ...] | dict[str, Any] | None = None
    watch: Watch | None = None
    skip: str = ""  # why it is not run at this scale

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, value: Any) -> Any:
        return None if value is None else seeds_of(value)

    @field_validator("axes", mode="before")
    @classmethod
    def _axes(cls, value: Any) -> Any:
        return settings_of(value, ()) if isinstance(value, dict) else value


class Study(Table):
    """A declared set of runs, and the tables and figures it yields."""

    name: str
    title: str
    paper: str = ""  # a key of the papers, or nothing
    source: str = ""  # what of the paper it is
    shows: str = ""
    runs: tuple[Block, ...] = ()  # none where all is computed, as of a toy
    audit: tuple[Audit, ...] = (Audit(),)
    watch: Watch | None = None
    artefact: tuple[dict[str, Any], ...] = ()  # as written; `artefacts` has them read
    scale: dict[str, AtScale] = {}

    @field_validator("audit", mode="before")
    @classmethod
    def _audits(cls, value: Any) -> Any:
        return (value,) if isinstance(value, dict) else value

    @field_validator("scale")
    @classmethod
    def _scales(cls, value: dict[str, AtScale]) -> dict[str, AtScale]:
        for name in value:
            if name not in SCALES:
                raise unknown("scale", name, SCALES)
        return value

    @property
    def artefacts(self) -> tuple[ArtefactOptions, ...]:
        """What is made of the runs, each with the options of its kind."""
        return tuple(_artefact(table, number) for number, table in enumerate(self.artefact, 1))

    def audits_at(self, scale: str) -> tuple[Audit, ...]:
        """The audits at a scale, as the file says them."""
        own = self.scale.get(scale, AtScale()).audit
        if own is None:
            return self.audit
        if not isinstance(own, dict):
            return tuple(_table(Audit, one, "audit") for one in own)
        if len(self.audit) > 1:
            raise ClasswiseError(
                f"[scale.{scale}] changes the audit, but the study has {len(self.audit)}; write "
                f"all of them as [[scale.{scale}.audit]]"
            )
        return (_table(Audit, {**self.audit[0].model_dump(), **own}, "audit"),)


def study_names() -> list[str]:
    """The studies that are built in."""
    folder = files("classwise.studies").joinpath("files")
    found = folder.iterdir() if folder.is_dir() else iter(())
    return sorted(one.name[:-5] for one in found if one.name.endswith(".toml"))


def load_study(name: str) -> Study:
    """Read a study that is built in, or a file of somebody's whose name ends in .toml."""
    if name.endswith(".toml"):
        path = given_path(name)
        try:
            text = read_text(path)
        except OSError as reason:
            words = reason.strerror or str(reason)
            more = "name a file that is there, or one of what `classwise study list` shows"
            raise ClasswiseError(f"cannot read the study {name}: {words}; {more}") from None
        return parse_study(text, path.stem, path)
    if name not in study_names():
        if name in ALONE:
            raise ClasswiseError(f"{name} is no study, and stands alone: classwise study {name}")
        raise unknown("study", name, [*study_names(), "FILE.toml", "all", *ALONE])
    text = files("classwise.studies").joinpath("files", f"{name}.toml").read_text("utf-8")
    return parse_study(text, name, f"study {name}")


def parse_study(text: str, name: str, where: object) -> Study:
    r"""Read the text of a study file.

    >>> text = 'title = "Two recipes"\n[[runs]]\nrecipe = ["at", "trades"]\neps = "4/255"\n'
    >>> text += '[[artefact]]\nkind = "table"\ntitle = "Table 1"'
    >>> parse_study(text, "mine", "mine.toml").runs[0].recipe
    ('at', 'trades')
    """
    content = parse_toml(text, where)
    if "name" in content:
        raise ClasswiseError(f"{where}: a study has the name of its file; leave out name")
    try:
        study = _table(Study, {**content, "name": name}, "the study")
        if not study.artefacts:
            raise ClasswiseError("there is no [[artefact]], so nothing would come of its runs")
        _check_files([one.file_name for one in study.artefacts])
        for scale in study.scale:
            study.audits_at(scale)
    except ClasswiseError as reason:
        raise ClasswiseError(f"{where}: {reason}") from None
    return study


def _check_files(names: list[str]) -> None:
    """Refuse two files of one name; the page itself is index.md."""
    for name in names:
        if names.count(name) > 1 or name == "index":
            raise ClasswiseError(f"two artefacts would be the file {name}; give them other names")


def _artefact(table: Mapping[str, Any], number: int) -> ArtefactOptions:
    from classwise.studies.artefacts import KINDS  # whose kinds read what a study has found

    kind = table.get("kind")
    if not isinstance(kind, str):
        raise ClasswiseError(f"[[artefact]] {number} needs a kind: {', '.join(sorted(KINDS))}")
    if kind not in KINDS:
        raise unknown("kind of artefact", kind, KINDS)
    return _table(KINDS[kind].options, table, f"the {kind} {table.get('title', number)!r}")


def _names(kind: type[BaseModel]) -> list[str]:
    return [name for name in kind.model_fields if name != "settings"]


def _table(kind: type[T], content: Mapping[str, Any], what: str) -> T:
    """A table as its type; what is wrong is said of the key it stands at."""
    try:
        return kind.model_validate(dict(content))
    except ValidationError as reason:
        # A key with a typo comes before the one that is missing for it.
        first = min(reason.errors(), key=lambda one: one["type"] != "extra_forbidden")
        own = first.get("ctx", {}).get("error")
        if isinstance(own, ClasswiseError):
            raise own from None
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = _known_at(kind, first["loc"][:-1])
            inside = f"{what} ({place.rpartition('.')[0]})" if "." in place else what
            raise unknown(f"key of {inside}", str(first["loc"][-1]), known) from None
        if first["type"] == "missing":
            raise ClasswiseError(f"{what} has no {place}; add {place} = …") from None
        got = cut(repr(first["input"]), 60)
        said = first["msg"].lower().replace("valid tuple", "list")
        raise ClasswiseError(f"{what}: {place} = {got}: {said}") from None


def _known_at(kind: type[BaseModel], place: tuple[Any, ...]) -> list[str]:
    """The keys of the table at a place: those of a table inside, if it is one of ours."""
    tables: dict[str, type[BaseModel]] = {
        "runs": Block,
        "audit": Audit,
        "watch": Watch,
        "scale": AtScale,
    }
    inside = [tables[part] for part in place if part in tables] if kind is Study else []
    return _names(inside[-1] if inside else kind)
