"""Checkpoints that a run no longer needs: those of finished cohorts, and those that a fresh run replaces."""

import contextlib
from collections.abc import Callable

import pyarrow as pa

from sweeper.storage.files import Files
from sweeper.storage.layout import checkpoint_path, checkpoints_folder, halved_folder, new_archive, trials_folder
from sweeper.storage.parquet_files import read_all, read_or_say
from sweeper.storage.store import Store
from trainables.json_input import JsonError, read_json

CHECKPOINT = ".pt"
"""Suffix of a checkpoint's name, after the cohort's id. Other files of the cohort append a further suffix to it."""


def remove_orphans(store: Store, sweep: str) -> list[str]:
    """Remove the checkpoints of cohorts whose members all have a result. Returns the names of the removed files.

    A driver deletes a cohort's checkpoint once it has written the cohort's rows. If two drivers train the same cohort,
    the slower one writes the checkpoint again, and it stays behind if that driver is killed. A driver that still trains
    such a cohort loses nothing, because the rows that it would write are in the store. A cohort that was split may have
    no rows of its own, and neither have its parts if the driver that split it was killed and another one trained them
    together. So their checkpoints are removed by the trials that the record of the split lists; a version that did not
    list them leaves those.
    """
    folder = checkpoints_folder(sweep)
    names = [name for name in store.files.list(folder) if CHECKPOINT in name]
    if not names:
        return []
    tables = read_or_say(store.files, trials_folder(sweep), ["trial_id", "cohort", "cohort_size", "status"])
    if not tables:
        return []
    rows = pa.concat_tables(table for _, table in tables.values()).to_pandas()
    sizes = rows.groupby("cohort")["cohort_size"].max()
    results = rows[rows["status"] != "failed"].groupby("cohort")["trial_id"].nunique()
    finished = set(results.index[results >= sizes[results.index]])
    trained = set(rows["trial_id"][rows["status"] != "failed"])
    halved = halved_folder(sweep)
    for cohort, record in read_all(store.files, halved, store.files.list(halved)).items():
        parts = _parts(record)
        finished |= {part for part, trials in parts.items() if trained.issuperset(trials)}
        if parts and finished.issuperset(parts):
            finished.add(cohort)
    orphans = [name for name in names if name.partition(CHECKPOINT)[0] in finished]
    for name in orphans:
        store.files.delete(f"{folder}/{name}")
    return orphans


def _parts(record: bytes) -> dict[str, list[str]]:
    """The id of each part of a cohort that was split -> its trials; nothing if a version that did not list them split
    it."""
    parts: dict[str, list[str]] = {}
    with contextlib.suppress(JsonError):
        parts = read_json(dict[str, list[str]], record)
    return parts


def fresh_checkpoints(files: Files, sweep: str, archive: str | None) -> Callable[[str], str]:
    """Return a function from a cohort's id to the path of its checkpoint, for a run that begins anew.

    The first call for a cohort moves the checkpoint that an earlier run left there to the folder `archive` (None: a new
    `_replaced/TIME`). This happens cohort by cohort because cohorts are known only once they are dispatched, and the
    cohorts of other requests must keep their checkpoints.
    """
    leftovers = set(files.list(checkpoints_folder(sweep)))
    archive = archive or new_archive(files.runtime.now())

    def path_of(cohort: str) -> str:
        path = checkpoint_path(sweep, cohort)
        if (name := path.rsplit("/", 1)[1]) in leftovers:
            leftovers.discard(name)
            files.move(path, f"{archive}/{path}")
        return path

    return path_of
