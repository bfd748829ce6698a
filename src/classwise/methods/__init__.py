"""Every method by name: one paper, one file, one line in this table."""

from classwise.methods.averages import EMA
from classwise.methods.clean import Clean
from classwise.methods.madry2018_at import AT
from classwise.methods.wei2023_cfa import CCM
from classwise.methods.zhang2019_trades import Trades
from classwise.recipe import Method

METHODS: dict[str, type[Method]] = {method.name: method for method in (Clean, AT, Trades, CCM, EMA)}

# Lower-case names, so that Python reads like the string: trades(beta=6) | ccm().
clean, at, trades, ccm, ema = Clean, AT, Trades, CCM, EMA

__all__ = ["METHODS", "at", "ccm", "clean", "ema", "trades"]
