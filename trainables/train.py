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

from trainables.catalog import METHODS
from trainables.checkpoint import Progress, pack, unpack
from trainables.cohort import Cohort
from trainables.config import TrialConfig
from trainables.contract import Member, Report
from trainables.evaluation import anomaly
from trainables.evaluation.anomaly import Floats


def metric_names(config: TrialConfig) -> tuple[str, ...]:
    """Every metric that the reports of such a trial can hold."""
    method = METHODS[config.method]
    losses = ("loss", *(f"loss_{part}" for part in method.loss_parts))
    return losses + (anomaly.metric_names(method) if config.data.normal_class is not None else ())


def train(
    configs: Sequence[TrialConfig],
    data: Path,
    *,
    device: torch.device | str = "cpu",
    width: int | None = None,
    resume: bytes | None = None,
    save: Callable[[bytes], None] | None = None,
    save_every: float = 30.0,
) -> Iterator[Report]:
    """Train the members of one cohort; they agree on everything that is not fusible.

    `width` members are stacked at a time (all by default); 1 steps the members in turn. The results are the same.
    `save` is given a checkpoint at the end of an epoch once `save_every` seconds have passed since the last one. With
    such a checkpoint as `resume`, the reports made before it come again and training goes on from there, bit for bit
    on the CPU; one of other configs is ignored. DataError or ValueError if the data cannot be had or do not serve.
    """
    clock = _Clock()
    cohort = Cohort(configs, data, torch.device(device), width)
    done = Progress(epoch=0, seconds=0.0, diverged=(None,) * len(configs), reports=())
    if resume and (found := unpack(resume, configs, width)):
        done, state = found
        cohort.load_state(state)
    clock.start(done.seconds)
    yield from done.reports
    training = configs[0].training
    while done.epoch < training.epochs and not all(done.diverged):
        losses = cohort.epoch(done.epoch)
        done = replace(done, epoch=done.epoch + 1)
        done = replace(done, diverged=_judge(done, {"loss": losses["loss"]}))
        last = done.epoch == training.epochs or all(done.diverged)
        if last or done.epoch % training.report_every == 0:
            metrics = losses | cohort.evaluate()
            done = replace(done, diverged=_judge(done, metrics))
            last = last or all(done.diverged)
            done = replace(done, reports=(*done.reports, _report(done, metrics, clock.seconds(), last)))
            yield done.reports[-1]
        if save and not last and clock.since_mark() >= save_every:
            save(pack(configs, width, replace(done, seconds=clock.seconds()), cohort.state()))
            clock.mark()


class _Clock:
    """Training seconds over the process's life and those before it."""

    def start(self, earlier: float) -> None:
        self._zero = time.perf_counter() - earlier
        self.mark()

    def seconds(self) -> float:
        return time.perf_counter() - self._zero

    def mark(self) -> None:
        self._marked = time.perf_counter()

    def since_mark(self) -> float:
        return time.perf_counter() - self._marked


def _judge(done: Progress, metrics: Mapping[str, Floats]) -> tuple[Member | None, ...]:
    """`done.diverged`, and in it every further member one of whose metrics is not finite."""

    def verdict(index: int) -> Member | None:
        bad = [name for name, values in metrics.items() if not math.isfinite(values[index])]
        if not bad:
            return None
        return Member("diverged", done.epoch, dict.fromkeys(metrics), f"{bad[0]} was not finite in epoch {done.epoch}")

    return tuple(before or verdict(index) for index, before in enumerate(done.diverged))


def _report(done: Progress, metrics: Mapping[str, Floats], seconds: float, last: bool) -> Report:
    members = tuple(
        diverged
        or Member(
            "finished" if last else "running",
            done.epoch,
            {name: float(values[index]) for name, values in metrics.items()},
        )
        for index, diverged in enumerate(done.diverged)
    )
    return Report(done.epoch, members, seconds, last)
