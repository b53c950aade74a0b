from collections.abc import Mapping

from sweeper.plan import cohorts
from sweeper.plan.cohorts import Trial
from sweeper.plan.plan import Plan
from sweeper.spec import Grid, Metric, Sweep
from sweeper.spec.views import Heatmap

SWEEP = Sweep("about it", {"paper": Grid({}, {})}, (Heatmap(Metric("auroc", "maximize"), "beta", "nu"),))


def make(count: int = 6, statuses: Mapping[str, str] | None = None) -> Plan:
    trials = tuple(Trial(f"t{i}", {"beta": i % 2, "nu": i}) for i in range(count))
    groups = cohorts.group(trials, lambda trial: trial.config["beta"], lambda trial: 0)
    return Plan("grid", "paper", SWEEP, trials, groups, [10] * len(groups), statuses or {})


def test_counts_are_of_the_plans_own_trials() -> None:
    statuses = {"t0": "finished", "t1": "diverged", "t2": "failed", "another": "finished"}
    plan = make(statuses=statuses)
    assert plan.counts == {"finished": 1, "diverged": 1, "pruned": 0, "failed": 1, "to run": 3}
    assert plan.trials_left == 4


def test_an_id_depends_on_the_trials_and_not_on_their_status() -> None:
    assert make().grid_id == make(statuses={"t0": "finished"}).grid_id != make(5).grid_id
