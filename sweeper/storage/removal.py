"""Sweeps and requests are removed from a store for good, by `sweeper rm`. A crash between two steps leaves a store that
can be read and a removal that the same call ends.

1. Of a request, the ids of the trials that are removed are written to `.removals/SWEEP/REQUEST.json`. These are its
   trials that no other request lists. A removal that was cut off has its ids there, whatever rows are left.
2. Rows go first, because a row means that the rest is there. Of a file that has other rows, too, these are written to
   a new file before the old one is deleted (`parquet_files.replace`): each row that stays is in one of them, or both.
3. History, evaluations, models, logs and sample grids of the trials follow, then what belongs to the request: pictures,
   verdicts, and last its list and the ids of step 1.

Of a whole sweep each kind is deleted in the order of `layout.sweep_folders`; what is left is found by its folders.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.errors import DamagedError, SpecError, StoreError
from sweeper.names import LAW
from sweeper.storage.evaluations import remove_evaluations
from sweeper.storage.files import Files, read_record
from sweeper.storage.inventory import SweepInventory, ancestors, inventory_of
from sweeper.storage.layout import (
    SUFFIX,
    history_folder,
    log_path,
    model_path,
    removal_path,
    removals_folder,
    request_files,
    sample_grids_folder,
    sweep_folders,
    tensorboard_folder,
    trials_folder,
)
from sweeper.storage.logs import delete_logs
from sweeper.storage.models import delete_models
from sweeper.storage.parquet_files import contents_of, parse_file, replace
from sweeper.storage.rows import is_id, rows_except
from trainables.validation import unknown


@dataclass(frozen=True)
class Removal:
    """What is removed, or would be."""

    sweep: str
    request: str
    """The request; empty for the whole sweep."""
    trials: frozenset[str]
    """Ids of the trials that go."""
    shared: int
    """Number of trials of the request that stay, because another request has them."""
    kinds: Mapping[str, int]
    """What goes -> bytes; of files that keep other rows the share of those that go."""

    @property
    def bytes(self) -> int:
        return sum(self.kinds.values())


def plan_removal(files: Files, sweep: str, request: str = "") -> Removal:
    """Return what `remove` would remove, without changing anything. Raises SpecError if there is nothing of this name,
    and StoreError if the rows cannot be read."""
    found = inventory_of(files, sweep)
    if not request or [each.label for each in found.requests] == [request]:
        if not found.bytes:
            raise SpecError(f"store {files.display_uri}: nothing of sweep '{sweep}' is there")
        return Removal(sweep, "", found.trials, 0, {kind: sum(sizes.values()) for kind, sizes in found.sizes.items()})
    if found.problem:
        raise StoreError(
            f"of {sweep} no single request can be removed, because it is not known what it shares with others: "
            f"{found.problem}"
        )
    begun = read_record(files, removal_path(sweep, request), list[str], _checked)
    own = next((each for each in found.requests if each.label == request), None)
    if own is None and begun is None:
        raise SpecError(unknown("request", request, [each.label for each in found.requests]))
    listed = own.listed.trials if own and own.listed else ()
    wanted = {*(begun or ()), *(own.trials if own else ()), *listed}
    others = _of_others(found, request)
    trials = frozenset(wanted - others)
    return Removal(sweep, request, trials, len(wanted & others & found.trials), _sizes(found, request, trials))


def _checked(trials: list[str]) -> list[str]:
    if odd := next((trial for trial in trials if not is_id(trial)), None):
        raise ValueError(f"it has the id {odd!r:.60}, but an id {LAW}")
    return trials


def _of_others(found: SweepInventory, request: str) -> set[str]:
    """The trials that other requests list or have."""
    others = [each for each in found.requests if each.label != request]
    return {trial for each in others for trial in (*each.trials, *(each.listed.trials if each.listed else ()))}


def _sizes(found: SweepInventory, request: str, trials: frozenset[str]) -> dict[str, int]:
    """Kind -> bytes of what goes with a request. Of what several trials share a file of that is the
    share of its trials."""
    share = len(trials & found.trials) / max(len(found.trials), 1)
    own = request_files(found.name, request)
    folders = tuple(f"{folder}/{trial}" for trial in trials for folder in _trial_folders(found.name))
    models = {model_path(found.name, trial) for trial in trials}
    by_share = ("rows", "history", "evaluations")
    sizes = {kind: round(share * sum(found.sizes[kind].values())) for kind in by_share}
    logs = {log_path(found.name, trial) for trial in trials}
    of_kinds = {"models": models, "logs": logs, "figures": {*own, *folders}, "pages": {*own, *folders}}
    for kind, wanted in of_kinds.items():
        sizes[kind] = sum(size for path, size in found.sizes[kind].items() if not wanted.isdisjoint(ancestors(path)))
    return sizes


def _trial_folders(sweep: str) -> tuple[str, str]:
    """Folders with a folder for each trial."""
    return sample_grids_folder(sweep), tensorboard_folder(sweep)


def remove(files: Files, removal: Removal) -> None:
    """Remove it. No driver may run the sweep."""
    sweep, request, trials = removal.sweep, removal.request, sorted(removal.trials)
    if not request:
        for paths in sweep_folders(sweep).values():
            for path in paths:
                _delete(files, path)
        files.delete_folder(removals_folder(sweep))
        return
    mark = removal_path(sweep, request)
    files.write(mark, json.dumps(trials).encode())
    for folder in (trials_folder(sweep), history_folder(sweep)):
        _remove_rows(files, folder, trials)
    remove_evaluations(files, sweep, trials)
    delete_models(files, sweep, trials)
    delete_logs(files, sweep, trials)
    for folder in _trial_folders(sweep):
        known = set(files.list(folder))
        of_trials = [f"{folder}/{trial}" for trial in trials if trial in known]
        files.each("delete", folder, _delete, of_trials)
    for path in request_files(sweep, request):
        _delete(files, path)
    files.delete(mark)


def make_room(files: Files, removal: Removal) -> None:
    """Delete what needs no writing: all of a sweep; of a request models, logs, sample grids and pictures, but neither
    rows nor its list, by which the rest is found. On a full disk the rest of a removal needs that room."""
    if not removal.request:
        return remove(files, removal)
    delete_models(files, removal.sweep, removal.trials)
    delete_logs(files, removal.sweep, removal.trials)
    folders = [f"{folder}/{trial}" for folder in _trial_folders(removal.sweep) for trial in sorted(removal.trials)]
    for path in (*folders, *request_files(removal.sweep, removal.request)[:-1]):
        _delete(files, path)


def _remove_rows(files: Files, folder: str, trials: list[str]) -> None:
    """Remove the rows of these trials from every file of a folder. One that is damaged stays as it is."""
    for name, data in contents_of(files, folder).items():
        try:
            _, table = parse_file(folder, data)
        except DamagedError:
            continue
        kept = rows_except(table, trials)
        if not len(kept):
            files.delete_if_unchanged(f"{folder}/{name}", data)
        elif len(kept) < len(table):
            replace(files, folder, {name: data}, f"segment-{files.runtime.token()[:16]}{SUFFIX}", kept)


def _delete(files: Files, path: str) -> None:
    """Delete what is at `path`, a file or a folder, if there is anything."""
    found = files.sizes(path)
    files.delete(path) if path in found else files.delete_folder(path)
