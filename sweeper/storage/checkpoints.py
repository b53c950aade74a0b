"""Files of cohorts that train: which trials they are of, and those that a run no longer needs, of cohorts whose trials
have results or that a fresh run replaces."""

import contextlib
import json
from collections.abc import Callable, Sequence

from sweeper.errors import DamagedError
from sweeper.storage.files import Files
from sweeper.storage.layout import checkpoint_path, checkpoints_folder, new_archive, trials_folder
from sweeper.storage.parquet_files import read_or_say
from sweeper.storage.store import Store
from trainables.json_input import JsonError, read_json

CHECKPOINT = ".pt"
"""Suffix of a checkpoint's name, after the cohort's id. Other files of the cohort append a further suffix to it."""
LABEL = b"trials "
"""What a file of a cohort begins with. The rest of its first line has the ids of the cohort's trials, as JSON."""
LARGEST_LABEL = 1 << 20
"""Bytes of the longest first line, of 50,000 trials."""


def labelled(trials: Sequence[str], content: bytes) -> bytes:
    """Return the content of a cohort's file with the ids of the cohort's trials in front."""
    return b"%s%s\n%s" % (LABEL, json.dumps([*trials]).encode(), content)


def without_label(data: bytes) -> bytes:
    """Return the content of a cohort's file. One that an earlier version wrote has no label."""
    return data.partition(b"\n")[2] if data.startswith(LABEL) else data


def remove_orphans(store: Store, sweep: str) -> list[str]:
    """Remove the files of cohorts whose trials all have a result. Returns their names.

    A driver deletes a cohort's checkpoint once it has written the cohort's rows. It stays behind if that driver is
    killed and the rows come from elsewhere: from another driver that cut the cohorts differently, trained the whole of
    a cohort that was split, or the same cohort faster; or from another store. A driver that still trains such a cohort
    loses nothing, because the rows that it would write are in the store.
    """
    folder = checkpoints_folder(sweep)
    names = [name for name in store.files.list(folder) if CHECKPOINT in name]
    if not names:
        return []
    tables = read_or_say(store.files, trials_folder(sweep), ["trial_id", "status"])
    trained = {
        trial
        for _, table in tables.values()
        for trial, status in zip(*(table[name].to_pylist() for name in ("trial_id", "status")), strict=True)
        if status != "failed"
    }
    orphans = [name for name in names if (trials := _trials_of(store.files, f"{folder}/{name}")) and trials <= trained]
    for name in orphans:
        store.files.delete(f"{folder}/{name}")
    return orphans


def _trials_of(files: Files, path: str) -> set[str]:
    """Return the trials of a cohort's file; none if it is damaged or has no label."""
    with contextlib.suppress(DamagedError, JsonError):
        line = (files.read_start(path, LARGEST_LABEL) or b"").partition(b"\n")[0]
        if line.startswith(LABEL):
            return set(read_json(list[str], line.removeprefix(LABEL)))
    return set()


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
