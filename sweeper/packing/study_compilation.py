"""Decides which trials of a search train with compiled steps, by the law that also holds for grids.

The decision is made before a study begins, from measurements of a few steps and a lower bound of the steps that it will
make. It does not depend on how its trials turn out.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sweeper.packing.compilation import (
    LIKELY_SAVING,
    PROBE_SECONDS,
    WIDEST,
    compiled_width,
    compiling_pays,
    nearest,
)
from sweeper.packing.profiling.cluster import DeviceInfo, Measure
from sweeper.packing.profiling.profile_store import ProfileStore, fixed_shape
from sweeper.packing.profiling.profiler import Profiler
from sweeper.packing.profiling.workloads import Workload
from sweeper.packing.study_steps import StudySteps, record_steps, recorded_steps
from sweeper.plan.cohorts import parts
from sweeper.plan.trials import Trial
from sweeper.request import Request
from sweeper.storage.files import Files
from sweeper.version import code_version

MLP_SECONDS, CONVOLUTION_SECONDS = 1e-3, 4e-3
"""Seconds of an eager step of a small member (measured on the digits, one core: 0.7 to 1.1 ms with an MLP, 4.5 to 9 ms
with convolutions). A search that would save nothing if its steps took so long is not measured."""
NARROWEST = 4
"""Fewest members of a compiled stack in a study whose stacks narrow. Narrower ones gain little over single members."""


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

    @property
    def divisor(self) -> int:
        """By what its stacks are narrower than its cohorts, where trials are pruned or differ in shape."""
        return self.factor * max(1, len(self.configs))


@dataclass(frozen=True)
class StudySlots:
    """Where the studies of a search train."""

    count: int
    """Cohorts of all studies that train at a time."""
    studies: int

    def lengths(self, study: StudyWork) -> set[int]:
        """Members of the cohorts of a study whose trials all have one shape, as `wave_cut` cuts them."""
        share = 1 if study.together else max(1, self.count // self.studies)
        member = Trial("", {})
        return {len(part) for wave in study.waves for part in parts([[member] * wave], math.ceil(wave / share))}

    def width(self, study: StudyWork) -> int:
        """Members of the study's compiled stacks. Where stacks narrow while they train, they are narrow from the
        beginning: members that are left over from whole stacks step one at a time."""
        lengths = self.lengths(study)
        if study.divisor == 1:
            return compiled_width(lengths, max(lengths))
        width = min(WIDEST, max(lengths) // study.divisor)
        return width if width >= NARROWEST else 1

    def at_once(self, studies: Sequence[StudyWork]) -> int:
        """Cohorts of these studies that train at a time."""
        return min(self.count, sum(math.ceil(max(study.waves) / max(self.lengths(study))) for study in studies))


@dataclass(frozen=True)
class _Shape:
    """Steps of one shape, of all studies together."""

    group: Sequence[Sequence[Trial]]
    eager: int
    """Members of an eager stack."""
    widths: Sequence[int]
    """Widths of compiled stacks: whole ones, and 1 if members can be left over."""
    seconds_per_step: float
    """Seconds of training with eager steps for each second that a member's step takes."""


@dataclass(frozen=True)
class StudyCompilation:
    """Chooses the steps of the studies of a sweep."""

    files: Files
    sweep: str
    fusible: Callable[[str], frozenset[str]]
    """Name of a method -> keys in which the members of a cohort may differ."""
    device: DeviceInfo
    slots: StudySlots
    measure: Measure

    def choose(self, request: Request, studies: Sequence[StudyWork]) -> dict[str, StudySteps]:
        """Return id -> steps of each study, and record them.

        `--compile always` and `never` decide; else what was recorded when the study began; else what pays. On GPUs,
        with `--cohort`, and in a study that was begun by a version without records nothing is compiled by itself.
        """
        recorded = {study.id: recorded_steps(self.files, self.sweep, study.id) for study in studies}
        eager = {study.id: recorded[study.id] or StudySteps(self.slots.width(study)) for study in studies}
        if request.compile != "auto":
            every = request.compile == "always"
            chosen = {study: StudySteps(steps.width, every) for study, steps in eager.items()}
        else:
            new = [study for study in studies if not recorded[study.id] and not study.begun]
            shapes = set() if request.cohort or self.device.kind.gpus else self._paying_shapes(new)
            own = {study.id: {fixed_shape(config, self.fusible) for config in study.configs} for study in new}
            paying = {study: tuple(sorted(shapes & own_shapes)) for study, own_shapes in own.items()}
            chosen = eager | {study: StudySteps(eager[study].width, False, paying[study]) for study in paying}
        for study, steps in chosen.items():
            if steps != recorded[study]:
                record_steps(self.files, self.sweep, study, steps)
        return chosen

    def _paying_shapes(self, studies: Sequence[StudyWork]) -> set[str]:
        """Return the shapes whose compiled steps save more time than they cost, for all these studies together."""
        shapes = self._shapes(studies)
        if LIKELY_SAVING * sum(map(_unmeasured_seconds, shapes.values())) < PROBE_SECONDS:
            return set()
        workloads = [Workload(shape.group, (), 1) for shape in shapes.values()]
        profiler = Profiler(workloads, self.fusible, ProfileStore(self.files, code_version()), self.measure)
        profiles, paying = profiler.profiles(self.device, 1), set()
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
                measure=partial(profiler.measure_compiled, self.device, 1, index),
            )
            paying |= {name} if pays else set()
        return paying

    def _shapes(self, studies: Sequence[StudyWork]) -> dict[str, _Shape]:
        """Return the shapes of these studies. A study's trials are expected to have all its shapes equally often."""
        shapes: dict[str, _Shape] = {}
        for study in studies:
            lengths, width = self.slots.lengths(study), self.slots.width(study)
            eager = min(max(lengths), math.ceil(max(study.waves) / max(1, len(study.configs))))
            rest = width > 1 and (study.divisor > 1 or any(length % width for length in lengths))
            for config in study.configs:
                name = fixed_shape(config, self.fusible)
                before = shapes[name].seconds_per_step if name in shapes else 0.0
                share = study.steps / len(study.configs) / self.slots.at_once(studies)
                group = [[Trial("", config)] * max(eager, width)]
                shapes[name] = _Shape(group, eager, (width, 1) if rest else (width,), before + share)
        return shapes


def _unmeasured_seconds(shape: _Shape) -> float:
    """Seconds of training with eager steps, if these are of a small member."""
    mlp = shape.group[0][0].config.get("encoder", "mlp") == "mlp"
    return shape.seconds_per_step * (MLP_SECONDS if mlp else CONVOLUTION_SECONDS)
