"""The training loop: the configs of one cohort in, an iterator of reports out; and the actions between two steps: a
heartbeat, a checkpoint, or a requested stop.

It depends on neither Ray nor pandas nor the store; the caller decides where reports and checkpoints go.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainables.catalog import is_function, method_of
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.metrics.evaluator import Floats
from trainables.own_code import reason
from trainables.reports import (
    SAVE_EVERY,
    CheckpointError,
    EpochRanking,
    Heartbeat,
    Judge,
    Member,
    ModelError,
    Report,
    Stopped,
    Verdict,
)
from trainables.sections import Training, TrialConfig
from trainables.training.checkpoint import Progress, pack, unpack
from trainables.training.cohort import TrainingCohort
from trainables.training.compiled_steps import StepCompiler
from trainables.training.function_alone import train_function_alone
from trainables.training.kept_models import ModelKeeper, lacks_models
from trainables.training.metric_names import may_be_undefined, ranking_of
from trainables.training.model_file import TrainedModel

STEPS_BETWEEN_AGREEMENTS = 8
"""Steps between two agreements of processes that train together. To agree, each process waits for all others."""


HEARTBEAT_SECONDS = 5.0
"""Minimum seconds between two heartbeats."""


CONTINUE, HEARTBEAT, SAVE, STOP = range(4)
"""Actions after a step. All peers take the largest action that any of them needs."""


@dataclass(frozen=True)
class Checkpointing:
    """The checkpoint from which a training resumes, and the callback for its checkpoints."""

    resume: bytes | None = None
    """A checkpoint. The reports before it are yielded again, then training continues, bit for bit on the CPU. A
    checkpoint of other configs is ignored, as is a damaged checkpoint, for which `Callbacks.notify` is called."""
    save: Callable[[bytes], None] | None = None
    """Called with a checkpoint after every `every` seconds of training."""
    every: float = SAVE_EVERY


@dataclass(frozen=True)
class Callbacks:
    """Callbacks during the training of a cohort. None disables a callback."""

    judge: Judge | None = None
    """Called with each report but the last; decides which members are pruned or move. The report is yielded afterwards
    and includes the verdict."""
    stop: Callable[[], bool] = lambda: False
    """Called after each step and between evaluation batches. If it returns True, or `judge` raises Stopped, a
    checkpoint is saved and Stopped is raised."""
    send_heartbeat: Callable[[Heartbeat], None] | None = None
    """Called with the progress at most every `HEARTBEAT_SECONDS`, after the same step on all peers; for the first time
    where training begins or continues."""
    keep: Callable[[int, TrainedModel], None] | None = None
    """Called with the index and model of each finished member, before the last report is yielded."""
    ranking: EpochRanking | None = None
    """Ranking that determines the epoch of a member's model: the best epoch. The same for all peers. None takes the
    last epoch."""
    is_kept: Callable[[int], bool] | None = None
    """Returns whether the model of a finished member is kept. Called before a checkpoint is resumed."""
    notify: Callable[[str], None] = lambda line: None
    """Called with one line about a checkpoint that cannot be used."""
    stop_at_divergence: bool = False
    """Whether a loss of a member alone that is not finite raises Divergence, for a debugger."""


def train(
    configs: Sequence[TrialConfig],
    data: Path,
    *,
    device: torch.device | str = "cpu",
    width: int | None = None,
    peers: Peers = SINGLE_PROCESS,
    compiler: StepCompiler | None = None,
    checkpointing: Checkpointing = Checkpointing(),
    callbacks: Callbacks = Callbacks(),
    until: int | None = None,
) -> Iterator[Report]:
    """Train the members of one cohort, whose configs differ only in fusible keys, and yield their reports.

    A member that is pruned or diverges leaves its stack; training ends when no member is left. Raises DataError or
    ValueError if the data cannot be loaded or do not suit the configs.

    - `data`: folder of the data sets
    - `width`: members stacked at a time; None for all, 1 to step members one after the other. Results do not depend on
      it.
    - `peers`: the processes that train the same cohort and yield the same reports
    - `compiler`: compiles the steps; results are equal up to rounding. None makes steps eager.
    - `until`: the epoch after which training ends, without a last report. `callbacks.keep` is called with the members
      that are still running and their models of that epoch. None trains all epochs.
    """
    resume, notify = checkpointing.resume, callbacks.notify

    def raise_if_stopped() -> None:
        if callbacks.stop() and peers.size == 1:  # several peers would leave the evaluation at different batches
            raise Stopped

    def make_cohort() -> TrainingCohort:
        return TrainingCohort(configs, data, torch.device(device), width, peers, raise_if_stopped, compiler)

    def train_from(cohort: TrainingCohort, progress: Progress) -> Iterator[Report]:
        def save_checkpoint(reached: Progress) -> None:
            assert checkpointing.save
            checkpointing.save(pack(configs, width, reached, cohort.state(), compiled))

        save = save_checkpoint if checkpointing.save else None
        checkpointer = Checkpointer(cohort, save, checkpointing.every, callbacks, peers, progress)
        keeper = ModelKeeper(cohort, callbacks.ranking, callbacks.keep)
        progress = keeper.begin(progress)
        try:
            yield from progress.reports
            yield from _train_epochs(cohort, progress, configs, callbacks.judge, checkpointer, keeper, until)
        except Stopped as stopped:
            raise Stopped("; ".join(filter(None, (str(stopped), checkpointer.save())))) from None

    compiled = compiler is not None
    cohort, start = make_cohort(), Progress.initial(len(configs))
    resumed = _resumed(cohort, unpack(resume, configs, width, notify, compiled) if resume else None, notify)
    if resumed and lacks_models(resumed, cohort, callbacks.ranking, callbacks.is_kept):
        notify("its checkpoint cannot be used: it was made without the models of earlier epochs")
        resumed = None
    if peers.size > 1 and peers.maximum(resumed is None) and resumed:
        notify("its checkpoint cannot be used: another process of the cohort could not read it")
        resumed = None
    if resumed is None and resume:
        cohort = make_cohort()  # a checkpoint that could not be used may have changed the cohort
    try:
        yield from train_from(cohort, resumed or start)
    except CheckpointError as error:  # raised in the first step, by all peers
        notify(f"its checkpoint cannot be used: {error}")
        yield from train_from(make_cohort(), start)


def retrain(
    config: TrialConfig, data: Path, device: torch.device | str = "cpu", epoch: int | None = None
) -> TrainedModel:
    """Train a trial on data in the folder `data`, up to `epoch` or, by default, to its end. Raises ModelError if it
    diverges or was trained by several processes, and DataError or ValueError if the data cannot be loaded."""
    if config.training.processes > 1:
        raise ModelError(
            f"it was trained by {config.training.processes} processes together, which a single process cannot repeat"
        )
    if is_function(config.method):
        return _retrained_function(config, torch.device(device), epoch)
    models: list[TrainedModel] = []
    callbacks = Callbacks(keep=lambda _, model: models.append(model))
    for report in train([config], data, device=device, callbacks=callbacks, until=epoch):
        last = report
    if not models:
        raise ModelError(f"it has no final weights: {last.members[0].error}")
    return models[0]


def _retrained_function(config: TrialConfig, device: torch.device, epoch: int | None) -> TrainedModel:
    """The model that a function passes to `trial.keep`. Raises ModelError if it passes nothing, or fails."""
    if epoch is not None:
        raise ModelError("a function keeps a model only at its end, with trial.keep")
    try:
        member, kept = train_function_alone(config, device)
    except Exception as error:
        raise ModelError(f"it fails: {reason(error, method_of(config.method).__module__)}") from error
    if not kept:
        raise ModelError(member.error or "the function passed nothing to trial.keep")
    return TrainedModel(config, kept, {}, {})


def check_device(device: torch.device | str) -> None:
    """Raise ValueError, with one line, if this machine has no such device."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: a torch without CUDA
        gpus = torch.cuda.device_count()
        has = f"{gpus} GPU{'s' * (gpus > 1)}" if gpus else "no GPU"
        raise ValueError(f"the device must be available to torch here, with {has}, but got '{device}'") from error


class Checkpointer:
    """Follows a training step by step: sends heartbeats, saves checkpoints, and stops on request. All peers make the
    same calls; only those with a `save` callback write checkpoints."""

    def __init__(
        self,
        cohort: TrainingCohort,
        save: Callable[[Progress], None] | None,
        save_every: float,
        callbacks: Callbacks,
        peers: Peers,
        progress: Progress,
    ) -> None:
        """`save_every`: seconds of training between two checkpoints."""
        self._cohort, self._save, self._save_every, self._peers = cohort, save, save_every, peers
        self._stop, self._send = callbacks.stop, callbacks.send_heartbeat
        self.stop_at_divergence = callbacks.stop_at_divergence
        self._saved_at, self._last_heartbeat = progress.seconds, time.monotonic()
        self.begin(progress)
        self._begun_at = self._epoch
        if self._send and self._begun_at:
            self._send(Heartbeat(self._begun_at, cohort.epochs, None, self._begun_at))

    def begin(self, progress: Progress) -> None:
        """Start or continue an epoch from `progress`."""
        self._from, self._step, self._sums, self._spent = progress, progress.step, progress.sums, 0.0
        self._begun = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds of training since `begin`, not counting checkpoints and heartbeats."""
        return time.perf_counter() - self._begun

    def after_step(self, step: int, sums: Mapping[str, Tensor]) -> None:
        """Called when `step` steps of the epoch are done; `sums` are their summed losses. Raises Stopped if training
        should stop here."""
        self._step, self._sums, self._spent = step, sums, self.seconds
        is_last = step == self._cohort.steps
        request = self._request(is_last)
        if self._peers.size > 1:
            request = self._peers.maximum(request) if is_last or step % STEPS_BETWEEN_AGREEMENTS == 0 else CONTINUE
        if request == STOP:
            raise Stopped
        if request == SAVE:
            self.save()
        if request == HEARTBEAT:
            self._send_heartbeat()

    def after_epoch(self, progress: Progress) -> None:
        """Called between two epochs, after members that ended have left the cohort."""
        self.begin(progress)
        if self._save_due():
            self.save()

    def save(self) -> str:
        """Save the state after the last step and return one line on it. An evaluation that has begun since is not saved
        but repeated after a resume."""
        begun = time.perf_counter()
        sums = self._sums
        if self._step:
            sums = self._cohort.sums_to_save(sums)
            self._cohort.average_over_peers(self._sums)
        reached = self._from.advanced(self._spent, self._from.epoch, self._step, sums)
        if self._save:
            self._save(reached)
        self._saved_at = reached.seconds
        self._begun += time.perf_counter() - begun
        return f"checkpoint {'saved at' if self._save else 'left to a peer at'} epoch {reached.epoch} step {self._step}"

    def _request(self, is_last: bool) -> int:
        """What this process requests; a checkpoint after the last step of an epoch waits for `after_epoch`."""
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
        """Epochs completed, including the fraction of the current one. A cohort without running members has no
        steps."""
        partly = self._step and self._from.running
        return self._from.epoch + (self._step / self._cohort.steps if partly else 0.0)

    def _save_due(self) -> bool:
        return self._save is not None and self._from.seconds + self._spent - self._saved_at >= self._save_every


def _resumed(
    cohort: TrainingCohort, unpacked: tuple[Progress, Any] | None, notify: Callable[[str], None]
) -> Progress | None:
    """Load an unpacked checkpoint into the cohort and return its progress; None without a checkpoint or if it does not
    fit."""
    if unpacked is None:
        return None
    progress, state = unpacked
    try:
        cohort.keep(progress.running)
        cohort.load_state(state)
    except CheckpointError as error:
        notify(f"its checkpoint cannot be used: {error}")
        return None
    return progress


def _train_epochs(
    cohort: TrainingCohort,
    progress: Progress,
    configs: Sequence[TrialConfig],
    judge: Judge | None,
    checkpointer: Checkpointer,
    keeper: ModelKeeper,
    until: int | None,
) -> Iterator[Report]:
    """Train from `progress` to the end, or up to the epoch `until`, and yield the due reports."""
    training = configs[0].training
    if training.epochs == 0:  # the initial members are evaluated
        checkpointer.begin(progress)
        cohort.begin_epoch(0)
        metrics = cohort.evaluate(last=True)
        progress = progress.advanced(checkpointer.seconds, 0)
        ended = _with_ended(progress, _diverged(metrics, progress.running, 0))
        report = _report(ended, metrics, progress.running, True, cohort.pictures)
        keeper.finish(ended, ended.running)
        yield report
    while progress.epoch < training.epochs and progress.running:
        checkpointer.begin(progress)
        progress = keeper.after_epoch(_train_epoch(cohort, progress, training, checkpointer))
        if progress.epoch == until and progress.running:
            return keeper.hand_over(progress)
        if progress.reports and progress.reports[-1].epoch == progress.epoch:
            if judge and not progress.reports[-1].done:
                progress = _apply_verdict(judge(progress.reports[-1]), cohort, progress)
            if not progress.reports[-1].done:
                progress = _end_early(progress, configs, cohort, keeper)
            else:
                keeper.finish(progress, progress.running)
            yield progress.reports[-1]
            if progress.reports[-1].done:
                return
        cohort.keep(progress.running)
        checkpointer.after_epoch(progress)


def _train_epoch(cohort: TrainingCohort, before: Progress, training: Training, checkpointer: Checkpointer) -> Progress:
    """Train an epoch or its remaining steps, then evaluate and report if a report is due. Members that diverge have
    ended in the returned progress but are still in the cohort."""
    epoch = before.epoch + 1
    losses = cohort.epoch(
        before.epoch, before.step, before.sums, checkpointer.after_step, checkpointer.stop_at_divergence
    )
    diverged = _diverged({"loss": losses["loss"]}, before.running, epoch, cohort.about_divergence)
    all_diverged = len(diverged) == len(before.running)
    is_last = all_diverged or epoch == training.epochs
    report_due = is_last or epoch % training.report_every == 0
    metrics = losses | cohort.evaluate(is_last) if report_due and not all_diverged else losses
    diverged = _diverged(metrics, before.running, epoch) | diverged
    progress = _with_ended(before.advanced(checkpointer.seconds, epoch), diverged)
    if not report_due:
        return progress
    done = is_last or not progress.running
    report = _report(progress, metrics, before.running, done, cohort.pictures)
    return replace(progress, reports=(*progress.reports, report))


def _diverged(
    metrics: Mapping[str, Floats],
    members: Sequence[int],
    epoch: int,
    about: Callable[[int], str] = lambda row: "",
) -> dict[int, Member]:
    """The members that have diverged, by index: those with a metric that is not finite. `members` are the indices of
    the values `[K]` of `metrics`. Metrics that may be undefined do not count. `about` returns the end of a line about
    the member in a row."""
    checked = [name for name in metrics if not may_be_undefined(name)]
    diverged = {}
    for row, index in enumerate(members):
        not_finite = [name for name in checked if not math.isfinite(metrics[name][row])]
        if not_finite:
            error = f"{not_finite[0]} was not finite in epoch {epoch}{about(row)}"
            diverged[index] = Member("diverged", epoch, dict.fromkeys(metrics), error)
    return diverged


def _end_early(
    progress: Progress, configs: Sequence[TrialConfig], cohort: TrainingCohort, keeper: ModelKeeper
) -> Progress:
    """End the running members whose patience has run out. They count as finished, with the metrics of a final
    evaluation."""
    report = progress.reports[-1]
    ending = [index for index in progress.running if _is_over(configs[index].training, progress.reports, index)]
    if not ending:
        return progress
    metrics = cohort.evaluate(True, ending)
    diverged, pictures, members = _diverged(metrics, ending, progress.epoch), cohort.pictures, list(report.members)
    for row, index in enumerate(ending):
        values = {name: None if math.isnan(value_K[row]) else float(value_K[row]) for name, value_K in metrics.items()}
        known = {**members[index].metrics, **values}
        finished = replace(members[index], status="finished", metrics=known, pictures=pictures[row] if pictures else {})
        failed = diverged.get(index)
        members[index] = replace(failed, metrics=dict.fromkeys(known)) if failed else finished
    progress = _with_ended(progress, {index: members[index] for index in ending})
    members = [ended or member for ended, member in zip(progress.ended, members, strict=True)]
    report = replace(report, members=tuple(members), done=not progress.running)
    keeper.finish(progress, [index for index in ending if index not in diverged])
    return replace(progress, reports=(*progress.reports[:-1], report))


def _is_over(training: Training, reports: Sequence[Report], index: int) -> bool:
    """Whether a member's patience has run out at the last report."""
    if not training.patience:
        return False
    best = ranking_of(training.patience_metric).best(reports, index) or 0
    return reports[-1].epoch - best >= training.patience


def _with_ended(progress: Progress, members: Mapping[int, Member]) -> Progress:
    """The progress after these members, by index, have ended."""
    ended = list(progress.ended)
    for index, member in members.items():
        ended[index] = _with_seconds_and_moves(progress, index, member)
    return replace(progress, ended=tuple(ended))


def _with_seconds_and_moves(progress: Progress, index: int, member: Member) -> Member:
    moves = progress.schedules[index]
    return replace(member, seconds=progress.shares[index], schedule=json.dumps(moves) if moves else None)


def _report(
    progress: Progress,
    metrics: Mapping[str, Floats],
    members: Sequence[int],
    done: bool,
    pictures: Sequence[Mapping[str, bytes]],
) -> Report:
    """The report at `progress`. `members` are the indices of the values `[K]` in `metrics`, and of `pictures` unless
    these are empty."""

    def evaluated(index: int) -> Member:
        row = members.index(index)
        values = {name: None if math.isnan(value_K[row]) else float(value_K[row]) for name, value_K in metrics.items()}
        member = Member(
            "finished" if done else "running", progress.epoch, values, pictures=pictures[row] if pictures else {}
        )
        return _with_seconds_and_moves(progress, index, member)

    everyone = tuple(ended or evaluated(index) for index, ended in enumerate(progress.ended))
    return Report(progress.epoch, everyone, progress.seconds, done)


def _apply_verdict(verdict: Verdict, cohort: TrainingCohort, progress: Progress) -> Progress:
    """Move and prune members according to the verdict on the last report, and update that report. A verdict is repeated
    after a resume. A member that has already ended is not changed."""
    cohort.move(verdict.moves)
    report, schedules = progress.reports[-1], list(progress.schedules)
    for index, move in verdict.moves.items():
        schedules[index] += ({"epoch": progress.epoch, "from": move.source, **move.hyperparameters},)
    progress = replace(progress, schedules=tuple(schedules))
    pruned = {
        index: replace(report.members[index], status="pruned", error=reason)
        for index, reason in verdict.pruned.items()
        if index in progress.running
    }
    progress = _with_ended(progress, pruned)
    members = tuple(
        ended or _with_seconds_and_moves(progress, index, member)
        for index, (ended, member) in enumerate(zip(progress.ended, report.members, strict=True))
    )
    report = replace(report, members=members, done=not progress.running)
    return replace(progress, reports=(*progress.reports[:-1], report))
