"""A store with rows of trials that nobody has trained."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweeper.storage.rows import Columns
from sweeper.storage.store import Store

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def write_rows(
    folder: Path,
    sweep: str,
    keys: Mapping[str, type],
    metrics: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
    preset: str = "paper",
    changes: str = "",
) -> None:
    """Write finished trials of a preset. Each of `rows` has values of some keys and metrics."""
    store, columns = Store(folder), Columns(dict(keys), tuple(metrics))
    store.prepare(sweep, columns)
    run = {"preset": preset, "changes": changes, "status": "finished", "started": NOW, "ended": NOW, "cohort": "c"}
    store.write(sweep, "c", [{**run, "trial_id": f"t{index:05}", **row} for index, row in enumerate(rows)], columns)
