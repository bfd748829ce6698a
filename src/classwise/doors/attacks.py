"""Attacks as objects people know: `attack = PGD(model, eps=8/255); adversarial = attack(x, y)`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch

from classwise.attacks.attack_names import Named, make_pgd, parse_attack
from classwise.attacks.ball import parse_norm
from classwise.attacks.condition import Attack as AnyAttack
from classwise.attacks.condition import Condition
from classwise.attacks.threat import PerNumber, Threat
from classwise.auditing.plan import Plan
from classwise.auditing.run import run_audit
from classwise.data.view import View
from classwise.doors.audit import subject_of
from classwise.errors import ClasswiseError
from classwise.record.rows import Predictions
from classwise.spelling import parse_eps, spell_eps
from classwise.types import Images, Labels, LogitModel


class Attack:
    """A model, an attack and a radius; called with images in [0, 1] and labels.

    `eps` is one radius, or one for each of the images it will be called with.

    The model is attacked in eval mode and left as it was. Random numbers depend on the seed and on
    how many images this object has seen, so cutting the images into other batches changes nothing;
    `index` numbers the images instead, where they have numbers of their own. `condition` is what an
    audit takes it for: it may stand wherever the name of an attack may. `normalise` and `output`
    are what the model expects and where its logits are, as in `classwise.audit`.
    """

    def __init__(
        self,
        model: LogitModel,
        attack: str | AnyAttack,
        eps: Any,
        norm: str | float = "Linf",
        seed: int = 0,
        normalise: Any = None,
        output: str | int | None = None,
    ) -> None:
        self.model = model
        said = {"normalise": normalise, "output": output}
        self.asked = {key: value for key, value in said.items() if value is not None}
        named = parse_attack(attack) if isinstance(attack, str) else Named(attack)
        if named.eps is not None:
            own = spell_eps(eps) if isinstance(eps, float) else repr(eps)
            raise ClasswiseError(f"{named.attack.name} states its eps; leave it to eps={own}")
        many = torch.arange(0 if isinstance(eps, str) else torch.as_tensor(eps).numel())
        self.condition = Condition(None, named.attack, Threat.of(eps, norm, many), seed)
        self.seen = 0

    @property
    def threat(self) -> Threat:
        """What it may do to an image."""
        assert self.condition.threat is not None
        return self.condition.threat

    @property
    def eps(self) -> Any:
        """Its radius, or one per image."""
        return self.threat.stated

    def __call__(self, images: Images, labels: Labels, index: Labels | None = None) -> Images:
        """Adversarial images within eps of the given ones and in [0, 1]."""
        if isinstance(images, torch.Tensor) and not images.is_floating_point():
            raise ClasswiseError(f"images are {images.dtype}; attacks take floats in [0, 1]")
        how: dict[str, Any] = {"width": max(1, len(images)), "output": self.asked.get("output")}
        before = {"normalise": self.asked.get("normalise")}
        subject = subject_of(self.model, images, None, before, **how)
        data = View.given(images.detach(), labels, subject.num_classes)
        if index is None:
            index = torch.arange(self.seen, self.seen + len(images))
            self.seen += len(images)
        condition, radius = self.condition, self.threat.radius
        if isinstance(radius, PerNumber):
            threat = Threat.of(radius.values, self.threat.ball, index)
            condition = replace(condition, threat=threat)
        plan = Plan(subject, replace(data, index=index), (condition,), with_images=True)
        return found_images(run_audit(plan)[0], images)

    def __repr__(self) -> str:
        kind, name = type(self).__name__, self.condition.name
        eps = "one per image" if isinstance(self.eps, list) else spell_eps(self.eps)
        return f"{kind}({name}, eps={eps}, norm={self.threat.ball.name!r})"


def found_images(found: Predictions, like: Images) -> Images:
    """Where the verdicts were found, as images like those that were given."""
    assert found.image is not None
    pixels = bytearray(b"".join(found.image))
    size = len(pixels) // max(1, like.numel())
    kind = {2: torch.float16, 4: torch.float32, 8: torch.float64}[size]
    return torch.frombuffer(pixels, dtype=kind).view(like.shape).to(like)


class FGSM(Attack):
    """One step of the whole radius."""

    def __init__(self, model: LogitModel, eps: Any = 8 / 255, **facts: Any) -> None:
        super().__init__(model, "fgsm", eps, **facts)


class PGD(Attack):
    """Projected gradient ascent on the cross-entropy; returns the final iterate."""

    def __init__(
        self,
        model: LogitModel,
        eps: Any = 8 / 255,
        alpha: float | str = 2 / 255,
        steps: int = 10,
        random_start: bool = True,
        norm: str | float = "Linf",
        seed: int = 0,
        normalise: Any = None,
        output: str | int | None = None,
    ) -> None:
        self.alpha = parse_eps(alpha, parse_norm(norm).too_wide)
        start = "uniform" if random_start else "none"
        attack = make_pgd(steps, step=self.alpha, start=start)
        super().__init__(model, attack, eps, norm, seed, normalise, output)
        self.steps, self.random_start = steps, random_start


class APGD(Attack):
    """Auto-PGD on `ce` or `dlr`; returns adversarial images where it found them."""

    def __init__(
        self,
        model: LogitModel,
        eps: Any = 8 / 255,
        steps: int = 100,
        loss: str = "ce",
        n_restarts: int = 1,
        **facts: Any,
    ) -> None:
        name = f"apgd-{loss}(steps={steps},restarts={n_restarts})"
        super().__init__(model, name, eps, **facts)


class TargetByTarget(Attack):
    """A search with a round for each of several targets."""

    search: ClassVar[str]  # its name in lists of attacks

    def __init__(
        self,
        model: LogitModel,
        eps: Any = 8 / 255,
        steps: int = 100,
        targets: int = 9,
        **facts: Any,
    ) -> None:
        super().__init__(model, f"{self.search}(steps={steps},targets={targets})", eps, **facts)


class APGDT(TargetByTarget):
    """Auto-PGD on the targeted DLR loss, a round per target."""

    search: ClassVar[str] = "apgd-t"


class FAB(TargetByTarget):
    """Targeted FAB, a round per target."""

    search: ClassVar[str] = "fab-t"


class Square(Attack):
    """Random squares; needs no gradients."""

    def __init__(
        self, model: LogitModel, eps: Any = 8 / 255, n_queries: int = 5000, **facts: Any
    ) -> None:
        super().__init__(model, f"square(queries={n_queries})", eps, **facts)


class DeepFool(Attack):
    """Across the nearest linearised boundary, as far as that lies within eps."""

    def __init__(
        self, model: LogitModel, eps: Any = 8 / 255, steps: int = 50, **facts: Any
    ) -> None:
        super().__init__(model, f"deepfool(steps={steps})", eps, **facts)
