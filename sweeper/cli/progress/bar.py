"""The bar over all trials of a sweep, and the time that is left."""

from collections.abc import Callable, Iterable
from datetime import timedelta

import rich.progress
from rich.console import Console, RenderableType

MOST_SECONDS_LEFT = 1e9
"""No time is estimated from this on, in seconds: what has been trained is then as good as nothing."""


class ProgressBar(rich.progress.Progress):
    """Bar over all trials of a sweep, which moves with every epoch.

    The time left follows from the speed of this run since the first report, so the start of processes does not count.
    """

    def __init__(
        self,
        total: int,
        done: int,
        console: Console,
        clock: Callable[[], float],
        lines: Callable[[RenderableType], Iterable[RenderableType]],
    ) -> None:
        """`done` of `total` trials had a result before. `lines` puts the whole view around the bar."""
        self._lines = lines  # first, because rich draws once when it is set up
        super().__init__(
            rich.progress.BarColumn(28, complete_style="cyan"),
            rich.progress.TextColumn("{task.fields[done]:,} of {task.total:,} trials", style="bold"),
            rich.progress.TaskProgressColumn(),
            rich.progress.TextColumn("elapsed", style="dim"),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TextColumn("left", style="dim"),
            rich.progress.TextColumn("{task.fields[left]}", style="cyan"),
            console=console,
            get_time=clock,
            refresh_per_second=2,
        )
        self._task_id = self.add_task("trials", start=False, total=total, completed=done, done=done, left="-:--:--")
        self._clock, self._counted_since, self._trained = clock, clock(), 0.0

    def begin(self) -> None:
        """Start the clock, and the live view in a terminal."""
        self.start_task(self._task_id)
        self._counted_since = self._clock()
        if self.console.is_terminal:
            self.start()

    def move(self, position: float, done: int, trained_before: bool = False) -> None:
        """Set the position and the number of trials that have a result, which the text shows.

        With `trained_before` the way there does not count for the speed: it comes from a checkpoint.
        """
        if not trained_before:
            self._trained += position - self.tasks[0].completed
        elif not self._trained:
            self._counted_since = self._clock()
        self.update(self._task_id, completed=position, done=done)
        self.update(self._task_id, left=str(self.time_left or "-:--:--"))

    @property
    def time_elapsed(self) -> timedelta:
        """Time since `begin`, in whole seconds."""
        return timedelta(seconds=int(self.tasks[0].elapsed or 0))

    @property
    def time_left(self) -> timedelta | None:
        """Estimated time to the end, in whole seconds; None while next to nothing has been trained."""
        elapsed, remaining = self._clock() - self._counted_since, self.tasks[0].remaining
        if remaining is None or self._trained <= 0 or elapsed <= 0:
            return None
        seconds = remaining / self._trained * elapsed
        return timedelta(seconds=int(seconds)) if seconds < MOST_SECONDS_LEFT else None

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from self._lines(self.make_tasks_table(self.tasks))
