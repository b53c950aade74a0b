"""Compiled steps of grids and searches where they pay: made-up devices, and measurements of compiled steps."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.commands.arguments import parse
from sweeper.commands.preview import expectation, outline_plan
from sweeper.packing.allocate import Allocator
from sweeper.packing.cluster import DeviceKind, MeasurementRequest, profile_devices
from sweeper.packing.compilation import (
    BUILD_SECONDS,
    CONVOLUTION_SECONDS,
    LIKELY_SAVING,
    PROBE_SECONDS,
    StudySteps,
    StudyWork,
    compiled_cut,
    recorded_steps,
)
from sweeper.packing.cuts import describe_cuts, recorded_cuts
from sweeper.packing.packer import Packing
from sweeper.packing.profiler import fixed_shape
from sweeper.packing.workloads import COHORT_START_SECONDS
from sweeper.planning.cohorts import Cut, parts
from sweeper.planning.plan import Plan
from sweeper.storage.files import Files
from tests.cases import for_each
from tests.sweeper.packing.fake_cluster import CORES, LARGE, FakeMeasure
from tests.sweeper.packing.test_allocate import CPU, GPUS, SWEEP, allocated, grid
from trainables.training.measurement import CompiledMeasurement, DeviceMeasurement

EAGER = 0.01 / 8**0.5
"""Seconds of an eager step of a member in a stack of 8."""
SLOTS = 4
PAYS = int(BUILD_SECONDS / LIKELY_SAVING / (EAGER * 8)) + 10
"""Steps with which 32 trials in 4 cohorts of 8 gain more than compiling takes."""


class MeasureCompiled(FakeMeasure):
    """Compiled steps take `ratio` times as long as eager ones, and are there if `cached` (True, or of these widths) or
    built."""

    def __init__(self, ratio: float = 0.5, cached: bool | Collection[int] = False) -> None:
        super().__init__(CPU | GPUS)
        self._ratio, self._cached = ratio, cached

    def __call__(self, requests: Sequence[MeasurementRequest]) -> list[DeviceMeasurement]:
        probes = super().__call__(requests)
        return [self._with_compiled(request, probe) for request, probe in zip(requests, probes, strict=True)]

    def _with_compiled(self, request: MeasurementRequest, probe: DeviceMeasurement) -> DeviceMeasurement:
        if not request.compiled:
            return probe
        cached = request.compiled.width in self._cached if isinstance(self._cached, Collection) else self._cached
        return replace(probe, compiled=self._ratio * EAGER) if cached or request.compiled.build else probe

    @property
    def compiled(self) -> list[CompiledMeasurement]:
        return [request.compiled for request in self.requests if request.compiled]


def chosen(
    store: Path, measure: FakeMeasure, steps: int, *arguments: str, on: DeviceKind = CORES, first: int = 0
) -> Packing:
    return allocated(store, measure, grid(steps=steps, first=first), *arguments, on=(on,))


def planned(store: Path, steps: int, *arguments: str, **statuses: str) -> dict[str, Any]:
    """What `--plan` says without a measurement of a sweep of the same shape, of other trials."""
    plan = replace(grid(steps=steps, first=200), grid_statuses=statuses)
    devices = profile_devices(MeasureCompiled().cluster(CORES))
    packing = Allocator(parse(["grid", *arguments]), plan, Files(store), devices, local=True).grids()
    assert packing
    return outline_plan(plan, packing.cuts, "") | expectation(packing, plan, None)


def hours(steps: int, step: float) -> float:
    """Expected hours of cohorts of 8, each on a core of its own."""
    return (COHORT_START_SECONDS + 8 * steps * step) / 3600


def test_a_long_sweep_compiles_its_steps_and_a_short_one_does_not(tmp_path: Path) -> None:
    long, short = MeasureCompiled(), MeasureCompiled()
    assert chosen(tmp_path / "long", long, PAYS).cuts == (Cut(8, 8, compiled=True),)
    assert long.compiled == [CompiledMeasurement(8, build=True)]
    assert chosen(tmp_path / "short", short, PAYS - 20).cuts == (Cut(8, 8),)
    assert short.compiled == [CompiledMeasurement(8, build=False)]


def test_steps_that_were_compiled_before_are_used_by_shorter_sweeps(tmp_path: Path) -> None:
    assert chosen(tmp_path, MeasureCompiled(cached=True), PAYS // 2).cuts == (Cut(8, 8, compiled=True),)


def test_steps_of_members_that_are_left_over_must_be_there_too(tmp_path: Path) -> None:
    plan = grid(37, steps=PAYS // 2)
    (cut,) = allocated(tmp_path / "all", MeasureCompiled(cached=True), plan).cuts
    assert cut.compiled and any(len(members) % cut.width for members in parts(plan.groups[0], cut.size))
    for name, cached, compiled in ("both", {cut.width, 1}, True), ("whole", {cut.width}, False), ("left", {1}, False):
        (cut,) = allocated(tmp_path / name, MeasureCompiled(cached=cached), plan).cuts
        assert cut.compiled == compiled


def test_what_trains_in_seconds_is_not_even_measured(tmp_path: Path) -> None:
    measure = MeasureCompiled(cached=True)
    assert chosen(tmp_path, measure, 100).cuts == (Cut(8, 8),)
    assert not measure.compiled


def test_what_was_measured_is_kept_for_sweeps_of_the_same_shape(tmp_path: Path) -> None:
    """The slow one is not measured at all, the short one only to see that the steps are still there."""
    chosen(tmp_path, MeasureCompiled(ratio=0.5), PAYS)
    slow, gone = MeasureCompiled(ratio=2.0), MeasureCompiled()
    assert chosen(tmp_path, slow, PAYS, first=40).cuts == (Cut(8, 8, compiled=True),) and not slow.compiled
    assert chosen(tmp_path, gone, PAYS // 2, first=80).cuts == (Cut(8, 8),)
    assert gone.compiled == [CompiledMeasurement(8, build=False)]


def test_steps_that_were_measured_to_be_slow_are_not_measured_again(tmp_path: Path) -> None:
    chosen(tmp_path, MeasureCompiled(ratio=1.1), PAYS)
    fast = MeasureCompiled(ratio=0.1)
    assert chosen(tmp_path, fast, 10 * PAYS, first=40).cuts == (Cut(8, 8),) and not fast.compiled


def test_another_version_of_the_code_measures_its_steps_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(tmp_path, MeasureCompiled(), PAYS)
    monkeypatch.setattr("sweeper.packing.allocate.code_version", lambda: "another")
    other = MeasureCompiled()
    chosen(tmp_path, other, PAYS, first=40)
    assert other.compiled == [CompiledMeasurement(8, build=True)]


def test_a_plan_counts_compiled_cohorts_and_their_hours(tmp_path: Path) -> None:
    chosen(tmp_path, MeasureCompiled(), 100)  # too short to be compiled
    unknown, short = planned(tmp_path, PAYS), planned(tmp_path, PAYS // 2)
    assert (unknown["cohorts_compiled"], unknown["compiled_measured"]) == (4, False)
    assert (short["cohorts_compiled"], short["compiled_measured"]) == (0, True)
    assert unknown["hours"] == pytest.approx(hours(PAYS, EAGER))
    chosen(tmp_path, MeasureCompiled(ratio=0.5), PAYS, first=40)
    known, short, never = (
        planned(tmp_path, PAYS),
        planned(tmp_path, PAYS // 2),
        planned(tmp_path, PAYS, "--compile=never"),
    )
    assert (known["cohorts_compiled"], short["cohorts_compiled"], never["cohorts_compiled"]) == (4, 4, 0)
    assert known["compiled_measured"] and known["hours"] == pytest.approx(hours(PAYS, EAGER / 2))
    assert never["hours"] == unknown["hours"]


def test_only_the_trials_that_are_left_count(tmp_path: Path) -> None:
    chosen(tmp_path, MeasureCompiled(), 100)
    most = {trial.id: "finished" for trial in grid(first=200).trials[:31]}
    assert planned(tmp_path, PAYS, **most)["cohorts_compiled"] == 0


def test_compiled_steps_that_are_no_faster_are_not_used(tmp_path: Path) -> None:
    assert chosen(tmp_path, MeasureCompiled(ratio=1.1), 10 * PAYS).cuts == (Cut(8, 8),)


@pytest.mark.parametrize(("option", "compiled"), [("always", True), ("never", False)])
def test_the_request_decides_without_a_measurement(tmp_path: Path, option: str, compiled: bool) -> None:
    measure = MeasureCompiled(cached=True)
    assert chosen(tmp_path, measure, 10 * PAYS, "--compile", option).cuts == (Cut(8, 8, compiled),)
    assert not measure.compiled


def test_a_continued_sweep_keeps_the_choice_unless_it_asks_for_another(tmp_path: Path) -> None:
    first = chosen(tmp_path, MeasureCompiled(), PAYS).cuts
    assert recorded_cuts(Files(tmp_path), grid(steps=PAYS)) == list(first)
    slow = MeasureCompiled(ratio=2.0)
    assert chosen(tmp_path, slow, PAYS).cuts == first and not slow.compiled
    assert chosen(tmp_path, slow, PAYS, "--compile", "never").cuts == (Cut(8, 8),)


@pytest.mark.parametrize(("first", "then"), [("always", "never"), ("never", "always")])
def test_a_kind_of_steps_that_is_requested_for_a_continued_sweep_is_kept(tmp_path: Path, first: str, then: str) -> None:
    for options, compiled in ([first], first), ([], first), ([then], then), ([], then), (["auto"], then):
        arguments = [f"--compile={option}" for option in options]
        cuts = chosen(tmp_path, MeasureCompiled(cached=True), PAYS, *arguments).cuts
        assert cuts == (Cut(8, 8, compiled=compiled == "always"),)


def test_a_cohort_that_is_requested_again_has_the_steps_of_the_sweep(tmp_path: Path) -> None:
    measure = MeasureCompiled()
    chosen(tmp_path, measure, PAYS, "--cohort", "4", "--compile", "always")
    assert chosen(tmp_path, measure, PAYS, "--cohort", "4").cuts == (Cut(4, 4, compiled=True),)
    assert chosen(tmp_path, measure, PAYS, "--cohort", "40").cuts == (Cut(40, 32, compiled=True),)
    assert chosen(tmp_path, measure, PAYS, "--cohort", "4", "--compile", "never").cuts == (Cut(4, 4),)


def test_on_gpus_steps_are_eager_unless_requested(tmp_path: Path) -> None:
    measure = MeasureCompiled(cached=True)
    assert not any(cut.compiled for cut in chosen(tmp_path / "auto", measure, 10 * PAYS, on=LARGE).cuts)
    assert not measure.compiled
    requested = chosen(tmp_path / "always", measure, PAYS, "--compile", "always", on=LARGE)
    assert all(cut.compiled for cut in requested.cuts)


def test_a_requested_cohort_is_compiled_only_if_requested(tmp_path: Path) -> None:
    assert chosen(tmp_path / "auto", MeasureCompiled(cached=True), PAYS, "--cohort", "4").cuts == (Cut(4, 4),)
    compiled = chosen(tmp_path, MeasureCompiled(), PAYS, "--cohort", "4", "--compile", "always").cuts
    assert compiled == (Cut(4, 4, compiled=True),)


def test_the_plan_says_so() -> None:
    assert describe_cuts([Cut(8, 4, compiled=True), Cut(1, 1, compiled=True)]) == [
        "up to 8 trials each, 4 stacked as one, with compiled steps",
        "one trial each, with compiled steps",
    ]


@for_each(
    ("members", "cut", "width"),
    [
        (56, Cut(56, 16), 14),
        (56, Cut(56, 56), 14),
        (19, Cut(19, 19), 16),
        (8, Cut(8, 5), 4),
        (7, Cut(7, 5), 5),
        (9, Cut(4, 4), 3),
        (1, Cut(1, 1), 1),
    ],
)
def test_a_narrower_stack_that_leaves_no_member_over_is_taken(members: int, cut: Cut, width: int) -> None:
    """Nine trials make cohorts of three."""
    (group,) = grid(members).groups
    assert compiled_cut(group, cut) == Cut(cut.size, width, compiled=True)


CONFIG = {"method": "vje", "width": 8, "encoder": "convnet"}
WAVE = 32
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


def chosen_for_studies(
    folder: Path, measure: MeasureCompiled, *studies: StudyWork, options: tuple[str, ...] = (), on: DeviceKind = CORES
) -> list[StudySteps]:
    devices = profile_devices(measure.cluster(replace(on, nodes=(SLOTS,))))
    plan = Plan("search", "paper", SWEEP)
    allocator = Allocator(parse(["search", *options]), plan, Files(folder), devices, True, measure)
    steps = allocator.studies(studies, workers=1).steps
    return [steps[study.id] for study in studies]


def test_a_long_search_compiles_its_steps_and_a_shorter_one_uses_those_that_are_there(tmp_path: Path) -> None:
    measure = MeasureCompiled()
    assert chosen_for_studies(tmp_path / "long", measure, work(BUILT + 1)) == [COMPILED]
    assert measure.compiled == [CompiledMeasurement(8, build=True)]
    for name, cached, expected in ("there", True, COMPILED), ("not", False, EAGER_STEPS):
        measure = MeasureCompiled(cached=cached)
        assert chosen_for_studies(tmp_path / name, measure, work(CACHED + 1)) == [expected]
        assert measure.compiled == [CompiledMeasurement(8, build=False)]


def test_what_was_measured_is_kept(tmp_path: Path) -> None:
    chosen_for_studies(tmp_path, MeasureCompiled(), work(BUILT + 1))
    again = MeasureCompiled(ratio=0.9)
    assert chosen_for_studies(tmp_path, again, work(2 * BUILT, "s1")) == [COMPILED]
    assert not again.timed and not again.compiled


def test_a_short_search_is_not_measured(tmp_path: Path) -> None:
    measure = MeasureCompiled(cached=True)
    steps = PROBE_SECONDS / LIKELY_SAVING * SLOTS / CONVOLUTION_SECONDS
    assert chosen_for_studies(tmp_path, measure, work(steps - 1)) == [EAGER_STEPS] and not measure.timed
    mlp = work(steps + 1, configs=[{**CONFIG, "encoder": "mlp"}])
    assert chosen_for_studies(tmp_path / "mlp", measure, mlp) == [EAGER_STEPS] and not measure.timed
    chosen_for_studies(tmp_path / "longer", measure, work(steps + 1))
    assert measure.timed


def test_a_study_does_not_use_compiled_steps_that_are_no_faster(tmp_path: Path) -> None:
    assert chosen_for_studies(tmp_path, MeasureCompiled(ratio=1.1), work(10 * BUILT)) == [EAGER_STEPS]


def test_studies_whose_steps_have_one_shape_share_what_compiling_costs(tmp_path: Path) -> None:
    """With two studies each wave of 32 trials makes two cohorts of sixteen."""
    studies = [work(0.9 * BUILT, name) for name in ("s0", "s1")]
    assert chosen_for_studies(tmp_path, MeasureCompiled(), *studies) == [StudySteps(16, shapes=(SHAPE,))] * 2
    assert chosen_for_studies(tmp_path / "one", MeasureCompiled(), studies[0]) == [EAGER_STEPS]


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
    assert chosen_for_studies(tmp_path / "few", MeasureCompiled(), few) == [widths[shapes]]
    assert chosen_for_studies(tmp_path / "many", MeasureCompiled(), many) == [
        StudySteps(widths[shapes].width, shapes=names)
    ]


def test_where_trials_are_pruned_single_members_are_compiled_too(tmp_path: Path) -> None:
    """After a rung of factor two, four of eight members are left of a cohort."""
    pruned = [work(factor * BUILT, factor=2) for factor in (1.5, 3)]
    assert chosen_for_studies(tmp_path / "0", MeasureCompiled(), pruned[0]) == [StudySteps(4)]
    assert chosen_for_studies(tmp_path / "1", MeasureCompiled(), pruned[1]) == [StudySteps(4, shapes=(SHAPE,))]


def test_a_population_is_one_cohort(tmp_path: Path) -> None:
    """Its 32 members are stepped by one process, in two stacks."""
    measure = MeasureCompiled(ratio=0.2)
    assert chosen_for_studies(tmp_path, measure, work(BUILT, together=True)) == [StudySteps(16, shapes=(SHAPE,))]
    assert measure.compiled == [CompiledMeasurement(16, build=True)]


def test_the_choice_is_kept_until_another_is_requested(tmp_path: Path) -> None:
    study, measure = work(BUILT + 1), MeasureCompiled(ratio=0.1, cached=True)
    assert chosen_for_studies(tmp_path, MeasureCompiled(ratio=2.0), study) == [EAGER_STEPS]
    assert chosen_for_studies(tmp_path, measure, study) == [EAGER_STEPS] and not measure.requests[1:]
    for options, every in (("--compile=always",), True), ((), True), (("--compile=never",), False), ((), False):
        assert chosen_for_studies(tmp_path, measure, study, options=options) == [StudySteps(8, every)]
        assert recorded_steps(Files(tmp_path), "search", "s0") == StudySteps(8, every)


def test_what_was_begun_without_a_record_goes_on_with_eager_steps(tmp_path: Path) -> None:
    measure = MeasureCompiled(cached=True)
    assert chosen_for_studies(tmp_path, measure, work(BUILT, begun=True)) == [EAGER_STEPS] and not measure.compiled


@pytest.mark.parametrize(("options", "on"), [(("--cohort", "4"), CORES), ((), LARGE)])
def test_with_a_requested_cohort_and_on_gpus_steps_are_eager_unless_requested(
    tmp_path: Path, options: tuple[str, ...], on: DeviceKind
) -> None:
    measure = MeasureCompiled(cached=True)
    assert chosen_for_studies(tmp_path, measure, work(10 * BUILT), options=options, on=on) == [EAGER_STEPS]
    assert not measure.timed and not measure.compiled
    (steps,) = chosen_for_studies(tmp_path, measure, work(BUILT), options=(*options, "--compile", "always"), on=on)
    assert steps.compiled({"method": "vje", "width": 99})


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"width": 0, "every": true, "shapes": []}', b'{"every": true}'])
def test_a_damaged_record_counts_as_absent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cuts/sweep=search").mkdir(parents=True)
    (tmp_path / "cuts/sweep=search/s0.json").write_bytes(content)
    assert recorded_steps(Files(tmp_path), "search", "s0") is None
