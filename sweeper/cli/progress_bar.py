"""The bar of a sweep's live view, drawn by rich: trials, time elapsed and an estimate of the time left."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import timedelta

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class ProgressBar(Progress):
    """Bar over all trials of a sweep, which moves with every epoch, and lines above and below it.

    The time left follows from the speed of this run: work that the store had before does not count.
    """

    def __init__(
        self,
        total: int,
        done: int,
        console: Console,
        clock: Callable[[], float],
        lines: Callable[[RenderableType], Iterable[RenderableType]],
    ) -> None:
        """`done` of `total` trials had a result before. `lines` puts the whole view together, around the bar."""
        self._lines = lines  # first, because rich draws once when it is set up
        super().__init__(
            BarColumn(28, complete_style="cyan"),
            TextColumn("{task.fields[done]:,} of {task.total:,} trials", style="bold"),
            TaskProgressColumn(),
            TextColumn("elapsed", style="dim"),
            TimeElapsedColumn(),
            TextColumn("left", style="dim"),
            TimeRemainingColumn(),
            console=console,
            get_time=clock,
            refresh_per_second=2,
            speed_estimate_period=math.inf,
        )
        self._task_id = self.add_task("trials", start=False, total=total, completed=done, done=done)

    def begin(self) -> None:
        """Start the clock, and in a terminal the live view."""
        self.start_task(self._task_id)
        self.advance(self._task_id, 0)  # the speed counts from here
        if self.console.is_terminal:
            self.start()

    def move(self, position: float, done: int, trained_before: bool = False) -> None:
        """Set the position and the number of trials that have a result, which the text shows.

        With `trained_before` the way there does not count for the speed: it comes from a checkpoint.
        """
        if trained_before:
            self.tasks[0].completed = position
        self.update(self._task_id, completed=position, done=done)

    @property
    def time_elapsed(self) -> timedelta:
        """Time since `begin`, in whole seconds."""
        return timedelta(seconds=int(self.tasks[0].elapsed or 0))

    @property
    def time_left(self) -> timedelta | None:
        """Estimated time to the end, in whole seconds; None while nothing has been trained."""
        seconds = self.tasks[0].time_remaining
        return None if seconds is None else timedelta(seconds=int(seconds))

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from self._lines(self.make_tasks_table(self.tasks))
