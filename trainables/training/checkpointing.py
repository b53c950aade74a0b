"""What happens between two steps of a cohort: a heartbeat, a checkpoint, or a requested stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from torch import Tensor

from trainables.contract import Heartbeat, Stopped
from trainables.learners.data_parallel import Peers
from trainables.training.cohort import Cohort
from trainables.training.progress import Progress

STEPS_BETWEEN_AGREEMENTS = 8
"""Steps between two agreements of processes that train together; to agree, each waits for all others."""
BEAT_SECONDS = 5.0
"""Minimum seconds between two heartbeats."""
GO_ON, BEAT, SAVE, STOP = range(4)
"""What a process wants to do after a step; peers all do the largest of their wishes."""


class Checkpointer:
    """Follows a training step by step: sends heartbeats, saves checkpoints, and stops on request.

    All peers make the same calls; only those with a `save` callback write checkpoints.
    """

    def __init__(
        self,
        cohort: Cohort,
        save: Callable[[Progress], None] | None,
        every: float,
        stop: Callable[[], bool],
        peers: Peers,
        now: Progress,
        beat: Callable[[Heartbeat], None] | None = None,
    ) -> None:
        """`every`: seconds of training between two checkpoints. `stop` is asked after each step. `now`: where training
        starts. `beat` is called at most every `BEAT_SECONDS`, on all peers after the same step."""
        self._cohort, self._save, self._every, self._stop, self._peers = cohort, save, every, stop, peers
        self._saved_at, self._beat, self._last_beat = now.seconds, beat, time.monotonic()
        self.begin(now)

    def begin(self, now: Progress) -> None:
        """Start or continue an epoch from `now`."""
        self._from, self._step, self._sums, self._spent = now, now.step, now.sums, 0.0
        self._begun = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds of training since `begin`, not counting checkpoints and heartbeats."""
        return time.perf_counter() - self._begun

    def after(self, step: int, sums: Mapping[str, Tensor]) -> None:
        """Called when `step` steps of the epoch are done; `sums` are their losses, summed. Raises Stopped if training
        is to stop here."""
        self._step, self._sums, self._spent = step, sums, self.seconds
        is_last = step == self._cohort.steps
        beat_due = self._beat is not None and time.monotonic() - self._last_beat >= BEAT_SECONDS
        wish = STOP if self._stop() else SAVE if self._save_due() and not is_last else BEAT if beat_due else GO_ON
        if self._peers.size > 1:
            wish = self._peers.maximum(wish) if is_last or step % STEPS_BETWEEN_AGREEMENTS == 0 else GO_ON
        if wish == STOP:
            raise Stopped
        if wish == SAVE:
            self.save()
        if wish == BEAT:
            self._send_heartbeat()

    def between(self, now: Progress) -> None:
        """Called between two epochs, when the members that ended have left the cohort."""
        self.begin(now)
        if self._save_due():
            self.save()

    def save(self) -> str:
        """Save the state after the last step and return one line about it.

        An evaluation that has begun since then is not saved: it is repeated after a resume.
        """
        begun = time.perf_counter()
        reached = self._from.advanced(self._spent, self._from.epoch, self._step, self._sums)
        if self._step:
            self._cohort.average_over_peers(self._sums)
        if self._save:
            self._save(reached)
        self._saved_at = reached.seconds
        self._begun += time.perf_counter() - begun
        return f"checkpoint {'saved at' if self._save else 'left to a peer at'} epoch {reached.epoch} step {self._step}"

    def _send_heartbeat(self) -> None:
        """Send one heartbeat. Like a checkpoint, it does not count as training time."""
        assert self._beat is not None
        begun = time.perf_counter()
        loss = float(self._sums["loss"].double().mean()) / self._step
        epoch = self._from.epoch + self._step / self._cohort.steps
        self._beat(Heartbeat(epoch, self._cohort.epochs, loss if math.isfinite(loss) else None))
        self._last_beat = time.monotonic()
        self._begun += time.perf_counter() - begun

    def _save_due(self) -> bool:
        return self._save is not None and self._from.seconds + self._spent - self._saved_at >= self._every


def stop_between_batches(stop: Callable[[], bool], peers: Peers) -> Callable[[], None]:
    """Make a callback for an evaluation, between whose batches it raises Stopped if `stop()` is true.

    With several peers the callback never raises: each would leave the evaluation at another batch.
    """

    def ask() -> None:
        if stop() and peers.size == 1:
            raise Stopped

    return ask
