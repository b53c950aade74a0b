"""Which groups of a grid train with compiled steps: those where these save more time than compiling takes."""

import math
from collections.abc import Sequence
from dataclasses import replace

from sweeper.packing.cluster import DeviceInfo, Measure, ProbeRequest
from sweeper.packing.placement import Placement
from sweeper.packing.profile_store import measured_configs
from sweeper.packing.workloads import Workload, candidate_cuts
from sweeper.plan.cohorts import Cut, Group, parts
from trainables.profiling.measurement import CompiledProbe

LIKELY_SAVING = 0.4
"""Share of the eager time that compiled steps save, as assumed before they are measured (measured: 0.3 to 0.8)."""
BUILD_SECONDS = 30.0
"""Seconds to compile the steps of stacks of one width (measured: 15 to 40 s on one core)."""
WIDEST = 16
"""Most members of a compiled stack. A step of a member of `anomaly_grid` with its MLP takes 0.41 ms in stacks of 14,
0.54 ms in one of 56 and 0.53 ms alone (one core, with views and noise; eager: 1.05 ms in one of 56)."""
PROBE_SECONDS = 2.0
"""Seconds to find and measure steps that were compiled before."""


def compiled_cuts(placement: Placement, device: DeviceInfo, measure: Measure) -> list[Cut]:
    """Return the cuts of a placement on CPU cores, those marked whose groups train with compiled steps.

    Where a group would gain more than it takes to compile its steps, they are compiled and measured; where it would
    gain less, they are measured if they were compiled before. On GPUs nothing has been measured yet, so nothing is
    compiled there.
    """
    cuts = list(placement.packing.cuts)
    if device.kind.gpus:
        return cuts
    for index, (workload, cut) in enumerate(zip(placement.workloads, cuts, strict=True)):
        if workload.settled_cut or not workload.steps or not workload.measurements:
            continue
        wall = _eager_seconds(workload, cut, placement)
        if LIKELY_SAVING * wall < PROBE_SECONDS:
            continue
        candidate = compiled_cut(workload.group, cut)
        builds = BUILD_SECONDS * len(_widths(workload, candidate))
        compiled = CompiledProbe(min(candidate.width, workload.member_count), build=LIKELY_SAVING * wall > builds)
        configs = measured_configs(workload.group)
        (probe,) = measure([ProbeRequest(device.kind, configs, threads=placement.threads, compiled=compiled)])
        if probe and probe.compiled is not None:
            saved = wall * (1 - probe.compiled / _eager_step(workload, cut))
            cuts[index] = candidate if saved > PROBE_SECONDS else cut
    return cuts


def compiled_cut(group: Group, cut: Cut) -> Cut:
    """Return the cut with compiled steps, in stacks of `WIDEST` at most: of the measured widths chance takes now one,
    now another, and each would be compiled. Members that are left over from whole stacks step one at a time, so a stack
    that is up to half as wide is taken if it leaves none over."""
    common, most = math.gcd(*{len(members) for members in parts(group, cut.size)}), min(WIDEST, cut.width)
    width = max(width for width in range(1, min(most, common) + 1) if common % width == 0)
    return replace(cut, width=width if 2 * width >= most else most, compiled=True)


def _eager_seconds(workload: Workload, cut: Cut, placement: Placement) -> float:
    """Seconds that a group takes on all slots together, with eager steps."""
    (candidate,) = candidate_cuts(replace(workload, settled_cut=cut))
    return candidate.seconds * math.ceil(candidate.count / placement.slots.count)


def _eager_step(workload: Workload, cut: Cut) -> float:
    """Seconds of an eager step of a member in a stack as wide as the group's."""
    nearest = min(workload.measurements, key=lambda stack: abs(stack.width - cut.width))
    return nearest.seconds


def _widths(workload: Workload, cut: Cut) -> Sequence[int]:
    """Widths of the stacks whose steps have to be compiled: whole ones, and 1 for what is left over."""
    lengths = {len(members) for members in parts(workload.group, cut.size)}
    return sorted({width for length in lengths for width in _stack_widths(length, cut.width)})


def _stack_widths(length: int, width: int) -> set[int]:
    width = min(width, length)
    return {width, 1} if length % width else {width}
