"""What a ledger holds of one model, data set and attack: read once, then kept up to date."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from classwise.record.rows import Predictions, concatenate, select

Whole = npt.NDArray[np.int64]


class Shelf:
    """Verdicts by sample number. Looking up and adding take time by what is asked, not by size."""

    def __init__(self, known: Predictions | None, named: Predictions | None) -> None:
        self._parts: list[Predictions] = []
        self._part = np.empty(0, np.int32)  # by sample: which part holds it, or −1
        self._row = np.empty(0, np.int32)  # and at which row
        self._named = np.empty(0, bool)  # whether a row carries the names of these weights
        self._pictured = np.empty(0, bool)  # whether the adversarial image is there, too
        if known is not None:
            self.add(known)
        if named is not None:
            self.name(named.sample)

    @property
    def samples(self) -> Whole:
        """Every sample there is, in order."""
        return np.flatnonzero(self._part >= 0)

    def has(self, samples: Whole, *, pictured: bool = False) -> npt.NDArray[np.bool_]:
        """Which of the samples are there; with `pictured`, which with their image."""
        self._make_room(samples)
        found: npt.NDArray[np.bool_] = self._part[samples] >= 0
        return found & self._pictured[samples] if pictured else found

    def unnamed(self, samples: Whole) -> Whole:
        """Those that are there under another name only: the best weights are often the last."""
        return samples[self.has(samples) & ~self._named[samples]]

    def add(self, found: Predictions) -> None:
        """Put verdicts in; one that is there already stays, unless this one has its image."""
        self._make_room(found.sample)
        unknown = self._part[found.sample] < 0
        if found.image is not None:
            pictured = np.array([one is not None for one in found.image], dtype=bool)
            unknown |= pictured & ~self._pictured[found.sample]
            self._pictured[found.sample] |= pictured
        fresh = np.flatnonzero(unknown)
        self._part[found.sample[fresh]] = len(self._parts)
        self._row[found.sample[fresh]] = fresh
        self._parts.append(found)

    def name(self, samples: Whole) -> None:
        """Note that these have rows under the names of these weights."""
        self._make_room(samples)
        self._named[samples] = True

    def rows(self, samples: Whole) -> Predictions:
        """Verdicts on the samples, in their order; all must be there."""
        part, row = self._part[samples], self._row[samples]
        numbers = np.unique(part)
        pieces = [select(self._parts[number], row[part == number]) for number in numbers]
        order = np.argsort(np.argsort(part, kind="stable"), kind="stable")
        return select(concatenate(pieces), order)

    def _make_room(self, samples: Whole) -> None:
        needed = int(samples.max(initial=-1)) + 1 - len(self._part)
        if needed > 0:
            # doubled, so that growing costs the same per sample however many there are
            more = max(needed, len(self._part))
            self._part = np.append(self._part, np.full(more, -1, np.int32))
            self._row = np.append(self._row, np.zeros(more, np.int32))
            self._named = np.append(self._named, np.zeros(more, bool))
            self._pictured = np.append(self._pictured, np.zeros(more, bool))
