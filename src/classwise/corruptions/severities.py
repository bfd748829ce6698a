"""Which corruptions there are, and how strong each is at its five severities.

The constants are those of the scripts that made CIFAR-10-C (32 pixels), Tiny-ImageNet-C (64) and
ImageNet-C (224): `ImageNet-C/create_c/` of github.com/hendrycks/robustness, commit 8190fe3. They
are pixels and levels, not shares of an image, so that every size has its own table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from classwise.errors import ClasswiseError, unknown

SEVERITIES = (1, 2, 3, 4, 5)
C15 = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
C19 = (*C15, "speckle_noise", "gaussian_blur", "spatter", "saturate")
SETS = {"c15": C15, "c18": tuple(one for one in C19 if one != "glass_blur"), "c19": C19}
COLOURED = ("saturate",)  # has no meaning for a grey image
SMALL, MIDDLE, LARGE = 32, 64, 224
_SMALL_BELOW, _MIDDLE_BELOW = 48, 120  # the shorter side; half-way between the sizes, about


class Spatter(NamedTuple):
    """How liquid is thrown at the lens."""

    mean: float
    deviation: float
    blur: float
    threshold: float
    last: float  # the share of water, or the blur of mud
    mud: int


class Snow(NamedTuple):
    """How flakes are drawn, blown and mixed."""

    mean: float
    deviation: float
    zoom: float
    threshold: float
    radius: int
    sigma: float
    kept: float


# name -> the constants of severities 1 to 5
Table = dict[str, tuple[Any, ...]]
_LESS_ZOOM = tuple((1, stop, 0.01) for stop in (1.06, 1.11, 1.16, 1.21, 1.26))
TABLES: dict[int, Table] = {
    SMALL: {
        "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
        "shot_noise": (500, 250, 100, 75, 50),
        "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
        "speckle_noise": (0.06, 0.1, 0.12, 0.16, 0.2),
        "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1),
        "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        "zoom_blur": _LESS_ZOOM,
        "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        "snow": (
            Snow(0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            Snow(0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            Snow(0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            Snow(0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            Snow(0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        "spatter": (
            Spatter(0.62, 0.1, 0.7, 0.7, 0.5, 0),
            Spatter(0.65, 0.1, 0.8, 0.7, 0.5, 0),
            Spatter(0.65, 0.3, 1, 0.69, 0.5, 0),
            Spatter(0.65, 0.1, 0.7, 0.69, 0.6, 1),
            Spatter(0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
        "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
        "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        "jpeg_compression": (80, 65, 58, 50, 40),
        "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
        "elastic_transform": (
            (0, 0, 32 * 0.08),
            (32 * 0.05, 32 * 0.2, 32 * 0.07),
            (32 * 0.08, 32 * 0.06, 32 * 0.06),
            (32 * 0.1, 32 * 0.04, 32 * 0.05),
            (32 * 0.1, 32 * 0.03, 32 * 0.03),
        ),
    },
    MIDDLE: {
        "gaussian_noise": (0.04, 0.08, 0.12, 0.15, 0.18),
        "shot_noise": (250, 100, 50, 30, 15),
        "impulse_noise": (0.01, 0.02, 0.05, 0.08, 0.14),
        "speckle_noise": (0.15, 0.2, 0.25, 0.3, 0.35),
        "gaussian_blur": (0.5, 0.75, 1, 1.25, 1.5),
        "glass_blur": ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
        "defocus_blur": ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
        "motion_blur": ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
        "zoom_blur": _LESS_ZOOM,
        "fog": ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
        "frost": ((1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
        "snow": (
            Snow(0.1, 0.2, 1, 0.6, 8, 3, 0.8),
            Snow(0.1, 0.2, 1, 0.5, 10, 4, 0.8),
            Snow(0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
            Snow(0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
            Snow(0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
        ),
        "spatter": (
            Spatter(0.62, 0.1, 0.7, 0.7, 0.6, 0),
            Spatter(0.65, 0.1, 0.8, 0.7, 0.6, 0),
            Spatter(0.65, 0.3, 1, 0.69, 0.6, 0),
            Spatter(0.65, 0.1, 0.7, 0.68, 0.6, 1),
            Spatter(0.65, 0.1, 0.5, 0.67, 0.6, 1),
        ),
        "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
        "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
        "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
        "jpeg_compression": (65, 58, 50, 40, 25),
        "pixelate": (0.9, 0.8, 0.7, 0.6, 0.5),
        "elastic_transform": (
            (0, 0, 64 * 0.08),
            (64 * 0.05, 64 * 0.3, 64 * 0.06),
            (64 * 0.1, 64 * 0.08, 64 * 0.06),
            (64 * 0.1, 64 * 0.03, 64 * 0.03),
            (64 * 0.16, 64 * 0.03, 64 * 0.02),
        ),
    },
    LARGE: {
        "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
        "shot_noise": (60, 25, 12, 5, 3),
        "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),
        "speckle_noise": (0.15, 0.2, 0.35, 0.45, 0.6),
        "gaussian_blur": (1, 2, 3, 4, 6),
        "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        "zoom_blur": (
            *((1, 1.11, 0.01), (1, 1.16, 0.01)),
            *((1, 1.21, 0.02), (1, 1.26, 0.02), (1, 1.31, 0.03)),
        ),
        "fog": ((1.5, 2), (2.0, 2), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
        "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
        "snow": (
            Snow(0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            Snow(0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            Snow(0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            Snow(0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            Snow(0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        "spatter": (
            Spatter(0.65, 0.3, 4, 0.69, 0.6, 0),
            Spatter(0.65, 0.3, 3, 0.68, 0.6, 0),
            Spatter(0.65, 0.3, 2, 0.68, 0.5, 0),
            Spatter(0.65, 0.3, 1, 0.65, 1.5, 1),
            Spatter(0.67, 0.4, 1, 0.65, 1.5, 1),
        ),
        "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
        "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
        "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
        "jpeg_compression": (25, 18, 15, 10, 7),
        "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
        "elastic_transform": (  # 244 where 224 was meant, says the script itself
            (244 * 2, 244 * 0.7, 244 * 0.1),
            (244 * 2, 244 * 0.08, 244 * 0.2),
            (244 * 0.05, 244 * 0.01, 244 * 0.02),
            (244 * 0.07, 244 * 0.01, 244 * 0.02),
            (244 * 0.12, 244 * 0.01, 244 * 0.02),
        ),
    },
}


def nominal_size(height: int, width: int) -> int:
    """Whose constants an image takes, by its shorter side.

    >>> [nominal_size(side, side) for side in (8, 28, 32, 64, 96, 160, 224, 299)]
    [32, 32, 32, 64, 64, 224, 224, 224]
    """
    side = min(height, width)
    return SMALL if side < _SMALL_BELOW else MIDDLE if side < _MIDDLE_BELOW else LARGE


def check_name(name: str) -> None:
    """Refuse what is no corruption."""
    if name not in C19:
        raise unknown("corruption", name, C19)


def check_severity(severity: object) -> None:
    """Refuse what is no severity."""
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise ClasswiseError(f"severity is {severity!r}; it is a whole number from 1 to 5")


def chosen_names(words: str) -> tuple[str, ...]:
    """The corruptions that a user asks for: sets and names, separated by commas.

    >>> len(chosen_names("c18")), chosen_names("fog, snow")
    (18, ('fog', 'snow'))
    """
    names: list[str] = []
    for word in (one.strip() for one in words.split(",")):
        if word not in SETS and word not in C19:
            raise unknown("corruption or set of them", word, [*SETS, *C19])
        names += SETS.get(word, (word,))
    return tuple(dict.fromkeys(names))


def chosen_severities(words: str) -> tuple[int, ...]:
    """The severities that a user asks for: `3`, `1-5` or `1,3,5`.

    >>> chosen_severities("1-5"), chosen_severities("3"), chosen_severities("1,4-5")
    ((1, 2, 3, 4, 5), (3,), (1, 4, 5))
    """
    found: set[int] = set()
    for word in (one.strip() for one in words.split(",")):
        first, dash, last = word.partition("-")
        ends = [first, last if dash else first]
        if any(end not in {"1", "2", "3", "4", "5"} for end in ends) or ends[0] > ends[1]:
            raise ClasswiseError(f"--severity {words}: write 3, 1-5 or 1,3,5, from 1 to 5")
        found.update(range(int(ends[0]), int(ends[1]) + 1))
    return tuple(sorted(found))
