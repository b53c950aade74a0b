"""The environment in which Ray runs: of this process, of a local cluster, and of its workers."""

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator

from sweeper.spec import user_code

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",
}
"""Environment of this process and the workers: no telemetry, no process beside each group of workers that looks for
nodes about to go, which send SIGTERM (see `cluster.spot_notice`), and no cluster that starts because Ray is called
after it was shut down: nobody would end it, and the next sweep of this process would run on it."""

LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_enable_metrics_collection": "0",
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
}
"""Environment of a local cluster. It listens on the loopback interface only, which Ray does by itself except on Linux,
and has no metrics, because their ports ask for no token."""

NO_SERVER = "http://127.0.0.1:1"
"""An address that refuses at once. Ray Train asks the dashboard's server whether a group of workers lives, and looks
for its address for 20 s where there is none, as in a local cluster; a group that ends sooner would wait for that."""


def set_environment(local: bool) -> None:
    """Set what is not set yet of the environment that Ray reads when it is imported; `local`: for a local cluster."""
    defaults = {**QUIET, **LOOPBACK} if local else QUIET
    os.environ.update({name: value for name, value in defaults.items() if name not in os.environ})


@contextlib.contextmanager
def quiet_loggers() -> Iterator[None]:
    """Context in which Ray logs nothing here."""
    loggers = [logging.getLogger(name) for name in ("ray", "ray.train", "ray.data")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Context in which what Ray's C++ code and its warnings print is dropped; what Python writes to `sys.stderr` is
    not. While Ray looks for a cluster that does not answer, they repeat what its exception then says."""
    sys.stderr.flush()
    with (
        os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace") as ours,
        open(os.devnull, "w") as nothing,
        warnings.catch_warnings(action="ignore"),
    ):
        os.dup2(nothing.fileno(), 2)
        try:
            with contextlib.nullcontext() if _is_captured() else contextlib.redirect_stderr(ours):
                yield
        finally:
            os.dup2(ours.fileno(), 2)


def _is_captured() -> bool:
    """Whether `sys.stderr` is not this process's standard error, as in a notebook."""
    try:
        return sys.stderr.fileno() != 2
    except OSError:
        return True


@contextlib.contextmanager
def environment_of_workers() -> Iterator[None]:
    """The environment that the workers of a local cluster inherit: with it they import the user's modules, and do not
    look for the dashboard's server."""
    folders = [*user_code.folders(), *filter(None, [os.environ.get("PYTHONPATH")])]
    values = {"PYTHONPATH": os.pathsep.join(folders), "RAY_API_SERVER_ADDRESS": NO_SERVER}
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: value for name, value in values.items() if value})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
