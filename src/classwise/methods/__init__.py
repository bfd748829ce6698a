"""Every method by name: one paper, one file, one line in this table."""

from classwise.methods.amerehi2024_labelaug import LabelAug
from classwise.methods.averages import EMA, SWA
from classwise.methods.benz2021_cosine import Cosine
from classwise.methods.benz2021_plan import Cost, Protect, Resample, Target
from classwise.methods.cao2019_ldam import LDAM
from classwise.methods.clean import Clean
from classwise.methods.crop import Crop
from classwise.methods.cui2019_balanced import Balanced
from classwise.methods.lee2020_avmixup import AVmixup
from classwise.methods.lee2024_dafa import DAFA
from classwise.methods.li2023_idbh import Idbh
from classwise.methods.li2023_wat import WAT
from classwise.methods.madry2018_at import AT
from classwise.methods.medi2024_fairtat import FairTAT
from classwise.methods.sun2023_bat import BAT
from classwise.methods.wang2020_mart import Mart
from classwise.methods.wei2023_cfa import CCM, CCR, CFA, FAWA
from classwise.methods.wu2020_awp import AWP
from classwise.methods.xu2021_frl import FRL
from classwise.methods.zhang2019_trades import Trades
from classwise.methods.zhang2020_fat import FAT
from classwise.methods.zhao2024_absld import ABSLD
from classwise.recipe import Method

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        *(Clean, AT, Trades, Mart, ABSLD),
        *(FAT, BAT, LabelAug, AVmixup),
        *(CCM, CCR, CFA),
        *(FRL, DAFA, WAT),
        *(FairTAT, Target),
        *(Cost, Protect, Balanced, Resample, LDAM),
        *(Cosine, AWP, Crop, Idbh),
        *(EMA, FAWA, SWA),
    )
}

# Lower-case names, so that Python reads like the string: trades(beta=6) | ccm().
clean, at, trades, mart, absld = Clean, AT, Trades, Mart, ABSLD
fat, bat, labelaug, avmixup = FAT, BAT, LabelAug, AVmixup
ccm, ccr, cfa = CCM, CCR, CFA
frl, dafa, wat = FRL, DAFA, WAT
fairtat, target = FairTAT, Target
cost, protect, balanced, resample, ldam = Cost, Protect, Balanced, Resample, LDAM
cosine, awp, crop, idbh = Cosine, AWP, Crop, Idbh
ema, fawa, swa = EMA, FAWA, SWA

__all__ = [
    "METHODS",
    "absld",
    "at",
    "avmixup",
    "awp",
    "balanced",
    "bat",
    "ccm",
    "ccr",
    "cfa",
    "clean",
    "cosine",
    "cost",
    "crop",
    "dafa",
    "ema",
    "fairtat",
    "fat",
    "fawa",
    "frl",
    "idbh",
    "labelaug",
    "ldam",
    "mart",
    "protect",
    "resample",
    "swa",
    "target",
    "trades",
    "wat",
]
