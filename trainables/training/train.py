"""The training loop: the configs of one cohort in, an iterator of reports out.

It depends on neither Ray nor pandas nor the store: the caller decides where reports and checkpoints go.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from trainables.config.trial import Training, TrialConfig
from trainables.contract import CheckpointError, Heartbeat, Judge, Member, Report, Stopped, Verdict
from trainables.evaluation.anomaly import Floats
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.training.checkpoint import pack, unpack
from trainables.training.checkpointing import Checkpointer, stop_between_batches
from trainables.training.cohort import Cohort
from trainables.training.metric_names import MAY_BE_UNDEFINED
from trainables.training.progress import Progress


def train(
    configs: Sequence[TrialConfig],
    data: Path,
    *,
    device: torch.device | str = "cpu",
    width: int | None = None,
    resume: bytes | None = None,
    save: Callable[[bytes], None] | None = None,
    save_every: float = 30.0,
    peers: Peers = SINGLE_PROCESS,
    judge: Judge | None = None,
    stop: Callable[[], bool] = lambda: False,
    beat: Callable[[Heartbeat], None] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Report]:
    """Train the members of one cohort, whose configs differ in fusible keys only, and yield their reports.

    A member that is pruned or diverges leaves its stack; training ends when no member is left. Raises DataError or
    ValueError if the data cannot be loaded or do not suit the configs.

    - `data`: folder of the data sets
    - `width`: members stacked at a time; None for all, 1 to step the members in turn. The results are the same.
    - `save`: called with a checkpoint after every `save_every` seconds of training
    - `resume`: a checkpoint. The reports before it are yielded again, then training continues, bit for bit on the CPU.
      A checkpoint of other configs is ignored. A damaged one is ignored, too, and `say` is called with one line about
      it.
    - `peers`: the processes that train the same cohort and yield the same reports
    - `judge`: called with each report but the last; decides which members are pruned and which move. The report is
      yielded afterwards and includes the verdict.
    - `stop`: asked after each step and between the batches of an evaluation. Where it is true, or `judge` raises
      Stopped, a checkpoint is saved and Stopped is raised.
    - `beat`: called with the progress at most every `BEAT_SECONDS`
    """

    def make_cohort() -> Cohort:
        return Cohort(configs, data, torch.device(device), width, peers, stop_between_batches(stop, peers))

    def train_from(cohort: Cohort, now: Progress) -> Iterator[Report]:
        def save_checkpoint(reached: Progress) -> None:
            assert save
            save(pack(configs, width, reached, cohort.state()))

        saving = Checkpointer(cohort, save_checkpoint if save else None, save_every, stop, peers, now, beat)
        try:
            yield from now.reports
            yield from _train_epochs(cohort, now, configs[0].training, judge, saving)
        except Stopped as stopped:
            raise Stopped("; ".join(filter(None, (str(stopped), saving.save())))) from None

    cohort, start = make_cohort(), Progress.initial(len(configs))
    resumed = _resumed(cohort, unpack(resume, configs, width, say) if resume else None, say)
    if peers.size > 1 and peers.maximum(resumed is None) and resumed:
        say("its checkpoint cannot be used: another of its processes could not read it")
        resumed = None
    if resumed is None and resume:
        cohort = make_cohort()  # a checkpoint that could not be used may have changed the cohort
    try:
        yield from train_from(cohort, resumed or start)
    except CheckpointError as error:  # raised in the first step, by all peers alike
        say(f"its checkpoint cannot be used: {error}")
        yield from train_from(make_cohort(), start)


def _resumed(cohort: Cohort, unpacked: tuple[Progress, Any] | None, say: Callable[[str], None]) -> Progress | None:
    """Load an unpacked checkpoint into the cohort and return its standing; None if there is none or it does not fit."""
    if unpacked is None:
        return None
    now, state = unpacked
    try:
        cohort.keep(now.running)
        cohort.load_state(state)
    except CheckpointError as error:
        say(f"its checkpoint cannot be used: {error}")
        return None
    return now


def _train_epochs(
    cohort: Cohort, now: Progress, training: Training, judge: Judge | None, saving: Checkpointer
) -> Iterator[Report]:
    """Train from `now` to the end and yield the reports that are due."""
    if training.epochs == 0:
        saving.begin(now)
        yield _untrained_report(cohort, now, saving)
    while now.epoch < training.epochs and now.running:
        saving.begin(now)
        now = _one_epoch(cohort, now, training, saving)
        if now.reports and now.reports[-1].epoch == now.epoch:
            if judge and not now.reports[-1].done:
                now = _apply_verdict(judge(now.reports[-1]), cohort, now)
            yield now.reports[-1]
            if now.reports[-1].done:
                return
        cohort.keep(now.running)
        saving.between(now)


def _one_epoch(cohort: Cohort, before: Progress, training: Training, saving: Checkpointer) -> Progress:
    """Train an epoch, or the rest of one, then evaluate and report where a report is due.

    Members that diverge have ended in the returned standing but are still in the cohort.
    """
    losses, epoch = cohort.epoch(before.epoch, before.step, before.sums, saving.after), before.epoch + 1
    diverged = _diverged({"loss": losses["loss"]}, before.running, epoch)
    all_diverged = len(diverged) == len(before.running)
    is_last = all_diverged or epoch == training.epochs
    report_due = is_last or epoch % training.report_every == 0
    metrics = losses | cohort.evaluate(is_last) if report_due and not all_diverged else losses
    diverged = _diverged(metrics, before.running, epoch) | diverged
    now = _with_ended(before.advanced(saving.seconds, epoch), diverged)
    if not report_due:
        return now
    done = is_last or not now.running
    return replace(now, reports=(*now.reports, _report(now, metrics, before.running, done)))


def _untrained_report(cohort: Cohort, before: Progress, saving: Checkpointer) -> Report:
    """Evaluate the members as they were initialised."""
    metrics = cohort.evaluate(last=True)
    now = before.advanced(saving.seconds, 0)
    return _report(_with_ended(now, _diverged(metrics, now.running, 0)), metrics, now.running, done=True)


def _diverged(metrics: Mapping[str, Floats], members: Sequence[int], epoch: int) -> dict[int, Member]:
    """The members that have diverged, by index: those with a metric that is not finite.

    `members` are the indices of the values `[K]` of `metrics`. Metrics that may be undefined do not count.
    """
    checked = [name for name in metrics if name not in MAY_BE_UNDEFINED]
    diverged = {}
    for row, index in enumerate(members):
        not_finite = [name for name in checked if not math.isfinite(metrics[name][row])]
        if not_finite:
            error = f"{not_finite[0]} was not finite in epoch {epoch}"
            diverged[index] = Member("diverged", epoch, dict.fromkeys(metrics), error)
    return diverged


def _with_ended(now: Progress, members: Mapping[int, Member]) -> Progress:
    """The standing after these members, by index, have ended."""
    ended = list(now.ended)
    for index, member in members.items():
        ended[index] = _with_seconds_and_moves(now, index, member)
    return replace(now, ended=tuple(ended))


def _with_seconds_and_moves(now: Progress, index: int, member: Member) -> Member:
    moves = now.schedules[index]
    return replace(member, seconds=now.shares[index], schedule=json.dumps(moves) if moves else None)


def _report(now: Progress, metrics: Mapping[str, Floats], members: Sequence[int], done: bool) -> Report:
    """The report at `now`. `members` are the indices of the values `[K]` of `metrics`."""

    def evaluated(index: int) -> Member:
        row = members.index(index)
        values = {name: None if math.isnan(of[row]) else float(of[row]) for name, of in metrics.items()}
        return _with_seconds_and_moves(now, index, Member("finished" if done else "running", now.epoch, values))

    everyone = tuple(ended or evaluated(index) for index, ended in enumerate(now.ended))
    return Report(now.epoch, everyone, now.seconds, done)


def _apply_verdict(verdict: Verdict, cohort: Cohort, now: Progress) -> Progress:
    """Move and prune members as the verdict on the last report says, and update that report.

    A verdict is repeated after a resume. If it prunes a member that has already ended, the member stays as it ended.
    """
    cohort.move(verdict.moves)
    schedules = list(now.schedules)
    for index, move in verdict.moves.items():
        schedules[index] += ({"epoch": now.epoch, "from": move.source, **move.hyperparameters},)
    now, report = replace(now, schedules=tuple(schedules)), now.reports[-1]
    pruned = {
        index: replace(report.members[index], status="pruned", error=reason)
        for index, reason in verdict.pruned.items()
        if index in now.running
    }
    now = _with_ended(now, pruned)
    members = tuple(
        ended or _with_seconds_and_moves(now, index, report.members[index]) for index, ended in enumerate(now.ended)
    )
    return replace(now, reports=(*now.reports[:-1], replace(report, members=members, done=not now.running)))
