"""What a job is asked to run, checked here as `sweeper.run --plan` would, before anything is sent.

The store and the data may be where only the cluster sees them. What depends on them is then left to the job, which
checks it again before anything trains; the words, their keys and their ranges are always checked here.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from sweeper.errors import StoreError
from sweeper.spec import SpecError
from sweeper.spec.request import Request
from sweeper.storage.store import Store

NOWHERE = f"{os.devnull}/absent"
"""A folder that there cannot be: nothing is fetched into it."""


def check(request: Request) -> list[str]:
    """Returns what could not be seen from here, a line each. SpecError or StoreError for a request that is wrong."""
    if request.list:
        raise SpecError("--list is answered here, without a cluster: python -m sweeper.run --list")
    if "://" not in request.store and not os.path.isabs(os.path.expanduser(request.store)):
        raise SpecError(
            "--store must be a URI (s3://, gs://) or an absolute folder that the cluster's machines share, because a "
            f"job runs in a copy of the working directory that goes with it, but got {request.store!r}"
        )
    store = Store(request.store)
    notes = [_credentials(store)] if store.files.uri != store.files.shown else []
    if not _seen(store):
        notes.append(f"store {store.files.shown} is not there yet or not seen from here; the job looks at its rows")
        with tempfile.TemporaryDirectory() as empty:
            return notes + _check_data(replace(request, warm_start=None), Store(empty))
    return notes + _check_data(request, store)


def _check_data(request: Request, store: Store) -> list[str]:
    """First without files: what needs none is checked in full, and nothing is fetched to this machine for nothing."""
    if _prepared(replace(request, data=NOWHERE), store):
        return []
    if not os.path.isabs(request.data):
        raise SpecError(
            "--data must be an absolute folder, the same on every machine of the cluster, because these trials read "
            f"or fetch files and a job runs in a copy of the working directory, but got {request.data!r}"
        )
    if Path(request.data).is_dir() and _prepared(request, store):
        return []
    return [f"the data in {request.data} are not seen from here; the job checks what depends on them"]


def _prepared(request: Request, store: Store) -> bool:
    """Whether all could be checked; False where only the data are missing. SpecError for anything else."""
    from sweeper.cli.prepare import prepare  # here: it imports torch, which takes seconds
    from trainables.data.errors import DataError

    try:
        prepare(request, store)
    except SpecError as error:
        if isinstance(error.__cause__, DataError):
            return False
        raise
    return True


def _seen(store: Store) -> bool:
    """Whether its rows can be looked at from here. StoreError where it is no place at all."""
    try:
        folder = store.files.local
        if folder is not None:
            return folder.is_dir()
        store.files.list()
        return True
    except StoreError as error:
        if isinstance(error.__cause__, OSError):  # no network, no permission: the cluster's machines may have both
            return False
        raise


def _credentials(store: Store) -> str:
    return (
        f"the credentials in --store {store.files.shown} can be read by all who see the cluster's jobs; better give "
        "the machines a role, or set them in the cluster's environment"
    )
