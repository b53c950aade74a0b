"""What happens between two steps of a cohort: a heartbeat, a checkpoint, or the end that was asked for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from torch import Tensor

from trainables.contract import Heartbeat, Stopped
from trainables.learners.data_parallel import Peers
from trainables.training.cohort import Cohort
from trainables.training.standing import Standing

TOGETHER = 8
"""Steps after which processes that train together agree on what to do: to agree is to wait for each other."""
BEAT_SECONDS = 5.0
"""Seconds between two heartbeats, at least."""
GO_ON, BEAT, SAVE, STOP = range(4)
"""What a process wishes; the largest wish of all is followed."""


class Saving:
    """Follows a training from step to step. Peers call it alike; only those that are given `save` do save."""

    def __init__(
        self,
        cohort: Cohort,
        save: Callable[[Standing], None] | None,
        every: float,
        stop: Callable[[], bool],
        peers: Peers,
        now: Standing,
        beat: Callable[[Heartbeat], None] | None = None,
    ) -> None:
        """`every` so many seconds of training; `stop` is asked after each step; training begins at `now`. `beat` is
        called every `BEAT_SECONDS`, on all peers after the same step."""
        self._cohort, self._save, self._every, self._stop, self._peers = cohort, save, every, stop, peers
        self._saved_at, self._beat, self._beat_at = now.seconds, beat, time.monotonic()
        self.begin(now)

    def begin(self, now: Standing) -> None:
        """Training goes on from here."""
        self._from, self._step, self._sums, self._spent = now, now.step, now.sums, 0.0
        self._begun = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Of training since `begin`, apart from saving."""
        return time.perf_counter() - self._begun

    def after(self, step: int, sums: Mapping[str, Tensor]) -> None:
        """So many steps of the epoch are done, whose losses have these sums. Stopped if all is to end here."""
        self._step, self._sums, self._spent = step, sums, self.seconds
        last = step == self._cohort.steps
        beats = self._beat is not None and time.monotonic() - self._beat_at >= BEAT_SECONDS
        wish = STOP if self._stop() else SAVE if self._due() and not last else BEAT if beats else GO_ON
        if self._peers.size > 1:
            wish = self._peers.agree(wish) if last or step % TOGETHER == 0 else GO_ON
        if wish == STOP:
            raise Stopped
        if wish == SAVE:
            self.save()
        if wish == BEAT:
            self._tell()

    def between(self, now: Standing) -> None:
        """An epoch is over, and everyone who ended has left."""
        self.begin(now)
        if self._due():
            self.save()

    def save(self) -> str:
        """Save what the last step reached: an evaluation that has begun since begins anew. Says in one line what was
        saved."""
        begun = time.perf_counter()
        reached = self._from.later(self._spent, self._from.epoch, self._step, self._sums)
        if self._step:
            self._cohort.settle(self._sums)
        if self._save:
            self._save(reached)
        self._saved_at = reached.seconds
        self._begun += time.perf_counter() - begun
        return f"checkpoint {'saved at' if self._save else 'left to a peer at'} epoch {reached.epoch} step {self._step}"

    def _tell(self) -> None:
        """One heartbeat. Like a checkpoint it does not count as training time."""
        assert self._beat is not None
        begun = time.perf_counter()
        loss = float(self._sums["loss"].double().mean()) / self._step
        epoch = self._from.epoch + self._step / self._cohort.steps
        self._beat(Heartbeat(epoch, self._cohort.epochs, loss if math.isfinite(loss) else None))
        self._beat_at = time.monotonic()
        self._begun += time.perf_counter() - begun

    def _due(self) -> bool:
        return self._save is not None and self._from.seconds + self._spent - self._saved_at >= self._every


def asking(stop: Callable[[], bool], peers: Peers) -> Callable[[], None]:
    """What is called where no step is made: Stopped if all is to end. Peers do not end there: each would elsewhere."""

    def ask() -> None:
        if stop() and peers.size == 1:
            raise Stopped

    return ask
