"""The trackers of `--track`: which there are, and what each of them needs."""

import importlib.util
import netrc
import os
import shlex
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from sweeper.errors import SpecError
from sweeper.masking import remember
from sweeper.spec.request import TrackRequest
from sweeper.spec.space import unknown
from sweeper.storage.store import Store
from sweeper.trackers.tracker import Tracker

DISTRIBUTION = "sweeper"
"""Name of this project among the installed packages."""
PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
"""Tracker -> the package that it needs."""


def parse_track(text: str) -> TrackRequest:
    """Parse an argument of `--track`. Raises SpecError for an unknown tracker or one whose package is missing."""
    tracker, equals, target = text.partition("=")
    if tracker not in PACKAGES:
        raise SpecError(unknown("tracker", tracker, list(PACKAGES)))
    if equals and not target.strip():
        raise SpecError(f"--track {tracker}= must name a target, but got ''")
    if importlib.util.find_spec(PACKAGES[tracker]) is None:
        install = f"the extra track-{tracker} has it: pip install {' '.join(_requirements(tracker))}"
        raise SpecError(f"--track {tracker} needs the package {PACKAGES[tracker]}, which is not installed; {install}")
    remember(target)
    return TrackRequest(tracker, target or None)


def _requirements(tracker: str) -> list[str]:
    """What the extra of a tracker requires, as a shell takes it: no index of packages has this project by its name."""
    try:
        declared = [text.partition(";") for text in metadata.requires(DISTRIBUTION) or ()]
    except metadata.PackageNotFoundError:
        declared = []
    extra = f'extra == "track-{tracker}"'
    found = [shlex.quote(requirement.strip()) for requirement, _, marker in declared if extra in marker]
    return found or [PACKAGES[tracker]]


def connections(requests: Sequence[TrackRequest], sweep: str, store: Store) -> dict[str, Callable[[], Tracker]]:
    """Return tracker -> a function that connects to it. Raises SpecError if a target is missing or named twice."""
    connects: dict[str, Callable[[], Tracker]] = {}
    for request in requests:
        if request.tracker in connects:
            raise SpecError(f"--track must be given once per tracker, but got {request.tracker} twice")
        connects[request.tracker] = _CONNECT[request.tracker](request.target, sweep, store)
    return connects


def _tensorboard(target: str | None, sweep: str, store: Store) -> Callable[[], Tracker]:
    folder = Path(target) if target else store.files.local_folder
    if folder is None:
        raise SpecError("--track tensorboard writes to a local folder, and the store is none: --track tensorboard=DIR")

    def connect() -> Tracker:
        from sweeper.trackers.tensorboard import TensorBoard

        return TensorBoard(folder / sweep if target else folder / "tensorboard" / sweep)

    return connect


def _mlflow(target: str | None, sweep: str, store: Store) -> Callable[[], Tracker]:
    uri = target or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise SpecError("--track mlflow needs a server: --track mlflow=http://HOST:PORT, or set MLFLOW_TRACKING_URI")
    remember(uri)

    def connect() -> Tracker:
        from sweeper.trackers.mlflow import MLflow

        return MLflow(uri, sweep)

    return connect


def _wandb(target: str | None, sweep: str, store: Store) -> Callable[[], Tracker]:
    if os.environ.get("WANDB_MODE", "online") not in ("offline", "dryrun", "disabled") and not _has_wandb_key():
        raise SpecError("--track wandb needs a key: run `wandb login`, set WANDB_API_KEY, or set WANDB_MODE=offline")

    def connect() -> Tracker:
        from sweeper.trackers.wandb import WandB

        return WandB(target or os.environ.get("WANDB_PROJECT") or sweep)

    return connect


_CONNECT = {"tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb}


def _has_wandb_key() -> bool:
    """Whether W&B finds a key without asking for one, which would block a sweep in a terminal."""
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname
    try:
        file = os.environ.get("NETRC") or str(Path.home() / ".netrc")
        return "WANDB_API_KEY" in os.environ or netrc.netrc(file).authenticators(str(host)) is not None
    except (OSError, netrc.NetrcParseError):
        return False
