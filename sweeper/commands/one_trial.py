"""One trial in this process: trained to its end, timed, or held to a few examples. Nothing is written but a trace."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from sweeper.commands.command_line import EXIT_FAILED, EXIT_OK
from sweeper.errors import SpecError
from sweeper.planning.changes import format_value
from trainables.catalog import is_function, method_of
from trainables.learners.phases import PARTS
from trainables.reports import Member, Report
from trainables.sections import TrialConfig
from trainables.training.cohort import TrainingCohort
from trainables.training.function_alone import train_function_alone
from trainables.training.profiling import PROFILED_STEPS, WARM_UP_STEPS, profile_trial
from trainables.training.train import Callbacks, train

Print = Callable[[str], None]
OVERFIT_STEPS = 200
"""Steps that are made with the few examples."""
SHOWN_STEPS = (0, 1, 2, 5, 10, 20, 50, 100, OVERFIT_STEPS)
"""Numbers of steps after which the loss is printed."""
FALLS = 0.05
"""Least fall of the loss that counts, as a share of where it began."""


def train_alone(
    config: TrialConfig, data: Path, device: torch.device, shown: Sequence[str], say: Print, debug: bool = False
) -> int:
    """Train a trial to its end. Print the loss and the metrics in `shown` of each report, and all metrics of the last.
    Returns the exit status. With `debug` a loss that is not finite raises Divergence."""
    if is_function(config.method):
        return _call_alone(config, device, say)
    epochs = config.training.epochs
    for report in train([config], data, device=device, callbacks=Callbacks(stop_at_divergence=debug)):
        (member,) = report.members
        values = _numbers({name: member.metrics.get(name) for name in ("loss", *shown)})
        if not report.done:
            say(f"epoch {report.epoch:>{len(str(epochs))}} of {epochs}  {values}")
    return _conclude(member, report.epoch, report.seconds, say)


def _call_alone(config: TrialConfig, device: torch.device, say: Print) -> int:
    """Train a trial of a function to its end, and print its reports, about one a second at once. Returns the exit
    status."""

    def print_new(report: Report) -> None:
        for record in report.new:
            say(f"epoch {record.epoch}  {_numbers(record.metrics)}")

    member, _ = train_function_alone(config, device, print_new)
    return _conclude(member, member.epochs_run, member.seconds or 0.0, say)


def _conclude(member: Member, epochs: int, seconds: float, say: Print) -> int:
    """Print how a trial has ended. Returns the exit status."""
    if member.error:
        say(f"{member.status}: {member.error}")
        return EXIT_FAILED
    say(f"{member.status} after {epochs} epochs, {seconds:.1f} s of training")
    width = max(map(len, member.metrics))
    for name, value in member.metrics.items():
        say(f"  {name:<{width}}  {'undefined' if value is None else f'{value:.4g}'}")
    return EXIT_OK


def print_profile(config: TrialConfig, data: Path, device: torch.device, trace: Path, say: Print) -> int:
    """Print where the time of a trial's steps goes, and write a trace of them. Returns the exit status."""
    if is_function(config.method):
        raise SpecError(f"--profile needs a trial whose steps are known, but {config.method} is a function")
    profile = profile_trial(config, data, device, trace)
    training = config.training
    reports = math.ceil(training.epochs / training.report_every) if training.epochs else 1
    if profile.step:
        say(f"{PROFILED_STEPS} steps on {device.type}, after {WARM_UP_STEPS} that are not counted")
        other = profile.step - sum(profile.seconds.values())
        rows = {PARTS[part]: seconds for part, seconds in profile.seconds.items()}
        rows |= {"other: the loop, sums of losses": other, "a step": profile.step}
        width = max(map(len, rows))
        for name, seconds in rows.items():
            say(f"  {name:<{width}}  {seconds * 1e3:9.3f} ms  {seconds / profile.step:4.0%}")
    steps = profile.step * profile.steps * training.epochs
    evaluation = profile.evaluation * (reports - 1) + profile.last_evaluation
    say(f"evaluation: {profile.evaluation * 1e3:.1f} ms a report, {profile.last_evaluation * 1e3:.1f} ms the last")
    say(
        f"the trial: {training.epochs} epochs of {profile.steps} steps, {steps:.1f} s, and {reports} reports, "
        f"{evaluation:.1f} s"
    )
    if profile.step:
        say(f"trace: {trace} (chrome://tracing or ui.perfetto.dev open it)")
    return EXIT_OK


def overfit(config: TrialConfig, data: Path, device: torch.device, examples: int, say: Print) -> int:
    """Let a trial learn the same few training examples, always with the same views and noise, at its peak learning
    rate, and print whether its loss falls. Returns the exit status."""
    if is_function(config.method):
        raise SpecError(f"--overfit needs a trial whose steps are known, but {config.method} is a function")
    if not method_of(config.method).trains() or method_of(config.method).fitted() or not config.training.epochs:
        raise SpecError(f"--overfit needs a trial that learns by gradients, but {config.method} does not here")
    cohort = _cohort_of(config, data, device, examples)
    orders = cohort.orders(0)
    cohort.begin_epoch(0)
    losses: list[float] = []
    say(f"{examples} training examples, {OVERFIT_STEPS} steps at the rate {format_value(config.gradient.lr)}")
    for step in range(OVERFIT_STEPS + 1):
        values = {name: float(loss_K[0]) for name, loss_K in cohort.step(0, 0, orders, rate=1.0).items()}
        losses.append(values["loss"])
        if step in SHOWN_STEPS or not math.isfinite(losses[-1]):
            say(f"  after {step:>3} steps  {_numbers(values)}")
        if not math.isfinite(losses[-1]):
            say(f"the loss is not finite after {step} steps: a lower lr, or an error in the loss")
            return EXIT_FAILED
    first, last = losses[0], losses[-1]
    falls = first - last > FALLS * abs(first)
    verdict = "the loss falls" if falls else "the loss does not fall: another lr, or an error in the loss"
    say(f"{verdict} ({first:.4g} to {last:.4g})")
    return EXIT_OK if falls else EXIT_FAILED


def _cohort_of(config: TrialConfig, data: Path, device: torch.device, examples: int) -> TrainingCohort:
    """The trial alone, with batches of so many examples, however its batch size counts them."""

    def with_batch_size(size: int) -> TrainingCohort:
        own = replace(config, training=replace(config.gradient, batch_size=size, workers=1, accumulate=1))
        return TrainingCohort([own], data, device, width=None)

    cohort = with_batch_size(examples)
    counted = cohort.orders(0)[0].shape[1]
    return cohort if counted == examples else with_batch_size(examples * examples // counted)


def _numbers(values: Mapping[str, float | None]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items() if value is not None)
