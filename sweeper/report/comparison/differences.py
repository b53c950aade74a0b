"""Paired differences of metrics: their mean, its standard error, and a signed-rank test."""

import math
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from sweeper.report.comparison.pairs import Pairs
from sweeper.report.formatting import DASH, MINUS, format_significant, text_table
from sweeper.spec.metric import BETTER, Metric
from trainables.evaluation.metrics import family_of

LEVEL = 0.95
"""Confidence level of the interval of the mean difference."""


def differences(pairs: Pairs) -> pd.DataFrame:
    """Compare each metric that at least one pair has on both sides. Returns one row per metric.

    - `n`: pairs with finite values on both sides, over which all that follows is taken
    - `first`, `second`: mean of each side; `difference`: mean of second - first
    - `error`: standard error of `difference` over the pairs; `low`, `high`: its 95 % interval by Student's t
    - `direction`: of the metric, empty without one; `better`, `worse`: pairs in which the second side is
    - `p`: two-sided Wilcoxon signed-rank test. Null for fewer than two pairs; 1 if no pair differs
    """
    rows = []
    for metric in pairs.first.columns:
        first, second = pairs.first[metric].to_numpy(), pairs.second[metric].to_numpy()
        known = np.isfinite(first) & np.isfinite(second)
        if known.any():
            rows.append({"metric": metric, **_compared(metric, first[known], second[known])})
    return pd.DataFrame(rows)


def _compared(metric: str, first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
    family, difference, n = family_of(metric), second - first, len(first)
    mean, direction = float(difference.mean()), family.direction if family else None
    error = float(difference.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    half = float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * error if n > 1 else math.nan
    cost = Metric(metric, direction).cost(difference) if direction else None
    return {
        "n": n,
        "first": float(first.mean()),
        "second": float(second.mean()),
        "difference": mean,
        "error": error,
        "low": mean - half,
        "high": mean + half,
        "direction": direction or "",
        "better": None if cost is None else int((cost < 0).sum()),
        "worse": None if cost is None else int((cost > 0).sum()),
        "p": _signed_rank(difference),
    }


def _signed_rank(difference: np.ndarray) -> float:
    if len(difference) < 2:
        return math.nan
    return float(stats.wilcoxon(difference).pvalue) if difference.any() else 1.0


def text(table: pd.DataFrame) -> str:
    """Return the differences as plain text for the terminal."""
    columns = {
        "metric": list(table["metric"]),
        "best is": [BETTER.get(direction, DASH) for direction in table["direction"]],
        "A": [format_significant(value) for value in table["first"]],
        "B": [format_significant(value) for value in table["second"]],
        "B - A": [signed(*pair) for pair in zip(table["difference"], table["error"], strict=True)],
        "n": [str(n) for n in table["n"]],
        "better": [_count(number) for number in table["better"]],
        "worse": [_count(number) for number in table["worse"]],
        "p": [probability(p) for p in table["p"]],
    }
    return text_table(columns, right=["A", "B", "n", "better", "worse", "p"])


def signed(mean: float, error: float) -> str:
    """Return text such as `+0.012 ± 0.004`, without the standard error if it is unknown."""
    sign = MINUS if mean < 0 else "+"
    spread = "" if math.isnan(error) else f" ± {format_significant(error)}"
    return f"{sign}{format_significant(abs(mean))}{spread}"


def probability(p: float) -> str:
    return DASH if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def _count(number: float | None) -> str:
    return DASH if number is None or math.isnan(number) else str(int(number))
