"""What a dispatch tells about its cohorts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweeper.plan.cohorts import Cohort
    from sweeper.plan.sources import TrainedElsewhere
    from trainables.reports import Heartbeat
    from trainables.worker.messages import CohortReport, Failure


class CohortListener:
    """Receives on the driver what happens to cohorts, which are named by their ids. Each method does nothing here.

    An exception that a method raises ends the dispatch, which raises it again.
    """

    def started(self, cohort: str) -> None:
        """A worker has started the cohort."""

    def reported(self, cohort: str, message: CohortReport) -> None:
        """The cohort has reported."""

    def advanced(self, cohort: str, heartbeat: Heartbeat) -> None:
        """The cohort is training."""

    def interrupted(self, cohort: str, failure: Failure) -> None:
        """The cohort's worker failed or was lost; the cohort is tried again."""

    def split(self, cohort: str, parts: Sequence[Cohort], failure: Failure) -> None:
        """The cohort has failed as often as it may, or does not fit; its `parts` replace it: its halves, or the same
        trials in narrower stacks."""

    def trained_elsewhere(self, trials: TrainedElsewhere) -> None:
        """Another driver has trained trials that wait here; they are not trained again."""

    def failed(self, cohort: str, failure: Failure) -> None:
        """The cohort has failed as often as it may, and is given up."""
