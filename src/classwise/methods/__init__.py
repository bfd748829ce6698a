"""Every method by name: one paper, one file, one line in this table.

The classes are also found here under their lower-case names, so that Python reads like the
string: `from classwise.methods import ccm, trades; trades(beta=6) | ccm()`.
"""

from importlib import import_module

from classwise.recipe import Method

_TABLE = (
    "clean:Clean",
    "madry2018_at:AT",
    "zhang2019_trades:Trades",
    "wang2020_mart:Mart",
    "zhao2024_absld:ABSLD",
    "zhang2020_fat:FAT",
    "sun2023_bat:BAT",
    "wong2020_fast:Fast",
    "shafahi2019_free:Free",
    "zheng2020_atta:Atta",
    "amerehi2024_labelaug:LabelAug",
    "lee2020_avmixup:AVmixup",
    "wei2023_cfa:CCM",
    "wei2023_cfa:CCR",
    "wei2023_cfa:CFA",
    "xu2021_frl:FRL",
    "lee2024_dafa:DAFA",
    "li2023_wat:WAT",
    "medi2024_fairtat:FairTAT",
    "benz2021_plan:Target",
    "benz2021_plan:Cost",
    "benz2021_plan:Protect",
    "cui2019_balanced:Balanced",
    "benz2021_plan:Resample",
    "cao2019_ldam:LDAM",
    "benz2021_cosine:Cosine",
    "wu2020_awp:AWP",
    "crop:Crop",
    "li2023_idbh:Idbh",
    "cohen2019_noise:Noise",
    "averages:EMA",
    "wei2023_cfa:FAWA",
    "averages:SWA",
)


def _class_at(home: str) -> type[Method]:
    file, _, name = home.partition(":")
    found: type[Method] = getattr(import_module(f"{__name__}.{file}"), name)
    return found


METHODS: dict[str, type[Method]] = {kind.name: kind for kind in map(_class_at, _TABLE)}
__all__ = ["METHODS", *METHODS]


def __getattr__(name: str) -> type[Method]:
    """Stand for the names that follow from the table, for those who check types."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; see METHODS")


globals().update(METHODS)
