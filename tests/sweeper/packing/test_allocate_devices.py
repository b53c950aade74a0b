"""Grids on made-up devices, with injected measurements."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.cli.arguments import parse
from sweeper.cli.preview import expectation
from sweeper.errors import ClusterError
from sweeper.packing.allocate import Allocation, allocate_grid
from sweeper.packing.device_kinds import DeviceKind
from sweeper.packing.profiler import profile_devices
from sweeper.packing.recorded_cuts import record_cut, recorded_cut
from sweeper.plan import cohorts
from sweeper.plan.cohorts import Cut
from sweeper.plan.plan import GridPlan
from sweeper.plan.trials import Trial
from sweeper.spec import Grid, Metric, Sweep
from sweeper.spec.views import Heatmap
from sweeper.storage.store import Store
from tests.sweeper.packing.measured import MIB
from tests.sweeper.packing.sites import CORES, LARGE, MANY, Bench

SWEEP = Sweep("about it", {"paper": Grid({}, {})}, (Heatmap(Metric("auroc", "maximize"), "beta", "nu"),))


def grid(count: int = 32, shapes: int = 1, steps: int = 10_000, first: int = 0, **config: int) -> GridPlan:
    trials = tuple(
        Trial(f"{shape}.{beta}", {"method": "vje", "width": shape, "beta": beta, **config})
        for shape in range(shapes)
        for beta in range(first, first + count)
    )
    groups = cohorts.group(trials, lambda trial: trial.config["width"], lambda trial: 0)
    return GridPlan("grid", "paper", SWEEP, trials, groups, [steps] * len(groups), {})


def arranged(
    store: Path, bench: Bench, plan: GridPlan, *words: str, on: tuple[DeviceKind, ...] = (CORES,)
) -> Allocation:
    site = bench.site(*on)
    return allocate_grid(parse(["grid", *words]), plan, Store(store), profile_devices(site), site)


CPU = {"": 16_000 * MIB}
GPUS = {"A": 2000 * MIB, "B": 900 * MIB}


def test_each_core_has_a_process_with_its_part_of_the_memory(tmp_path: Path) -> None:
    bench = Bench(CPU)
    allocation = arranged(tmp_path, bench, grid())
    (share,) = allocation.places[1].shares
    assert share.resources == {"CPU": 1.0} and (share.count, share.memory) == (4, 4000 * MIB)
    assert allocation.cuts == (Cut(8, 8),) and allocation.timed and allocation.places[1].here
    assert {measurement.how["threads"] for measurement in bench.measured} == {1}


@pytest.mark.parametrize(("steps", "measured"), [(7, 0), (8, 1)])
def test_a_sweep_on_cores_that_is_smaller_than_its_measurement_is_not_measured(
    tmp_path: Path, steps: int, measured: int
) -> None:
    """A measurement of 32 trials makes 4 steps with stacks of 1, 2, 4, ..., 32, which are 252 steps of a member.

    32 trials of 8 steps make 256.
    """
    bench = Bench(CPU)
    allocation = arranged(tmp_path, bench, grid(steps=steps))
    assert len(bench.measured) == measured
    assert allocation.cuts[0].size >= 8, "its trials share cohorts all the same"


def test_a_small_sweep_on_gpus_is_measured(tmp_path: Path) -> None:
    """A cohort's need of GPU memory is never guessed."""
    bench = Bench(GPUS)
    arranged(tmp_path, bench, grid(steps=1), on=(LARGE,))
    assert bench.measured


def test_what_is_known_is_not_measured_again_but_another_shape_is(tmp_path: Path) -> None:
    first, second = Bench(CPU), Bench(CPU)
    before = arranged(tmp_path, first, grid())
    after = arranged(tmp_path, second, grid(first=100))  # other values of what may differ in a stack
    assert len(first.measured) == 1 and second.measured == [] and after.cuts == before.cuts
    arranged(tmp_path, second, grid(shapes=2))
    assert len(second.measured) == 1 and second.measured[0].configs[0]["width"] == 1
    assert arranged(tmp_path, third := Bench(CPU), grid(12)).timed and len(third.measured) == 1
    for path in (tmp_path / "probes").glob("*.json"):
        path.write_text("{")
    assert arranged(tmp_path, fourth := Bench(CPU), grid(first=200)).timed and len(fourth.measured) == 1


def test_other_memory_and_other_code_are_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(CPU)
    arranged(tmp_path, bench, grid())
    monkeypatch.setattr("sweeper.packing.allocate.code_version", lambda: "another")
    arranged(tmp_path, bench, grid(first=100))
    assert len(bench.measured) == 2


def test_many_groups_get_less_time_each(tmp_path: Path) -> None:
    bench = Bench(CPU)
    arranged(tmp_path, bench, grid(2, shapes=2))
    assert [measurement.how["seconds"] for measurement in bench.measured] == [3.0] * 2
    arranged(tmp_path / "many", bench, grid(2, shapes=24))
    assert sum(measurement.how["seconds"] for measurement in bench.measured[2:]) == pytest.approx(12.0)


def test_a_sweep_that_was_begun_keeps_its_cohorts(tmp_path: Path) -> None:
    plan, bench = grid(), Bench(CPU)
    first = arranged(tmp_path, bench, plan)
    (file,) = (tmp_path / "cuts/sweep=grid").iterdir()
    assert [stack["width"] for stack in json.loads(file.read_text())["measured"][0]] == [1, 2, 4, 8, 16, 32]
    slower = Bench(CPU, seconds=1e-6)
    assert arranged(tmp_path, slower, plan).cuts == first.cuts and slower.measured == []
    assert arranged(tmp_path, slower, plan, "--cohort", "5").cuts == (Cut(5, 5),)
    assert recorded_cut(Store(tmp_path).files, plan) == [Cut(5, 5)]


def test_fewer_trials_than_cores_have_several_threads_each(tmp_path: Path) -> None:
    bench = Bench(CPU)
    (share,) = arranged(tmp_path, bench, grid(2)).places[1].shares
    assert share.resources == {"CPU": 2.0} and (share.count, share.memory) == (2, 8000 * MIB)
    assert [measurement.how["threads"] for measurement in bench.measured] == [1, 2]
    for path in (tmp_path / "probes").glob("*.json"):
        path.unlink()
    again = arranged(tmp_path, bench, grid(2)).places[1]
    assert again.shares == (share,) and len(bench.measured) == 2  # as begun, for the last bits may depend on it
    assert arranged(tmp_path, bench, grid(2), "--cohort", "1").places[1].resources == {"CPU": 1.0}


def test_where_memory_is_short_fewer_processes_run(tmp_path: Path) -> None:
    """A member needs 150 MiB with its process: two fit into 320 MiB, which are four fifths of 400 MiB."""
    (share,) = arranged(tmp_path, Bench({"": 400 * MIB}), grid()).places[1].shares
    assert share.resources == {"CPU": 2.0} and share.count == 2


@pytest.mark.parametrize(("words", "count"), [(["--gpu-fraction", "0.5"], 8), (["--gpu-fraction", "0.25"], 16)])
def test_a_fraction_that_is_asked_for_is_taken(words: list[str], count: int, tmp_path: Path) -> None:
    (share,) = arranged(tmp_path, Bench(CPU), grid(), *words).places[1].shares
    assert share.resources == {"CPU": float(words[1])} and (share.count, share.memory) == (count, 16_000 * MIB // count)


def test_a_gpu_is_shared_where_that_is_measured_to_gain(tmp_path: Path) -> None:
    bench = Bench(GPUS)
    allocation = arranged(tmp_path, bench, grid(), on=(LARGE,))
    (share,) = allocation.places[1].shares
    sharing = round(1 / share.resources["GPU"])
    assert sharing in (4, 8) and share.count == 2 * sharing and share.memory == 2000 * MIB // sharing
    assert share.resources["CPU"] * sharing <= 8 and set(share.resources) == {"GPU", "CPU"}
    (shared,) = bench.shared
    assert shared.how["sharing"] == 8 and shared.how["widths"] == [1, 4, 16]
    again = Bench(GPUS)
    assert arranged(tmp_path, again, grid(first=100), on=(LARGE,)).places == allocation.places
    assert again.measured == again.shared == []


def test_where_nodes_come_there_are_cohorts_for_them(tmp_path: Path) -> None:
    """Cohorts are cut for the one GPU that is there, or for the eight that may come."""
    one_gpu = replace(LARGE, nodes=(1,))
    few, many = (
        arranged(tmp_path / name, Bench({"A": 20_000 * MIB}), grid(), "--gpu-fraction", "1", on=(kind,))
        for name, kind in (("few", one_gpu), ("many", replace(one_gpu, comes=True)))
    )
    assert few.cuts == (Cut(32, 32),) and many.cuts[0].size == 4
    assert few.places[1].count == many.places[1].count == 1


def test_a_cut_that_is_asked_for_leaves_the_share_to_choose(tmp_path: Path) -> None:
    """A stack of eight needs 850 of 1,600 MiB, so a second one has no room."""
    bench = Bench(GPUS)
    allocation = arranged(tmp_path, bench, grid(), "--cohort", "8", on=(LARGE,))
    assert allocation.cuts == (Cut(8, 8),) and allocation.places[1].resources["GPU"] == 1.0
    allocation = arranged(tmp_path, bench, grid(), "--cohort", "4", "--stack", "1", on=(LARGE,))
    assert allocation.places[1].resources["GPU"] < 1.0
    bench = Bench(GPUS)
    arranged(tmp_path / "fixed", bench, grid(), "--cohort", "8", "--gpu-fraction", "0.5", on=(LARGE,))
    assert bench.measured == bench.shared == []


def test_several_kinds_are_measured_each_and_asked_for_by_name(tmp_path: Path) -> None:
    bench = Bench(GPUS)
    allocation = arranged(tmp_path, bench, grid(64), on=(LARGE, MANY))
    large, small = allocation.places[1].shares
    assert {asked.kind for asked in bench.measured} == {asked.kind for asked in bench.shared} == {LARGE, MANY}
    assert large.resources["accelerator_type:A"] == small.resources["accelerator_type:B"] == 0.001
    assert allocation.placed
    assert allocation.placed.devices[1].speed == pytest.approx(0.5 * 0.5**0.5)  # half the cores, too
    assert allocation.devices == ["device A", "device B"]


def test_a_cohort_goes_only_where_it_has_room(tmp_path: Path) -> None:
    """A stack of eight needs 850 MiB, but a GPU of the second kind has room for 720 MiB; stacks of two fit."""
    plan = grid(48, shapes=2)
    record_cut(Store(tmp_path).files, plan, [Cut(8, 8), Cut(2, 2)], None)
    allocation = arranged(tmp_path, Bench(GPUS), plan, on=(LARGE, MANY))
    assert len(allocation.places[1].shares) == 2
    assert allocation.places[1].only == {trial.id: (0,) for trial in plan.trials if trial.config["width"] == 0}


def test_trials_of_several_workers_have_whole_devices_and_are_not_measured(tmp_path: Path) -> None:
    bench = Bench(GPUS)
    allocation = arranged(tmp_path, bench, grid(6, workers=2), on=(LARGE,))
    assert allocation.cuts == (Cut(6, 1),) and allocation.placed is None and not allocation.timed
    assert allocation.places[2].resources == {"GPU": 1.0, "CPU": 8.0} and allocation.places[2].count == 1
    assert bench.measured == []
    with pytest.raises(ClusterError, match="a GPU of its own"):
        arranged(tmp_path, bench, grid(6, workers=2), "--gpu-fraction", "0.5", on=(LARGE,))


def test_what_cannot_be_measured_trains_alone_and_nothing_is_expected(tmp_path: Path) -> None:
    bench = Bench(CPU)
    site = bench.site(CORES)
    broken = replace(
        site,
        measure=lambda asked: [
            probe if not task.how else None for task, probe in zip(asked, bench(asked), strict=True)
        ],
    )
    allocation = allocate_grid(parse(["grid"]), grid(), Store(tmp_path), profile_devices(site), broken)
    assert allocation.cuts == (Cut(1, 1),) and not allocation.timed and not list((tmp_path / "probes").glob("*.json"))
    assert expectation(allocation, grid(), 1.0)["hours"] is None


def test_a_cluster_that_says_nothing_is_refused_in_a_line() -> None:
    with pytest.raises(ClusterError, match="report its device, but none did"):
        profile_devices(replace(Bench(CPU).site(CORES), measure=lambda asked: [None for _ in asked]))


def test_hours_and_cost_are_of_what_is_left(tmp_path: Path) -> None:
    """32 members in stacks of 8 on 4 cores: ten thousand steps of sqrt(8) hundredths of a second."""
    plan = grid()
    allocation = arranged(tmp_path, Bench(CPU), plan, "--plan", "--node-price", "3")
    seconds = 0.4 + 10_000 * 0.01 * 8**0.5
    plain = expectation(allocation, plan, 3.0)
    assert plain["hours"] == pytest.approx(seconds / 3600) and plain["cost"] == pytest.approx(3 * seconds / 3600)
    assert (plain["at_a_time"], plain["stack_widths"]) == (4, [8]) and json.loads(json.dumps(plain)) == plain
    half = replace(plan, statuses=dict.fromkeys(plan.ids[:16], "finished"))
    assert expectation(allocation, half, 3.0)["hours"] == pytest.approx(seconds / 7200)
    assert expectation(arranged(tmp_path, Bench(CPU), plan), half, None)["cost"] is None
