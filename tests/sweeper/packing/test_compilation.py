"""Compiled steps where they pay: made-up devices, and measurements of compiled steps."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.packing.allocate import Allocation
from sweeper.packing.cluster import ProbeRequest
from sweeper.packing.compilation import BUILD_SECONDS, LIKELY_SAVING, compiled_cut
from sweeper.packing.cuts import describe_cuts, recorded_cuts
from sweeper.packing.device_kinds import DeviceKind
from sweeper.plan.cohorts import Cut
from sweeper.storage.store import Store
from tests.sweeper.packing.fake_cluster import CORES, LARGE, FakeMeasure
from tests.sweeper.packing.test_allocate import CPU, GPUS, allocated, grid
from trainables.profiling.measurement import CompiledProbe, Probe

EAGER = 0.01 / 8**0.5
"""Seconds of an eager step of a member in a stack of 8."""
SLOTS = 4
PAYS = int(BUILD_SECONDS / LIKELY_SAVING / (EAGER * 8)) + 10
"""Steps with which 32 trials in 4 cohorts of 8 gain more than compiling takes."""


class MeasureCompiled(FakeMeasure):
    """Compiled steps take `ratio` times as long as eager ones, and are there if `cached` or built."""

    def __init__(self, ratio: float = 0.5, cached: bool = False) -> None:
        super().__init__(CPU | GPUS)
        self._ratio, self._cached = ratio, cached

    def __call__(self, requests: Sequence[ProbeRequest]) -> list[Probe]:
        probes = super().__call__(requests)
        return [self._with_compiled(request, probe) for request, probe in zip(requests, probes, strict=True)]

    def _with_compiled(self, request: ProbeRequest, probe: Probe) -> Probe:
        there = request.compiled and (self._cached or request.compiled.build)
        return replace(probe, compiled=self._ratio * EAGER) if there else probe

    @property
    def compiled(self) -> list[CompiledProbe]:
        return [request.compiled for request in self.requests if request.compiled]


def chosen(store: Path, measure: FakeMeasure, steps: int, *arguments: str, on: DeviceKind = CORES) -> Allocation:
    return allocated(store, measure, grid(steps=steps), *arguments, on=(on,))


def test_a_long_sweep_compiles_its_steps_and_a_short_one_does_not(tmp_path: Path) -> None:
    long, short = MeasureCompiled(), MeasureCompiled()
    assert chosen(tmp_path / "long", long, PAYS).cuts == (Cut(8, 8, compiled=True),)
    assert long.compiled == [CompiledProbe(8, build=True)]
    assert chosen(tmp_path / "short", short, PAYS - 20).cuts == (Cut(8, 8),)
    assert short.compiled == [CompiledProbe(8, build=False)]


def test_steps_that_were_compiled_before_are_used_by_shorter_sweeps(tmp_path: Path) -> None:
    assert chosen(tmp_path, MeasureCompiled(cached=True), PAYS // 2).cuts == (Cut(8, 8, compiled=True),)


def test_what_trains_in_seconds_is_not_even_measured(tmp_path: Path) -> None:
    measure = MeasureCompiled(cached=True)
    assert chosen(tmp_path, measure, 100).cuts == (Cut(8, 8),)
    assert not measure.compiled


def test_compiled_steps_that_are_no_faster_are_not_used(tmp_path: Path) -> None:
    assert chosen(tmp_path, MeasureCompiled(ratio=1.1), 10 * PAYS).cuts == (Cut(8, 8),)


@pytest.mark.parametrize(("option", "compiled"), [("always", True), ("never", False)])
def test_the_request_decides_without_a_measurement(tmp_path: Path, option: str, compiled: bool) -> None:
    measure = MeasureCompiled(cached=True)
    assert chosen(tmp_path, measure, 10 * PAYS, "--compile", option).cuts == (Cut(8, 8, compiled),)
    assert not measure.compiled


def test_a_continued_sweep_keeps_the_choice_unless_it_asks_for_another(tmp_path: Path) -> None:
    first = chosen(tmp_path, MeasureCompiled(), PAYS).cuts
    assert recorded_cuts(Store(tmp_path).files, grid(steps=PAYS)) == list(first)
    slow = MeasureCompiled(ratio=2.0)
    assert chosen(tmp_path, slow, PAYS).cuts == first and not slow.compiled
    assert chosen(tmp_path, slow, PAYS, "--compile", "never").cuts == (Cut(8, 8),)


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


@pytest.mark.parametrize(
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
