"""Training of a cohort of functions: one trial after the other in this process, and their checkpoints.

Members that are compared with each other are trained together instead, each up to the epoch of the comparison.
Generators wait there; other functions end and resume from their saved state.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch

from trainables.functions.command import CommandError
from trainables.functions.method import FunctionMethod
from trainables.functions.trial import RunningTrial, TrialStopped
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.own_code import reason
from trainables.reports import (
    SAVE_EVERY,
    EpochRanking,
    Judge,
    Member,
    Move,
    Record,
    Report,
    Stopped,
    raise_gpu_fault,
)
from trainables.sections import TrialConfig

MESSAGE_SECONDS = 1.0
"""Minimum seconds between two reports of a cohort whose members train one after the other. Each report contains
everything new."""
LAW = "a function must return a dict of numbers, yield dicts of numbers, or call trial.report"
DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class FunctionCallbacks:
    """Callbacks during the training of functions."""

    emit: Callable[[Report], None]
    """Called with each report of the cohort."""
    judge: Judge | None = None
    """Compares the members at the epochs given by `compared`."""
    compared: Callable[[int], bool] = lambda epoch: False
    stop: Callable[[], bool] = lambda: False
    """Whether the process should end."""
    save: Callable[[bytes], None] | None = None
    """Called with a checkpoint of the cohort at most every `save_every` seconds, and before Stopped is raised."""
    save_every: float = SAVE_EVERY
    keep: Callable[[int, Mapping[str, torch.Tensor]], None] | None = None
    """Called with the index of a finished member and what it kept."""
    is_kept: Callable[[int], bool] = lambda index: True
    """Whether the store contains what the member with this index kept."""
    begin: Callable[[int], None] = lambda index: None
    """Called with the index of a member before its function runs or continues."""
    say: Callable[[int, str], None] = lambda index, error: None
    """Called with the index of a failed member and its error in one line."""
    failed: Callable[[BaseException], None] = lambda error: None
    """Called with the exception of a function that is not retried."""
    notify: Callable[[str], None] = lambda line: None
    """Called with one line on a checkpoint that cannot be used."""


@dataclass
class _State:
    """The state of a member in a checkpoint."""

    records: list[tuple[int, dict[str, float | None]]] = field(default_factory=list)
    """The member's reports: epoch and metrics."""
    state: bytes | None = None
    """The state that the function saved."""
    state_epoch: int = 0
    """The last epoch reported when the cohort received this state."""
    saves_first: bool | None = None
    """Whether a function that saves every epoch saves it before reporting it; None before its first save or report."""
    seconds: float = 0.0
    moves: list[dict[str, float]] = field(default_factory=list)
    """The member's moves in a population."""
    kept: bool = False
    """Whether the finished member kept a model or files."""
    ended: Member | None = None

    @property
    def epoch(self) -> int:
        """The last epoch reported; 0 before the first."""
        return self.records[-1][0] if self.records else 0

    def plain(self) -> dict[str, Any]:
        """The member as values for a checkpoint. A member without a state begins again, so its reports are left out."""
        records = [[epoch, metrics] for epoch, metrics in self.records if self.ended or epoch <= self.state_epoch]
        return {
            **vars(self),
            "records": records,
            "state": torch.frombuffer(bytearray(self.state), dtype=torch.uint8) if self.state else None,
            "ended": asdict(self.ended) if self.ended else None,
        }

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Self:
        """Rebuild a member from the result of `plain`. May raise any exception for other content."""
        records = [(int(epoch), dict(metrics)) for epoch, metrics in plain["records"]]
        state = None if plain["state"] is None else bytes(plain["state"].numpy())
        ended = Member(**plain["ended"]) if plain["ended"] else None
        return cls(**{**plain, "records": records, "state": state, "ended": ended})

    def before_the_end(self) -> Self:
        """The member as of its last save, or as of its start if it has no state."""
        if self.state is None:
            return type(self)()
        records = [(epoch, metrics) for epoch, metrics in self.records if epoch <= self.state_epoch]
        return replace(self, records=records, ended=None)


class _Interrupted(TrialStopped):
    """The cohort cannot continue, whatever its functions do."""

    def __init__(self, error: Exception) -> None:
        self.error = error


@contextlib.contextmanager
def _outside() -> Iterator[None]:
    """Context for calls from a function to the engine. Their exceptions end the cohort and cannot be caught by the
    function's handlers. A ValueError counts as the function's own error, because it states what the function must
    report."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        raise _Interrupted(error) from error


class _Stopping(TrialStopped):
    """The process should end."""


class _Pruned(TrialStopped):
    """The judge prunes the reporting trial."""


class _Diverged(TrialStopped):
    """The ranking metric is not finite."""


class _Patience(TrialStopped):
    """A trial's patience has run out."""


class _AtBoundary(TrialStopped):
    """The trial has reached the epoch at which its cohort is compared."""


class FunctionCohort:
    """A cohort whose members are trials of one function."""

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        method: type[FunctionMethod],
        device: torch.device,
        callbacks: FunctionCallbacks,
        *,
        ranking: EpochRanking | None = None,
        retries: int = 1,
        population: bool = False,
        peers: Peers = SINGLE_PROCESS,
        folder: str = ".",
        reserved: frozenset[str] = frozenset(),
    ) -> None:
        """`ranking`: the metric that ranks trials; a member whose value is not finite has diverged. `retries`: how
        often a function is called again after an exception that has not occurred twice at the same place. `population`:
        whether members copy each other's states. `folder`: see `RunningTrial.folder`. `reserved`: column names, besides
        keys, that no metric may have."""
        self.configs, self.method, self.device, self.callbacks = configs, method, device, callbacks
        self.ranking, self.retries, self.population, self.peers = ranking, retries, population, peers
        self.folder, self.reserved = folder, reserved
        self.states = [_State() for _ in configs]
        self._together = callbacks.judge is not None and len(configs) > 1
        self._members = [_Function(self, index) for index in range(len(configs))]
        self._judged = 0
        """The last epoch at which members were compared."""
        self._ended_since = 0
        """Number of members that had ended when the last checkpoint was saved."""
        self._unsent: list[Record] = []
        self._sent_at = self._saved_at = time.monotonic()

    def train(self, checkpoint: bytes | None = None) -> None:
        """Train all members to their end, continuing from a checkpoint if given. Raises Stopped after saving a
        checkpoint if asked to stop."""
        if checkpoint:
            self._load(checkpoint)
        try:
            self._train()
        except Stopped as stopped:
            raise Stopped("; ".join(filter(None, [str(stopped), self._save()]))) from None

    def _train(self) -> None:
        try:
            if self._unsent:
                self._send(at_once=True)
            if self._together:
                self._train_together()
            elif judge := self.callbacks.judge:
                self._judge_left(judge)
            for member in self._members:
                member.advance(math.inf)
                self._send()
                self.save_if_due()
            self._send(done=True)
        except _Interrupted as interrupted:
            raise interrupted.error from None

    def _train_together(self) -> None:
        """Train up to the last epoch at which members are compared."""
        judge = self.callbacks.judge
        assert judge
        last = max(config.training.epochs for config in self.configs)
        for epoch in filter(self.callbacks.compared, range(self._judged + 1, last)):
            for member in self._members:
                if member.state.epoch < epoch:
                    member.advance(epoch)
            if all(state.ended for state in self.states):
                return
            with _outside():
                verdict = judge(self._report(epoch))
            for index, why in verdict.pruned.items():
                self._members[index].end("pruned", why)
            sources = {move.source: self.states[move.source].state for move in verdict.moves.values()}
            for index, move in verdict.moves.items():
                self._members[index].move(sources[move.source], move, epoch)
            self._judged = epoch
            self._send(at_once=True)
            self.save_if_due()

    def _judge_left(self, judge: Judge) -> None:
        """Compare the only remaining member of a cohort that was ended while it waited for others."""
        epoch = self.states[0].epoch
        if self.states[0].ended is None and epoch > self._judged and self.callbacks.compared(epoch):
            with _outside():
                verdict = judge(self._report())
            if why := verdict.pruned.get(0):
                self._members[0].end("pruned", why)
            self._judged = epoch

    def record(self, index: int) -> None:
        """Record the last report of a member."""
        self._unsent.append(Record(index, *self.states[index].records[-1]))

    def reported(self, index: int) -> None:
        """Send the last report of a member, which the judge may prune."""
        state, judge = self.states[index], self.callbacks.judge
        epoch = state.epoch
        if judge is None or self._together:
            self._send()
            return
        before = state.records[-2][0] if len(state.records) > 1 else 0
        if missed := next(filter(self.callbacks.compared, range(before + 1, epoch)), None):
            raise ValueError(
                f"trials are compared at epoch {missed}, so each must report there, but it reported epoch {epoch} "
                f"after {before}"
            )
        if self.callbacks.compared(epoch):
            with _outside():
                verdict = judge(self._report())
            self._judged = epoch
            if why := verdict.pruned.get(index):
                raise _Pruned(why)
        self._send(at_once=True)

    def _send(self, at_once: bool = False, done: bool = False) -> None:
        """Send what is new: immediately at comparisons and at the end, otherwise periodically."""
        now = time.monotonic()
        if done or at_once or (self._unsent and now - self._sent_at >= MESSAGE_SECONDS):
            report = replace(self._report(), done=done)
            if self.population and not done:  # its members end together, because each may still be copied
                members = tuple(replace(member, status="running") for member in report.members)
                report = replace(report, members=members)
            self._unsent, self._sent_at = [], now
            with _outside():
                if not self._together and self._ended_since < self._ended_count < len(self.states):
                    self._save()  # so that a member with a row is not trained again
                self.callbacks.emit(report)

    def _report(self, epoch: int | None = None) -> Report:
        """A report of the current members: at the epoch of a comparison, or else at the sum of their epochs."""
        members = tuple(member.as_member() for member in self._members)
        total = sum(state.epoch for state in self.states) if epoch is None else epoch
        seconds = sum(state.seconds for state in self.states)
        return Report(total, members, seconds, done=False, records=tuple(self._unsent))

    # The cohort's checkpoint

    @property
    def stopping(self) -> bool:
        """Whether the process should end."""
        return self.callbacks.stop()

    def check_stop(self) -> None:
        """Raise TrialStopped if the process should end."""
        if self.stopping:
            raise _Stopping

    @property
    def _ended_count(self) -> int:
        return sum(state.ended is not None for state in self.states)

    @property
    def save_due(self) -> bool:
        return time.monotonic() - self._saved_at >= self.callbacks.save_every

    def save_if_due(self) -> None:
        if self.save_due:
            with _outside():
                self._save()

    def _save(self) -> str:
        """Save a checkpoint and return one line on it."""
        self._saved_at, self._ended_since = time.monotonic(), self._ended_count
        where = f"after {self._ended_count} of {len(self.states)} trials"
        if self.callbacks.save is None:
            return f"checkpoint left to a peer {where}"
        if not any(state.ended or state.state for state in self.states):
            return f"nothing saved {where}"
        self.callbacks.save(self._pack())
        return f"checkpoint saved {where}"

    def _pack(self) -> bytes:
        members = {_identity(config): state.plain() for config, state in zip(self.configs, self.states, strict=True)}
        buffer = io.BytesIO()
        torch.save({"members": members, "judged": self._judged}, buffer)
        content = buffer.getvalue()
        return hashlib.sha256(content).digest() + content

    def _load(self, checkpoint: bytes) -> None:
        """Continue from a checkpoint and resend its reports. A damaged checkpoint is reported and not used."""
        try:
            if hashlib.sha256(checkpoint[DIGEST:]).digest() != checkpoint[:DIGEST]:
                raise ValueError("it is damaged")
            content = torch.load(io.BytesIO(checkpoint[DIGEST:]), weights_only=True)
            known = {each: _State.read(plain) for each, plain in content["members"].items()}
            judged = int(content["judged"])
        except Exception as error:
            text = " ".join(str(error).split())[:200] or type(error).__name__
            self.callbacks.notify(f"its checkpoint cannot be used: {text}")
            return
        if self._together and not {*map(_identity, self.configs)} <= known.keys():
            return  # a member's fate depends on those it was compared with
        self._judged = judged
        self.states[:] = [known.get(_identity(config), _State()) for config in self.configs]
        for index, state in enumerate(self.states):
            if state.ended and self._must_go_on(index, state):
                self.states[index] = state.before_the_end()
        self._unsent = [Record(index, *record) for index, state in enumerate(self.states) for record in state.records]
        self._ended_since = self._ended_count

    def _must_go_on(self, index: int, state: _State) -> bool:
        """Whether an ended member is trained again: because it failed (failed trials are retried), or because the store
        lacks what it kept."""
        assert state.ended
        lacks = state.kept and self.callbacks.keep is not None and not self.callbacks.is_kept(index)
        return state.ended.status == "failed" or (state.ended.status == "finished" and lacks)


def _identity(config: TrialConfig) -> str:
    return json.dumps(config.flat(), sort_keys=True)


class _Function:
    """A member of a cohort of functions: calls its function and receives its reports."""

    def __init__(self, cohort: FunctionCohort, index: int) -> None:
        self._cohort, self._index = cohort, index
        self._generator: Iterator[Any] | None = None
        """The generator, if the member waits to be compared."""
        self._random: Any = None
        """The state of the global random number generators at that point."""
        self._trial: RunningTrial | None = None
        self._until: float = math.inf
        self._resumed = self._asked = False
        """Whether the function has reported nothing since its call; whether it was asked to stop at a report."""
        self._saved_state: bytes | None = None
        """The state saved since the last report."""
        self._place, self._attempts = list[str](), 0
        """Where the last exception was raised, and the number of exceptions."""
        self._latest, self._known = dict[str, float | None](), 0
        """The latest value of each metric over the first `_known` reports."""
        self._diverged = ""
        """The metric that was not finite, and where; empty if all were finite."""

    @property
    def state(self) -> _State:
        return self._cohort.states[self._index]

    @property
    def _config(self) -> TrialConfig:
        return self._cohort.configs[self._index]

    def as_member(self) -> Member:
        """The current member for a report."""
        if self.state.ended:
            return self.state.ended
        return Member("running", self.state.epoch, self._metrics(), None, self.state.seconds, self._schedule())

    def _metrics(self) -> dict[str, float | None]:
        """The latest value of each metric."""
        state = self.state
        if self._known > len(state.records):
            self._known, self._latest = 0, {}
        for _, reported in state.records[self._known :]:
            known = self._latest
            known |= {name: value for name, value in reported.items() if value is not None or name not in known}
        self._known = len(state.records)
        return dict(self._latest)

    def _schedule(self) -> str | None:
        return json.dumps(self.state.moves) if self.state.moves else None

    def end(self, status: Any, error: str | None = None, *, metrics: Mapping[str, float | None] | None = None) -> None:
        """End the member's training."""
        self._drop()
        metrics = self._metrics() if metrics is None else metrics
        state = self.state
        state.ended = Member(status, state.epoch, metrics, error, state.seconds, self._schedule())
        if not (self._cohort.population and status in ("finished", "failed")):  # a member cannot begin again alone
            state.state = None

    def move(self, state: bytes | None, move: Move, epoch: int) -> None:
        """Continue from the state of another member, with new values of some keys."""
        self._drop()
        self.state.state = state
        self.state.moves.append({"epoch": epoch, "from": move.source, **move.hyperparameters})

    def _drop(self) -> None:
        """Abandon a waiting call."""
        generator, self._generator, self._random = self._generator, None, None
        if generator is not None:
            with contextlib.suppress(Exception):
                generator.close()  # type: ignore[attr-defined]
        if self._trial:
            self._trial.end()
        self._trial = None

    def advance(self, until: float) -> None:
        """Train up to the report of the epoch `until`, or to the end. Raises Stopped if the process should end."""
        self._until = until
        while self.state.ended is None:
            try:
                self._cohort.check_stop()
                self._cohort.callbacks.begin(self._index)
                with _undisturbed(self._cohort.folder):
                    self._run()
                self._finish()
            except _AtBoundary:
                return
            except _Stopping:
                self._drop()
                raise Stopped from None
            except _Interrupted:
                self._drop()
                raise
            except _Pruned as pruned:
                self.end("pruned", str(pruned))
            except (_Diverged, _Patience):
                self._finish()
            except (Exception, SystemExit) as error:
                raise_gpu_fault(error)
                self._failed(error)

    def _run(self) -> None:
        """Call the function, or resume it where it waits, until it ends."""
        begun = time.perf_counter()
        try:
            if self._generator is None:
                result = self._call()
                if isinstance(result, Mapping):
                    self._take(result)
                    return
                if result is None:
                    return
                if not isinstance(result, Iterator):
                    raise ValueError(f"{LAW}, but it returned {type(result).__name__}")
                self._generator = result
            _restore(self._random)
            for reported in self._generator:
                if not isinstance(reported, Mapping):
                    raise ValueError(f"a function must yield dicts of numbers, but it yielded {reported!r:.60}")
                self._take(reported)
            self._generator = None
        except _AtBoundary:
            if self._generator is not None and not self._cohort.population:
                self._random = _randomness()
            else:
                self._drop()
            raise
        finally:
            self.state.seconds += time.perf_counter() - begun

    def _call(self) -> Any:
        method, config = self._cohort.method, self._config
        self._resumed, self._saved_state, state = True, None, self.state
        if state.state is None:
            state.records, state.saves_first = [], None
        self._trial = RunningTrial(
            *(self._cohort.device, self._cohort.peers.rank, self._cohort.peers.size),
            state=state.state,
            reserved=self._cohort.reserved.union(config.complete(), ["epoch"]),
            reported=self._reported,
            saved=self._saved,
            stops=lambda: self._cohort.stopping,
            saves=self._state_due,
            last_epoch=state.epoch,
            folder=self._cohort.folder,
        )
        _seed(int(config.training.seed))
        moved = {key: value for move in state.moves for key, value in move.items() if key not in ("epoch", "from")}
        return method.called(config, self._trial, moved)

    def _take(self, reported: Mapping[Any, Any]) -> None:
        assert self._trial
        metrics = {str(name): value for name, value in reported.items()}
        self._trial.report(metrics.pop("epoch", None), **metrics)

    def _reported(self, epoch: int, metrics: Mapping[str, float | None]) -> None:
        """Receive a report. Raises TrialStopped if the function should end."""
        state, cohort, ranking = self.state, self._cohort, self._cohort.ranking
        if self._resumed:  # a state may belong to an epoch before the last reported one
            state.records = [record for record in state.records if record[0] < epoch]
            self._resumed, self._known, self._latest = False, 0, {}
        if state.saves_first is None:
            state.saves_first = self._saved_state is not None
        finite = {name: value if value is None or math.isfinite(value) else None for name, value in metrics.items()}
        state.records.append((epoch, finite))
        if cohort.peers.rank:
            cohort.check_stop()
            return
        cohort.record(self._index)
        if ranking and metrics.get(ranking.metric) is not None and finite[ranking.metric] is None:
            self._diverged = f"{ranking.metric} was not finite in epoch {epoch}"
            if cohort.peers.size == 1:  # otherwise the others, which wait for this one, train to the end
                raise _Diverged
        cohort.reported(self._index)
        patience = self._config.training.patience
        if ranking and patience and epoch - self._best_epoch(ranking) >= patience:
            raise _Patience
        if self._saved_state is not None and (state.saves_first or epoch < self._until):
            self._commit(self._saved_state)
        if cohort.stopping and (state.state is None or self._asked):
            raise _Stopping
        self._asked = cohort.stopping
        if epoch >= self._until:
            self._reach(epoch)

    def _saved(self, pack: Callable[[], bytes]) -> None:
        """Receive a state, which takes effect at the next report: it belongs to the last epoch reported, or to the
        next. At a comparison it must belong to the last epoch."""
        state = self.state
        if state.saves_first is None:
            state.saves_first = not state.records
        if self._state_due():
            self._saved_state = pack()
        if self._saved_state is not None and not state.saves_first and state.epoch == self._until:
            self._commit(self._saved_state)
            raise _AtBoundary

    def _commit(self, saved: bytes) -> None:
        state, cohort, self._saved_state = self.state, self._cohort, None
        state.state, state.state_epoch = saved, state.epoch
        cohort.save_if_due()
        cohort.check_stop()

    def _state_due(self) -> bool:
        state, cohort = self.state, self._cohort
        return state.state is None or cohort.save_due or cohort.stopping or state.epoch + 1 >= self._until

    def _reach(self, epoch: int) -> None:
        """Wait at the epoch at which the cohort is compared."""
        state = self.state
        waits = self._generator is not None and not self._cohort.population
        if epoch == self._until and not waits and not state.saves_first:
            return  # for the state that it saves next
        if epoch > self._until or (not waits and state.state_epoch != epoch):
            raise ValueError(
                f"trials are compared at epoch {self._until}, so each must report and call trial.save there, but it "
                f"reported epoch {epoch} without doing so"
            )
        raise _AtBoundary

    def _best_epoch(self, ranking: EpochRanking) -> int:
        """The epoch with the best value of the ranking metric (the first one if tied); 0 before any value."""
        best, best_epoch = math.nan, 0
        for epoch, metrics in self.state.records:
            value = metrics.get(ranking.metric)
            if value is not None and (not best_epoch or ranking.better(value, best)):
                best, best_epoch = value, epoch
        return best_epoch

    def _finish(self) -> None:
        if not self.state.records:
            self._fail(f"{LAW}, but it ended without a report")
            return
        if self._diverged:
            self.end("diverged", self._diverged, metrics=dict.fromkeys(self._metrics()))
            return
        kept = self._trial.kept if self._trial else {}
        self.state.kept = bool(kept)
        if kept and self._cohort.callbacks.keep:
            self._cohort.callbacks.keep(self._index, kept)
        self.end("finished")

    def _fail(self, error: str) -> None:
        self.end("failed", error, metrics={})
        self._cohort.callbacks.say(self._index, error)

    def _failed(self, error: BaseException) -> None:
        """Retry after an exception, unless it occurred at this place before, or too often."""
        if isinstance(error, SystemExit) and not error.code:
            self._finish()
            return
        if self._cohort.peers.size > 1:  # the other members wait for this one
            raise error
        self._drop()
        line = str(error) if isinstance(error, CommandError) else reason(error, self._cohort.method.__module__)
        place = line.split(": ")[:2]
        self._attempts += 1
        if place == self._place or self._attempts > self._cohort.retries:
            self._cohort.callbacks.failed(error)
            self._fail(line)
        self._place = place


@contextlib.contextmanager
def _undisturbed(folder: str) -> Iterator[None]:
    """Context in which a function runs in a folder. It restores the working directory, and ends processes that the
    function has forked."""
    before, process = os.getcwd(), os.getpid()
    try:
        if os.path.isdir(folder):
            os.chdir(folder)
        yield
    finally:
        if os.getpid() != process:
            os._exit(0)
        os.chdir(before)


def _seed(seed: int) -> None:
    """Seed the global random number generators, so that a function that does not seed any is repeatable."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _randomness() -> Any:
    """The states of the global random number generators of Python, NumPy and PyTorch."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda


def _restore(states: Any) -> None:
    """Restore the global random number generators from the result of `_randomness`; None leaves them unchanged."""
    if states is None:
        return
    of_python, of_numpy, of_torch, of_cuda = states
    random.setstate(of_python)
    np.random.set_state(of_numpy)
    torch.set_rng_state(of_torch)
    if of_cuda:
        torch.cuda.set_rng_state_all(of_cuda)
