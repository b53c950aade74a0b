"""Which trials train with compiled steps: those where these save more time than compiling takes.

For a group of a grid and for a study of a search the same law decides. A study's steps are decided before it begins,
from measurements of a few steps and a lower bound of the steps that it will make. They do not depend on how its trials
turn out.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from sweeper.packing.cluster import DeviceInfo, Slots
from sweeper.packing.packer import Packing
from sweeper.packing.profiler import Profiler, fixed_shape
from sweeper.packing.workloads import Workload, candidate_cuts, cut_in_turn, of_functions
from sweeper.planning import cohorts
from sweeper.planning.cohorts import Cut, Group, Trial, parts
from sweeper.request import Request
from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import cut_path
from trainables.json_input import PositiveCount
from trainables.training.measurement import CompiledMeasurement, Measurement

LIKELY_SAVING = 0.4
"""Share of the eager time that compiled steps save, as assumed before they are measured (measured: 0.3 to 0.8)."""
BUILD_SECONDS = 30.0
"""Seconds to compile the steps of stacks of one width (measured: 15 to 40 s on one core)."""
WIDEST = 16
"""Most members of a compiled stack. A step of a member of `anomaly_grid` with its MLP takes 0.41 ms in stacks of 14,
0.54 ms in one of 56 and 0.53 ms alone (one core, with views and noise; eager: 1.05 ms in one of 56)."""
NARROWEST = 4
"""Fewest members of a compiled stack in a study whose stacks narrow. Narrower ones gain little over single members."""
PROBE_SECONDS = 2.0
"""Seconds to find and measure steps that were compiled before."""
MLP_SECONDS, CONVOLUTION_SECONDS = 1e-3, 4e-3
"""Seconds of an eager step of a small member (measured on the digits, one core: 0.7 to 1.1 ms with an MLP, 4.5 to 9 ms
with convolutions). A search that would save nothing if its steps took so long is not measured."""
MeasureCompiled = Callable[[CompiledMeasurement], float | None]
"""Measures compiled steps: seconds per step and member, or None if they cannot be had."""


def with_compiled_steps(
    packing: Packing, profiler: Profiler, device: DeviceInfo, left: Sequence[float]
) -> list[Workload]:
    """Return the workloads of a packing with their cuts, which say where steps are compiled, and measurements.

    `left` has the share of each group's trials that is still to run. What the store does not know is measured if the
    profiler measures; if not, steps are expected to be compiled where a run would try it. On GPUs nothing has been
    measured yet, so nothing is compiled there.
    """
    workloads = []
    for index, (workload, cut) in enumerate(zip(packing.workloads, packing.cuts, strict=True)):
        compiled = dict(workload.compiled)
        open_choice = not workload.settled_cut and not device.kind.gpus and workload.steps and workload.measurements
        if open_choice:
            candidate = compiled_cut(workload.group, cut)
            widths = _widths(workload, candidate)
            measure = partial(profiler.measure_compiled, device, packing.threads, index) if profiler.measure else None
            pays, seconds = compiling_pays(
                left[index] * _eager_seconds(replace(workload, settled_cut=cut), packing),
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
    seconds = measure(CompiledMeasurement(widths[0], worth_building))
    if seconds is None or wall * (1 - seconds / eager) <= PROBE_SECONDS:
        return False, seconds or known
    return worth_building or all(measure(CompiledMeasurement(width, build=False)) for width in widths[1:]), seconds


def nearest(measurements: Sequence[Measurement], width: int) -> Measurement:
    """Return the measurement of the stack whose width is nearest."""
    return min(measurements, key=lambda stack: abs(stack.width - width))


def _eager_seconds(workload: Workload, packing: Packing) -> float:
    """Seconds that a group takes on all slots together, cut as settled, with eager steps."""
    (candidate,) = candidate_cuts(workload)
    return candidate.alone * math.ceil(candidate.count / packing.slots[1].count)


def _widths(workload: Workload, cut: Cut) -> Sequence[int]:
    """Widths of the stacks whose steps have to be compiled: whole ones, and 1 for what is left over."""
    rest = any(len(members) % cut.width for members in parts(workload.group, cut.size))
    return (cut.width, 1) if rest else (cut.width,)


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


# The studies of a search


@dataclass(frozen=True)
class StudySteps:
    """Which trials of a study train with compiled steps. By default none."""

    width: PositiveCount
    """Members of a compiled stack."""
    every: bool = False
    """True if all trials do, whatever their shapes."""
    shapes: tuple[str, ...] = ()
    """The trials with a config of one of these shapes (`fixed_shape`) do."""

    def compiled(self, config: Mapping[str, Any]) -> bool:
        """Whether a trial with this config trains with compiled steps."""
        return self.every or (bool(self.shapes) and fixed_shape(config) in self.shapes)


@dataclass(frozen=True)
class StudyWork:
    """What a study has left to train."""

    id: str
    configs: Sequence[Mapping[str, Any]]
    """A config of each shape of step that its trials can have; empty if these are too many to compile."""
    waves: Collection[int]
    """Numbers of trials of its waves."""
    steps: float
    """Steps that its remaining trials make together, at least."""
    factor: int = 1
    """One of so many members remains at a rung; 1 without a pruner."""
    together: bool = False
    """Whether each wave is one cohort, as a population is."""
    begun: bool = False
    """Whether some of its trials have results."""
    repeats: int = 1
    """Trials of a proposal, which are cut into one cohort."""

    @property
    def divisor(self) -> int:
        """By what its stacks are narrower than its cohorts, where trials are pruned or differ in shape."""
        return self.factor * max(1, len(self.configs))


@dataclass(frozen=True)
class WaveCutter:
    """Cuts the waves of studies, which share the slots equally. Cuts do not depend on measurements."""

    slots: Slots
    studies: int
    requested: Cut | None = None
    """The cut that is requested, see `requested_cut`."""
    steps: Mapping[str, StudySteps] = field(default_factory=dict)
    """Id of a study -> which of its trials train with compiled steps."""
    judged: bool = False
    """Whether trials are compared while they train."""

    def cut(self, groups: Sequence[Group], whole: bool, repeats: int = 1) -> list[Cut]:
        """Return the cut of each group of a wave: as requested, else to at most one slot's part of the wave's trials.

        Groups are not joined, so several groups may give more cohorts than there are slots. If `whole`, each group is
        one cohort, as a population must be, because its members copy each other. A proposal is `repeats` trials.
        """
        sizes, requested = [sum(map(len, group)) for group in groups], self.requested
        part = self._part(sum(sizes), repeats)
        if whole:
            cuts = [Cut(size, min(size, requested.width) if requested else size) for size in sizes]
        elif requested:
            cuts = [requested] * len(groups)
        else:
            cuts = [Cut(part, part if cohorts.worker_count(group) == 1 else 1) for group in groups]
        cuts = [
            self._in_turn(group, cut, whole, repeats) if of_functions(group) else cut
            for group, cut in zip(groups, cuts, strict=True)
        ]
        return list(map(self._with_steps, groups, cuts))

    def _in_turn(self, group: Group, cut: Cut, whole: bool, repeats: int) -> Cut:
        """Return the cut of functions, which train one after the other; only replicates of a proposal together."""
        if whole or self.requested:
            return Cut(cut.size, 1)
        proposals = 1 if self.judged else max(1, cut_in_turn(group, self.slots.count).size // repeats)
        return Cut(proposals * repeats, 1)

    def lengths(self, work: StudyWork) -> set[int]:
        """Members of the cohorts of a study whose trials all have one shape, as `cut` cuts them."""
        member = Trial("", {})
        repeats, lengths = work.repeats, set[int]()
        for wave in work.waves:
            streams = [[member] * repeats] * (wave // repeats) if repeats > 1 else [[member] * wave]
            size = wave if work.together else self._part(wave, repeats)
            lengths |= {len(part) for part in parts(streams, size)}
        return lengths

    def width(self, work: StudyWork) -> int:
        """Members of the study's compiled stacks. Where stacks narrow while they train, they are narrow from the
        beginning: members that are left over from whole stacks step one at a time."""
        lengths = self.lengths(work)
        if work.divisor == 1:
            return compiled_width(lengths, max(lengths))
        width = min(WIDEST, max(lengths) // work.divisor)
        return width if width >= NARROWEST else 1

    def at_once(self, works: Sequence[StudyWork]) -> int:
        """Cohorts of these studies that train at a time."""
        return min(self.slots.count, sum(math.ceil(max(work.waves) / max(self.lengths(work))) for work in works))

    def _part(self, trials: int, repeats: int) -> int:
        """One slot's part of the trials of a wave: their proposals divided by the slots of one study."""
        return math.ceil(trials / repeats / max(1, self.slots.count // self.studies)) * repeats

    def _with_steps(self, group: Group, cut: Cut) -> Cut:
        """Return the cut of a group with compiled or eager steps, as the study of its first trial has them."""
        trial = group[0][0]
        steps = self.steps.get(str(trial.facts.get("study_id")))
        if steps is None or not steps.compiled(trial.config):
            return replace(cut, compiled=False)
        width = steps.width if cohorts.worker_count(group) == 1 else 1
        return replace(cut, width=min(cut.width, sum(map(len, group))) if self.requested else width, compiled=True)


def requested_steps(request: Request, files: Files, sweep: str, study: str) -> StudySteps | None:
    """Return the steps of a study as requested, else as it was begun; None if neither settles them."""
    recorded = recorded_steps(files, sweep, study)
    if request.compile == "auto":
        return recorded
    return StudySteps(recorded.width if recorded else 1, request.compile == "always")


def recorded_steps(files: Files, sweep: str, study: str) -> StudySteps | None:
    """Return the steps with which the study with this id was begun; None if it was not, or the record is damaged."""
    return read_record(files, cut_path(sweep, study), StudySteps)


def record_steps(files: Files, sweep: str, study: str, steps: StudySteps) -> None:
    """Keep the steps of a study for a continued search."""
    files.write(cut_path(sweep, study), json.dumps(asdict(steps), indent=1).encode())


@dataclass(frozen=True)
class _ShapeWork:
    """Steps of one shape, of all studies together."""

    workload: Workload
    eager: int
    """Members of an eager stack."""
    widths: Sequence[int]
    """Widths of compiled stacks: whole ones, and 1 if members can be left over."""
    seconds_per_step: float
    """Seconds of training with eager steps for each second that a member's step takes."""


def paying_shapes(works: Sequence[StudyWork], cutter: WaveCutter, device: DeviceInfo, profiler: Profiler) -> set[str]:
    """Return the shapes whose compiled steps save more time than they cost, for all these studies together.

    The profiler measures them; it needs no workloads of its own.
    """
    shapes = _shapes(works, cutter)
    if LIKELY_SAVING * sum(map(_unmeasured_seconds, shapes.values())) < PROBE_SECONDS:
        return set()
    profiler = replace(profiler, workloads=[shape.workload for shape in shapes.values()])
    profiles, paying = profiler.profiles(device, 1), set()
    assert profiles is not None, "the profiler measures"
    for index, ((name, shape), profile) in enumerate(zip(shapes.items(), profiles, strict=True)):
        if not profile.measurements:
            continue
        eager = nearest(profile.measurements, shape.eager).seconds
        pays, _ = compiling_pays(
            shape.seconds_per_step * eager,
            eager,
            shape.widths,
            known=profile.compiled.get(shape.widths[0]),
            measure=partial(profiler.measure_compiled, device, 1, index),
        )
        paying |= {name} if pays else set()
    return paying


def _shapes(works: Sequence[StudyWork], cutter: WaveCutter) -> dict[str, _ShapeWork]:
    """Return the shapes of these studies. A study's trials are expected to have all its shapes equally often."""
    shapes: dict[str, _ShapeWork] = {}
    for work in works:
        lengths, width = cutter.lengths(work), cutter.width(work)
        eager = min(max(lengths), math.ceil(max(work.waves) / max(1, len(work.configs))))
        rest = width > 1 and (work.divisor > 1 or any(length % width for length in lengths))
        for config in work.configs:
            name = fixed_shape(config)
            before = shapes[name].seconds_per_step if name in shapes else 0.0
            share = work.steps / len(work.configs) / cutter.at_once(works)
            workload = Workload([[Trial("", config)] * max(eager, width)], (), 1)
            shapes[name] = _ShapeWork(workload, eager, (width, 1) if rest else (width,), before + share)
    return shapes


def _unmeasured_seconds(shape: _ShapeWork) -> float:
    """Seconds of training with eager steps, if these are of a small member."""
    mlp = shape.workload.group[0][0].config.get("encoder", "mlp") == "mlp"
    return shape.seconds_per_step * (MLP_SECONDS if mlp else CONVOLUTION_SECONDS)
