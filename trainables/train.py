"""The training loop: the configs of one cohort in, an iterator of reports out.

It knows no Ray, no pandas and no store: whoever calls it decides where reports and checkpoints go.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from trainables.checkpoint import Standing, pack, unpack
from trainables.cohort import Cohort
from trainables.config import Training, TrialConfig
from trainables.contract import Member, Report
from trainables.evaluate import MAY_BE_UNDEFINED
from trainables.evaluation.anomaly import Floats
from trainables.peers import ALONE, Peers


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
) -> Iterator[Report]:
    """Train the members of one cohort; they agree on everything that is not fusible.

    `width` members are stacked at a time (all by default); 1 steps the members in turn. The results are the same.
    `save` is given a checkpoint at the end of an epoch after every `save_every` seconds of training. With it as
    `resume`, the reports made before it come again and training goes on from there, bit for bit on the CPU; one of
    other configs is ignored. `peers` train the same cohort and report the same. DataError or ValueError if the data
    cannot be had or do not serve.
    """
    cohort = Cohort(configs, data, torch.device(device), width, peers)
    now = Standing(epoch=0, seconds=0.0, diverged=(None,) * len(configs), reports=())
    if resume and (found := unpack(resume, configs, width)):
        now, state = found
        cohort.load_state(state)
    yield from now.reports
    training = configs[0].training
    if training.epochs == 0:
        yield _untrained(cohort, now)
    saved_at = now.seconds
    while now.epoch < training.epochs and not all(now.diverged):
        now = _one_epoch(cohort, now, training)
        if now.reports and now.reports[-1].epoch == now.epoch:
            yield now.reports[-1]
            if now.reports[-1].done:
                return
        if save and now.seconds - saved_at >= save_every:
            save(pack(configs, width, now, cohort.state()))
            saved_at = now.seconds


def _one_epoch(cohort: Cohort, before: Standing, training: Training) -> Standing:
    """Train an epoch, and evaluate and report where one is due."""
    begun = time.perf_counter()
    losses = cohort.epoch(before.epoch)
    now = replace(before, epoch=before.epoch + 1)
    now = replace(now, diverged=_judge(now, {"loss": losses["loss"]}))
    last = now.epoch == training.epochs or all(now.diverged)
    due = last or now.epoch % training.report_every == 0
    metrics = losses | cohort.evaluate(last) if due and not all(now.diverged) else losses
    now = replace(now, diverged=_judge(now, metrics), seconds=before.seconds + time.perf_counter() - begun)
    return replace(now, reports=(*now.reports, _report(now, metrics, last or all(now.diverged)))) if due else now


def _untrained(cohort: Cohort, now: Standing) -> Report:
    """What the members are worth as they were initialised."""
    begun = time.perf_counter()
    metrics = cohort.evaluate(last=True)
    now = replace(now, diverged=_judge(now, metrics), seconds=time.perf_counter() - begun)
    return _report(now, metrics, last=True)


def _judge(now: Standing, metrics: Mapping[str, Floats]) -> tuple[Member | None, ...]:
    """`now.diverged`, and in it every further member one of whose metrics is not finite."""

    def verdict(index: int) -> Member | None:
        judged = [name for name in metrics if name not in MAY_BE_UNDEFINED]
        bad = [name for name in judged if not math.isfinite(metrics[name][index])]
        if not bad:
            return None
        return Member("diverged", now.epoch, dict.fromkeys(metrics), f"{bad[0]} was not finite in epoch {now.epoch}")

    return tuple(before or verdict(index) for index, before in enumerate(now.diverged))


def _report(now: Standing, metrics: Mapping[str, Floats], last: bool) -> Report:
    members = tuple(
        diverged
        or Member(
            "finished" if last else "running",
            now.epoch,
            {name: None if math.isnan(values[index]) else float(values[index]) for name, values in metrics.items()},
        )
        for index, diverged in enumerate(now.diverged)
    )
    return Report(now.epoch, members, now.seconds, last)
