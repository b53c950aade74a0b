"""`--hours` and `--cost`: which cohorts are started, and how a run ends at a limit. The clock is the test's."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.commands import run, sweep_run
from sweeper.execution.budget import HOUR, Budget, BudgetSpent
from sweeper.packing.cluster import DeviceKind
from sweeper.planning.cohorts import Cohort, Trial
from tests import fake_executor
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import rows, small_grid
from trainables.reports import Heartbeat
from trainables.worker.messages import CohortTask


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def cohort(name: str, members: int = 1, width: int = 8) -> Cohort:
    trials = (Trial(f"{name}{index}", {"method": "vje", "width": width, "epochs": 10}) for index in range(members))
    return Cohort(name, tuple(trials), members)


def train(budget: Budget, clock: Clock, trained: Cohort, seconds: float, begun: float = 0.0) -> None:
    budget.started(trained)
    budget.advanced(trained, Heartbeat(begun, 10, None, begun))
    clock.now += seconds
    budget.recorded(trained, ())


def shape(trial: Trial) -> object:
    return trial.config["width"]


def test_how_long_a_cohort_takes_is_learned_from_those_of_its_kind_else_measured_else_of_its_method() -> None:
    clock = Clock()
    budget = Budget(1.0, clock=clock)
    measured = {"a": 100.0, "b": 100.0, "c": 50.0}
    budget.begin(shape, lambda cohort: measured.get(cohort.id), None)
    assert budget.seconds_of(cohort("a")) == 100.0 and budget.seconds_of(cohort("x")) is None
    train(budget, clock, cohort("a", members=2), 300.0)
    assert budget.seconds_of(cohort("b", members=4)) == 600.0
    assert budget.seconds_of(cohort("c", width=16)) == 150.0  # a took three times as long as was measured
    assert budget.seconds_of(cohort("x", members=3, width=16)) == 450.0
    train(budget, clock, cohort("y", width=32), 60.0, begun=5.0)  # the second half of one that was cut off before
    assert budget.seconds_of(cohort("z", width=32)) == pytest.approx(120.0)


@given(st.floats(0.01, 100), st.floats(0.01, 1000), st.floats(0.1, 50), st.floats(0, 0.99))
def test_a_cohort_is_started_only_if_it_ends_before_both_limits(
    hours: float, cost: float, price: float, passed: float
) -> None:
    clock = Clock()
    budget = Budget(hours, cost, clock)
    most = min(hours, cost / price) * HOUR
    budget.begin(shape, lambda cohort: float(cohort.id), price)
    clock.now = passed * most
    assert not budget.fits(cohort(str(1.001 * (most - clock.now))))
    assert budget.fits(cohort(str(max(0.0, 0.999 * (0.9 * most - clock.now))))) or passed > 0.89
    clock.now = most
    with pytest.raises(BudgetSpent, match=r"--hours|--cost"):
        budget.check()


def test_a_cost_counts_the_nodes_of_each_stage_from_its_first_cohort_on() -> None:
    clock = Clock()
    budget = Budget(cost=10.0, clock=clock)
    clock.now = 50 * HOUR  # until the first stage nothing costs
    budget.begin(shape, lambda cohort: None, 2.0)
    clock.now += 2 * HOUR
    budget.begin(shape, lambda cohort: 0.9 * HOUR, 6.0)
    budget.check()
    assert budget.name == "--cost 10" and budget.fits(cohort("a"))  # 4 were spent, and 6 are one hour
    clock.now += 0.3 * HOUR
    assert not budget.fits(cohort("a"))


def test_the_end_of_a_run_waits_for_half_of_what_is_left_at_most() -> None:
    clock = Clock()
    budget = Budget(1.0, clock=clock)
    assert budget.longest_wait(60.0) == Budget(clock=clock).longest_wait(60.0) == 60.0
    clock.now = HOUR - 30.0
    assert (budget.longest_wait(60.0), budget.longest_wait(5.0)) == (15.0, 5.0)
    clock.now = HOUR + 1.0
    assert budget.longest_wait(60.0) == 0.0


@pytest.mark.slow
@pytest.mark.usefixtures("unreported")
def test_a_run_stops_before_its_limit_and_the_same_command_continues_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of the two cohorts takes an hour. A limit of 1.5 hours is for one of them. The command that continues a run
    with `--fresh` is without it."""
    clock = Clock()
    monkeypatch.setattr(sweep_run, "Budget", lambda hours, cost, _: Budget(hours, cost, clock))
    monkeypatch.setattr(fake_executor, "CORES", DeviceKind(False, "", (1,)))
    tasks: list[CohortTask] = []

    def take_an_hour(task: CohortTask) -> None:
        tasks.append(task)
        clock.now += HOUR

    command = small_grid(tmp_path / "store", "--hours", "1.5")
    with without_ray(tmp_path, take_an_hour):
        assert run.main([*command, "--fresh"]) == 130
        last = capsys.readouterr().out.splitlines()[-1]
        assert last.startswith(f"stopped by --hours 1.5: 3 of 6 trials are in {tmp_path / 'store'}, 3 are left; ")
        assert last.endswith("the same command without --fresh continues: sweeper run " + " ".join(command))
        assert len(rows(tmp_path / "store", "anomaly_grid")) == 3 and len(tasks) == 1
        assert run.main(command) == 0
    assert len(rows(tmp_path / "store", "anomaly_grid")) == 6 and len(tasks) == 2
