"""AutoAttack under the call people know, with class-wise results."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from classwise.attacks.attack_names import make_suite, parse_attack
from classwise.attacks.condition import Attack, Condition
from classwise.attacks.names import check_made_for, known_condition
from classwise.attacks.search.suite import Suite
from classwise.attacks.threat import Threat
from classwise.auditing.first_look import first_look
from classwise.auditing.flags import Flag, check_records, steady_flags
from classwise.auditing.plan import Plan
from classwise.auditing.run import Nobody, run_audit
from classwise.content import content_of
from classwise.data.view import View
from classwise.doors.attacks import found_images
from classwise.doors.audit import record_in, subject_of
from classwise.doors.findings import remarks
from classwise.errors import ClasswiseError, cut, defused, unknown
from classwise.judging.metrics import ClassReport
from classwise.judging.reports import class_report
from classwise.models.subject import Subject, device_of
from classwise.record.record import Record
from classwise.record.rows import Predictions
from classwise.types import Images, Labels, LogitModel

_VERSIONS = {"standard": "autoattack", "rand": "autoattack-rand"}
log = logging.getLogger("classwise")


class AutoAttack:
    """The standard suite, or your own list with `version="custom"`.

    `run_standard_evaluation` returns adversarial images, as elsewhere; afterwards `report` holds
    the accuracy of every class and `predictions` what broke each sample. Any number of classes
    from two on will do. Lines are printed, or, with `verbose=False`, only logged.
    `attacks_to_run` are names, attack objects made for the same model, radius and seed, or parsed
    conditions. `normalise` and `output` are as in `classwise.audit`.
    """

    def __init__(
        self,
        model: LogitModel,
        norm: str | float = "Linf",
        eps: float | str = 8 / 255,
        seed: int | None = None,
        verbose: bool = True,
        attacks_to_run: Sequence[Any] = (),
        version: str = "standard",
        device: Any = None,
        log_path: str | Path | None = None,
        class_names: Sequence[str] | None = None,
        normalise: Any = None,
        output: str | int | None = None,
    ) -> None:
        if version not in (*_VERSIONS, "custom"):
            raise unknown("version of AutoAttack", version, (*_VERSIONS, "custom"))
        if attacks_to_run and version != "custom":
            raise ClasswiseError(
                f"attacks_to_run has no effect with version={version!r}; say version='custom'"
            )
        self.model = model
        self.norm = norm
        self.eps = eps
        self.seed = seed or 0
        self.verbose = verbose
        self.version = version
        self.attacks_to_run = list(attacks_to_run)
        self.class_names = class_names
        self.device = device  # accepted as elsewhere, if it is the model's own
        self.normalise, self.output = normalise, output
        self.log_path = log_path
        Threat.of(0.0, norm)  # a norm that nobody knows is refused here
        self._plan: Plan | None = None
        self._flags: list[Flag] = []
        self._found: list[Predictions] = []

    @property
    def report(self) -> ClassReport:
        """Clean and robust accuracy of every class."""
        found, plan = [*self._found[:1], self.predictions], self._plan
        assert plan is not None
        report = class_report(found, plan.data)
        flags = [*self._flags, *check_records(found, plan.data.class_names)]
        report.about |= remarks(plan, flags)
        return report

    @property
    def predictions(self) -> Predictions:
        """What became of every sample, and which attack broke it."""
        if len(self._found) < 2:
            raise ClasswiseError("nothing has been run yet; first call run_standard_evaluation")
        return self._found[1]

    def run_standard_evaluation(
        self,
        x_orig: Images,
        y_orig: Labels,
        bs: int = 250,
        return_labels: bool = False,
        state_path: str | Path | None = None,
    ) -> Any:
        """Attack everything, `bs` images at a time; adversarial images where there are any.

        `state_path` is a folder that keeps what is done, piece by piece, so that a call that broke
        off can be repeated; `classwise audit --from` reads it, too.
        """
        subject, data = self._asked(x_orig, y_orig, bs)
        threat = Threat.of(self.eps, self.norm, data.index)
        condition = Condition(None, self._suite(threat), threat, self.seed)
        self._plan = Plan(subject, data, (condition,), with_images=True)
        record = None if state_path is None else self._record(Path(state_path), subject, data)
        clean = run_audit(Plan(subject, data, (Condition(),)), record)[0]
        self._say(f"initial accuracy: {clean.correct.mean():.2%}")
        self._flags = first_look(subject, data)
        self._flags += [] if self.version == "rand" else steady_flags(subject, data)
        for flag in self._flags:
            self._say(str(flag))
        if record is not None:
            known = len(record.known(self._plan.conditions, data.numbers))
            self._say(f"{known} of {len(data)} images taken from {state_path}")
        found = run_audit(self._plan, record, _Lines(self._say, pieces=record is not None))[0]
        self._found = [clean, found]
        self._say(f"robust accuracy: {found.correct.mean():.2%}")
        moved = found_images(found, x_orig)
        return (moved, torch.from_numpy(found.predicted).to(y_orig)) if return_labels else moved

    def run_standard_evaluation_individual(
        self, x_orig: Images, y_orig: Labels, bs: int = 250
    ) -> dict[str, Images]:
        """Adversarial images of each attack alone, run on all samples."""
        alone, whole = {}, self._suite(Threat.of(self.eps, self.norm, torch.arange(len(x_orig))))
        for search in whole.searches:
            one = copy(self)
            one.version, one.attacks_to_run = "custom", [replace(whole, searches=(search,))]
            alone[search.name] = one.run_standard_evaluation(x_orig, y_orig, bs)
        return alone

    def clean_accuracy(self, x_orig: Images, y_orig: Labels, bs: int = 250) -> float:
        """Share of images the model gets right as they are."""
        subject, data = self._asked(x_orig, y_orig, bs)
        return float(run_audit(Plan(subject, data, (Condition(),)))[0].correct.mean())

    def _suite(self, threat: Threat) -> Suite:
        """What is run, in its order."""
        if self.version != "custom":
            attack = parse_attack(_VERSIONS[self.version]).attack
            assert isinstance(attack, Suite)
            return attack
        if not self.attacks_to_run:
            raise ClasswiseError("version='custom' needs attacks_to_run, such as ['apgd-ce']")
        check_made_for(self.attacks_to_run, self.model)
        return make_suite([self._member(one, threat) for one in self.attacks_to_run])

    def _member(self, one: Any, threat: Threat) -> str | Attack:
        """An attack of the list; all have one radius and one seed."""
        if isinstance(one, str | Suite):
            return one
        found = known_condition(one)
        if found is None or found.attack is None or found.shift is not None:
            raise ClasswiseError(
                f"attacks_to_run holds {cut(repr(one), 60)}; give names, attack objects of "
                "classwise, or parsed conditions that are attacks alone"
            )
        own = found.threat or threat
        shared = (threat.ball, threat.stated, self.seed, 0)
        if (own.ball, own.stated, found.seed, found.limit) != shared:
            raise ClasswiseError(
                f"{found.name} in attacks_to_run has another eps, norm, seed or number of images "
                "than AutoAttack, whose attacks share them; make it with the same ones, or give "
                "its name"
            )
        return found.attack

    def _asked(self, images: Images, labels: Labels, width: int) -> tuple[Subject, View]:
        self._check_device()
        if isinstance(images, Tensor) and not images.is_floating_point():
            raise ClasswiseError(f"images are {images.dtype}; give floats in [0, 1]")
        function = not isinstance(self.model, nn.Module)
        name = content_of(self.model).hex() if function else ""  # known by what it computes
        how: dict[str, Any] = {"width": width, "name": name, "output": self.output}
        subject = subject_of(self.model, images, None, {"normalise": self.normalise}, **how)
        names = self.class_names
        return subject, View.given(images.detach(), labels, subject.num_classes, names)

    def _check_device(self) -> None:
        """Refuse a device other than the model's, which decides where it is attacked."""
        if self.device is None:
            return
        home, wanted = device_of(self.model), str(self.device)
        if wanted not in (str(home), home.type):
            raise ClasswiseError(
                f"device={wanted!r} has no effect: the model is on {home}, and attacked there; "
                "move the model, or leave the device out"
            )

    def _record(self, folder: Path, subject: Subject, data: View) -> Record:
        if folder.is_file():
            raise ClasswiseError(
                f"{folder} is a file, and the state of an evaluation is now kept in a folder; give "
                "another state_path, or delete it"
            )
        return record_in(folder, subject, data, "AutoAttack")

    def _say(self, line: str) -> None:
        line = defused(line)  # what a folder is called may be somebody else's choice
        if self.verbose:
            print(line)
        log.info(line)
        if self.log_path is not None:
            with Path(self.log_path).open("a") as stream:
                stream.write(line + "\n")


class _Lines(Nobody):
    """Says what people who run AutoAttack are used to read."""

    def __init__(self, say: Any, *, pieces: bool) -> None:
        self.say, self.pieces, self.began = say, pieces, time.perf_counter()

    def tell(self, attack: str, standing: Tensor) -> None:
        """Say what an attack of the suite has left standing."""
        seconds = time.perf_counter() - self.began
        share = float(standing.double().mean())
        of = f" of the next {len(standing)} images" if self.pieces else ""
        line = f"robust accuracy{of} after {attack.upper()}: {share:.2%}"
        self.say(f"{line} (total time {seconds:.1f} s)")
