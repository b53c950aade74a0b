"""Compiled steps of searches where they pay: made-up devices, and measurements of compiled steps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.cli.arguments import parse
from sweeper.packing.allocate import Allocator
from sweeper.packing.cluster import DeviceKind, profile_devices
from sweeper.packing.compilation import (
    BUILD_SECONDS,
    CONVOLUTION_SECONDS,
    LIKELY_SAVING,
    PROBE_SECONDS,
    StudySteps,
    StudyWork,
    recorded_steps,
)
from sweeper.packing.profiler import fixed_shape
from sweeper.plan.plan import Plan
from sweeper.storage.files import Files
from tests.sweeper.packing.fake_cluster import CORES, LARGE
from tests.sweeper.packing.test_allocate import SWEEP
from tests.sweeper.packing.test_compilation import EAGER, MeasureCompiled
from trainables.training.measurement import CompiledProbe

CONFIG = {"method": "vje", "width": 8, "encoder": "convnet"}
WAVE, SLOTS = 32, 4
"""Each wave is cut into four cohorts of eight trials."""
CACHED = int(PROBE_SECONDS / LIKELY_SAVING * SLOTS / EAGER)
"""Steps from which on those are used that were compiled before."""
BUILT = int(BUILD_SECONDS / LIKELY_SAVING * SLOTS / EAGER)
"""Steps from which on steps of one shape are compiled."""


SHAPE = fixed_shape(CONFIG)
EAGER_STEPS, COMPILED = StudySteps(8), StudySteps(8, shapes=(SHAPE,))


def work(steps: float, study: str = "s0", **changes: Any) -> StudyWork:
    options: dict[str, Any] = {"configs": [CONFIG], "waves": {WAVE}} | changes
    return StudyWork(study, steps=steps, **options)


def chosen(
    folder: Path, measure: MeasureCompiled, *studies: StudyWork, options: tuple[str, ...] = (), on: DeviceKind = CORES
) -> list[StudySteps]:
    devices = profile_devices(measure.cluster(replace(on, nodes=(SLOTS,))))
    plan = Plan("search", "paper", SWEEP)
    allocator = Allocator(parse(["search", *options]), plan, Files(folder), devices, True, measure)
    steps = allocator.studies(studies, workers=1).steps
    return [steps[study.id] for study in studies]


def test_a_long_search_compiles_its_steps_and_a_shorter_one_uses_those_that_are_there(tmp_path: Path) -> None:
    measure = MeasureCompiled()
    assert chosen(tmp_path / "long", measure, work(BUILT + 1)) == [COMPILED]
    assert measure.compiled == [CompiledProbe(8, build=True)]
    for name, cached, expected in ("there", True, COMPILED), ("not", False, EAGER_STEPS):
        measure = MeasureCompiled(cached=cached)
        assert chosen(tmp_path / name, measure, work(CACHED + 1)) == [expected]
        assert measure.compiled == [CompiledProbe(8, build=False)]


def test_what_was_measured_is_kept(tmp_path: Path) -> None:
    chosen(tmp_path, MeasureCompiled(), work(BUILT + 1))
    again = MeasureCompiled(ratio=0.9)
    assert chosen(tmp_path, again, work(2 * BUILT, "s1")) == [COMPILED]
    assert not again.timed and not again.compiled


def test_a_short_search_is_not_measured(tmp_path: Path) -> None:
    measure = MeasureCompiled(cached=True)
    steps = PROBE_SECONDS / LIKELY_SAVING * SLOTS / CONVOLUTION_SECONDS
    assert chosen(tmp_path, measure, work(steps - 1)) == [EAGER_STEPS] and not measure.timed
    mlp = work(steps + 1, configs=[{**CONFIG, "encoder": "mlp"}])
    assert chosen(tmp_path / "mlp", measure, mlp) == [EAGER_STEPS] and not measure.timed
    chosen(tmp_path / "longer", measure, work(steps + 1))
    assert measure.timed


def test_a_study_does_not_use_compiled_steps_that_are_no_faster(tmp_path: Path) -> None:
    assert chosen(tmp_path, MeasureCompiled(ratio=1.1), work(10 * BUILT)) == [EAGER_STEPS]


def test_studies_whose_steps_have_one_shape_share_what_compiling_costs(tmp_path: Path) -> None:
    """With two studies each wave of 32 trials makes two cohorts of sixteen."""
    studies = [work(0.9 * BUILT, name) for name in ("s0", "s1")]
    assert chosen(tmp_path, MeasureCompiled(), *studies) == [StudySteps(16, shapes=(SHAPE,))] * 2
    assert chosen(tmp_path / "one", MeasureCompiled(), studies[0]) == [EAGER_STEPS]


@pytest.mark.parametrize("shapes", [2, 4])
def test_each_shape_must_pay_for_itself_and_narrow_stacks_are_narrow_from_the_beginning(
    tmp_path: Path, shapes: int
) -> None:
    """Of two shapes, stacks of four and single members are compiled; of four shapes single members alone."""
    configs = [{**CONFIG, "width": width} for width in range(shapes)]
    names = tuple(sorted(fixed_shape(config) for config in configs))
    widths = {2: StudySteps(4), 4: StudySteps(1)}
    once = {2: 2, 4: 1}[shapes]
    few, many = (work(factor * shapes * once * BUILT, configs=configs) for factor in (0.4, 2))
    assert chosen(tmp_path / "few", MeasureCompiled(), few) == [widths[shapes]]
    assert chosen(tmp_path / "many", MeasureCompiled(), many) == [StudySteps(widths[shapes].width, shapes=names)]


def test_where_trials_are_pruned_single_members_are_compiled_too(tmp_path: Path) -> None:
    """After a rung of factor two, four of eight members are left of a cohort."""
    pruned = [work(factor * BUILT, factor=2) for factor in (1.5, 3)]
    assert chosen(tmp_path / "0", MeasureCompiled(), pruned[0]) == [StudySteps(4)]
    assert chosen(tmp_path / "1", MeasureCompiled(), pruned[1]) == [StudySteps(4, shapes=(SHAPE,))]


def test_a_population_is_one_cohort(tmp_path: Path) -> None:
    """Its 32 members are stepped by one process, in two stacks."""
    measure = MeasureCompiled(ratio=0.2)
    assert chosen(tmp_path, measure, work(BUILT, together=True)) == [StudySteps(16, shapes=(SHAPE,))]
    assert measure.compiled == [CompiledProbe(16, build=True)]


def test_the_choice_is_kept_until_another_is_requested(tmp_path: Path) -> None:
    study, measure = work(BUILT + 1), MeasureCompiled(ratio=0.1, cached=True)
    assert chosen(tmp_path, MeasureCompiled(ratio=2.0), study) == [EAGER_STEPS]
    assert chosen(tmp_path, measure, study) == [EAGER_STEPS] and not measure.requests[1:]
    for options, every in (("--compile=always",), True), ((), True), (("--compile=never",), False), ((), False):
        assert chosen(tmp_path, measure, study, options=options) == [StudySteps(8, every)]
        assert recorded_steps(Files(tmp_path), "search", "s0") == StudySteps(8, every)


def test_what_was_begun_without_a_record_goes_on_with_eager_steps(tmp_path: Path) -> None:
    measure = MeasureCompiled(cached=True)
    assert chosen(tmp_path, measure, work(BUILT, begun=True)) == [EAGER_STEPS] and not measure.compiled


@pytest.mark.parametrize(("options", "on"), [(("--cohort", "4"), CORES), ((), LARGE)])
def test_with_a_requested_cohort_and_on_gpus_steps_are_eager_unless_requested(
    tmp_path: Path, options: tuple[str, ...], on: DeviceKind
) -> None:
    measure = MeasureCompiled(cached=True)
    assert chosen(tmp_path, measure, work(10 * BUILT), options=options, on=on) == [EAGER_STEPS]
    assert not measure.timed and not measure.compiled
    (steps,) = chosen(tmp_path, measure, work(BUILT), options=(*options, "--compile", "always"), on=on)
    assert steps.compiled({"method": "vje", "width": 99})


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"width": 0, "every": true, "shapes": []}', b'{"every": true}'])
def test_a_damaged_record_counts_as_absent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cuts/sweep=search").mkdir(parents=True)
    (tmp_path / "cuts/sweep=search/s0.json").write_bytes(content)
    assert recorded_steps(Files(tmp_path), "search", "s0") is None
