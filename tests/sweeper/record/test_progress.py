"""What is shown of a sweep while it runs: the bar, the cohorts that train, plain lines."""

import io
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console
from rich.text import Text

from sweeper.planning.cohorts import Cohort, Trial
from sweeper.record.progress import (
    INTERVAL,
    MAX_LINES,
    MAX_WIDTH,
    ProgressBar,
    RunningCohort,
    RunningCohorts,
    SweepProgress,
    cohort_name,
)
from tests.sweeper.record.plans import Clock, plan_of, plan_of_groups
from trainables.reports import Heartbeat, Member, Report
from trainables.worker.messages import CohortReport, Failure, Origin


def make(terminal: bool = False, cohorts: int | None = None, total: int = 10, **more):
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, force_terminal=terminal, width=110, highlight=False)
    plan = plan_of(total, **{"before": ("finished",) * 2, **more})
    return SweepProgress(plan, cohorts, console=console, clock=clock), out, clock


def cohort(*trials: str, name: str = "c0") -> Cohort:
    return Cohort(name, tuple(Trial(trial, {"epochs": 800}) for trial in trials), 1)


def recorded(progress: SweepProgress, rows: Sequence[Mapping[str, object]]) -> None:
    progress.recorded(cohort(*(str(row["trial_id"]) for row in rows)), rows)


def rows(*values: float | None, status: str = "finished", start: int = 0) -> list[dict[str, object]]:
    return [
        {"trial_id": f"t{start + i}", "status": status, "score": v, "nu": 1.0 + start + i} for i, v in enumerate(values)
    ]


def test_plain_lines_are_few_and_the_last_has_all_counts():
    progress, out, clock = make(columns=("nu",))
    with progress:
        for start in range(8):
            progress.started(cohort("t"))
            clock.now += INTERVAL / 4
            recorded(progress, rows(start / 10, start=start))
    assert out.getvalue().splitlines() == [
        "6 of 10 trials, elapsed 0:00:30, left about 0:00:30, best score 0.300, running 0, at nu=4",
        "10 of 10 trials, elapsed 0:01:00, best score 0.700, running 0, at nu=8",
        "10 of 10 trials, elapsed 0:01:00, best score 0.700, at nu=8",
    ]


def test_a_plain_line_says_where_the_training_is():
    progress, out, clock = make(total=2)
    with progress:
        progress.started(cohort("t0", "t1"))
        progress.advanced(cohort("t0", "t1"), Heartbeat(11.5, 800, 0.25))
        clock.now += INTERVAL
        members = tuple(Member("running", 12, {"score": score}) for score in (0.5, 1.0, None))
        report = CohortReport(Report(12, members, 1.0, done=False), Origin("cpu", "here", 1, datetime.now(UTC)))
        progress.reported(cohort("t0", "t1", "t2"), report)
    lines = out.getvalue().splitlines()
    assert "epoch 12 of 800, loss 0.25, mean score so far 0.75" in lines[-2]
    assert "epoch" not in lines[-1]


def test_there_is_a_plain_line_every_half_minute_and_each_fits_into_a_terminal():
    long = "a_metric_with_a_long_name" * 2
    progress, out, clock = make(metric=long, columns=("nu",), cohorts=99)
    with progress:
        progress.rank([{**row, long: 0.5} for row in rows(0.5, start=50)])
        for _ in range(600):
            clock.now += 1
            progress.advanced(cohort("t0", "t1"), Heartbeat(1.0, 800, 0.123))
    lines = out.getvalue().splitlines()
    assert len(lines) == 21 and max(map(len, lines)) <= MAX_WIDTH == 120
    assert all(line.startswith("2 of 10 trials, elapsed 0:") for line in lines)
    assert lines[-1].endswith(f"best {long} 0.500, cohorts 0 of 99"), "the least important parts are left out"


def test_a_plain_line_has_the_best_of_all_studies():
    progress, out, _ = make()
    with progress:
        recorded(progress, [{**row, "study": f"s{index}"} for index, row in enumerate(rows(0.5, 0.9, 0.7))])
    assert "best score 0.900 (study s1)" in out.getvalue()


def test_the_time_left_weighs_trials_by_their_steps():
    """Nine of ten have ended; the last one has a hundred times the steps of these together, and is a tenth done."""
    out, clock = io.StringIO(), Clock()
    plan = plan_of_groups([("vje", 9, 100), ("vje", 1, 90_000)])
    console = Console(file=out, width=110, highlight=False)
    progress, ids = SweepProgress(plan, console=console, clock=clock), [f"g0t{index}" for index in range(9)]
    with progress:
        clock.now += 5
        recorded(progress, [{"trial_id": trial, "status": "finished", "seconds": 5 / 9} for trial in ids])
        progress.advanced(cohort("g1t0", name="c1"), Heartbeat(0.0, 800, None))
        clock.now += 50
        progress.advanced(cohort("g1t0", name="c1"), Heartbeat(80.0, 800, None))
    line = [line for line in out.getvalue().splitlines() if "epoch 80 of 800" in line][-1]
    assert "9 of 10 trials" in line and "left about 0:07:30" in line


def test_a_retried_trial_counts_once():
    progress, out, _ = make()
    with progress:
        recorded(progress, rows(None, status="failed"))
        assert progress.done == 2
        recorded(progress, rows(0.5))
        assert progress.done == 3
    assert "failed" not in out.getvalue().splitlines()[-1]


@pytest.mark.parametrize(("direction", "expected"), [("maximize", "0.9"), ("minimize", "0.2")])
def test_best_follows_the_direction_and_skips_values_that_are_not_numbers(direction, expected):
    progress, out, _ = make(direction=direction)
    with progress:
        progress.rank(rows(0.9, start=50))
        recorded(progress, rows(None, math.nan, math.inf, -math.inf, 0.2))
    assert f"best score {expected}00, at nu=" in out.getvalue().splitlines()[-1]


def test_settings_that_were_pruned_are_not_said_to_lack_results() -> None:
    progress, _, _ = make()
    with progress:
        recorded(progress, rows(0.4, 0.5) + rows(0.9, status="pruned", start=5))
    (line,) = progress.best()
    assert line.startswith("best score so far: 0.5") and "lack" not in line


def test_counts_are_those_of_all_rows_as_in_the_summary() -> None:
    """Trials from before count by their status. Failed ones are trained again and count by their new row only."""
    before = ("finished",) * 3 + ("pruned",) * 2 + ("diverged", "failed")
    progress, out, _ = make(before=before)
    with progress:
        recorded(progress, rows(0.5, start=0) + rows(None, status="diverged", start=1))
        recorded(progress, rows(None, status="failed", start=2) + rows(0.5, status="pruned", start=3))
    assert progress.counts == {"finished": 4, "pruned": 3, "diverged": 2, "failed": 1} and progress.done == 9
    assert "9 of 10 trials, finished 4, pruned 3, diverged 2, failed 1, " in out.getvalue().splitlines()[-1]


def test_running_never_falls_below_none():
    progress, out, clock = make()
    with progress:
        progress.started(cohort("t0", "t1"))
        progress.interrupted(cohort(*"abcde"), Failure("error", "lost"))
        clock.now += INTERVAL
        progress.started(cohort())
    assert "running 0" in out.getvalue()


def test_the_live_display_shows_counts_best_and_messages():
    progress, out, clock = make(terminal=True, cohorts=4)
    with progress:
        clock.now += 60
        own = Cohort("c0", tuple(Trial(f"t{index}", {"method": "vje", "epochs": 800}) for index in (7, 8, 9)), 3)
        progress.started(own)
        progress.advanced(own, Heartbeat(0.0, 800, None))
        clock.now += 60
        progress.advanced(own, Heartbeat(12.5, 800, 0.25))
        recorded(progress, rows(0.5, status="diverged"))
        progress.rank(rows(0.4, start=50))
        progress.print_line("cohort 1: worker lost, trying again")
    display = " ".join(Text.from_ansi(out.getvalue()).plain.split())
    for part in (
        "3 of 10 trials",
        "running",
        "diverged",
        "1 of 4",
        "elapsed 0:02:00",
        "left 0:06:38",
        "best score so far: 0.400 (one trial)",
        "vje 3 trials epoch 12.5 of 800 loss 0.25",
    ):
        assert part in display
    assert "worker lost" in out.getvalue()


def test_a_cohort_is_named_by_its_method_and_values():
    def of(*configs: Mapping[str, object]) -> Cohort:
        return Cohort("1f2e3d", tuple(Trial(f"t{index}", config) for index, config in enumerate(configs)), 1)  # type: ignore[arg-type]

    keys = ("method", "beta", "seed", "width")
    configs = [{"method": "vje", "beta": beta, "seed": seed, "lr": 0.1} for beta in (0.5, 1.0) for seed in range(10)]
    assert cohort_name(of(*configs), keys) == "vje beta=0.5,1 seed=0…9"
    assert cohort_name(of({"method": "byol", "beta": 1 / 3}), keys) == "byol beta=0.3333"
    assert len(cohort_name(of({"method": "byol", "beta": "x" * 99}), keys)) == 60
    proposals = tuple(Trial(f"t{index}", {"lr": 0.1}, {"study": "vje", "number": index}) for index in (8, 9))
    assert cohort_name(Cohort("c", proposals, 1), keys) == "study vje, trials 8 to 9"
    assert cohort_name(Cohort("c", proposals[:1], 1), keys) == "study vje, trial 8"


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


def running(**cohorts: tuple[float, float | None, float | None]) -> RunningCohorts:
    """Cohorts of 8 trials and 800 epochs: epoch, loss and value of each."""
    states = RunningCohorts()
    for name, (epoch, loss, value) in cohorts.items():
        states.advance(name, RunningCohort(8, epoch, 800, loss, value))
    return states


def test_a_cohort_shows_its_epoch_its_loss_and_its_last_metric() -> None:
    (line,) = running(c0=(37.25, 1.25, 0.913)).lines("auroc")
    assert line == "cohort c0  8 trials  epoch 37.2 of 800  loss 1.25  mean auroc 0.913"


def test_a_heartbeat_keeps_the_metric_of_the_last_report_and_a_report_the_last_loss() -> None:
    states = running(c0=(2.0, 1.5, None))
    states.advance("c0", RunningCohort(8, 3.0, None, None, 0.75))
    states.advance("c0", RunningCohort(8, 3.5, 800, 1.25, None))
    assert states.lines("auroc") == ["cohort c0  8 trials  epoch 3.5 of 800  loss 1.25  mean auroc 0.75"]
    assert states.values == [0.75]


def test_the_summary_is_of_all_cohorts() -> None:
    states = running(c0=(12.0, 1.0, 0.5), c1=(37.0, 2.0, None))
    assert states.summary() == "epochs 12 to 37 of 800, loss 1.5"
    assert running(c0=(12.0, None, None)).summary() == "epoch 12 of 800"


def test_an_ended_cohort_is_no_longer_shown() -> None:
    states = running(c0=(12.0, 1.0, 0.5))
    states.end("c0")
    states.end("never started")
    assert states.lines("auroc") == [] and states.summary() == ""


def test_only_the_first_cohorts_have_a_line_of_their_own() -> None:
    lines = running(**{f"c{i}": (1.0, None, None) for i in range(MAX_LINES + 3)}).lines("auroc")
    assert len(lines) == MAX_LINES + 1 and lines[-1] == "and 3 more cohorts"


def test_training_without_epochs_is_shown_too() -> None:
    states = RunningCohorts()
    states.advance("c0", RunningCohort(1, 0.0, None, None, 0.5))
    assert states.lines("auroc") == ["cohort c0  1 trial  epoch 0  mean auroc 0.5"]


def test_half_of_the_epochs_of_eight_trials_count_as_four_trials() -> None:
    assert running(c0=(400.0, None, None), c1=(100.0, None, None)).trials_trained == 5.0


def test_the_bar_shows_trials_and_the_time_that_it_is_given() -> None:
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, force_terminal=True, width=110)
    bar = ProgressBar(10, 6, console, clock, lambda bar: [bar])
    bar.begin()
    clock.now += 30
    bar.move(7.5, done=7, left=timedelta(seconds=90))
    assert bar.time_elapsed == timedelta(seconds=30) and bar.tasks[0].percentage == 75
    bar.refresh()
    assert "7 of 10 trials" in out.getvalue() and "0:01:30" in out.getvalue()
    bar.move(7.5, done=7, left=None)
    bar.stop()
    assert "-:--:--" in out.getvalue().split("0:01:30")[-1]
