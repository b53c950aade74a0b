import io
import math
from collections.abc import Sequence
from datetime import timedelta

import pandas as pd
import pytest
from rich.console import Console
from rich.text import Text

from sweeper.cli.progress import MIN_INTERVAL, Progress, ProgressBar
from sweeper.cli.running_cohorts import RunningCohort
from sweeper.plan.plan import GridPlan
from sweeper.plan.trials import Trial
from sweeper.spec import Grid, Metric, Sweep
from sweeper.spec.metric import Direction
from sweeper.spec.views import Table


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def plan_of(
    total: int,
    before: Sequence[str] = (),
    metric: str = "score",
    direction: Direction = "maximize",
    columns: Sequence[str] = ("trial",),
) -> GridPlan:
    """A plan whose first trials have the statuses `before`, and whose best trial is identified by `columns`."""
    trials = tuple(Trial(f"p{index}", {}) for index in range(total))
    statuses = {trial.id: status for trial, status in zip(trials, before, strict=False)}
    table = Table("table", tuple(columns), (Metric(metric, direction),))
    return GridPlan("grid", "paper", Sweep("about", {"paper": Grid({}, {})}, tables=(table,)), trials, [], [], statuses)


def make(terminal: bool = False, cohorts: int | None = None, total: int = 10, **more):
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, force_terminal=terminal, width=110, highlight=False)
    plan = plan_of(total, **{"before": ("finished",) * 2, **more})
    return Progress(plan, cohorts, console=console, clock=clock), out, clock


def rows(*values: float | None, status: str = "finished", start: int = 0) -> list[dict[str, object]]:
    return [{"trial_id": f"t{start + i}", "status": status, "score": v, "nu": math.inf} for i, v in enumerate(values)]


def test_plain_lines_are_few_and_the_last_has_all_counts():
    progress, out, clock = make(columns=("nu",))
    with progress:
        for start in range(8):
            progress.started(1)
            clock.now += MIN_INTERVAL / 4
            progress.finished(rows(start / 10, start=start))
    lines = out.getvalue().splitlines()
    assert 2 <= len(lines) <= 4
    assert "10 of 10 trials" in lines[-1] and "best score 0.7 at nu=inf" in lines[-1] and "running" not in lines[-1]


def test_a_plain_line_says_where_the_training_is():
    progress, out, clock = make(total=2)
    with progress:
        progress.started(2)
        progress.advanced("c0", RunningCohort(2, 11.5, 800, 0.25))
        clock.now += MIN_INTERVAL
        progress.advanced("c0", RunningCohort(2, 12.0, 800, value=progress.best([0.5, 0.75, None])))
    lines = out.getvalue().splitlines()
    assert "epoch 12 of 800, loss 0.25, score so far 0.75" in lines[-2]
    assert "epoch" not in lines[-1]


def test_plain_lines_grow_rarer_in_a_long_run():
    progress, out, clock = make()
    with progress:
        for _ in range(3600):
            clock.now += 1
            progress.advanced("c0", RunningCohort(2, 1.0, 800))
    assert 60 < len(out.getvalue().splitlines()) < 120  # of an hour: every 5 s at first, every minute at last


def test_a_retried_trial_counts_once():
    progress, out, _ = make()
    with progress:
        progress.finished(rows(None, status="failed"))
        assert progress.done == 2
        progress.finished(rows(0.5))
        assert progress.done == 3
    assert "failed" not in out.getvalue().splitlines()[-1]


@pytest.mark.parametrize(("direction", "expected"), [("maximize", "0.9"), ("minimize", "0.2")])
def test_best_follows_the_direction_and_skips_values_that_are_not_numbers(direction, expected):
    progress, out, _ = make(direction=direction)
    with progress:
        progress.rank(rows(0.9, start=50))
        progress.finished(rows(None, math.nan, math.inf, -math.inf, 0.2))
    assert f"best score {expected} at trial_id=" in out.getvalue().splitlines()[-1]


def test_counts_are_those_of_all_rows_as_in_the_summary() -> None:
    """Trials from before count by their status. Failed ones are trained again and count by their new row only."""
    before = ("finished",) * 3 + ("pruned",) * 2 + ("diverged", "failed")
    progress, out, _ = make(before=before)
    with progress:
        progress.finished(rows(0.5, start=0) + rows(None, status="diverged", start=1))
        progress.finished(rows(None, status="failed", start=2) + rows(0.5, status="pruned", start=3))
    assert progress.counts == {"finished": 4, "pruned": 3, "diverged": 2, "failed": 1} and progress.done == 9
    assert "9 of 10 trials, finished 4, pruned 3, diverged 2, failed 1, " in out.getvalue().splitlines()[-1]


def test_the_best_trial_is_shown_without_keys_that_its_method_lacks() -> None:
    """In a table of several methods, the missing value is NaN or pandas' null."""
    table = pd.DataFrame({"trial_id": ["a", "b"], "score": [0.9, 0.5], "ema": [None, 0.99], "tau": [0.2, None]})
    table["queue"] = pd.array([None, 512], dtype="Int64")
    progress, out, _ = make(columns=("ema", "tau", "queue"))
    with progress:
        progress.rank(table.to_dict("records"))
    assert out.getvalue().splitlines()[-1].endswith("best score 0.9 at tau=0.2")


def test_running_never_falls_below_none():
    progress, out, clock = make()
    with progress:
        progress.started(2)
        progress.stopped(5)
        clock.now += MIN_INTERVAL
        progress.started(0)
    assert "running 0" in out.getvalue()


def test_the_live_view_shows_counts_best_and_messages():
    progress, out, clock = make(terminal=True, cohorts=4)
    with progress:
        clock.now += 60
        progress.started(3)
        progress.advanced("c0", RunningCohort(3, 0.0, 800))
        clock.now += 60
        progress.advanced("c0", RunningCohort(3, 12.5, 800, 0.25))
        progress.finished(rows(0.5, status="diverged"))
        progress.print_line("cohort 1: worker lost, trying again")
    view = " ".join(Text.from_ansi(out.getvalue()).plain.split())
    for part in (
        "3 of 10 trials",
        "running",
        "diverged",
        "1 of 4",
        "elapsed 0:02:00",
        "left 0:06:38",
        "best score",
        "cohort c0 3 trials epoch 12.5 of 800 loss 0.25",
    ):
        assert part in view
    assert "worker lost" in out.getvalue()


def test_an_error_leaves_the_terminal_and_passes_on():
    progress, out, _ = make(terminal=True)
    with pytest.raises(RuntimeError), progress:
        raise RuntimeError
    assert out.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is back


def test_with_nothing_to_do_all_is_done():
    progress, out, _ = make(total=0, before=(), terminal=True)
    with progress:
        pass
    assert "0 of 0 trials" in Text.from_ansi(out.getvalue()).plain


def begun(total: int, done: int) -> tuple[ProgressBar, Clock]:
    clock = Clock()
    bar = ProgressBar(total, done, Console(file=io.StringIO()), clock, lambda bar: [bar])
    bar.begin()
    return bar, clock


def test_time_left_is_estimated_by_the_speed_of_this_run() -> None:
    bar, clock = begun(total=10, done=6)
    assert bar.time_left is None
    clock.now += 30
    bar.move(7, done=7)
    assert bar.time_left == timedelta(seconds=90) and bar.time_elapsed == timedelta(seconds=30)


def test_time_left_counts_the_epochs_of_trials_without_a_result() -> None:
    bar, clock = begun(total=10, done=0)
    for position in (1, 2):  # 2 of 10 trials' worth in 30 s
        clock.now += 15
        bar.move(position, done=0)
    assert bar.time_left == timedelta(seconds=120)


def test_no_time_is_estimated_from_what_rounding_leaves() -> None:
    """Positions are sums of shares: the same position summed in another order can be larger by a bit."""
    bar, clock = begun(total=10, done=0)
    bar.move(0.3, done=0, trained_before=True)
    clock.now += 30
    bar.move(0.1 + 0.2, done=0)
    assert bar.time_left is None


def test_epochs_of_a_checkpoint_do_not_count_as_speed() -> None:
    bar, clock = begun(total=4, done=0)
    bar.move(2, done=0, trained_before=True)
    clock.now += 30
    bar.move(3, done=0)  # 1 of 4 trials' worth in 30 s, and 1 is left
    assert bar.time_left == timedelta(seconds=30)


def test_the_start_of_processes_does_not_count_as_training() -> None:
    bar, clock = begun(total=10, done=0)
    clock.now += 60
    bar.move(1, done=0, trained_before=True)
    assert bar.time_left is None
    clock.now += 10
    bar.move(2, done=0)
    assert bar.time_left == timedelta(seconds=80), "8 of 10 trials' worth are left, at one in 10 s"
