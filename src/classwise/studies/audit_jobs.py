"""Audits that a study wants: of a run, which is trained first, or of a network of other people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from classwise.errors import ClasswiseError
from classwise.files import holds, write_atomically
from classwise.sealed import sealed_text

if TYPE_CHECKING:  # processes of runs need none of what opens files of other people
    from classwise.studies.theirs import Network


@dataclass(frozen=True)
class AuditJob:
    """One audit of a run; without names the last weights of the model and of each average."""

    attacks: str
    weights: tuple[str, ...] = ()
    limit: int = 0
    split: str = ""
    similarity: bool = False  # also the mean logits of every class


@dataclass(frozen=True)
class NetworkJob:
    """A network of other people to audit: all that a process needs for it."""

    network: Network
    about: Mapping[str, Any]  # what is kept of it beside its audits
    eps: float
    norm: str
    audits: tuple[AuditJob, ...]
    path: Path
    device: str = "cpu"
    threads: int = 1  # of the processor
    home: str = ""  # the URL that its folder is kept at; nothing: the folder itself

    def moved(self, folder: Path) -> NetworkJob:
        """The same in a folder of this machine."""
        return replace(self, path=folder / self.path.name, home="")

    def run(self) -> None:
        """Audit it; what its folder has is not audited again."""
        import torch

        from classwise.doors.targets import audit_target
        from classwise.studies.theirs import THEIRS

        torch.set_num_threads(self.threads)
        if self.network.sha256 != self.about["sha256"]:
            raise ClasswiseError(f"{self.network.path} has changed since the study was begun")
        text = sealed_text(self.about)
        if not holds(self.path / THEIRS, text):
            write_atomically(self.path / THEIRS, text)
        for audit in self.audits:
            audit_target(self._wish(audit))

    def _wish(self, audit: AuditJob) -> Any:
        """An audit in the words of the command line, which takes no radius that nothing uses."""
        from classwise.attacks.names import parse_conditions
        from classwise.attacks.threat import Threat
        from classwise.doors.wish import Wish

        threat = Threat.of(self.eps, self.norm)
        conditions = parse_conditions(audit.attacks, threat, own=False)
        return Wish(
            self.network.target,
            data=str(self.about["data"]),
            attacks=audit.attacks,
            eps=self.eps if any(one.threat is threat for one in conditions) else None,
            norm=self.norm if any(one.threat for one in conditions) else None,
            split=audit.split,
            limit=audit.limit,
            normalise=self.network.normalise,
            opening=self.network.opening,
            folder=self.path,
            device=self.device,
            quiet=True,
        )
