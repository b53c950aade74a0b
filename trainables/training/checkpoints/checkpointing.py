"""What happens between two steps of a cohort: a heartbeat, a checkpoint, or a requested stop."""

import math
import time
from collections.abc import Callable, Mapping

from torch import Tensor

from trainables.learners.data_parallel import Peers
from trainables.reports import Heartbeat, Stopped
from trainables.training.cohort import Cohort
from trainables.training.progress import Progress

STEPS_BETWEEN_AGREEMENTS = 8
"""Steps between two agreements of processes that train together; to agree, each waits for all others."""
HEARTBEAT_SECONDS = 5.0
"""Minimum seconds between two heartbeats."""
CONTINUE, HEARTBEAT, SAVE, STOP = range(4)
"""What a process wants to do after a step; peers all do the largest of their wishes."""


class Checkpointer:
    """Follows a training step by step: sends heartbeats, saves checkpoints, and stops on request. All peers make the
    same calls; only those with a `save` callback write checkpoints."""

    def __init__(
        self,
        cohort: Cohort,
        save: Callable[[Progress], None] | None,
        save_every: float,
        stop: Callable[[], bool],
        peers: Peers,
        progress: Progress,
        send_heartbeat: Callable[[Heartbeat], None] | None,
    ) -> None:
        """`save_every`: seconds of training between two checkpoints. `stop` is asked after each step. `send_heartbeat`
        is called at most every `HEARTBEAT_SECONDS`, on all peers after the same step; where training continues, at the
        start, too."""
        self._cohort, self._save, self._save_every, self._stop, self._peers = cohort, save, save_every, stop, peers
        self._saved_at, self._send, self._last_heartbeat = progress.seconds, send_heartbeat, time.monotonic()
        self.begin(progress)
        self._begun_at = self._epoch
        if send_heartbeat and self._begun_at:
            send_heartbeat(Heartbeat(self._begun_at, cohort.epochs, None, self._begun_at))

    def begin(self, progress: Progress) -> None:
        """Start or continue an epoch from `progress`."""
        self._from, self._step, self._sums, self._spent = progress, progress.step, progress.sums, 0.0
        self._begun = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds of training since `begin`, not counting checkpoints and heartbeats."""
        return time.perf_counter() - self._begun

    def after_step(self, step: int, sums: Mapping[str, Tensor]) -> None:
        """Called when `step` steps of the epoch are done; `sums` are their losses, summed. Raises Stopped if training
        is to stop here."""
        self._step, self._sums, self._spent = step, sums, self.seconds
        is_last = step == self._cohort.steps
        wish = self._wish(is_last)
        if self._peers.size > 1:
            wish = self._peers.maximum(wish) if is_last or step % STEPS_BETWEEN_AGREEMENTS == 0 else CONTINUE
        if wish == STOP:
            raise Stopped
        if wish == SAVE:
            self.save()
        if wish == HEARTBEAT:
            self._send_heartbeat()

    def after_epoch(self, progress: Progress) -> None:
        """Called between two epochs, when the members that ended have left the cohort."""
        self.begin(progress)
        if self._save_due():
            self.save()

    def save(self) -> str:
        """Save the state after the last step and return one line about it. An evaluation that has begun since then is
        not saved: it is repeated after a resume."""
        begun = time.perf_counter()
        reached = self._from.advanced(self._spent, self._from.epoch, self._step, self._sums)
        if self._step:
            self._cohort.average_over_peers(self._sums)
        if self._save:
            self._save(reached)
        self._saved_at = reached.seconds
        self._begun += time.perf_counter() - begun
        return f"checkpoint {'saved at' if self._save else 'left to a peer at'} epoch {reached.epoch} step {self._step}"

    def _wish(self, is_last: bool) -> int:
        """What this process wants to do; a checkpoint after the last step of an epoch waits for `after_epoch`."""
        if self._stop():
            return STOP
        if self._save_due() and not is_last:
            return SAVE
        return HEARTBEAT if self._send and time.monotonic() - self._last_heartbeat >= HEARTBEAT_SECONDS else CONTINUE

    def _send_heartbeat(self) -> None:
        """Like a checkpoint, a heartbeat does not count as training time."""
        assert self._send
        begun = time.perf_counter()
        loss = float(self._sums["loss"].double().mean()) / self._step
        known_loss = loss if math.isfinite(loss) else None
        self._send(Heartbeat(self._epoch, self._cohort.epochs, known_loss, self._begun_at))
        self._last_heartbeat = time.monotonic()
        self._begun += time.perf_counter() - begun

    @property
    def _epoch(self) -> float:
        """Epochs completed, including the fraction of the current one. A cohort whose members have all ended has no
        steps."""
        partly = self._step and self._from.running
        return self._from.epoch + (self._step / self._cohort.steps if partly else 0.0)

    def _save_due(self) -> bool:
        return self._save is not None and self._from.seconds + self._spent - self._saved_at >= self._save_every
