import io
from datetime import timedelta

from rich.console import Console

from sweeper.cli.progress.bar import ProgressBar
from tests.sweeper.cli.progress.examples import Clock


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
