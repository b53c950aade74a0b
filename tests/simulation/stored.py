"""What the files of a simulated store say, read without the product's readers."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sweeper.storage.rows import PROVENANCE
from tests.simulation.files import Memory, contents

TRIALS, HISTORY, HALVED = "trials/sweep=simulated/", "history/sweep=simulated/", "cuts/sweep=simulated/halved/"
MODELS, BEST, UNWRITTEN = "models/sweep=simulated/", "models/best/", "models/unwritten/"
ARCHIVES, MODEL_SUFFIX, ANALYSES, REQUESTS = "_replaced/", ".safetensors", "looks/", "requests/simulated/"
CUT = ("cohort", "cohort_size", "preset")
"""Columns that say in which cohort a trial was trained, which depends on whether cohorts were halved, and by which
request first."""
Row = Mapping[str, Any]
History = Mapping[tuple[str, int, str], float | None]
"""Trial, epoch and metric -> value."""


@functools.lru_cache(maxsize=4096)
def table_in(data: bytes) -> pa.Table:
    """The table of a file. Raises an exception of Arrow if it is not whole."""
    return pa.ipc.open_stream(data).read_all()


@functools.lru_cache(maxsize=4096)
def rows_in(data: bytes) -> tuple[Row, ...]:
    """The rows of a file, as `table_in`."""
    return tuple(table_in(data).to_pylist())


def comparable(row: Row) -> Row:
    """A row without what may differ between equal runs."""
    own = {name: value for name, value in row.items() if name not in (*PROVENANCE, *CUT) and value is not None}
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in own.items()}


def best_rows(files: Mapping[str, bytes]) -> dict[str, Row]:
    """Trial -> its row, of all files of rows: one that did not fail, if there is one."""
    paths = (path for path in files if path.startswith(TRIALS) and path.endswith(".parquet"))
    return merged(rows_in(files[path]) for path in paths)


def merged(of_files: Iterable[Sequence[Row]]) -> dict[str, Row]:
    """As `best_rows`, of rows."""
    found: dict[str, Row] = {}
    for row in itertools.chain.from_iterable(of_files):
        if found.get(row["trial_id"], {}).get("status", "failed") == "failed":
            found[row["trial_id"]] = row
    return found


def is_function(row: Row) -> bool:
    """Whether a row is of a trial that is a function."""
    return ":" in row["method"]


def rows_archived(files: Mapping[str, bytes], time: str = "") -> dict[str, Row]:
    """Trial -> a row of it that `--fresh` has archived, at whatever time or at one."""
    paths = (path for path in files if path.startswith(f"{ARCHIVES}{time}") and f"/{TRIALS}" in path)
    return merged(rows_in(files[path]) for path in paths)


def trials_labelled(data: bytes) -> list[str]:
    """The trials that a file of a cohort names in its first line."""
    return list(json.loads(data.partition(b"\n")[0].removeprefix(b"trials ")))


def request_path(request: str) -> str:
    """Path of the list of a request."""
    return f"{REQUESTS}{request}.parquet"


def listed_in(data: bytes) -> tuple[list[str], list[str]]:
    """The trials and the studies of the list of a request, without what fills a column up."""
    columns = table_in(data).to_pydict()
    trials, studies = ([each for each in columns.get(name, ()) if each] for name in ("trial_id", "study_id"))
    return trials, studies


def model_path(trial: str) -> str:
    """Path of a trial's model."""
    return f"{MODELS}{trial}{MODEL_SUFFIX}"


def trial_of(path: str) -> str:
    """The trial of a model's path."""
    return path.removeprefix(MODELS).removesuffix(MODEL_SUFFIX)


def history_in(files: Mapping[str, bytes]) -> History:
    """All values of the history."""
    return {
        (record["trial_id"], record["epoch"], record["metric"]): record["value"]
        for path, data in files.items()
        if path.startswith(HISTORY)
        for record in rows_in(data)
    }


def lacking_models(files: Mapping[str, bytes], data: bytes) -> set[str]:
    """The trials of a list of models that could not be written whose model is not there."""
    return {trial for trial in json.loads(data) if model_path(trial) not in files}


def unwritten_of_searches(files: Mapping[str, bytes]) -> frozenset[str]:
    """The trials of searches that lack a model which is listed as unwritten. No run trains these again, and each says
    so: what a search proposes and prunes has followed from them. Those of grids are trained again."""
    rows = best_rows(files)
    lists = (lacking_models(files, data) for path, data in files.items() if path.startswith(UNWRITTEN))
    return frozenset(trial for trial in itertools.chain(*lists) if rows.get(trial, {}).get("study"))


@dataclass(frozen=True)
class Expected:
    """What a run that nothing disturbs leaves."""

    rows: Mapping[str, Row]
    history: History
    figures: frozenset[str]
    """Paths of the files besides rows and history, without those that are named at random."""
    analyses: Mapping[str, bytes]
    """Path of each record of interim analyses -> its content."""
    files: Mapping[str, bytes]
    """Path -> content of all files."""

    @classmethod
    def of(cls, memory: Memory) -> Expected:
        files = contents(memory)
        rows = {trial: comparable(row) for trial, row in best_rows(files).items()}
        shown = (path for path in files if path.startswith(("tables/", "studies/", "reports/", "requests/", "models/")))
        analyses = {path: data for path, data in files.items() if path.startswith(ANALYSES)}
        return cls(rows, history_in(files), frozenset(shown), analyses, files)
