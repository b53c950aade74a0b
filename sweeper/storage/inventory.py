"""What a store holds: its sweeps, their requests, the rows of these by status, and bytes. It reads no history."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sweeper.errors import StoreError
from sweeper.names import is_name
from sweeper.storage.files import MOST_LINES, Files
from sweeper.storage.layout import (
    ARCHIVES,
    FIGURES,
    HISTORIES,
    LOGS,
    TRIALS,
    sweep_folders,
    sweeps_in,
    trials_folder,
)
from sweeper.storage.lease import Driver, Drivers
from sweeper.storage.requests import RequestRows, list_requests, unlisted_name
from sweeper.storage.store import StoreReader

READ = ("trial_id", "study_id", "status", "ended", "preset", "changes")
"""Columns of rows that are read."""


@dataclass(frozen=True)
class RequestInventory:
    """The rows of a request."""

    label: str
    listed: RequestRows | None
    """Which rows belong to it; None for rows that no listed request has, named by their preset and changes."""
    trials: frozenset[str]
    """Ids of its rows."""
    counts: Mapping[str, int]
    """Status -> number of rows."""
    last: datetime | None
    """When its latest trial ended; None if that is not known."""

    @property
    def total(self) -> int | None:
        """Number of its trials; None if that is not known, as of a search."""
        return len(self.listed.trials) if self.listed and not self.listed.studies else None


@dataclass(frozen=True)
class SweepInventory:
    """What a store holds of a sweep."""

    name: str
    requests: tuple[RequestInventory, ...] = ()
    """That with the latest row first."""
    trials: frozenset[str] = frozenset()
    """Ids of all its rows."""
    counts: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Kind, as of `layout.sweep_folders` -> path of each file -> bytes."""
    drivers: tuple[Driver, ...] = ()
    """Those that run it now."""
    problem: str = ""
    """Why its rows or the lists of its requests cannot be read; empty if they can."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Path of each damaged file of rows, which is left out -> what is wrong with it."""

    @property
    def bytes(self) -> int:
        return sum(sum(files.values()) for files in self.sizes.values())

    @property
    def last(self) -> datetime | None:
        """When its latest trial ended."""
        return max((request.last for request in self.requests if request.last), default=None)


def take_inventory(files: Files) -> list[SweepInventory]:
    """Return what the store holds of each sweep. Raises StoreError if it cannot be read, or is no store."""
    sizes = files.sizes()
    tops = {path.partition("/")[0] for path in sizes}
    if not tops & {TRIALS, HISTORIES, *FIGURES, "models", "requests", ARCHIVES}:
        raise StoreError(f"{files.display_uri} must be a store, but has no rows, models or pictures of any sweep")
    names = sweep_names(files)
    return [_inventory(files, name, found) for name, found in _by_kind(names, sizes).items()]


def sweep_names(files: Files) -> list[str]:
    """Return the sorted names of the sweeps of which the store has anything."""
    names = {
        name for kind in (TRIALS, HISTORIES, LOGS, "models", "checkpoints") for name in sweeps_in(files.list(kind))
    }
    return sorted(filter(is_name, names | {*files.list("requests")}))


def inventory_of(files: Files, name: str) -> SweepInventory:
    """Return what the store holds of a sweep."""
    paths = (path for of_kind in sweep_folders(name).values() for path in of_kind)
    sizes = {file: size for path in paths for file, size in files.sizes(path).items()}
    return _inventory(files, name, _by_kind([name], sizes)[name])


def ancestors(path: str) -> Iterator[str]:
    """Yield a path and the folders that it lies in."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def _by_kind(names: Sequence[str], sizes: Mapping[str, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Sweep -> kind -> path of each file -> bytes."""
    owners = {path: (name, kind) for name in names for kind, paths in sweep_folders(name).items() for path in paths}
    found: dict[str, dict[str, dict[str, int]]] = {name: {kind: {} for kind in sweep_folders(name)} for name in names}
    for file, size in sizes.items():
        for folder in ancestors(file):
            if folder in owners:
                name, kind = owners[folder]
                found[name][kind][file] = size
                break
    return found


def _inventory(files: Files, name: str, by_kind: Mapping[str, Mapping[str, int]]) -> SweepInventory:
    drivers = tuple(Drivers(files, name).living())
    try:
        rows, damaged = _rows(files, name)
    except StoreError as error:
        return SweepInventory(name, sizes=by_kind, drivers=drivers, problem=str(error))
    lists, problems = list_requests(files, name)
    problem, trials = "; ".join([*problems.values()][:MOST_LINES]), frozenset(rows.statuses)
    problem += f"; and {len(problems) - MOST_LINES:,} more" if len(problems) > MOST_LINES else ""
    counts, requests = rows.counts(trials), tuple(_requests(lists, rows))
    return SweepInventory(name, requests, trials, counts, by_kind, drivers, problem, damaged)


@dataclass(frozen=True)
class _LatestRows:
    """The rows of a sweep: of a trial with several the last one, of those that did not fail if it has any.

    It has no object of a row: for 100,000 of them these take longer than all else. Nor does it make Arrow's values of
    Python's, or times of Arrow's, for which pyarrow imports pandas.
    """

    table: pa.Table

    @cached_property
    def trials(self) -> list[str]:
        """With repetitions."""
        return self._column("trial_id")

    @cached_property
    def statuses(self) -> dict[str, str]:
        return self.values("status")

    @cached_property
    def ends(self) -> dict[str, int | None]:
        """Trial -> when it ended, in microseconds since 1970."""
        return self.values("ended", pa.int64())

    def values(self, key: str, kind: pa.DataType | None = None) -> dict[str, Any]:
        """Trial -> its value of a column, which is null if no file has it."""
        return dict(zip(self.trials, self._column(key, kind), strict=True))

    def _column(self, key: str, kind: pa.DataType | None = None) -> list[Any]:
        if key not in self.table.schema.names:
            return [None] * len(self.table)
        return (self.table[key].cast(kind) if kind else self.table[key]).to_pylist()

    def counts(self, trials: Iterable[str]) -> Mapping[str, int]:
        """Status -> number of these trials."""
        return Counter(map(self.statuses.__getitem__, trials))

    def last(self, trials: Iterable[str]) -> datetime | None:
        """When the latest of these trials ended."""
        latest = max(filter(None, map(self.ends.__getitem__, trials)), default=None)
        return None if latest is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=latest)


def _rows(files: Files, name: str) -> tuple[_LatestRows, Mapping[str, str]]:
    """The rows of a sweep, and path -> what is wrong with it of damaged files."""
    reader = StoreReader(files)
    stored = reader.read_intact(trials_folder(name), list(READ))
    reader.stored_columns(name, stored)
    if not stored:
        return _LatestRows(pa.schema([]).empty_table()), reader.damaged
    table = pa.concat_tables([table for _, table in stored.values()], promote_options="default")
    failed = pc.starts_with(table["status"], pattern="failed")
    return _LatestRows(pa.concat_tables([table.filter(failed), table.filter(pc.invert(failed))])), reader.damaged


def _requests(lists: list[RequestRows], rows: _LatestRows) -> list[RequestInventory]:
    """The requests that have rows, and rows that no listed one has by preset and changes; the latest first."""
    found, left = list[RequestInventory](), set(rows.statuses)
    by_study: dict[str, list[str]] = {}
    if any(listed.studies for listed in lists):
        for trial, study in rows.values("study_id").items():
            by_study.setdefault(study, []).append(trial)
    for listed in lists:
        own = rows.statuses.keys() & listed.trials
        own |= {trial for study in listed.studies for trial in by_study.get(study, ())}
        left -= own
        found.append(_request(listed.request, listed, own, rows))
    groups: dict[str, set[str]] = {}
    if left:
        names = {listed.request for listed in lists}
        presets, changes = rows.values("preset"), rows.values("changes")
        for trial in left:
            label = unlisted_name(presets[trial] or "", changes[trial] or "", names)
            groups.setdefault(label, set()).add(trial)
    found += [_request(label, None, own, rows) for label, own in groups.items()]
    return sorted(found, key=lambda request: request.last.timestamp() if request.last else 0, reverse=True)


def _request(label: str, listed: RequestRows | None, trials: set[str], rows: _LatestRows) -> RequestInventory:
    return RequestInventory(label, listed, frozenset(trials), rows.counts(trials), rows.last(trials))
