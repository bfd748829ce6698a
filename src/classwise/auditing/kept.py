"""Audits that are kept: a ledger of verdicts, and beside it what a reader must know of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from classwise.attacks.adapters import Foreign
from classwise.attacks.ball import parse_norm
from classwise.attacks.blackbox import BlackBox
from classwise.attacks.fixed import Condition, radii_under
from classwise.attacks.named import parse_attacks
from classwise.auditing.evaluate import evaluate, progress_bar, told
from classwise.auditing.fingerprint import attack_key, is_plain, model_hash
from classwise.auditing.flags import Flag, check_records
from classwise.auditing.group_files import keep_groupings, kept_groupings
from classwise.auditing.groups import Grouping
from classwise.auditing.ledger import Ledger
from classwise.auditing.predictions import Predictions
from classwise.auditing.remarks import note_key, write_remarks
from classwise.auditing.shards import Stamp
from classwise.auditing.stored import read_all
from classwise.data.batches import Batches
from classwise.errors import ClasswiseError
from classwise.types import LogitModel


@dataclass(frozen=True)
class Place:
    """Where the audits of one model on one data set are kept."""

    folder: Path
    ledger: Ledger
    stamp: Stamp

    @classmethod
    def of(
        cls,
        folder: Path,
        model: LogitModel,
        *,
        recipe: str,
        weights: str,
        split: str,
        spec: str | None,
        data: dict[str, Any],
        data_hash: str,
    ) -> Place:
        """The place in a folder; `spec` tells a model without weights from others."""
        ledger = Ledger(folder / "predictions", {"recipe_name": recipe, "data": data})
        stamp = Stamp(folder.name, weights, split, model_hash(model, spec), data_hash)
        return cls(folder, ledger, stamp)

    def keep(self, groupings: Mapping[str, Grouping]) -> dict[str, Grouping]:
        """Keep groupings beside the audits; all that are now known for this data set."""
        keep_groupings(self.folder, self.stamp.data_hash, groupings)
        return kept_groupings(self.folder).get(self.stamp.data_hash, {})

    def remember(
        self,
        model: LogitModel,
        class_names: Sequence[str],
        flags: Sequence[Flag],
        *,
        probed: Sequence[Flag] | None = None,
        notes: dict[str, str | None] | None = None,
    ) -> list[Flag]:
        """Keep flags and notes beside the audits; all flags that this model raises here.

        Verdicts are compared with all that were kept before, not only with those of this audit.
        """
        stamp = self.stamp
        known = read_all(self.folder, stamp.model_hash, stamp.data_hash)
        seen = [*flags, *check_records(known, class_names)]
        write_remarks(
            self.folder,
            stamp.model_hash,
            seen={stamp.data_hash: [str(flag) for flag in seen]},
            probed=None if probed is None else [str(flag) for flag in probed],
            black_box=isinstance(model, BlackBox),
            notes=notes or {},
        )
        return seen

    def note(self, model: LogitModel, notes: dict[str, str | None]) -> None:
        """Keep notes beside the audits; whatever else is known of the model stays."""
        black_box = isinstance(model, BlackBox)
        key = self.stamp.model_hash
        write_remarks(self.folder, key, seen={}, probed=None, black_box=black_box, notes=notes)


def audit_model(
    model: LogitModel,
    batches: Batches,
    *,
    num_classes: int,
    attacks: str | Sequence[Any],
    eps: float | str | Any,
    norm: str = "Linf",
    seed: int = 0,
    place: Place | None = None,
    compact: bool = True,
    quiet: bool = True,
    title: str = "audit",
) -> list[Predictions]:
    """Predictions under every attack, in the order given; from their place if they are there."""
    facts: dict[str, Any] = {"num_classes": num_classes, "norm": norm, "seed": seed}
    if place is None:
        return evaluate(model, batches, attacks=attacks, eps=eps, quiet=quiet, title=title, **facts)
    ball = parse_norm(norm)
    conditions = parse_attacks(attacks)
    radii = [radii_under(attack, eps, ball, len(batches.labels)).numpy() for attack in conditions]
    origin = batches.origin.cpu().numpy()
    order = np.argsort(origin)
    width = max(1, batches.batch_size // 2)  # the other half of a batch moves up as samples fall
    found = []
    with progress_bar(quiet) as progress:
        for attack, radius in zip(conditions, radii, strict=True):
            task = progress.add_task(f"{title}: {attack.name}", total=len(origin))
            which = attack.attack if isinstance(attack, Foreign) else attack.name
            key = _key(attack, radius, ball.name, seed)

            after = told(progress, task, f"{title}: {attack.name}")

            def judge(
                batch: Batches, which: Any = which, after: Any = after, radius: Any = radius
            ) -> Predictions:
                rows = order[np.searchsorted(origin[order], batch.origin.cpu().numpy())]
                return evaluate(
                    model,
                    batch,
                    attacks=[which],
                    eps=radius[rows],
                    width=width,
                    after=after,
                    **facts,
                )[0]

            stamp = replace(place.stamp, attack_key=key)
            advance = partial(progress.advance, task)
            # somebody else's attack draws by its batch, so its batches must not follow the clock
            steady = isinstance(attack, Foreign)
            found.append(
                place.ledger.complete(
                    stamp, batches, judge, advance=advance, compact=compact, steady=steady
                )
            )
    return found


def notes_on(
    place: Place, batches: Batches, size: int, facts: Mapping[str, Any], note: str | None
) -> dict[str, str | None]:
    """What the ledger now lacks of an audit's images, for each attack; None where nothing is.

    `size` is that of the whole split. Where everything asked for is there, but more besides, an
    earlier audit may have chosen that by what it saw: its note stays.
    """
    wanted = batches.origin.cpu().numpy()
    notes: dict[str, str | None] = {}
    for stamp in _stamps(place, len(wanted), facts):
        have = place.ledger.shelf(stamp).samples
        key = note_key({"data_hash": stamp.data_hash, "attack_key": stamp.attack_key})
        if not np.isin(wanted, have).all():
            notes[key] = note
        elif len(have) in (len(wanted), size):
            notes[key] = None
    return notes


def known_under_all(place: Place, batches: Batches, facts: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Which samples the ledger knows under every attack, so that none of them is run."""
    known = batches.origin.cpu().numpy()
    for stamp in _stamps(place, len(known), facts):
        known = np.setdiff1d(known, place.ledger.missing(stamp, known))
    return known


def _stamps(place: Place, count: int, facts: Mapping[str, Any]) -> Iterator[Stamp]:
    """The stamp of every attack of an audit of so many images."""
    ball = parse_norm(facts["norm"])
    for attack in parse_attacks(facts["attacks"]):
        radius = radii_under(attack, facts["eps"], ball, count).numpy()
        yield replace(place.stamp, attack_key=_key(attack, radius, ball.name, facts["seed"]))


def _key(attack: Condition, radius: Any, norm: str, seed: int) -> str:
    """What the ledger knows an attack by; one radius for all is written as one."""
    reach = float(radius[0]) if np.ptp(radius) == 0 else radius.tolist()
    return attack_key(attack_name(attack), reach, norm, seed, attack.verdict)


def attack_name(condition: Condition) -> str:
    """The name of an attack with all its settings; ours have them in their name already."""
    if not isinstance(condition, Foreign):
        return condition.name
    own = getattr(condition.attack, "__dict__", {})
    plain = {key: value for key, value in own.items() if is_plain(value)}
    if not plain:
        raise ClasswiseError(
            f"a ledger must know an attack again, and {condition.name} shows no settings; "
            "audit without a folder, or make it an object with its settings as attributes"
        )
    return f"{condition.name}{sorted(plain.items())!r}"
