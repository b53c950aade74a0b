"""The rows of one store are added to another, by `sweeper merge`, with their history, models, logs, sample grids,
evaluations and requests.

Nothing of either store is deleted or overwritten but a row that failed, which a result replaces. Of each sweep these
are written in the order in which a run writes them: models and the list of those that could not be written, history,
sample grids, logs, then rows, because a row means that the rest is there; then evaluations and the lists of requests.
Files of rows and history have names that follow from their content, and what is there is not written again: so a merge
that was cut off is ended by the same call, and one that is repeated changes nothing.

The other store may be somebody else's. One with damaged rows, history or evaluations is refused. Of all else only files
are copied that `layout` knows and that are whole: models with their digest, JSON that can be read, logs of 4 MiB at
most. A line says what is left out.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa

from sweeper.errors import DamagedError, SchemaError, StoreError
from sweeper.storage.evaluations import merge_evaluations
from sweeper.storage.files import Files, say_few
from sweeper.storage.layout import (
    SUFFIX,
    best_models_path,
    class_names_folder,
    evaluations_folder,
    file_name,
    history_folder,
    interim_path,
    is_sample_grid,
    log_path,
    model_path,
    page_figures_folder,
    request_path,
    sample_grids_folder,
    study_path,
    trials_folder,
)
from sweeper.storage.logs import LARGEST_LOG, logged_trials
from sweeper.storage.models import record_unwritten, trials_with_models, unwritten_models
from sweeper.storage.parquet_files import read_tables, table_to_parquet
from sweeper.storage.requests import RequestRows, list_requests
from sweeper.storage.rows import HISTORY, PROVENANCE, Columns, conform, merged_rows, one_per_record, rows_of
from sweeper.storage.store import Store, StoreReader
from trainables.json_input import parse_json
from trainables.reports import ModelError
from trainables.training.model_metadata import check_model

LARGEST = 8 << 30
"""Bytes of the largest file that is copied."""
HOW_IT_RAN = (*PROVENANCE, "cohort", "cohort_size", "preset", "changes")
"""Columns in which two runs of a trial may differ though their results are equal."""


@dataclass(frozen=True)
class Merged:
    """What a merge adds to a store, of one sweep."""

    sweep: str
    added: frozenset[str]
    """Ids of the trials whose rows are added."""
    replaced: frozenset[str]
    """Those of them that replace a row that failed."""
    shared: frozenset[str]
    """Ids of the trials of which both stores have the same result afterwards."""
    equal: int
    """Number of trials that both stores have with equal results."""
    differing: tuple[str, ...]
    """Ids of trials that both have with different results, and of proposals of a study that the other store has made
    otherwise. Those of the other store stay."""
    requests: tuple[str, ...]
    """Requests whose lists are added."""
    kept_lists: tuple[str, ...]
    """Requests of both stores whose lists differ. That of the other store stays."""
    models: tuple[str, ...]
    """Trials whose models are added."""


def plan_merge(source: Files, target: Files, sweep: str) -> Merged:
    """Return what merging a sweep would do, without changing anything. Raises StoreError if rows cannot be read."""
    ours, theirs = _rows(source, sweep), _rows(target, sweep)
    results = {trial: row for trial, row in theirs.items() if row["status"] != "failed"}
    numbers = {(row["study_id"], row["number"]) for row in theirs.values() if row.get("study_id") is not None}
    studies = {study for study, _ in numbers}
    added, shared, equal, differing = set[str](), set[str](), 0, list[str]()
    for trial, row in ours.items():
        if trial in results:
            failed, same = row["status"] == "failed", _result(row) == _result(results[trial])
            equal += failed or same
            if same:
                shared.add(trial)
            elif not failed:
                differing.append(trial)
        elif row.get("study_id") in studies and (row["study_id"], row["number"]) in numbers and trial not in theirs:
            differing.append(trial)
        elif trial not in theirs or row["status"] != "failed":
            added.add(trial)
    of_target = {each.request: each for each in list_requests(target, sweep)[0]}
    lists = list_requests(source, sweep)[0]
    kept = [each.request for each in lists if each.request in of_target and not _same(each, of_target[each.request])]
    shared |= added
    lacking = set(trials_with_models(source, sweep)).difference(trials_with_models(target, sweep))
    return Merged(
        sweep,
        frozenset(added),
        frozenset(added & theirs.keys()),
        frozenset(shared),
        equal,
        tuple(sorted(differing)),
        tuple(each.request for each in lists if each.request not in of_target),
        tuple(kept),
        tuple(sorted(lacking & shared)),
    )


def check_mergeable(source: Files, target: Files, sweep: str) -> Columns:
    """Return the columns of both stores. Raises StoreError if one has another type in the other store, or if rows,
    history or evaluations are damaged."""
    for files in (source, target):
        read_tables(files, history_folder(sweep), [])
        read_tables(files, evaluations_folder(sweep), [])
    stored = [*_columns(source, sweep), *_columns(target, sweep)]
    try:
        return reduce(Columns.union, stored, Columns({}, ()))
    except SchemaError as error:
        raise StoreError(
            f"the rows of {sweep} in {source.display_uri} and {target.display_uri} differ: {error}"
        ) from error


def merge(source: Files, target: Files, merged: Merged) -> None:
    """Add a sweep of `source` to `target`. No driver may run the sweep in either."""
    sweep, trials = merged.sweep, sorted(merged.added)
    store = Store(target)
    columns = store.prepare(sweep, check_mergeable(source, target, sweep))
    _copy(source, target, [model_path(sweep, trial) for trial in merged.models], check_model)
    if unwritten := unwritten_models(source, sweep) & merged.added:
        record_unwritten(target, sweep, f"merged-{_digest(' '.join(trials).encode())}", unwritten)
    tables = [table for _, table in read_tables(source, history_folder(sweep)).values()]
    if tables and len(history := rows_of(one_per_record(pa.concat_tables(tables)), trials)):
        _add(target, history_folder(sweep), history.replace_schema_metadata(HISTORY.metadata))
    grids = set(source.list(sample_grids_folder(sweep)))
    for trial in grids.intersection(trials):
        _copy_folder(source, target, f"{sample_grids_folder(sweep)}/{trial}", is_sample_grid)
    logs = [log_path(sweep, trial) for trial in sorted(logged_trials(source, sweep).intersection(trials))]
    _copy(source, target, logs, most=LARGEST_LOG)
    stored = [table for _, table in read_tables(source, trials_folder(sweep)).values()]
    if stored and len(rows := rows_of(merged_rows(stored), trials)):
        _add(target, trials_folder(sweep), conform(rows, columns))
    if merged.replaced:
        store.compact(sweep)
    merge_evaluations(source, target, sweep, merged.shared)
    for request in merged.requests:
        folder = f"{sweep}/{file_name(request)}"
        _copy(source, target, [best_models_path(folder), interim_path(sweep, request)], parse_json)
        _copy(source, target, [request_path(sweep, request)])
    listed, damaged = list_requests(source, sweep)
    say_few(list(damaged.values()))
    studies = {study for each in listed for study in each.studies}
    _copy(source, target, [study_path(sweep, study) for study in studies], parse_json)
    for folder in (page_figures_folder(sweep), class_names_folder(sweep)):
        _copy_folder(source, target, folder, lambda name: name.endswith(".json"), parse_json)


def _rows(files: Files, sweep: str) -> dict[str, dict[str, object]]:
    table = StoreReader(files).rows(sweep, every=True)
    return {} if table is None else {row["trial_id"]: row for row in table.to_pylist()}


def _columns(files: Files, sweep: str) -> list[Columns]:
    reader = StoreReader(files)
    return reader.stored_columns(sweep, read_tables(files, trials_folder(sweep), ["trial_id"]))


def _result(row: Mapping[str, object]) -> dict[str, object]:
    """A row without how it ran, and without nulls: the other store may lack the column."""
    return {key: value for key, value in row.items() if key not in HOW_IT_RAN and value is not None}


def _same(first: RequestRows, second: RequestRows) -> bool:
    return (list(first.trials), list(first.studies)) == (list(second.trials), list(second.studies))


def _add(files: Files, folder: str, table: pa.Table) -> None:
    """Write a table under a name that follows from its content."""
    data = table_to_parquet(table)
    path = f"{folder}/segment-{_digest(data)}{SUFFIX}"
    if files.read(path) != data:
        files.write(path, data)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _copy(
    source: Files,
    target: Files,
    paths: Sequence[str],
    check: Callable[[bytes], object] = lambda data: None,
    most: int = LARGEST,
) -> None:
    """Copy files that `source` has and `target` lacks, of which a line says if they have more than `most` bytes or do
    not pass the `check`."""
    left_out = list[str]()
    for path in paths:
        if target.sizes(path):
            continue
        try:
            data = source.read(path, most)
            if data is not None:
                check(data)
                target.write(path, data)
        except (DamagedError, ModelError, ValueError) as error:
            left_out.append(f"store {source.display_uri}: '{path}' is damaged and not merged: {error}")
    say_few(left_out)


def _copy_folder(
    source: Files,
    target: Files,
    folder: str,
    is_known: Callable[[str], bool],
    check: Callable[[bytes], object] = lambda data: None,
) -> None:
    """As `_copy`, of the files of a folder that are known there by their names. A line says of others."""
    names = source.list_files(folder, "")
    where = f"store {source.display_uri}: '{folder}"
    say_few(
        [f"{where}/{name}' is no file that a store has there, and not merged" for name in names if not is_known(name)]
    )
    _copy(source, target, [f"{folder}/{name}" for name in names if is_known(name)], check)
