"""Starts Ray here or joins a cluster, and leaves it, with this process's own handling of SIGTERM."""

import os
from pathlib import Path
from typing import Any

import ray

from sweeper.errors import ClusterError, first_line
from sweeper.execution.driver.ray_environment import quiet_stderr
from sweeper.execution.driver.ray_internals import lean_start, own_sigterm
from sweeper.execution.driver.ray_token import make_token
from sweeper.packing.cluster import is_local
from sweeper.spec import user_code


def start_or_join(address: str | None, scratch: str) -> None:
    """Start a local cluster, or join the one at `address`. Raises ClusterError if that fails."""
    if is_local(address):
        make_token(Path.home(), os.environ)
    try:
        with own_sigterm(), lean_start() if is_local(address) else quiet_stderr():
            ray.init(log_to_driver=False, configure_logging=False, **_init_arguments(address, scratch))
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        what = "start Ray here" if is_local(address) else f"join the Ray cluster at {address}"
        raise ClusterError(f"cannot {what}: {first_line(error, type(error).__name__)}") from error


def shut_down() -> None:
    """Leave the cluster; a local one ends."""
    with own_sigterm():
        ray.shutdown()


def _init_arguments(address: str | None, scratch: str) -> dict[str, Any]:
    """Return the arguments of `ray.init`. A local cluster has no dashboard.

    A cluster elsewhere is sent the user's modules and our code, which the working directory of a Ray job has already.
    """
    if is_local(address):
        return {"address": "local", "include_dashboard": False, "_temp_dir": scratch}
    modules = [*user_code.modules()]
    if address == os.environ.get("RAY_ADDRESS"):
        modules = [module for module in modules if Path(module).parent != Path.cwd()]
    else:
        modules += [str(Path(__file__).parents[3] / name) for name in user_code.WORKER_PACKAGES]
    return {"address": address, "runtime_env": {"py_modules": modules}} if modules else {"address": address}
