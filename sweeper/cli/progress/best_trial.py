"""The best trial of a sweep so far."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from sweeper.spec import Metric


class BestTrial:
    """The trial with the best value of the headline metric, by the hyperparameters that identify it to a reader."""

    def __init__(self, headline: Metric, identifying_columns: Iterable[str]) -> None:
        self._metric = headline.name
        self._best_of: Callable[[Iterable[float]], float] = max if headline.ranking_direction == "maximize" else min
        self._identifying_columns = tuple(dict.fromkeys(identifying_columns))
        self._best: tuple[float, str] | None = None

    def best_of(self, values: Iterable[object]) -> float | None:
        """Return the best finite number among values of the headline metric; None without one."""
        finite = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
        return self._best_of(finite) if finite else None

    def rank(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Consider rows. Pruned trials are not considered, because their metrics are from an earlier epoch."""
        for row in rows:
            value = self.best_of([row.get(self._metric)])
            if value is None or row.get("status") == "pruned":
                continue
            if self._best is None or self._best_of((value, self._best[0])) != self._best[0]:
                names = [name for name in self._identifying_columns if _known(row.get(name))] or ["trial_id"]
                self._best = value, ", ".join(f"{name}={short(row.get(name))}" for name in names)

    @property
    def texts(self) -> list[str]:
        """Text such as `best auroc 0.98 at beta=0.5`; none without a value."""
        return [f"best {self._metric} {short(self._best[0])} at {self._best[1]}"] if self._best else []


def short(value: object) -> str:
    """Return a value as text, with four significant figures."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _known(value: object) -> bool:
    """Whether a row has this value. In tables of several methods, missing values are NaN or pandas' null."""
    return isinstance(value, bool | int | str) or (isinstance(value, float) and not math.isnan(value))
