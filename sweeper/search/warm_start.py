"""Warm start: results of another sweep that a study begins with, kept in the store for continuing the study."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.errors import SpecError
from sweeper.spec.grid import Value
from sweeper.spec.search import Study, within
from sweeper.storage.files import Files, read_record
from sweeper.storage.store import Store

MATCHED_KEYS = ("method", "dataset", "image_digest", "normal_class", "held_out", "outliers", "validation")
"""Keys that define what an objective measures. Only rows with the study's own values of these keys are used."""


@dataclass(frozen=True)
class WarmStart:
    """Results that a study knows before its first trial."""

    sweep: str | None
    """Sweep that the results come from; None for a study without a warm start."""
    results: tuple[tuple[Mapping[str, Value], tuple[float, ...]], ...] = ()
    """Values of the searched keys and the objectives, for each result."""

    def write(self, files: Files, path: str, study: Study) -> None:
        """Write the warm start and the study's definition to `path`."""
        content = {"study": study.identity, "warm_start": self.sweep, "results": self.results}
        files.write(path, json.dumps(content, indent=1).encode())


@dataclass(frozen=True)
class _WarmStartRecord:
    """What `WarmStart.write` writes of a warm start."""

    warm_start: str | None
    results: tuple[tuple[Mapping[str, Value], tuple[float, ...]], ...]


def definition_path(sweep: str, identity: str) -> str:
    """Return the path in the store of a study's definition and warm start."""
    return f"studies/{sweep}/{identity}.json"


def read_warm_start(files: Files, path: str, study: Study) -> WarmStart | None:
    """Read what `WarmStart.write` wrote for this study; None if there is no file or it is damaged."""
    space, objectives = study.search.space, study.search.objectives

    def checked(
        params: Mapping[str, Value], values: tuple[float, ...]
    ) -> tuple[Mapping[str, Value], tuple[float, ...]]:
        if set(params) != set(space) or not all(within(space[key], params[key]) for key in space):
            raise ValueError("a result must have one value inside the search space for each searched key")
        if len(values) != len(objectives):
            raise ValueError("a result must have one number for each objective")
        return params, values

    def warm_start(record: _WarmStartRecord) -> WarmStart:
        return WarmStart(record.warm_start, tuple(checked(*pair) for pair in record.results))

    return read_record(files, path, _WarmStartRecord, warm_start)


def warm_start_from_rows(
    store: Store, sweep: str, study: Study, config: Mapping[str, Value], defaults: Mapping[str, Value]
) -> WarmStart:
    """Warm start of a study from the finished rows of another sweep.

    A row is used if it has the values of `config` for the keys in `MATCHED_KEYS` and its searched values lie within the
    space. All other keys may differ. `defaults` are those of the method's keys. Raises SpecError if no row can be used.
    """
    rows = store.rows(sweep)
    if rows is None:
        raise SpecError(f"--warm-start needs rows, but store {store.files.display_uri} has none of sweep '{sweep}'")
    names = [metric.name for metric in study.search.objectives]
    results: list[tuple[Mapping[str, Value], tuple[float, ...]]] = []
    for row in rows.to_pylist():
        fits = row["status"] == "finished" and all(row.get(key) == config.get(key) for key in MATCHED_KEYS)
        params = study.searched_values(row, defaults)
        values = [float(row[name]) for name in names if isinstance(row.get(name), int | float)]
        inside = all(within(distribution, params[key]) for key, distribution in study.search.space.items())
        if fits and inside and len(values) == len(names):
            results.append((params, tuple(values)))
    if not results:
        keys = ", ".join(study.search.space)
        raise SpecError(
            f"no finished row of sweep '{sweep}' fits study '{study.name}': a row must have the same "
            f"{', '.join(MATCHED_KEYS)}, report {', '.join(names)}, and have {keys} within the search space"
        )
    return WarmStart(sweep, tuple(results))
