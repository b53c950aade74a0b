"""Checkpoints that a run no longer needs: those of finished cohorts, and those that a fresh run replaces."""

import contextlib
from collections.abc import Callable

import pyarrow as pa

from sweeper.storage.files import Files
from sweeper.storage.layout import checkpoint_path, checkpoints_folder, halved_folder, new_archive, trials_folder
from sweeper.storage.parquet_files import read_tables
from sweeper.storage.store import Store
from trainables.json_input import JsonError, read_json

CHECKPOINT = ".pt"
"""Suffix of a checkpoint's name, after the cohort's id. Other files of the cohort append a further suffix to it."""


def remove_orphans(store: Store, sweep: str) -> list[str]:
    """Remove the checkpoints of cohorts whose members all have a result. Returns the names of the removed files.

    A driver deletes a cohort's checkpoint once it has written the cohort's rows. If two drivers train the same cohort,
    the slower one writes the checkpoint again, and it stays behind if that driver is killed. A driver that still trains
    such a cohort loses nothing, because the rows that it would write are in the store. A cohort that was split has no
    rows of its own: its last half removes its checkpoint, unless the driver is killed just then. Its checkpoint is
    removed here if all its parts have their rows; a version that did not record the parts leaves it. Its parts have
    none if the driver that split it was killed, and another one trained the whole cohort: their checkpoints are removed
    with its own.
    """
    folder = checkpoints_folder(sweep)
    names = [name for name in store.files.list(folder) if CHECKPOINT in name]
    if not names:
        return []
    tables = read_tables(store.files, trials_folder(sweep), ["trial_id", "cohort", "cohort_size", "status"])
    if not tables:
        return []
    rows = pa.concat_tables(table for _, table in tables.values()).to_pandas()
    sizes = rows.groupby("cohort")["cohort_size"].max()
    results = rows[rows["status"] != "failed"].groupby("cohort")["trial_id"].nunique()
    finished = set(results.index[results >= sizes[results.index]])
    parts = {cohort: _parts(store.files, sweep, cohort) for cohort in store.files.list(halved_folder(sweep))}
    for _ in parts:  # a part may have been split, too
        finished |= {cohort for cohort, own in parts.items() if own and finished.issuperset(own)}
        finished |= {part for cohort, own in parts.items() if cohort in finished for part in own}
    orphans = [name for name in names if name.partition(CHECKPOINT)[0] in finished]
    for name in orphans:
        store.files.delete(f"{folder}/{name}")
    return orphans


def _parts(files: Files, sweep: str, cohort: str) -> list[str]:
    """The ids of the parts of a cohort that was split; none if a version that did not record them split it."""
    data = files.read(f"{halved_folder(sweep)}/{cohort}")
    parts: list[str] = []
    with contextlib.suppress(JsonError):
        parts = read_json(list[str], data) if data else []
    return parts


def fresh_checkpoints(files: Files, sweep: str, archive: str | None) -> Callable[[str], str]:
    """Return a function from a cohort's id to the path of its checkpoint, for a run that begins anew.

    The first call for a cohort moves the checkpoint that an earlier run left there to the folder `archive` (None: a new
    `_replaced/TIME`). This happens cohort by cohort because cohorts are known only once they are dispatched, and the
    cohorts of other requests must keep their checkpoints.
    """
    leftovers = set(files.list(checkpoints_folder(sweep)))
    archive = archive or new_archive(files.surroundings.now())

    def path_of(cohort: str) -> str:
        path = checkpoint_path(sweep, cohort)
        if (name := path.rsplit("/", 1)[1]) in leftovers:
            leftovers.discard(name)
            files.move(path, f"{archive}/{path}")
        return path

    return path_of
