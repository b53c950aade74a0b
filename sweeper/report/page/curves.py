"""The history of a sweep in few bytes: for each metric a matrix of trials and epochs, as float64.

A history can be far larger than a page should be. Within `budget` bytes, all metrics are kept, with fewer epochs where
needed; if even `MIN_EPOCHS` epochs are too many, the last metrics are left out. What is left out is said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

BYTES = 900_000
"""Size of the curves of a sweep of up to `BYTES / BYTES_PER_TRIAL` trials, before compression."""
BYTES_PER_TRIAL = 160
"""Size of the curves of a larger sweep, for each of its trials: 20 values."""
MIN_EPOCHS = 8
"""Number of epochs below which a metric is left out instead of thinned further."""
MAX_VALUES = 1 << 27
"""Most trials times epochs of a metric; one with more is left out. A small file can have an epoch of its own for each
trial."""


@dataclass(frozen=True)
class Curves:
    series: Sequence[Mapping[str, Any]]
    """For each metric its `metric`, `epochs`, `trials` (indices into `trials` of `pack`) and `offset` in `values`."""
    values: np.ndarray
    """float64. Those of a series are [trials, epochs], flattened; NaN where there is no value."""
    note: str
    """What is left out; empty if nothing is."""


def pack(history: pd.DataFrame, trials: Sequence[str], first: Sequence[str]) -> Curves:
    """Pack the history of `trials`. `first` are the metrics that matter most, in this order."""
    budget = max(BYTES, BYTES_PER_TRIAL * len(trials)) // 8
    index = pd.Index(trials).get_indexer(history["trial_id"])
    known = history.assign(trial=index)[index >= 0]
    parts_by_name = {str(name): part for name, part in known.groupby("metric", sort=True)}
    left_out = [
        name for name, part in parts_by_name.items() if part["trial"].nunique() * part["epoch"].nunique() > MAX_VALUES
    ]
    matrices = {name: _matrix(part) for name, part in parts_by_name.items() if name not in left_out}
    names = [*(name for name in first if name in matrices), *(name for name in matrices if name not in first)]
    most = max((len(epochs) for _, epochs, _ in matrices.values()), default=0)

    def size(limit: int) -> int:
        return sum(len(rows) * min(len(epochs), limit) for rows, epochs, _ in matrices.values())

    limit = most
    while limit > MIN_EPOCHS and size(limit) > budget:
        limit = max(MIN_EPOCHS, limit * 3 // 4)
    series, parts, offset = list[dict[str, Any]](), list[np.ndarray](), 0
    for name in names:
        rows, epochs, matrix = matrices[name]
        kept = _evenly(len(epochs), limit)
        if series and offset + len(rows) * len(kept) > budget:
            left_out.append(name)
            continue
        series.append({"metric": name, "epochs": epochs[kept].tolist(), "trials": rows.tolist(), "offset": offset})
        parts.append(matrix[:, kept].ravel())
        offset += parts[-1].size
    thinned = f"curves show at most {limit} of up to {most} epochs" if limit < most else ""
    missing = f"there are no curves of {', '.join(left_out)}" if left_out else ""
    note = "; ".join(filter(None, (thinned, missing)))
    return Curves(series, np.concatenate(parts) if parts else np.empty(0), note and f"To keep this page small, {note}.")


def _matrix(reports: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the indices of the trials, the epochs, and the values [trials, epochs]."""
    trials, row = np.unique(reports["trial"].to_numpy(), return_inverse=True)
    epochs, column = np.unique(reports["epoch"].to_numpy(), return_inverse=True)
    matrix = np.full((len(trials), len(epochs)), np.nan)
    matrix[row, column] = reports["value"].to_numpy("float64")
    return trials, epochs, matrix


def _evenly(count: int, limit: int) -> np.ndarray:
    """Return the positions of at most `limit` of `count` epochs, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(int))
