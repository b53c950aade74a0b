"""Make a requested measurement in this process."""

from collections.abc import Callable

import torch

from sweeper.packing.cluster import ProbeRequest
from trainables.profiling.measurement import Probe
from trainables.worker.probe import measure_configs


def probe(request: ProbeRequest, data: str, device: torch.device, wait: Callable[[], None] = lambda: None) -> Probe:
    """Return what was measured on `device`. `data` is the folder of the data sets. `wait` is called while steps are
    compiled, and may raise to end that."""
    return measure_configs(
        request.configs,
        data,
        device,
        seconds=request.seconds,
        threads=request.threads,
        processes=request.processes,
        widths=request.widths,
        compiled=request.compiled,
        wait=wait,
    )
