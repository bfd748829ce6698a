"""Every method by name: one paper, one file, one line in this table."""

from classwise.methods.averages import EMA, SWA
from classwise.methods.benz2021_plan import Cost, Protect, Resample, Target
from classwise.methods.cao2019_ldam import LDAM
from classwise.methods.clean import Clean
from classwise.methods.cui2019_balanced import Balanced
from classwise.methods.lee2024_dafa import DAFA
from classwise.methods.li2023_wat import WAT
from classwise.methods.madry2018_at import AT
from classwise.methods.medi2024_fairtat import FairTAT
from classwise.methods.wei2023_cfa import CCM, CCR, CFA, FAWA
from classwise.methods.xu2021_frl import FRL
from classwise.methods.zhang2019_trades import Trades
from classwise.recipe import Method

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        *(Clean, AT, Trades),
        *(CCM, CCR, CFA),
        *(FRL, DAFA, WAT),
        *(FairTAT, Target),
        *(Cost, Protect, Balanced, Resample, LDAM),
        *(EMA, FAWA, SWA),
    )
}

# Lower-case names, so that Python reads like the string: trades(beta=6) | ccm().
clean, at, trades = Clean, AT, Trades
ccm, ccr, cfa = CCM, CCR, CFA
frl, dafa, wat = FRL, DAFA, WAT
fairtat, target = FairTAT, Target
cost, protect, balanced, resample, ldam = Cost, Protect, Balanced, Resample, LDAM
ema, fawa, swa = EMA, FAWA, SWA

__all__ = [
    "METHODS",
    "at",
    "balanced",
    "ccm",
    "ccr",
    "cfa",
    "clean",
    "cost",
    "dafa",
    "ema",
    "fairtat",
    "fawa",
    "frl",
    "ldam",
    "protect",
    "resample",
    "swa",
    "target",
    "trades",
    "wat",
]
