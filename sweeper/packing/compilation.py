"""Which groups of a grid train with compiled steps: those where these save more time than compiling takes."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from sweeper.packing.placement import Placement
from sweeper.packing.profiling.cluster import DeviceInfo
from sweeper.packing.profiling.profiler import Profiler
from sweeper.packing.profiling.workloads import Workload, candidate_cuts
from sweeper.plan.cohorts import Cut, Group, parts
from trainables.training.measurement import CompiledProbe, Measurement

LIKELY_SAVING = 0.4
"""Share of the eager time that compiled steps save, as assumed before they are measured (measured: 0.3 to 0.8)."""
BUILD_SECONDS = 30.0
"""Seconds to compile the steps of stacks of one width (measured: 15 to 40 s on one core)."""
WIDEST = 16
"""Most members of a compiled stack. A step of a member of `anomaly_grid` with its MLP takes 0.41 ms in stacks of 14,
0.54 ms in one of 56 and 0.53 ms alone (one core, with views and noise; eager: 1.05 ms in one of 56)."""
PROBE_SECONDS = 2.0
"""Seconds to find and measure steps that were compiled before."""
MeasureCompiled = Callable[[CompiledProbe], float | None]
"""Measures compiled steps: seconds per step and member, or None if they cannot be had."""


def with_compiled_steps(
    placement: Placement, profiler: Profiler, device: DeviceInfo, left: Sequence[float]
) -> list[Workload]:
    """Return the workloads of a placement with their cuts, which say where steps are compiled, and measurements.

    `left` has the share of each group's trials that is still to run. What the store does not know is measured if the
    profiler measures; if not, steps are expected to be compiled where a run would try it. On GPUs nothing has been
    measured yet, so nothing is compiled there.
    """
    workloads = []
    for index, (workload, cut) in enumerate(zip(placement.workloads, placement.packing.cuts, strict=True)):
        compiled = dict(workload.compiled)
        open_choice = not workload.settled_cut and not device.kind.gpus and workload.steps and workload.measurements
        if open_choice:
            candidate = compiled_cut(workload.group, cut)
            widths = _widths(workload, candidate)
            measure = partial(profiler.measure_compiled, device, placement.threads, index) if profiler.measure else None
            pays, seconds = compiling_pays(
                left[index] * _eager_seconds(replace(workload, settled_cut=cut), placement),
                nearest(workload.measurements, cut.width).seconds,
                widths,
                known=compiled.get(widths[0]),
                measure=measure,
            )
            cut = candidate if pays else cut
            compiled |= {widths[0]: seconds} if seconds else {}
        workloads.append(replace(workload, settled_cut=cut, compiled=compiled))
    return workloads


def compiling_pays(
    wall: float, eager: float, widths: Sequence[int], known: float | None, measure: MeasureCompiled | None
) -> tuple[bool, float | None]:
    """Return whether compiled steps save more time than they cost, and the seconds of one per member if known.

    - `wall`: seconds that the training takes with eager steps, which take `eager` seconds per member
    - `widths`: of the stacks whose steps are needed, first of those that make nearly all of them
    - `known`: seconds of a compiled step per member, measured earlier, when it was compiled
    - `measure`: measures them now; None if nothing is measured, and steps that are `known` count as still there

    If the steps are not worth compiling, those of all widths must be there.
    """
    saved = wall * (LIKELY_SAVING if known is None else 1 - known / eager)
    worth_building = saved > BUILD_SECONDS * len(widths)
    if saved < PROBE_SECONDS:
        return False, known
    if measure is None:
        return worth_building or known is not None, known
    if worth_building and known is not None:
        return True, known
    seconds = measure(CompiledProbe(widths[0], worth_building))
    if seconds is None or wall * (1 - seconds / eager) <= PROBE_SECONDS:
        return False, seconds or known
    return worth_building or all(measure(CompiledProbe(width, build=False)) for width in widths[1:]), seconds


def compiled_cut(group: Group, cut: Cut) -> Cut:
    """Return the cut with compiled steps, in stacks of `WIDEST` at most: of the measured widths chance takes now one,
    now another, and each would be compiled. Members that are left over from whole stacks step one at a time, so a stack
    that is up to half as wide is taken if it leaves none over."""
    lengths = {len(members) for members in parts(group, cut.size)}
    return replace(cut, width=compiled_width(lengths, cut.width), compiled=True)


def compiled_width(lengths: Collection[int], most: int) -> int:
    """Return how many members of cohorts of these lengths are stacked with compiled steps, at `most`."""
    common, most = math.gcd(*lengths), min(WIDEST, most)
    width = max(width for width in range(1, min(most, common) + 1) if common % width == 0)
    return width if 2 * width >= most else most


def nearest(measurements: Sequence[Measurement], width: int) -> Measurement:
    """Return the measurement of the stack whose width is nearest."""
    return min(measurements, key=lambda stack: abs(stack.width - width))


def _eager_seconds(workload: Workload, placement: Placement) -> float:
    """Seconds that a group takes on all slots together, cut as settled, with eager steps."""
    (candidate,) = candidate_cuts(workload)
    return candidate.seconds * math.ceil(candidate.count / placement.slots.count)


def _widths(workload: Workload, cut: Cut) -> Sequence[int]:
    """Widths of the stacks whose steps have to be compiled: whole ones, and 1 for what is left over."""
    rest = any(len(members) % cut.width for members in parts(workload.group, cut.size))
    return (cut.width, 1) if rest else (cut.width,)
