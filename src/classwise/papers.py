"""The five papers that methods are taken from and studies repeat: one place for who and when."""

from __future__ import annotations

from typing import NamedTuple


class Paper(NamedTuple):
    """Who wrote it, where and when; the year is that of its publication, where it has one."""

    title: str
    authors: tuple[str, ...]
    year: int | None  # None where its text names none
    venue: str = ""

    @property
    def source(self) -> str:
        """Authors and year, as short as can be.

        >>> PAPERS["wei"].source, PAPERS["ahn"].source
        ('Wei et al., CVPR 2023', 'Ahn, undated')
        """
        last = [name.split()[-1] for name in self.authors]
        who = f"{last[0]} et al." if len(last) > 2 else " and ".join(last)
        return f"{who}, {self.venue} {self.year or 'undated'}".replace("  ", " ")

    @property
    def cited(self) -> str:
        """Authors, year and title in one line.

        >>> PAPERS["wei"].cited
        'Wei et al., CVPR 2023: CFA: Class-wise Calibrated Fair Adversarial Training'
        """
        return f"{self.source}: {self.title}"


PAPERS = {
    "ahn": Paper(
        "Class-wise Training Dynamics and Fairness in Adversarially Robust Models",
        ("Hyuk Ahn",),
        None,
    ),
    "wei": Paper(
        "CFA: Class-wise Calibrated Fair Adversarial Training",
        ("Zeming Wei", "Yifei Wang", "Yiwen Guo", "Yisen Wang"),
        2023,
        "CVPR",
    ),
    "benz": Paper(  # a preprint of 2020
        "Robustness May Be at Odds with Fairness: An Empirical Study on Class-wise Accuracy",
        ("Philipp Benz", "Chaoning Zhang", "Adil Karjauv", "In So Kweon"),
        2021,
    ),
    "medi": Paper(
        "FAIR-TAT: Improving Model Fairness Using Targeted Adversarial Training",
        ("Tejaswini Medi", "Steffen Jung", "Margret Keuper"),
        2024,
    ),
    "amerehi": Paper(  # label augmentation without attacks is an earlier paper of theirs, of 2024
        "Narrowing Class-Wise Robustness Gaps in Adversarial Training",
        ("Fatemeh Amerehi", "Patrick Healy"),
        2025,
    ),
}
