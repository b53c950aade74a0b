import io
import math

import pytest
from rich.console import Console
from rich.text import Text

from sweeper.cli.progress.running_cohorts import RunningCohort
from sweeper.cli.progress.sweep_progress import MIN_INTERVAL, Progress
from tests.sweeper.cli.progress.examples import Clock, plan_of, plan_of_groups


def make(terminal: bool = False, cohorts: int | None = None, total: int = 10, **more):
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, force_terminal=terminal, width=110, highlight=False)
    plan = plan_of(total, **{"before": ("finished",) * 2, **more})
    return Progress(plan, cohorts, console=console, clock=clock), out, clock


def rows(*values: float | None, status: str = "finished", start: int = 0) -> list[dict[str, object]]:
    return [
        {"trial_id": f"t{start + i}", "status": status, "score": v, "nu": 1.0 + start + i} for i, v in enumerate(values)
    ]


def test_plain_lines_are_few_and_the_last_has_all_counts():
    progress, out, clock = make(columns=("nu",))
    with progress:
        for start in range(8):
            progress.started(1)
            clock.now += MIN_INTERVAL / 4
            progress.finished(rows(start / 10, start=start))
    lines = out.getvalue().splitlines()
    assert 2 <= len(lines) <= 4
    assert (
        "10 of 10 trials" in lines[-1]
        and "best score: 0.700 (one trial) at nu=8; chosen on test images" in lines[-1]
        and "running" not in lines[-1]
    )


def test_a_plain_line_says_where_the_training_is():
    progress, out, clock = make(total=2)
    with progress:
        progress.started(2)
        progress.advanced("c0", ("t0", "t1"), RunningCohort(2, 11.5, 800, 0.25))
        clock.now += MIN_INTERVAL
        progress.advanced("c0", ("t0", "t1"), RunningCohort(2, 12.0, 800, value=progress.mean([0.5, 1.0, None])))
    lines = out.getvalue().splitlines()
    assert "epoch 12 of 800, loss 0.25, mean score so far 0.75" in lines[-2]
    assert "epoch" not in lines[-1]


def test_plain_lines_grow_rarer_in_a_long_run():
    progress, out, clock = make()
    with progress:
        for _ in range(3600):
            clock.now += 1
            progress.advanced("c0", ("t0", "t1"), RunningCohort(2, 1.0, 800))
    assert 60 < len(out.getvalue().splitlines()) < 120  # of an hour: every 5 s at first, every minute at last


def test_the_time_left_weighs_trials_by_their_steps():
    """Nine of ten have ended; the last one has a hundred times the steps of these together, and is a tenth done."""
    out, clock = io.StringIO(), Clock()
    plan = plan_of_groups([("vje", 9, 100), ("vje", 1, 90_000)])
    console = Console(file=out, width=110, highlight=False)
    progress, ids = Progress(plan, console=console, clock=clock), [f"g0t{index}" for index in range(9)]
    with progress:
        clock.now += MIN_INTERVAL
        progress.finished([{"trial_id": trial, "status": "finished", "seconds": MIN_INTERVAL / 9} for trial in ids])
        progress.advanced("c1", ("g1t0",), RunningCohort(1, 0.0, 800))
        clock.now += 10 * MIN_INTERVAL
        progress.advanced("c1", ("g1t0",), RunningCohort(1, 80.0, 800))
    line = [line for line in out.getvalue().splitlines() if "epoch 80 of 800" in line][-1]
    assert "9 of 10 trials" in line and "left about 0:07:30" in line


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
    assert f"best score so far: {expected}00 (one trial) at nu=" in out.getvalue().splitlines()[-1]


def test_counts_are_those_of_all_rows_as_in_the_summary() -> None:
    """Trials from before count by their status. Failed ones are trained again and count by their new row only."""
    before = ("finished",) * 3 + ("pruned",) * 2 + ("diverged", "failed")
    progress, out, _ = make(before=before)
    with progress:
        progress.finished(rows(0.5, start=0) + rows(None, status="diverged", start=1))
        progress.finished(rows(None, status="failed", start=2) + rows(0.5, status="pruned", start=3))
    assert progress.counts == {"finished": 4, "pruned": 3, "diverged": 2, "failed": 1} and progress.done == 9
    assert "9 of 10 trials, finished 4, pruned 3, diverged 2, failed 1, " in out.getvalue().splitlines()[-1]


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
        progress.advanced("c0", ("t7", "t8", "t9"), RunningCohort(3, 0.0, 800))
        clock.now += 60
        progress.advanced("c0", ("t7", "t8", "t9"), RunningCohort(3, 12.5, 800, 0.25))
        progress.finished(rows(0.5, status="diverged"))
        progress.rank(rows(0.4, start=50))
        progress.print_line("cohort 1: worker lost, trying again")
    view = " ".join(Text.from_ansi(out.getvalue()).plain.split())
    for part in (
        "3 of 10 trials",
        "running",
        "diverged",
        "1 of 4",
        "elapsed 0:02:00",
        "left 0:06:38",
        "best score so far: 0.400 (one trial)",
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
