"""The training loop: the configs of one cohort in, an iterator of reports out.

It knows no Ray, no pandas and no store: whoever calls it decides where reports and checkpoints go.
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
from trainables.learners.data_parallel import ALONE, Peers
from trainables.training.checkpoint import pack, unpack
from trainables.training.checkpointing import Saving, asking
from trainables.training.cohort import Cohort
from trainables.training.evaluators import MAY_BE_UNDEFINED
from trainables.training.standing import Standing


def train(
    configs: Sequence[TrialConfig],
    data: Path,
    *,
    device: torch.device | str = "cpu",
    width: int | None = None,
    resume: bytes | None = None,
    save: Callable[[bytes], None] | None = None,
    save_every: float = 30.0,
    peers: Peers = ALONE,
    judge: Judge | None = None,
    stop: Callable[[], bool] = lambda: False,
    beat: Callable[[Heartbeat], None] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Report]:
    """Train the members of one cohort; they agree on everything that is not fusible.

    `width` members are stacked at a time (all by default); 1 steps the members in turn. The results are the same.
    `save` is given a checkpoint after every `save_every` seconds of training. With it as `resume`, the reports made
    before it come again and training goes on from there, bit for bit on the CPU; one of other configs is ignored, and
    one that is damaged, too, of which `say` is told in one line.
    `stop` is asked after each step and between batches of an evaluation: where it is true, or `judge` raises Stopped,
    what there is is saved and Stopped comes out. `peers` train the same cohort and report the same. `judge` says after
    each report but the last which members are pruned and which move, and what is yielded says so, too; training ends
    with the last member. Whoever is pruned or diverges leaves the stack. `beat` is told every `BEAT_SECONDS` how far
    training is. DataError or ValueError if the data cannot be had or do not serve.
    """

    def make() -> Cohort:
        return Cohort(configs, data, torch.device(device), width, peers, asking(stop, peers))

    def trained(cohort: Cohort, now: Standing) -> Iterator[Report]:
        def keep(reached: Standing) -> None:
            assert save
            save(pack(configs, width, reached, cohort.state()))

        saving = Saving(cohort, keep if save else None, save_every, stop, peers, now, beat)
        try:
            yield from now.reports
            yield from _course(cohort, now, configs[0].training, judge, saving)
        except Stopped as stopped:
            raise Stopped("; ".join(filter(None, (str(stopped), saving.save())))) from None

    cohort, now = make(), Standing.at_start(len(configs))
    begun = _resumed(cohort, unpack(resume, configs, width, say) if resume else None, say)
    if peers.size > 1 and peers.agree(begun is None) and begun:
        say("its checkpoint cannot be used: another of its processes could not read it")
        begun = None
    if begun is None and resume:
        cohort = make()  # what could not be taken up may have changed it
    try:
        yield from trained(cohort, begun or now)
    except CheckpointError as error:  # which the first step shows, of all peers alike
        say(f"its checkpoint cannot be used: {error}")
        yield from trained(make(), now)


def _resumed(cohort: Cohort, found: tuple[Standing, Any] | None, say: Callable[[str], None]) -> Standing | None:
    """Bring the cohort to what was found in its checkpoint; None where there is nothing, or it does not fit."""
    if found is None:
        return None
    now, state = found
    try:
        cohort.keep(now.running)
        cohort.load_state(state)
    except CheckpointError as error:
        say(f"its checkpoint cannot be used: {error}")
        return None
    return now


def _course(cohort: Cohort, now: Standing, training: Training, judge: Judge | None, saving: Saving) -> Iterator[Report]:
    """All that is left to train, from here on."""
    if training.epochs == 0:
        saving.begin(now)
        yield _untrained(cohort, now, saving)
    while now.epoch < training.epochs and now.running:
        saving.begin(now)
        now = _one_epoch(cohort, now, training, saving)
        if now.reports and now.reports[-1].epoch == now.epoch:
            if judge and not now.reports[-1].done:
                now = _heed(judge(now.reports[-1]), cohort, now)
            yield now.reports[-1]
            if now.reports[-1].done:
                return
        cohort.keep(now.running)
        saving.between(now)


def _one_epoch(cohort: Cohort, before: Standing, training: Training, saving: Saving) -> Standing:
    """Train an epoch, or what is left of it, and evaluate and report where one is due. Who diverges is still in its
    stack."""
    losses, epoch = cohort.epoch(before.epoch, before.step, before.sums, saving.after), before.epoch + 1
    diverged = _diverged({"loss": losses["loss"]}, before.running, epoch)
    lost = len(diverged) == len(before.running)
    last = lost or epoch == training.epochs
    due = last or epoch % training.report_every == 0
    metrics = losses | cohort.evaluate(last) if due and not lost else losses
    diverged = _diverged(metrics, before.running, epoch) | diverged
    now = _ended(before.later(saving.seconds, epoch), diverged)
    if not due:
        return now
    done = last or not now.running
    return replace(now, reports=(*now.reports, _report(now, metrics, before.running, done)))


def _untrained(cohort: Cohort, before: Standing, saving: Saving) -> Report:
    """What the members are worth as they were initialised."""
    metrics = cohort.evaluate(last=True)
    now = before.later(saving.seconds, 0)
    return _report(_ended(now, _diverged(metrics, now.running, 0)), metrics, now.running, done=True)


def _diverged(metrics: Mapping[str, Floats], members: Sequence[int], epoch: int) -> dict[int, Member]:
    """By index, each of these members, in the order of the metrics, one of whose metrics is not finite."""
    judged = [name for name in metrics if name not in MAY_BE_UNDEFINED]
    found = {}
    for place, index in enumerate(members):
        bad = [name for name in judged if not math.isfinite(metrics[name][place])]
        if bad:
            error = f"{bad[0]} was not finite in epoch {epoch}"
            found[index] = Member("diverged", epoch, dict.fromkeys(metrics), error)
    return found


def _ended(now: Standing, members: Mapping[int, Member]) -> Standing:
    """These members, by index, have ended."""
    ended = list(now.ended)
    for index, member in members.items():
        ended[index] = _with_course(now, index, member)
    return replace(now, ended=tuple(ended))


def _with_course(now: Standing, index: int, member: Member) -> Member:
    """The member with what it has cost and how it has moved."""
    moves = now.schedules[index]
    return replace(member, seconds=now.shares[index], schedule=json.dumps(moves) if moves else None)


def _report(now: Standing, metrics: Mapping[str, Floats], members: Sequence[int], done: bool) -> Report:
    """`members`: who was evaluated, in the order of the metrics."""

    def reached(index: int) -> Member:
        place = members.index(index)
        found = {name: None if math.isnan(of[place]) else float(of[place]) for name, of in metrics.items()}
        return _with_course(now, index, Member("finished" if done else "running", now.epoch, found))

    everyone = tuple(ended or reached(index) for index, ended in enumerate(now.ended))
    return Report(now.epoch, everyone, now.seconds, done)


def _heed(verdict: Verdict, cohort: Cohort, now: Standing) -> Standing:
    """What becomes of the members after the last report, and the report as it then is.

    A verdict that is repeated after a resume may prune a member that has diverged since: it stays as it ended.
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
    now = _ended(now, pruned)
    members = tuple(ended or _with_course(now, index, report.members[index]) for index, ended in enumerate(now.ended))
    return replace(now, reports=(*now.reports[:-1], replace(report, members=members, done=not now.running)))
