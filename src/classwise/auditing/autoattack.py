"""AutoAttack under the call people know, with class-wise results."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from classwise.attacks.ball import parse_norm
from classwise.attacks.fixed import Condition, radii_under
from classwise.attacks.named import parse_attack
from classwise.attacks.suite import STANDING, Judged
from classwise.auditing.content import content_of
from classwise.auditing.evaluate import class_report, remarks, steady_flags
from classwise.auditing.fingerprint import data_hash
from classwise.auditing.flags import Flag, check_records
from classwise.auditing.judging import attacked, judge, output_count, predictions
from classwise.auditing.metrics import ClassReport
from classwise.auditing.predictions import Predictions
from classwise.data.dataset import check_labels, check_pixels
from classwise.errors import ClasswiseError, unknown
from classwise.training.checkpoint import read_tensors, write_tensors
from classwise.types import Batch, Images, Labels, LogitModel

_VERSIONS = {"standard": "autoattack", "rand": "autoattack-rand"}
_TENSORS = ("predicted", "logit_gap", "iterations", "fell_to", "images")  # of `Judged`
log = logging.getLogger("classwise")


class AutoAttack:
    """The standard suite, or your own list with `version="custom"`.

    `run_standard_evaluation` returns adversarial images, as elsewhere; afterwards `report` holds
    the accuracy of every class and `predictions` what broke each sample. Any number of classes
    from two on will do. Lines are printed, or, with `verbose=False`, only logged.
    """

    def __init__(
        self,
        model: LogitModel,
        norm: str | float = "Linf",
        eps: float | str = 8 / 255,
        seed: int | None = None,
        verbose: bool = True,
        attacks_to_run: Sequence[str] = (),
        version: str = "standard",
        device: Any = None,
        log_path: str | Path | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        if version not in (*_VERSIONS, "custom"):
            raise unknown("version of AutoAttack", version, (*_VERSIONS, "custom"))
        if attacks_to_run and version != "custom":
            raise ClasswiseError(
                f"attacks_to_run has no effect with version={version!r}; say version='custom'"
            )
        self.model = model
        self.ball = parse_norm(norm)
        self.eps = eps
        self.seed = seed or 0
        self.verbose = verbose
        self.version = version
        self.attacks_to_run = list(attacks_to_run)
        self.class_names = class_names
        self.device = device  # accepted as elsewhere; the model's own device decides
        self.log_path = log_path
        self._num_classes = 0
        self._flags: list[Flag] = []
        self._clean: Predictions | None = None
        self._found: Predictions | None = None

    @property
    def report(self) -> ClassReport:
        """Clean and robust accuracy of every class."""
        found = [self._checked(self._clean), self.predictions]
        names = self.class_names or [str(k) for k in range(self._num_classes)]
        report = class_report(found, names)
        report.about |= remarks(self.model, [*self._flags, *check_records(found, names)])
        return report

    @property
    def predictions(self) -> Predictions:
        """What became of every sample, and which attack broke it."""
        return self._checked(self._found)

    def run_standard_evaluation(
        self,
        x_orig: Images,
        y_orig: Labels,
        bs: int = 250,
        return_labels: bool = False,
        state_path: str | Path | None = None,
    ) -> Any:
        """Attack everything, `bs` images at a time; adversarial images where there are any.

        With `state_path` batch after batch is finished and kept in that file, so that a call that
        broke off can be repeated.
        """
        batch = self._batch(x_orig, y_orig)
        condition = self._condition()
        began = time.perf_counter()
        self._clean = judge(
            self.model, batch, "clean", num_classes=self._num_classes, radius=0.0,
            ball=self.ball, width=bs,
        )  # fmt: skip
        self._say(f"initial accuracy: {self._clean.correct.mean():.2%}")
        self._flags = [] if self.version == "rand" else steady_flags(self.model, x_orig)
        for flag in self._flags:
            self._say(str(flag))

        def after(attack: str, standing: Tensor) -> None:
            seconds = time.perf_counter() - began
            share = float(standing.double().mean())
            line = f"robust accuracy after {attack.upper()}: {share:.2%}"
            self._say(f"{line} (total time {seconds:.1f} s)")

        radius = radii_under(condition, self.eps, self.ball, len(batch))
        facts: dict[str, Any] = {"ball": self.ball, "seed": self.seed, "width": bs}
        facts |= {"num_classes": self._num_classes}
        if state_path is None:
            found = attacked(self.model, batch, condition, radius=radius, after=after, **facts)
        else:
            found = self._in_pieces(batch, condition, radius, Path(state_path), facts)
        self._found = predictions(condition, batch, found, radius, self.ball, self.seed)
        self._say(f"robust accuracy: {self._found.correct.mean():.2%}")
        moved = found.images.to(x_orig)
        return (moved, found.predicted.to(y_orig)) if return_labels else moved

    def _in_pieces(
        self, batch: Batch, condition: Condition, radius: Tensor, path: Path, facts: dict[str, Any]
    ) -> Judged:
        """Attack batch after batch and keep what is done after each."""
        about = {
            "model": content_of(self.model).hex(),
            "data": data_hash(batch.images, batch.labels),
            "attack": [condition.name, radius.tolist(), self.ball.name, self.seed],
        }
        parts = [_read_state(path, about)] if path.exists() else []
        done = sum(len(part.predicted) for part in parts)
        if done:
            self._say(f"{done} of {len(batch)} images taken from {path}")
        for rows in torch.split(torch.arange(done, len(batch)), facts["width"]):
            if len(rows):
                piece = Batch(batch.images[rows], batch.labels[rows], batch.index[rows])
                found = attacked(self.model, piece, condition, radius=radius[rows], **facts)
                standing = int((found.fell_to == STANDING).sum())
                self._say(f"{standing} of the next {len(rows)} images stand")
                parts = [_joined([*parts, found])]
                tensors = {name: getattr(parts[0], name) for name in _TENSORS}
                write_tensors(path, tensors, {**about, "attacks": found.attacks})
        return parts[0]

    def run_standard_evaluation_individual(
        self, x_orig: Images, y_orig: Labels, bs: int = 250
    ) -> dict[str, Images]:
        """Adversarial images of each attack alone, run on all samples."""
        names = [search.name for search in self._condition().searches]  # type: ignore[attr-defined]
        alone = {}
        for name in names:
            one = AutoAttack(
                self.model, self.ball.name, self.eps, self.seed, self.verbose, [name], "custom"
            )
            alone[name] = one.run_standard_evaluation(x_orig, y_orig, bs)
        return alone

    def clean_accuracy(self, x_orig: Images, y_orig: Labels, bs: int = 250) -> float:
        """Share of images the model gets right as they are."""
        batch = self._batch(x_orig, y_orig)
        facts: dict[str, Any] = {"radius": 0.0, "ball": self.ball, "width": bs}
        found = judge(self.model, batch, "clean", num_classes=self._num_classes, **facts)
        return float(found.correct.mean())

    def _condition(self) -> Condition:
        if self.version != "custom":
            return parse_attack(_VERSIONS[self.version])
        if not self.attacks_to_run:
            raise ClasswiseError("version='custom' needs attacks_to_run, such as ['apgd-ce']")
        return parse_attack(f"suite({','.join(self.attacks_to_run)})")

    def _batch(self, images: Images, labels: Labels) -> Batch:
        check_pixels(images)
        if not images.is_floating_point():
            raise ClasswiseError(f"images are {images.dtype}; give floats in [0, 1]")
        if not len(images):
            raise ClasswiseError("no images given; an evaluation needs at least one")
        self._num_classes = output_count(self.model, images)
        check_labels(labels, len(images), self._num_classes)
        index = torch.arange(len(images), device=labels.device)
        return Batch(images.detach(), labels.long(), index)

    def _say(self, line: str) -> None:
        if self.verbose:
            print(line)
        log.info(line)
        if self.log_path is not None:
            with Path(self.log_path).open("a") as stream:
                stream.write(line + "\n")

    @staticmethod
    def _checked(found: Predictions | None) -> Predictions:
        if found is None:
            raise ClasswiseError("nothing has been run yet; first call run_standard_evaluation")
        return found


def _read_state(path: Path, about: dict[str, Any]) -> Judged:
    """What an evaluation of the same model, images and attack has found before."""
    tensors, said = read_tensors(path)
    other = [name for name, value in about.items() if said.get(name) != value]
    if other:
        raise ClasswiseError(
            f"{path} is the state of another evaluation (other {', '.join(other)}); "
            "give another state_path, or delete it"
        )
    return Judged(**tensors, attacks=tuple(said["attacks"]))


def _joined(parts: Sequence[Judged]) -> Judged:
    together = {name: torch.cat([getattr(part, name).cpu() for part in parts]) for name in _TENSORS}
    return Judged(**together, attacks=parts[0].attacks)
