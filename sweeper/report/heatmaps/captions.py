"""The texts of a heatmap: numbers in its cells, ticks of its colours, and the lines above it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from sweeper.report.formatting import DASH, format_metric, format_significant
from sweeper.report.heatmaps.colour_scale import STANDARD_ERRORS, ColourScale

LARGE = 1e6
"""Values from here on have three significant figures."""


def decimals_of(values: np.ndarray) -> int:
    """Return the number of decimals that shows three or four significant figures of the largest finite value."""
    finite = values[np.isfinite(values)]
    largest = float(np.abs(finite).max()) if finite.size else 1.0
    return 3 if largest == 0 else int(np.clip(3 - math.floor(math.log10(largest)) - (largest < 1), 0, 6))


def cell_texts(cell: Mapping[Any, Any], digits: int) -> list[str]:
    """Return the mean, the standard deviation (`± 0.017`) and the paper's figure (`paper 0.903`) of a cell. A null mean
    is a dash; the other two are left out if they are unknown."""
    mean, std, published = cell["mean"], cell["std"], cell.get("published", math.nan)
    texts = [DASH if pd.isna(mean) else _number(mean, digits)]
    if not pd.isna(std):
        texts.append(f"± {_number(std, digits)}")
    if not pd.isna(published):
        texts.append(f"paper {_number(published, digits)}")
    return texts


def ticks(scale: ColourScale, most: int) -> dict[float, str]:
    """Return at most so many round values within the colours' range, and their texts."""
    values = MaxNLocator(most, steps=(1, 2, 5, 10)).tick_values(scale.low, scale.high)
    digits = max(0, -math.floor(math.log10(values[1] - values[0]) + 1e-9))
    shown = [float(value) for value in values if scale.low <= value <= scale.high]
    if digits > 6 or max(map(abs, shown), default=0.0) >= LARGE:
        return {value: format_significant(value) for value in shown}
    return {value: format_metric(round(value, digits) + 0.0, digits) for value in shown}


def heading(cells: pd.DataFrame, metric: str, over: str) -> str:
    """Return e.g. `auroc_joint: mean ± standard deviation over up to 10 classes`."""
    counts = cells["count"][cells["count"] > 0]
    if counts.empty or counts.max() == 1:
        return metric
    most = f"{'up to ' if counts.min() < counts.max() else ''}{counts.max()}"
    return f"{metric}: mean ± standard deviation over {most} {over}"


def noise_text(scale: ColourScale, cells: pd.DataFrame) -> str:
    """Return the noise within a cell, and whether the colours were widened because of it."""
    if math.isnan(scale.std):
        return "" if cells["mean"].isna().all() else "one trial a cell, so what differences are noise is not known"
    noise = f"in a cell: standard deviation {scale.std:.2g}, standard error of its mean {scale.error:.2g} (medians)"
    widened = f"\nthe colours span {STANDARD_ERRORS:g} standard errors, because the means differ by less"
    return noise + widened * scale.widened


def _number(value: float, digits: int) -> str:
    return format_significant(value) if LARGE <= abs(value) < math.inf else format_metric(value, digits)
