"""Check a request on this machine, as `sweeper.run --plan` would, before it is sent to a cluster.

The arguments, their keys and their ranges are always checked here. The store and the data may be visible to the cluster
only. What depends on them is then left to the job, which checks everything again before anything trains.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from sweeper.errors import StoreError
from sweeper.masking import masked_url
from sweeper.spec import SpecError
from sweeper.spec.request import Request
from sweeper.storage.store import Store

ABSENT_FOLDER = f"{os.devnull}/absent"
"""A folder that cannot exist, so that nothing is downloaded into it."""
CREDENTIALS_NOTE = (
    "the credentials in {} can be read by all who see the cluster's jobs; better give the machines a role, or set the "
    "credentials in the cluster's environment"
)


def check(request: Request) -> list[str]:
    """Check a request. Returns notes, one line each, on what could not be checked from this machine.

    Raises SpecError or StoreError if the request is wrong.
    """
    if request.list:
        raise SpecError("--list needs no cluster; run python -m sweeper.run --list")
    if "://" not in request.store and not os.path.isabs(os.path.expanduser(request.store)):
        raise SpecError(
            "--store must be a URI (s3://, gs://) or an absolute folder that the cluster's machines share, because a "
            f"job runs in a temporary copy of the working directory, but got {request.store!r}"
        )
    store = Store(request.store)
    addresses = {"--store": store.files.uri} | {f"--track {each.tracker}": each.target or "" for each in request.track}
    shown = [
        f"{option} {masked_url(address)}" for option, address in addresses.items() if masked_url(address) != address
    ]
    notes = [CREDENTIALS_NOTE.format(text) for text in shown]
    if not _is_visible(store):
        notes.append(
            f"store {store.files.display_uri} does not exist yet or is not visible from here; the job checks its rows"
        )
        with tempfile.TemporaryDirectory() as empty:
            return notes + _check_data(replace(request, warm_start=None), Store(empty))
    return notes + _check_data(request, store)


def _check_data(request: Request, store: Store) -> list[str]:
    """Check a request without its data first, so that nothing is downloaded here, then with it if it is visible."""
    if _is_fully_checked(replace(request, data=ABSENT_FOLDER), store):
        return []
    if not os.path.isabs(request.data):
        raise SpecError(
            "--data must be an absolute folder, the same on every machine of the cluster, because these trials read "
            f"or fetch files and a job runs in a temporary copy of the working directory, but got {request.data!r}"
        )
    if Path(request.data).is_dir() and _is_fully_checked(request, store):
        return []
    return [f"the data in {request.data} are not visible from here; the job checks what depends on them"]


def _is_fully_checked(request: Request, store: Store) -> bool:
    """Whether everything could be checked; False if only the data are missing. Raises SpecError for a wrong request."""
    from sweeper.cli.prepare import prepare  # imported here because torch takes seconds to import
    from trainables.data.errors import DataError

    try:
        prepare(request, store)
    except SpecError as error:
        if isinstance(error.__cause__, DataError):
            return False
        raise
    return True


def _is_visible(store: Store) -> bool:
    """Whether the store can be read from this machine. Raises StoreError if it cannot exist anywhere."""
    try:
        folder = store.files.local_folder
        if folder is not None:
            return folder.is_dir()
        store.files.list()
        return True
    except StoreError as error:
        if isinstance(error.__cause__, OSError):  # no network or no permission; the cluster's machines may have both
            return False
        raise
