"""The bar over all trials of a sweep."""

from collections.abc import Callable, Iterable
from datetime import timedelta

import rich.progress
from rich.console import Console, RenderableType

NO_TIME = "-:--:--"
"""Text where the time that is left is not known."""


class ProgressBar(rich.progress.Progress):
    """Bar over all trials of a sweep, which moves with every epoch."""

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
        self._task_id = self.add_task("trials", start=False, total=total, completed=done, done=done, left=NO_TIME)

    def begin(self) -> None:
        """Start the clock, and the live view in a terminal."""
        self.start_task(self._task_id)
        if self.console.is_terminal:
            self.start()

    def move(self, position: float, done: int, left: timedelta | None) -> None:
        """Set the position, and what the text shows: the number of trials that have a result, and the time left."""
        self.update(self._task_id, completed=position, done=done, left=NO_TIME if left is None else str(left))

    @property
    def time_elapsed(self) -> timedelta:
        """Time since `begin`, in whole seconds."""
        return timedelta(seconds=int(self.tasks[0].elapsed or 0))

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from self._lines(self.make_tasks_table(self.tasks))
