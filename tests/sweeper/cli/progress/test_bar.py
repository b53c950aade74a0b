import io
from datetime import timedelta

from rich.console import Console

from sweeper.cli.progress.bar import ProgressBar
from tests.sweeper.cli.progress.examples import Clock


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
