import io
from datetime import timedelta

from rich.console import Console

from sweeper.cli.progress_bar import ProgressBar


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def begun(total: int, done: int) -> tuple[ProgressBar, Clock]:
    clock = Clock()
    bar = ProgressBar(total, done, Console(file=io.StringIO()), clock, lambda bar: [bar])
    bar.begin()
    return bar, clock


def test_time_left_is_from_the_speed_of_this_run() -> None:
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


def test_work_of_a_checkpoint_is_not_taken_for_speed() -> None:
    bar, clock = begun(total=4, done=0)
    bar.move(2, done=0, trained_before=True)
    clock.now += 30
    bar.move(3, done=0)  # 1 of 4 trials' worth in 30 s, and 1 is left
    assert bar.time_left == timedelta(seconds=30)
