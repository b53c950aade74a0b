import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from sweeper.cli import outline
from sweeper.cli.outline import describe
from sweeper.packing.recorded_cuts import record_cut, recorded_cut
from sweeper.plan import cohorts
from sweeper.plan.cohorts import Cut
from sweeper.plan.plan import GridPlan
from sweeper.plan.trials import Trial
from sweeper.spec import Grid, Metric, Sweep
from sweeper.spec.views import Heatmap
from sweeper.storage.io.files import Files

SWEEP = Sweep("about it", {"paper": Grid({}, {})}, (Heatmap(Metric("auroc", "maximize"), "beta", "nu"),))


def make(count: int = 6, statuses: Mapping[str, str] | None = None) -> GridPlan:
    trials = tuple(Trial(f"t{i}", {"beta": i % 2, "nu": i}) for i in range(count))
    groups = cohorts.group(trials, lambda trial: trial.config["beta"], lambda trial: 0)
    return GridPlan("grid", "paper", SWEEP, trials, groups, [10] * len(groups), statuses or {})


def test_counts_are_of_the_plans_own_trials() -> None:
    statuses = {"t0": "finished", "t1": "diverged", "t2": "failed", "another": "finished"}
    made = make(statuses=statuses)
    assert made.counts == {"finished": 1, "diverged": 1, "pruned": 0, "failed": 1, "to run": 3}
    assert made.left == 4


def test_an_id_depends_on_which_trials_not_on_what_is_done() -> None:
    assert make().id == make(statuses={"t0": "finished"}).id != make(5).id


def test_a_cut_is_kept_for_its_own_plan(tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert recorded_cut(files, make()) is None
    cuts = [Cut(3, 3), Cut(2, 1)]
    record_cut(files, make(), cuts, measured=[[{"width": 1}]])
    assert recorded_cut(files, make(statuses={"t0": "finished"})) == cuts
    assert recorded_cut(files, make(5)) is None
    (file,) = (tmp_path / "cuts/sweep=grid").iterdir()
    assert json.loads(file.read_text())["measured"] == [[{"width": 1}]]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"cuts": [{"size": 3}]}', b'{"cuts": [{"size": 3, "width": 3}]}']
)
def test_a_damaged_record_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    """The last record has one cut, but the plan has two groups."""
    files = Files(tmp_path)
    record_cut(files, make(), [Cut(3, 3)] * 2, measured=None)
    (file,) = (tmp_path / "cuts/sweep=grid").iterdir()
    file.write_bytes(content)
    assert recorded_cut(files, make()) is None


def test_a_description_is_plain_and_says_what_would_run() -> None:
    made = make(statuses={"t0": "finished", "t2": "finished", "t4": "failed"})
    plain = describe(made, [Cut(2, 2)] * 2, "one core")
    assert json.loads(json.dumps(plain)) == plain
    expected = {"trials": 6, "finished": 2, "failed": 1, "to run": 3, "groups": 2, "cohorts": 4, "cohorts_to_run": 3}
    assert plain | expected == plain and plain["cohort_sizes"] == [1, 2]
    text = outline.text(plain)
    assert "6: 2 finished, 0 diverged, 1 failed, 3 to run" in text and "4 of 1 or 2 trials, 3 to run" in text


def test_a_plan_that_is_not_yet_cut_says_so() -> None:
    plain = describe(make(), None, "one core")
    assert plain["cohorts"] is None and plain["cohort_sizes"] is None
    assert "cut by measurement when the run begins" in outline.text(plain)
