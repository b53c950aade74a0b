"""Which rows belong to a request, listed in the store as `requests/SWEEP/REQUEST.parquet`.

A row cannot say this: one trial may belong to several requests, and to a request no longer once the definition of its
preset has changed. The list depends on that definition and the request's name alone, so every run of the request writes
the same one, also a run that narrows it. It has one column, so that `rows.merge(pd.read_parquet(LIST))` selects the
rows: the ids of trials; or those of studies, because the trials of a search are known only when they are proposed. The
list of a request that has both grids and searches has both columns, of which one is empty in each row.
"""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sweeper.errors import DamagedError
from sweeper.names import LAW
from sweeper.printing import printable
from sweeper.storage.files import Files
from sweeper.storage.layout import SUFFIX, request_path, requests_folder, trials_folder
from sweeper.storage.parquet_files import parquet_to_table, table_to_parquet
from sweeper.storage.rows import is_id

if TYPE_CHECKING:
    import pandas as pd

NAME, PRESET = b"sweeper.request", b"sweeper.preset"
"""Metadata of a list: the request's name, of which the file's name may be a shorter form, and its preset."""

DECIDED = "decided"
"""What the name of a request has in addition where `--decide` has added seeds to its trials: `digits, decided`."""
LONG_LIST = re.compile(r"([^\s,=]+,[^\s,]+)(?:,[^\s,]+){3,},([^\s,]+)")
"""Six values or more in the name of a request."""
MOST_SHORT = 140
"""Most characters of the name of a request in a heading."""
AGAIN = "again"
"""What the name of a preset has in addition that is made of the best settings of a request, to train them with fresh
seeds (`sweeper best --again`): `digits, again`."""
NO_ID = ""
"""What a column of a list has where another has an id; not null, which rows of grids have as their study."""


@dataclass(frozen=True)
class RequestRows:
    """The rows that belong to a request."""

    request: str
    """The name of the request: `digits, epochs=5`."""
    preset: str
    trials: Sequence[str] = ()
    """The ids of the trials of its grids, in the order of the plan."""
    studies: Sequence[str] = ()
    """The ids of its studies, in the order of the plan."""

    @property
    def columns(self) -> Mapping[str, Sequence[str]]:
        """Column of rows -> its values that belong to the request."""
        known = {"trial_id": self.trials, "study_id": self.studies}
        return {column: ids for column, ids in known.items() if ids} or {"trial_id": ()}

    def holds(self, rows: pd.DataFrame) -> pd.Series:
        """Return of each of the sweep's rows whether it belongs to the request."""
        held = pa.repeat(False, len(rows))
        for column, ids in self.columns.items():
            if column in rows:
                own = pc.is_in(pa.array(rows[column], pa.string()), pa.array(ids, pa.string()))
                held = pc.or_(held, own)
        return held.to_pandas().set_axis(rows.index)

    def select(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return those of the sweep's rows that belong to the request, in the order of `trials`, then of `studies`, and
        in a study by number.

        Trials without a row are left out.
        """
        chosen = list[int]()
        for column, ids in self.columns.items():
            if column in rows:
                order = {name: index for index, name in enumerate(ids)}
                numbers = rows["number"].tolist() if column == "study_id" else [0] * len(rows)
                known = enumerate(zip(rows[column].tolist(), numbers, strict=True))
                places = ((order[name], number, index) for index, (name, number) in known if name in order)
                chosen += [index for *_, index in sorted(places)]
        return rows.iloc[chosen].reset_index(drop=True)


@dataclass(frozen=True)
class StoredRequest:
    """A request that has rows."""

    label: str
    """The name of the request, or of rows that belong to no listed one."""
    preset: str
    rows: pd.DataFrame
    total: int | None
    """Number of its trials; None if that is not known, as of a search."""
    listed: bool = True
    """Whether the store lists it; its name has all that it changes in its preset."""

    @property
    def changes(self) -> str:
        """What it changes in its preset, such as `epochs=5`; empty if nothing."""
        return changes_named(self.label, self.preset)

    @property
    def comparable(self) -> pd.DataFrame:
        """Its rows without those of pruned trials, whose metrics are of an earlier epoch."""
        return self.rows[self.rows["status"] != "pruned"]

    @property
    def so_far(self) -> bool:
        """Whether trials are still to come."""
        return self.total is not None and int((self.rows["status"] != "failed").sum()) < self.total


def unlisted_name(preset: str, changes: str, listed: Collection[str]) -> str:
    """Return how rows of a preset with changes are called that none of the `listed` requests has."""
    name = request_name(preset, changes)
    return f"{name}, earlier definition" if name in listed else name or "no preset"


def request_name(preset: str, changes: str) -> str:
    """Return the name of a request: `digits`, or with changes `digits, epochs=5`."""
    return printable(", ".join(filter(None, [preset, changes])))


def short_name(request: str) -> str:
    """Return the name of a request for a heading, in at most `MOST_SHORT` characters. A list of many values has its
    first two, its last one and their number: `beta=0.1,0.2,…,0.9 (9 values)`."""

    def shortened(values: re.Match[str]) -> str:
        return f"{values[1]},…,{values[2]} ({values[0].count(',') + 1} values)"

    text = LONG_LIST.sub(shortened, request)
    return text if len(text) <= MOST_SHORT else f"{text[: MOST_SHORT - 1]}…"


def changes_named(request: str, preset: str) -> str:
    """Return the changes that the name of a request says, `epochs=5` of `digits, epochs=5`; empty without any."""
    return request.removeprefix(preset).removeprefix(", ")


def decided_changes(changes: str) -> str:
    """Return the changes of the request that has the further seeds of a request with these `changes`."""
    return ", ".join(filter(None, [undecided_changes(changes), DECIDED]))


def undecided_changes(changes: str) -> str:
    """Return the changes of the request whose further seeds the request with these `changes` has; else its own."""
    return changes.removesuffix(DECIDED).removesuffix(", ") if changes.split(", ")[-1] == DECIDED else changes


def preset_again(request: str) -> str:
    """Return the preset of the best settings of a request."""
    return f"{request}, {AGAIN}"


def is_again(preset: str) -> bool:
    """Return whether a preset is made of the best settings of a request."""
    return preset.endswith(f", {AGAIN}")


def write_request(files: Files, sweep: str, listed: RequestRows) -> None:
    """Write the list of a request, unless it is there. What is there in its place is replaced."""
    path = request_path(sweep, listed.request)
    trials, studies = listed.trials, listed.studies
    padded = {"trial_id": [*trials, *(NO_ID for _ in studies)], "study_id": [*(NO_ID for _ in trials), *studies]}
    table = pa.table({column: pa.array(padded[column], pa.string()) for column in listed.columns})
    metadata = {NAME: listed.request.encode(), PRESET: listed.preset.encode()}
    data = table_to_parquet(table.replace_schema_metadata(metadata))
    try:
        known = files.read(path)
    except DamagedError:  # no file, such as a pipe
        known = None
    if known != data:
        files.write(path, data)


def read_request(files: Files, sweep: str, request: str) -> RequestRows | None:
    """Return the list of a request; None if there is none, as in a store of an earlier version, or for a request that
    has not run. Raises StoreError if it is damaged."""
    return _read(files, request_path(sweep, request))


def list_requests(files: Files, sweep: str) -> tuple[list[RequestRows], Mapping[str, str]]:
    """Return the lists of all requests of a sweep, and path -> what is wrong with it for those that are damaged."""
    folder, found, damaged = requests_folder(sweep), list[RequestRows](), dict[str, str]()
    for file in files.list_files(folder, SUFFIX):
        try:
            listed = _read(files, f"{folder}/{file}")
        except DamagedError as error:
            damaged[f"{folder}/{file}"] = str(error)
        else:
            found += [listed] if listed else []
    return found, damaged


def stored_requests(files: Files, sweep: str, rows: pd.DataFrame) -> tuple[list[StoredRequest], Mapping[str, str]]:
    """Return the requests of a sweep that have some of its `rows`, which are sorted by the time they ended: that with
    the latest row first. And path -> what is wrong with it for lists that are damaged.

    Rows that belong to no listed request are of an earlier version of this program, which listed none, or of an
    earlier definition of their preset. They come last, grouped by preset and changes.
    """
    lists, damaged = list_requests(files, sweep)
    held = [each.holds(rows) for each in lists]
    found = [
        StoredRequest(each.request, each.preset, rows[own], None if each.studies else len(each.trials))
        for each, own in zip(lists, held, strict=True)
        if own.any()
    ]
    names, others = {each.request for each in lists}, list[StoredRequest]()
    rest = rows[~functools.reduce(operator.or_, held)] if held else rows
    groups = [rest["preset"].fillna(""), rest["changes"].fillna("")]
    for (preset, changes), own in rest.groupby(groups, sort=False):
        label = unlisted_name(str(preset), str(changes), names)
        others.append(StoredRequest(label, str(preset), own, None, listed=False))

    def latest_first(request: StoredRequest) -> tuple[int, int]:
        return -request.rows.index.max(), len(request.rows)

    return [*sorted(found, key=latest_first), *sorted(others, key=latest_first)], damaged


def selecting_line(files: Files, sweep: str, listed: RequestRows) -> str:
    """Return the expression of pandas that selects the rows of a request."""
    paths = trials_folder(sweep), request_path(sweep, listed.request)
    rows, own = (f"pd.read_parquet({json.dumps(files.display_uri_of(path), ensure_ascii=False)})" for path in paths)
    if len(listed.columns) == 1:
        return f"{rows}.merge({own})"
    return f"{rows}[lambda rows: rows.filter(['trial_id', 'study_id']).isin({own}.to_dict('list')).any(axis=1)]"


def _read(files: Files, path: str) -> RequestRows | None:
    data = files.read(path)
    if data is None:
        return None
    try:
        schema, table = parquet_to_table(data)
        metadata, names = schema.metadata or {}, schema.names
        if not names or not {*names} <= {"trial_id", "study_id"} or {*schema.types} != {pa.string()}:
            raise DamagedError(f"its columns must be trial_id or study_id, but are {', '.join(names) or 'missing'}")
        ids = {name: [own for own in table[name].to_pylist() if own != NO_ID] for name in names}
        for own in (own for of_column in ids.values() for own in of_column):
            if own is None or not is_id(own):
                raise DamagedError(f"it has the id {own!r:.60}, but an id {LAW}")
        request, preset = (metadata[key].decode() for key in (NAME, PRESET))
        if any(name != printable(name) for name in (request, preset)):
            raise DamagedError(f"its name must be printable, but is {printable(request or preset)}")
        return RequestRows(request, preset, ids.get("trial_id", ()), ids.get("study_id", ()))
    except (DamagedError, ValueError, KeyError) as error:
        reason = str(error) if isinstance(error, DamagedError) else "it is no list of a request"
        raise DamagedError(
            f"store {files.display_uri}: '{path}' is damaged: {reason}; the next run of the request writes it anew"
        ) from None
