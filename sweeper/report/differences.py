"""The differences of two sides of a comparison as text and as a figure."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from sweeper.definition.metric import BETTER, Metric
from sweeper.report import charts
from sweeper.report.formatting import DASH, MINUS, format_significant, signed, text_table
from sweeper.results.compare import PairedTrials
from sweeper.results.sentences import probable


def text(table: pd.DataFrame) -> str:
    """Return the differences as plain text for the terminal."""
    columns = {
        "metric": list(table["metric"]),
        "best is": [BETTER.get(direction, DASH) for direction in table["direction"]],
        "A": [format_significant(value) for value in table["first"]],
        "B": [format_significant(value) for value in table["second"]],
        "B - A": [signed(*row) for row in table[["difference", "low", "high"]].to_numpy()],
        "P(B better)": [probable(*row) for row in table[["improved", "improved_low", "improved_high"]].to_numpy()],
        "n": [str(n) for n in table["n"]],
        "better": [_count(number) for number in table["better"]],
        "worse": [_count(number) for number in table["worse"]],
        "p": [probability(p) for p in table["p"]],
    }
    return text_table(columns, right=["A", "B", "n", "better", "worse", "p"])


def probability(p: float) -> str:
    return DASH if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def _count(number: float | None) -> str:
    return DASH if number is None or math.isnan(number) else str(int(number))


POINTS, MEAN = (-0.02, 0.42), -0.26
"""Vertical range of the points of a strip, which are spread to be told apart, and height of their mean below them."""
LONGEST_LABEL = 100
"""Most characters of a side's name, which stands below the title."""
MOST_METRICS = 24
"""Most metrics that the figure shows; the table has all."""


def drawing(pairs: PairedTrials, table: pd.DataFrame, labels: tuple[str, str]) -> charts.Drawing:
    """Return the picture of `differences(pairs)`: a strip for each metric with a point for each pair, their mean and
    its interval. `labels` are the names of the sides A and B.

    Each strip has its own scale, which is symmetric about zero.
    """
    shown = table.head(MOST_METRICS)
    note = "a point is a pair; diamond and bar: mean and its 95 % interval"
    more = f"; {len(table) - len(shown)} more metrics in the table" if len(shown) < len(table) else ""
    sides = [f"{letter}: {_shortened(label)}" for letter, label in zip("AB", labels, strict=True)]
    title = {"text": f"Paired differences, B {MINUS} A", "subtitle": [*sides, f"{note}{more}"]}
    strips = [
        charts.fill(charts.DIFFERENCES, {**charts.COLOURS["light"], **strip(row, pairs)})
        for row in shown.to_dict("records")
    ]
    values = {"title": title, "panels": strips, "padding": charts.PADDING}
    return charts.Drawing(charts.BELOW, values, 100 * len(strips))


def strip(row: Mapping[Any, Any], pairs: PairedTrials) -> dict[str, Any]:
    """Return the values of `charts.DIFFERENCES` for one metric."""
    difference = (pairs.second[row["metric"]] - pairs.first[row["metric"]]).to_numpy()
    difference = difference[np.isfinite(difference)]
    cost = Metric(row["metric"], row["direction"]).cost(difference) if row["direction"] else np.zeros(len(difference))
    outcome = np.select([cost < 0, cost > 0], ["B better", "B worse"], "neither")
    heights = np.random.default_rng(0).uniform(*POINTS, len(difference))
    points = pd.DataFrame({"x": difference, "y": heights, "outcome": outcome})
    ends = [float(end) for end in (row["low"], row["high"]) if math.isfinite(end)]
    limit = 1.08 * max(map(abs, (*difference, *ends))) or 1.0
    p = "" if math.isnan(row["p"]) else f", p = {probability(row['p'])}".replace("= <", "< ")
    better = f"{BETTER[row['direction']]} is better" if row["direction"] else ""
    return {
        "points": charts.records(points),
        "mean": [{"x": row["difference"], "low": ends[0], "high": ends[1]} if ends else {"x": row["difference"]}],
        "limits": [-limit, limit],
        "left0": row["metric"],
        "left1": better,
        "right0": signed(row["difference"], row["low"], row["high"]),
        "right1": f"n = {row['over'] or row['n']}{p}",
        "height": MEAN,
    }


def _shortened(label: str) -> str:
    middle = LONGEST_LABEL // 2
    return label if len(label) <= LONGEST_LABEL else f"{label[:middle]}\N{HORIZONTAL ELLIPSIS}{label[-middle:]}"
