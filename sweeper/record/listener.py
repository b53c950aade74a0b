"""What becomes of cohorts on their way to rows: the events of which the training loop notifies its listeners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sweeper.planning.cohorts import Cohort, Trial

if TYPE_CHECKING:
    from sweeper.planning.sources import TrainedElsewhere
    from trainables.reports import Heartbeat
    from trainables.worker.messages import CohortReport, Failure

Row = Mapping[str, object]
"""A row of the store, or a part of one."""


class CohortListener:
    """Receives on the driver what happens to cohorts. Each method does nothing here.

    The loop passes each event to a list of listeners, in their order (`sweeper.record.rows.listeners`). An exception
    that a method raises ends the dispatch, which raises it again.
    """

    def started(self, cohort: Cohort) -> None:
        """A worker has started the cohort."""

    def advanced(self, cohort: Cohort, heartbeat: Heartbeat) -> None:
        """The cohort is training."""

    def reported(self, cohort: Cohort, message: CohortReport) -> None:
        """The cohort has reported; it has ended if the report is `done`. No report follows."""

    def waits(self, cohort: Cohort) -> None:
        """The cohort has saved and ended at a rung, where it waits for others. It starts again, unless all of its
        members are pruned there."""

    def interrupted(self, cohort: Cohort, failure: Failure) -> None:
        """The cohort's worker failed or was lost; the cohort is tried again."""

    def split(self, cohort: Cohort, parts: Sequence[Cohort], failure: Failure) -> None:
        """The cohort has failed as often as it may, or does not fit; its `parts` replace it: its halves, or the same
        trials in narrower stacks."""

    def failed(self, cohort: Cohort, failure: Failure) -> None:
        """The cohort has failed as often as it may, and is given up."""

    def trained_elsewhere(self, trials: TrainedElsewhere) -> None:
        """Another driver has trained trials that wait here; they are not trained again."""

    def ended(self, cohort: Cohort, rows: Sequence[Row]) -> None:
        """The cohort has ended or failed for good; its rows are not in the store yet."""

    def recorded(self, cohort: Cohort, rows: Sequence[Row]) -> None:
        """The rows of the cohort are in the store."""


def reported_metrics(cohort: Cohort, message: CohortReport) -> Iterator[tuple[Trial, int, dict[str, float]]]:
    """Yield what a report has for the first time: a trial of the cohort, an epoch, and the trial's metrics there."""
    for index, epoch, metrics in message.report.new:
        yield cohort.trials[index], epoch, {name: value for name, value in metrics.items() if value is not None}
