"""The software, the driver and the cores with which this process trains."""

import functools
import platform
import re
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from trainables.worker.messages import Environment

DRIVER = Path("/proc/driver/nvidia/version")
"""Where NVIDIA's kernel module says its version."""


@functools.cache
def environment_of(device: torch.device) -> Environment:
    """Return the environment of a process that trains on `device`. CUDA and the driver are None on a CPU."""
    gpu = device.type == "cuda"
    return Environment(
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=torch.version.cuda if gpu else None,
        driver=driver_version() if gpu else None,
    )


def driver_version(file: Path = DRIVER) -> str | None:
    """Return the version of NVIDIA's driver, such as `550.54.15`; None if the `file` does not say it."""
    try:
        module = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", file.read_text())
    except OSError:
        return None
    return module[1] if module else None


def use_cores(cores: float) -> None:
    """Use one thread per whole core, so that workers on one machine do not compete for cores. A worker may have loaded
    NumPy before Ray told it its number of cores."""
    threads = max(1, int(cores))
    torch.set_num_threads(threads)
    threadpool_limits(threads, user_api="blas")
