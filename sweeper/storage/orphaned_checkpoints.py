"""Orphaned checkpoints: those of cohorts whose rows are already in the store.

A driver removes a cohort's checkpoint once it has written the cohort's rows. If two drivers train the same cohort, the
slower one writes the checkpoint again, and the file stays behind if that driver is killed.
"""

from __future__ import annotations

from sweeper.storage.layout import checkpoints_folder, trials_folder
from sweeper.storage.parquet_folder import read_tables
from sweeper.storage.store import Store

CHECKPOINT = ".pt"
"""Suffix of a checkpoint's name, after the cohort's id. Other files of the cohort append a further suffix to it."""


def remove_orphans(store: Store, sweep: str) -> list[str]:
    """Remove the checkpoints of cohorts whose members all have a result. Returns the names of the removed files.

    A driver that still trains such a cohort loses nothing, because the rows that it would write are in the store. The
    checkpoint of a cohort that was split stays, because that cohort has no rows of its own; its last half removes it.
    """
    folder = checkpoints_folder(sweep)
    names = [name for name in store.files.list(folder) if CHECKPOINT in name]
    if not names:
        return []
    finished = _finished_cohorts(store, sweep)
    orphans = [name for name in names if name.partition(CHECKPOINT)[0] in finished]
    for name in orphans:
        store.files.delete(f"{folder}/{name}")
    return orphans


def _finished_cohorts(store: Store, sweep: str) -> set[str]:
    """Return the ids of the cohorts whose members all have a row that is not `failed`."""
    results: dict[str, set[str]] = {}
    sizes: dict[str, int] = {}
    tables = read_tables(store.files, trials_folder(sweep), ["trial_id", "cohort", "cohort_size", "status"])
    for _, table in tables.values():
        for row in table.to_pylist():
            cohort = row["cohort"]
            sizes[cohort] = max(sizes.get(cohort, 0), row["cohort_size"])
            if row["status"] != "failed":
                results.setdefault(cohort, set()).add(row["trial_id"])
    return {cohort for cohort, members in results.items() if len(members) >= sizes[cohort]}
