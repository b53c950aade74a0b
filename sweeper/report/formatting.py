"""Hyperparameters, metrics and tables as text."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from tabulate import tabulate

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
"""Sign of a negative number, and text of a null."""


def format_value(value: object) -> str:
    """Return a hyperparameter's value as text, e.g. `1`, `0.25`, `∞` or `cat`; null is an en dash."""
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return DASH
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        text = ("∞" if math.isinf(value) else repr(value)).removesuffix(".0").replace("e-0", "e-")
        return f"{MINUS}∞" if value == -math.inf else text.replace("-", MINUS) if value < 0 else text
    return str(value)


def format_metric(value: float, digits: int) -> str:
    """Return a metric's value with this many decimals, or in scientific notation if all decimals would be zero."""
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:.{digits}f}" if value == 0 or abs(value) >= 0.5 * 10**-digits else f"{value:.0e}"
    return text.replace("-", MINUS) if value < 0 else text


def format_significant(value: float) -> str:
    """Return three significant figures. Integer digits below a million are all shown."""
    if not math.isfinite(value) or value == 0:
        return format_metric(value, 2)
    exponent = math.floor(math.log10(abs(value)))
    if -5 < exponent < 6:
        return format_metric(value, max(2 - exponent, 0))
    return f"{value:.2e}".replace("-", MINUS)


def text_table(columns: Mapping[str, Sequence[str]], right: Sequence[str] = ()) -> str:
    """Return columns of text as a plain-text table for the terminal. Those in `right` are aligned to the right."""
    alignments = ["right" if name in right else "left" for name in columns]
    return tabulate(columns, headers="keys", tablefmt="simple", disable_numparse=True, colalign=alignments)
