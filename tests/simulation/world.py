"""One seed is one world: its scenario is drawn from the seed, run to the end, and judged."""

from __future__ import annotations

import contextlib
import functools
import io
import math
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import torch

from sweeper import version
from sweeper.commands import conclusion, merge, restore, rm
from sweeper.commands.sweep_run import SweepRun
from sweeper.errors import ClusterError, SpecError, StoreError, error_line
from sweeper.execution.signals import StopSignal
from sweeper.report import charts, publish
from sweeper.report.page import publish as page
from sweeper.request import Request
from sweeper.runtime import Machine, Runtime
from sweeper.search import journal
from sweeper.storage import archive, merging, parquet_files, requests, store
from sweeper.storage.layout import report_path
from sweeper.storage.load import load
from sweeper.storage.store import Store
from tests.simulation import functions, sweeps, training
from tests.simulation.auditor import Auditor
from tests.simulation.backend import MISHAPS, OF_MACHINES, Machines, Mishaps, Observed, SimulatedBackend
from tests.simulation.files import BUCKET, OTHER, ROOT, Blob, Client, Faults, Memory, SimulatedFiles, contents
from tests.simulation.processes import Condition, Killed, Lock, Process, Stuck, Time
from tests.simulation.scenario import (
    CORES,
    FUNCTIONS_SINCE,
    TELLS_APART,
    Command,
    Scenario,
    Session,
    add_commands,
    drawn,
)
from tests.simulation.stored import ARCHIVES, TRIALS, Expected, Row, best_rows, rows_archived, table_in
from tests.simulation.tracker import SimulatedTracker
from tests.simulation.training import CannedCohort, Watchdog
from trainables.functions import cohort
from trainables.training import train
from trainables.worker import worker

PROMPT_SECONDS = 60.0
"""Simulated seconds after a signal in which a driver ends whose store answers."""
BRIEF_SECONDS = 10.0
"""Seconds of an outage that all retries of drivers bridge."""
LIMIT = 3 * 3600.0
"""Simulated seconds after which a driver that has not ended is stuck."""


class World:
    """A store, a cluster and drivers."""

    def __init__(self, scenario: Scenario, seed: int, expected: Expected | None = None) -> None:
        self.scenario, self.random = scenario, Random(f"world {seed}")
        self.order = Random(f"order {seed}")
        """Chooses in which order threads do what they do at once."""
        self.time = Time(self.random)
        self.memory = Memory(self.time, self.random, scenario.store, scenario.faults)
        faults, sessions = scenario.faults, scenario.sessions
        asleep = any(session.sleeps[1] or session.falls_asleep for session in sessions)
        brief = not (scenario.jumps or asleep or faults.silent) and faults.outage[1] - faults.outage[0] < BRIEF_SECONDS
        sure = not (faults.silent or faults.outage[1] or asleep or scenario.store.staleness)
        self.auditor = Auditor(self.memory, scenario.retries, expected, brief, sure)
        blamed = [name for name in MISHAPS if name not in OF_MACHINES and getattr(scenario.mishaps, name)]
        self.auditor.excused = not (blamed or scenario.mishaps.poisoned) and faults == Faults()
        self.auditor.asleep = asleep
        self.auditor.divided = asleep and scenario.kind.preset not in TELLS_APART and not self.auditor.excused
        self.auditor.listed = not scenario.store.staleness and scenario.kind.keep.trials == "none"
        self.auditor.tracked = {} if scenario.refuses else None
        self.refusing = Random(f"tracker {seed}")
        self.memory.watch = self.watch
        if expected and any(each.name == "merge" for session in sessions for each in session.commands):
            self._add_other_store(expected, Random(f"other {seed}"))
        self.readers = 0
        """How many readers read now."""
        self.elsewhere = False
        """Whether the last session was on another machine."""

    def _add_other_store(self, expected: Expected, random: Random) -> None:
        """Add a store in which the sweep has run elsewhere, of a grid perhaps in part."""
        whole = self.scenario.kind.preset not in TELLS_APART or random.random() < 0.5
        for path, data in expected.files.items():
            if whole or not path.startswith(TRIALS) or random.random() < 0.5:
                self.memory.blobs[f"{OTHER}/{path}"] = Blob(data, -math.inf, set())
        self.auditor.accounts.merge(best_rows(expected.files).values())

    def runtime(self, client: Client) -> Runtime:
        time, random = self.time, self.random

        def begin(name: str, act: Callable[[], None]) -> Process:
            def whole() -> None:
                if not client.dead:
                    act()

            return time.begin(f"{client.name} {name}", whole, client)

        def wait(event: threading.Event, seconds: float) -> bool:
            time.current.sleep(seconds)
            if client.dead:
                raise Killed
            return event.is_set()

        def in_any_order(act: Callable[[str], Any], names: Iterable[str]) -> list[Any]:
            names = list(names)
            results = {name: act(name) for name in self.order.sample(names, len(names))}
            return [results[name] for name in names]

        return Runtime(
            monotonic=lambda: time.now,
            now=time.wall,
            sleep=lambda seconds: time.current.sleep(seconds),
            wait=wait,
            begin=begin,
            map=in_any_order,
            lock=lambda: Lock(time),
            condition=lambda: Condition(time),
            draw=random.random,
            token=lambda: f"{random.getrandbits(128):032x}",
            machine=lambda: Machine(client.machine, "0"),
        )

    def drive(
        self,
        client: Client,
        request: Request,
        mishaps: Mishaps,
        end: Callable[[Client, int | None], None],
        after: float = 0.0,
        machines: Machines | None = None,
    ) -> Process:
        """Begin a driver. `end` is called with its exit status, or with None when it has died."""
        client.preset = request.preset or ""
        self.auditor.asked(request)
        statuses: list[int] = []

        def act() -> None:
            try:
                self._driver(client, request, mishaps, statuses.append, machines or self.scenario.machines)
            finally:
                status = statuses[0] if statuses else None
                self.time.say(f"{client.name} has {'died' if status is None else f'ended with status {status}'}")
                client.dead = True  # its threads end with it
                end(client, status)

        process = self.time.begin(client.name, act, client, after)
        client.on_death = process.kill
        return process

    def _driver(
        self, client: Client, request: Request, mishaps: Mishaps, end: Callable[[int], None], machines: Machines
    ) -> None:
        """What the process of a driver does."""
        own = SimulatedFiles(self.memory, client, self.runtime(client))
        auditor = self.auditor
        observed = Observed(
            partial(auditor.started, client, machines),
            partial(auditor.emitted, client),
            partial(auditor.stepped, client),
            partial(auditor.stopped, client),
            auditor.function_failed,
            auditor.accounts,
        )
        cluster = SimulatedBackend(
            *(self.time, self.random, machines, mishaps, own, client, observed, request.step_timeout)
        )
        client.stopping = stopping = StopSignal(lambda: self.time.now)
        try:
            planned = SweepRun.planned(request, own, lambda *_: contextlib.nullcontext(cluster))
            if (tracked := self.auditor.tracked) is not None:
                connect = partial(SimulatedTracker, self.time, self.refusing, tracked, client, self.scenario.refuses)
                planned.trackers = {"simulated": connect}
            run = planned.begin(stopping)
            client.begun_at = self.time.now
            auditor.began(client, request)
            end(run.execute("the command"))
        except (SpecError, ClusterError, StoreError) as error:
            print(error_line(error))
            end(2)
        except KeyboardInterrupt:
            print("interrupted; the same command continues")
            end(130)
        except Killed:
            cluster.stop(5.0)
            raise

    def session(self, session: Session, number: int, request: Request) -> None:
        """Run the drivers of a session to their ends."""
        machine = f"host{number}" if session.elsewhere else "host"
        processes = []
        for index in range(session.drivers):
            name = f"{machine}{index or ''} driver {number}"
            client = Client(name, die_at=session.die_at[index], fresh=session.fresh)
            own = replace(request, fresh=session.fresh, cohort=session.cohort or request.cohort, hours=session.hours)
            own = replace(own, fixed={"seed": 0}) if session.narrow else own
            own = replace(own, preset=session.preset) if session.preset else own
            # To go to another machine takes somebody longer than a listing is stale.
            after = 5.0 if session.elsewhere or self.elsewhere else 0.0
            after += 5.0 * index if self.scenario.store.staleness else 0.0
            if session.sleeps[1] and not index:
                client.asleep = self.time.now + session.sleeps[0], self.time.now + session.sleeps[1]
            client.asleep_at = session.falls_asleep if not index else None
            judge, mishaps = partial(self._judge, own, session.drivers == 1), self.scenario.mishaps
            processes.append(self.drive(client, own, mishaps, judge, after, session.machines))
            if session.signal_at is not None and not index:
                signal = partial(self._signal, client, processes[0], session.unheard)
                self.time.begin("signal", signal, after=session.signal_at)
        # As of drivers that begin later.
        apart = 5.0 if self.scenario.store.staleness else 0.0
        for index, command in enumerate(session.commands):
            after = command.after + apart * (session.drivers + index)
            processes.append(self.command(replace(command, after=after), f"{number}-{index}"))
        self.elsewhere = session.elsewhere or session.drivers > 1
        self.time.run(lambda: all(process.ended for process in processes), self.time.now + LIMIT)

    def command(self, command: Command, name: str) -> Process:
        """Begin a command beside drivers."""
        client = Client(f"admin{name} {command.name}", die_at=command.die_at, command=command.name)

        def act() -> None:
            status, archived = None, dict[str, Row]()
            self.time.current.files = lambda uri: SimulatedFiles(
                self.memory, client, self.runtime(client), uri.removeprefix(BUCKET)
            )
            try:
                if command.name == "rm":
                    status = rm.main(["simulated", "--store", f"{BUCKET}{ROOT}", "--yes"])
                elif command.name == "merge":
                    status = merge.main([f"{BUCKET}{OTHER}", f"{BUCKET}{ROOT}"])
                elif times := sorted(path.split("/")[1] for path in contents(self.memory) if path.startswith(ARCHIVES)):
                    archived |= rows_archived(contents(self.memory), times[-1])
                    status = restore.main(["simulated", times[-1], "--store", f"{BUCKET}{ROOT}"])
                else:
                    status = 0
            finally:
                self.time.say(f"{client.name} has {'died' if status is None else f'ended with status {status}'}")
                client.dead = True
                self.auditor.command_ended(client, status, archived)

        process = self.time.begin(client.name, act, client, command.after)
        client.on_death = process.kill
        return process

    def _signal(self, client: Client, process: Process, unheard: bool) -> None:
        """Send SIGINT to a driver."""

        def interrupted() -> BaseException:
            if client.stopping:
                client.stopping.asked = True
            return KeyboardInterrupt()

        if client.stopping and not process.ended:
            self.time.say(f"{client.name} gets a signal")
            client.asked_at = self.time.now
            if unheard:
                client.stopping.asked = True
            else:
                process.interrupt = interrupted
                process.wake()

    def _judge(self, request: Request, alone: bool, client: Client, status: int | None) -> None:
        """Judge a driver that has ended. `alone`: whether it was the only one."""
        self.auditor.ended(request, client, status)
        drawn = self.scenario.reports or self.scenario.figures
        if alone and drawn and status in (0, 1) and self.auditor.sure and request.decide is None:
            self.auditor.judge_figures(request.preset or "")
        if self.scenario.faults != Faults() or client.asleep[1] or status is None:
            return
        if request.hours and client.begun_at and self.time.now > client.begun_at + request.hours * 3600:
            self.auditor.note(f"{client.name} ends after the time that it was given")
        if client.asked_at is not None and self.time.now > client.asked_at + PROMPT_SECONDS:
            self.auditor.note(f"{client.name} goes on for {self.time.now - client.asked_at:.0f} s after a signal")

    def last(self, request: Request, mishaps: Mishaps | None = None) -> int | None:
        """Run a driver that nothing disturbs. Returns its exit status."""
        ended: list[int | None] = []

        def end(client: Client, status: int | None) -> None:
            ended.append(status)
            self._judge(request, True, client, status)

        client = Client("host last", faulty=False)
        process = self.drive(client, request, mishaps or Mishaps(), end)
        self.time.run(lambda: process.ended, self.time.now + LIMIT)
        return ended[0]

    def watch(self, client: Client, verb: str, path: str) -> None:
        """What happens when an operation has changed a file: it is judged, and a reader may begin to read."""
        self.auditor.watch(client, verb, path)
        share = 0.3 if path.startswith("trials/") else 0.02
        if not self.readers and self.auditor.seen and self.random.random() < share:
            self.readers += 1
            self.time.begin("reader", self.read)

    def read(self) -> None:
        """What a reader does: it loads the rows."""
        client = Client("reader", faulty=False, slowness=self.random.choice((0.3, 1.0, 4.0)))
        own = SimulatedFiles(self.memory, client, self.runtime(client))
        since = self.auditor.moment
        try:
            rows = load("simulated", own)
            self.auditor.loaded([*zip(rows["trial_id"], rows["status"], strict=True)], since)
        except StoreError as error:
            if self.auditor.seen and not rows_archived(contents(self.memory)):
                self.auditor.note(f"a reader cannot load the rows: {error}")
        finally:
            self.readers -= 1

    def jump(self) -> None:
        """What the wall clock does in a world where it jumps."""
        while True:
            self.time.current.sleep(self.random.expovariate(1 / 100))
            self.time.jumped += self.random.choice((-3600.0, -5.0, 30.0, 7200.0))


class _Output(io.TextIOBase):
    """Standard output of whichever process prints."""

    def __init__(self, time: Time) -> None:
        self._time = time

    def write(self, text: str) -> int:
        if isinstance(client := self._time.current.group, Client) and not client.dead:
            client.output.write(text)
        return len(text)


def _encoded(table: pa.Table) -> bytes:
    """In place of Parquet, which takes ten times as long."""
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()


def _decoded(data: bytes, names: list[str] | None = None) -> tuple[pa.Schema, pa.Table]:
    """As `parquet_to_table`, of what `_encoded` has made."""
    table = table_in(data)
    present = None if names is None else [name for name in names if name in table.column_names]
    return table.schema, table if present is None else table.select(present)


@contextlib.contextmanager
def simulated(time: Time, reports: bool = False, compacts: bool = False, figures: bool = False) -> Iterator[None]:
    """Context in which a world runs: its cohorts train nothing, and what its drivers print is kept.

    No picture is drawn, which takes seconds. Without `reports` no pages are written either, nor is the best setting
    named, and without `figures`, in addition, no tables. With `compacts` two files are many, so that they are merged.
    """
    with (
        pytest.MonkeyPatch.context() as patched,
        contextlib.redirect_stdout(_Output(time)),
        contextlib.redirect_stderr(_Output(time)),
    ):
        patched.setattr(train, "TrainingCohort", CannedCohort)
        patched.setattr(train, "time", SimpleNamespace(monotonic=lambda: 0.0, perf_counter=lambda: time.now))
        patched.setattr(cohort, "time", SimpleNamespace(monotonic=lambda: time.now, perf_counter=lambda: time.now))
        patched.setattr(torch, "save", training.save)
        patched.setattr(torch, "load", training.load)
        patched.setattr(worker, "StepWatchdog", Watchdog)
        patched.setattr(Watchdog, "process", staticmethod(lambda: time.current), raising=False)
        patched.setattr(CannedCohort, "during_step", staticmethod(lambda epoch: time.current.on_step(epoch, None)))
        patched.setattr(CannedCohort, "begun", staticmethod(lambda made: setattr(time.current, "cohort", made)))
        patched.setattr(functions, "during_step", lambda epoch, config: time.current.on_step(epoch, config))
        patched.setattr(version, "_git", lambda *_: None)  # a process
        patched.setattr(page, "_writing", Lock(time))
        for module in (rm, merge):
            patched.setattr(module, "Files", lambda uri: time.current.files(uri))
        patched.setattr(restore, "Store", lambda uri: Store(time.current.files(uri)))
        for module in (parquet_files, archive, requests, store, merging):
            patched.setattr(module, "table_to_parquet", _encoded)
            patched.setattr(module, "parquet_to_table", _decoded, raising=False)
        patched.setattr(charts, "png", lambda *_, **__: b"")
        if compacts:
            patched.setattr(parquet_files, "MANY", 2)
            patched.setattr(conclusion, "COMPACT_ABOVE", 2)
        if not (reports or figures):
            patched.setattr(publish, "write", lambda *_, **__: "")
        if not reports:
            patched.setattr(conclusion, "best_of", lambda *_: SimpleNamespace(text="", choices=()))
            patched.setattr(page, "write", lambda files, sweep: report_path(sweep))
            patched.setattr(journal, "write", lambda *_: "")
            for module in (rm, merge):
                patched.setattr(module, "write_pages", lambda *_: None)
        yield


@dataclass
class Outcome:
    """What has become of a world."""

    seed: int
    scenario: Scenario
    history: list[str]
    problems: list[str]
    """What did not hold."""
    seconds: float
    """Simulated time."""


def expected(scenario: Scenario) -> Expected:
    """What a run of the request leaves in a world where nothing goes wrong. Whom a rung prunes depends on the cohorts,
    of which a wave has as many as the cluster trains at once."""
    return _expected(scenario.kind, scenario.machines if scenario.kind.preset in sweeps.PRUNED else CORES)


@functools.cache
def _expected(kind: sweeps.Kind, machines: Machines) -> Expected:
    world = World(Scenario(kind, machines=machines), 0)
    with simulated(world.time):
        status = world.last(kind.request())
    assert status == 0, "\n".join([*world.time.history, *world.auditor.problems])
    return Expected.of(world.memory)


def run(seed: int) -> Outcome:
    """Run the world of a seed to its end."""
    return run_scenario(scenario_of(seed), seed)


def scenario_of(seed: int) -> Scenario:
    """What the world of a seed is."""
    functions = Random(f"functions {seed}") if seed >= FUNCTIONS_SINCE else None
    scenario = drawn(Random(f"scenario {seed}"), Random(f"kinds {seed}"), functions, expected)
    scenario.figures = Random(f"figures {seed}").random() < 0.2
    add_commands(scenario, Random(f"commands {seed}"), Random(f"restores {seed}"))
    return scenario


def run_scenario(scenario: Scenario, seed: int) -> Outcome:
    """Run a world to its end."""
    world = World(scenario, seed, expected(scenario))
    auditor, poisoned = world.auditor, scenario.mishaps.poisoned
    left = Mishaps(poisoned=poisoned, poisoned_in=scenario.mishaps.poisoned_in)
    request = scenario.kind.request(
        retries=scenario.retries, save_every=scenario.save_every, step_timeout=scenario.step_timeout
    )
    with simulated(world.time, scenario.reports, scenario.merging, scenario.figures):
        try:
            if scenario.jumps:
                world.time.begin("clock", world.jump)
            for number, session in enumerate(scenario.sessions):
                world.session(session, number, request)
            status = world.last(request, left)
            if auditor.deleted_late:  # perhaps after it had read these rows
                status = world.last(request, left)
            auditor.judge(scenario.kind, status, poisoned)
        except Stuck as stuck:
            auditor.note(f"no progress: {stuck}")
        except Exception as error:
            auditor.note(f"an exception: {''.join(traceback.format_exception(error))}")
    return Outcome(seed, scenario, world.time.history, auditor.problems, world.time.now)
