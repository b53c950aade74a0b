"""Pruned searches with made-up training: whatever is split, killed, late or repeated, the same trials are pruned.

The waves, the retries and the rung server are real. Cohorts train at random speeds on an event loop that needs no time.
"""

import asyncio
import contextlib
import functools
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from sweeper.execution.retries import Attempt, RetryQueue
from sweeper.plan.cohorts import Trial
from sweeper.search.rung_server import Rule, RungServer
from sweeper.search.study_run import Recorded, result
from sweeper.search.waves import Waves
from sweeper.spec.pruners import Halving
from tests.sweeper.search.fast_clock import FastClockLoop
from tests.sweeper.search.toy_waves import SPACE, study, study_run, waves
from trainables.reports import Member, Report
from trainables.worker.messages import CohortReport, Origin

ORIGIN = Origin("cpu", "here", 1, datetime(2026, 1, 1, tzinfo=UTC))
EPOCHS = 8
PATIENCE = 20_000.0
"""Seconds of the loop's clock in which a search must end."""


@dataclass(frozen=True)
class Faults:
    """How often things go wrong, as probabilities for each epoch that a cohort trains."""

    splits: float = 0.0
    losses: float = 0.0
    """Of a worker."""
    restarts: float = 0.0
    """Of the driver."""
    lateness: float = 0.0
    """Longest time in seconds that the driver's events take to the server."""
    repeats: float = 0.0
    """Of a report that comes twice."""


Key = tuple[int, int]
"""Number and seed of a trial."""


@dataclass
class Saved:
    """What outlives a driver."""

    rows: dict[Key, tuple[str, int, str | None]] = field(default_factory=dict)
    """Status, epochs and error of each trial."""
    results: dict[int, Recorded] = field(default_factory=dict)
    checkpoints: dict[str, dict[str, list[Member]]] = field(default_factory=dict)
    """Id of a cohort -> id of a trial -> its reports, one an epoch."""
    halved: list[str] = field(default_factory=list)
    splits: int = 0


class Lost(Exception):
    """A worker was lost."""


class Restarted(Exception):
    """The driver was killed."""


class SimulatedSearch:
    """One run of a driver, with its workers and its rung server."""

    def __init__(self, definition: Any, seed: int, slots: int, size: int, faults: Faults, saved: Saved, life: int):
        self.curves, self.faults, self.saved, self.slots = seed, faults, saved, slots
        self.definition, self.rng = definition, random.Random(f"{seed} {life}")
        self.rule = Rule("auroc", "maximize", definition.search.pruner, definition.search.pruner.ladders(EPOCHS, 1))
        self.server, self.turns = (
            RungServer({"s0": self.rule}, announcement_timeout=1000, absence=5.0),
            itertools.count(),
        )
        self.background: set[asyncio.Task[None]] = set()
        self.source: Waves = waves(
            study_run(definition, dict(saved.results)),
            size=size,
            halved=saved.halved,
            record=saved.halved.append,
            rungs=self,  # type: ignore[arg-type]
        )
        self.queue = RetryQueue(self.source, 0)

    def append(self, event: Any) -> None:
        """Take an event for the rungs: it arrives late, perhaps after later ones."""

        async def arrive(turn: int) -> None:
            await asyncio.sleep(self.rng.random() * self.faults.lateness)
            await self.server.apply(turn, event)

        self.background.add(asyncio.get_running_loop().create_task(arrive(next(self.turns))))

    def value(self, trial: Trial, epoch: int) -> float | None:
        number, seed = key_of(trial)
        drawn = random.Random(f"{self.curves} {number} {epoch}" + (f" {seed}" if seed else ""))
        return drawn.choice([None, *(float(drawn.randrange(7)) for _ in range(9))])

    async def run(self) -> None:
        """Train until nothing is left. Raises Restarted, or any error of a worker or of the server."""
        workers: set[asyncio.Task[None]] = set()
        try:
            while not self.queue.ended:
                while len(workers) < self.slots and (attempt := self.queue.next()):
                    workers.add(asyncio.create_task(self.work(attempt)))
                assert workers, "nothing trains"
                done, _ = await asyncio.wait(workers | self.background, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                workers -= done
                self.background -= done
        finally:
            for task in workers | self.background:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Restarted):
                    await task

    async def work(self, attempt: Attempt) -> None:
        cohort = attempt.cohort
        self.source.started(cohort.id)
        try:
            await self.train(attempt)
        except MemoryError:
            self.saved.splits += 1
            assert self.queue.lost(cohort.id, "memory").kind == "smaller"
            self.source.stopped(cohort.id)
        except Lost:
            assert self.queue.lost(cohort.id, "machine").kind == "again"
            self.source.stopped(cohort.id)

    async def train(self, attempt: Attempt) -> None:
        """Train as a worker does: repeat the reports before the checkpoint, and then ask at rungs."""
        cohort, rng = attempt.cohort, self.rng
        wholes = [cohort.id, *(whole.id for whole in attempt.earlier)]
        stored: Mapping[str, list[Member]] = next(
            (self.saved.checkpoints[name] for name in wholes if name in self.saved.checkpoints), {}
        )
        members = {trial.id: list(stored.get(trial.id, [])) for trial in cohort.trials}
        reached = len(next(iter(members.values())))
        for epoch in range(1, reached + 1):
            await asyncio.sleep(rng.random() * 0.1)
            self.report(attempt, {trial: reports[:epoch] for trial, reports in members.items()}, judged=False)
        for epoch in range(reached + 1, EPOCHS + 1):
            running = [index for index, trial in enumerate(cohort.trials) if _runs(members[trial.id])]
            if not running:
                break
            await asyncio.sleep(rng.random() ** 3 * 20)
            self.may_fail(attempt)
            values = {index: self.value(cohort.trials[index], epoch) for index in running}
            pruned: dict[int, str] = {}
            judged = epoch in self.rule.epochs
            if judged:
                answer = await self.server.judge(cohort.id, epoch, values)
                if answer is None:
                    self.save(attempt, members)
                    raise Lost
                pruned = answer
            for index, trial in enumerate(cohort.trials):
                if index in running:
                    last = epoch == EPOCHS and index not in pruned
                    status: Any = "pruned" if index in pruned else "finished" if last else "running"
                    member = Member(status, epoch, {"auroc": values[index]}, pruned.get(index))
                else:
                    member = members[trial.id][-1]
                members[trial.id].append(member)
            if rng.random() < 0.4:
                self.save(attempt, members)
            self.report(attempt, members, judged)
        self.end(attempt, members)

    def may_fail(self, attempt: Attempt) -> None:
        drawn, faults = self.rng.random(), self.faults
        if drawn < faults.splits:
            if len(attempt.cohort.trials) > 1:
                raise MemoryError
        elif drawn < faults.splits + faults.losses:
            raise Lost
        elif drawn < faults.splits + faults.losses + faults.restarts:
            raise Restarted

    def save(self, attempt: Attempt, members: Mapping[str, list[Member]]) -> None:
        if any(members.values()):
            self.saved.checkpoints[attempt.cohort.id] = {trial: list(reports) for trial, reports in members.items()}

    def report(self, attempt: Attempt, members: Mapping[str, list[Member]], judged: bool) -> None:
        last = tuple(reports[-1] for reports in members.values())
        epoch = len(next(iter(members.values())))
        done = not any(member.status == "running" for member in last)
        for _ in range(1 + (self.rng.random() < self.faults.repeats)):
            self.source.reported(attempt.cohort.id, CohortReport(Report(epoch, last, 1.0, done), ORIGIN, judged))
            self.queue.reported(attempt.cohort.id, epoch, False)

    def end(self, attempt: Attempt, members: Mapping[str, list[Member]]) -> None:
        rows, history = [], []
        for trial in attempt.cohort.trials:
            reports, (number, seed) = members[trial.id], key_of(trial)
            last, own = reports[-1], {report.epochs_run: report for report in reports}
            row = {"trial_id": trial.id, "number": number, "status": last.status, "epochs_run": last.epochs_run}
            rows.append({**row, **last.metrics})
            values = [(epoch, report.metrics["auroc"]) for epoch, report in own.items()]
            history += [(trial.id, epoch, "auroc", value) for epoch, value in values if value is not None]
            params = {key: trial.config[key] for key in SPACE}
            proposal = self.saved.results.setdefault(number, Recorded(params, {}))
            replicate = self.definition.replicate_of(trial.config, {})
            proposal.results[replicate] = result(self.definition, rows[-1], history)
            assert (number, seed) not in self.saved.rows
            self.saved.rows[number, seed] = last.status, last.epochs_run, last.error
        self.queue.reported(attempt.cohort.id, EPOCHS, True)
        self.source.completed(attempt.cohort.id, rows, history)


def key_of(trial: Trial) -> Key:
    return int(str(trial.facts["number"])), int(str(trial.config["seed"]))


def _runs(reports: list[Member]) -> bool:
    return not reports or reports[-1].status == "running"


def search(seed: int, slots: int, faults: Faults, seeds: int = 1) -> Saved:
    """Return what a search with so many seeds as replicates has in the end. Raises TimeoutError if its cohorts wait for
    each other for ever."""
    drawn = random.Random(seed)
    trials = drawn.randrange(4, 17)
    pruner = Halving(1, factor=2, brackets=drawn.randrange(1, 4))
    replicates = {"seed": tuple(range(seeds))} if seeds > 1 else {}
    definition = study(pruner=pruner, trials=trials, wave=drawn.randrange(3, trials + 1), replicates=replicates)
    size, saved = seeds * drawn.randrange(2, 7), Saved()

    async def driver(life: int) -> None:
        await SimulatedSearch(definition, seed, slots, size, faults, saved, life).run()

    for life in itertools.count():
        with asyncio.Runner(loop_factory=FastClockLoop) as runner, contextlib.suppress(Restarted):
            runner.run(asyncio.wait_for(driver(life), PATIENCE))
            return saved
    raise AssertionError


@functools.cache
def undisturbed(seed: int, seeds: int = 1) -> Mapping[Key, tuple[str, int, str | None]]:
    """The rows of a search without faults, in which each cohort has a slot."""
    return search(seed, 8, Faults(), seeds).rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(Faults(splits=0.1), id="splits"),
        pytest.param(Faults(losses=0.1, restarts=0.1, lateness=30.0, repeats=0.3), id="restarts"),
        pytest.param(Faults(0.08, 0.05, 0.05, lateness=10.0, repeats=0.3), id="all"),
    ],
)
def test_the_same_trials_are_pruned_whatever_happens(faults: Faults) -> None:
    """24 seeds: of those, at least 5 show each of these planted errors: events that take effect out of turn, reports or
    restored cohorts that are ignored, and parts of a cohort that do not wait for each other."""
    splits = 0
    for seed in range(24):
        disturbed = search(seed, random.Random(seed).choice([1, 1, 2, 3, 8]), faults)
        assert disturbed.rows == undisturbed(seed), seed
        splits += disturbed.splits
    assert splits > 10 or not faults.splits


@pytest.mark.slow
def test_replicates_are_pruned_together_whatever_happens() -> None:
    """Also where a cohort was split between them, or the driver was killed while some had a row and others none."""
    faults, splits, pruned = Faults(0.08, 0.05, 0.05, lateness=10.0, repeats=0.3), 0, 0
    for seed in range(12):
        disturbed = search(seed, random.Random(seed).choice([1, 2, 8]), faults, 3)
        assert disturbed.rows == undisturbed(seed, 3), seed
        for number in {number for number, _ in disturbed.rows}:
            fates = {disturbed.rows[number, replicate][:2] for replicate in range(3)}
            assert len(fates) == 1, (seed, number)
            pruned += fates.pop()[0] == "pruned"
        splits += disturbed.splits
    assert splits > 10 and pruned > 10
