"""One seed is one world: a sweep, a cluster, a store, and what goes wrong, all drawn from the seed, and run to the
end."""

from __future__ import annotations

import contextlib
import functools
import io
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import pytest

from sweeper import version
from sweeper.cli import conclusion
from sweeper.errors import ClusterError, SpecError, StoreError, error_line
from sweeper.execution.signals import StopSignal
from sweeper.packing.cluster import DeviceKind
from sweeper.report import charts, publish
from sweeper.report.page import publish as page
from sweeper.request import Request
from sweeper.run import plan_request
from sweeper.search import journal
from sweeper.storage import parquet_files
from sweeper.storage.layout import report_path
from sweeper.storage.load import load
from sweeper.storage.parquet_files import parquet_to_table
from sweeper.surroundings import Machine, Surroundings
from tests.simulation import files, sweeps
from tests.simulation.auditor import Auditor, Expected, trials_set_aside
from tests.simulation.backend import MISHAPS, OF_MACHINES, Machines, Mishaps, Observed, SimulatedBackend, poison_of
from tests.simulation.files import Client, Faults, Memory, SimulatedFiles, contents
from tests.simulation.processes import Killed, Lock, Process, Stuck, Time
from tests.simulation.training import CannedCohort, Watchdog
from trainables.training import train
from trainables.worker import worker

PROMPT_SECONDS = 60.0
"""Simulated seconds after a signal in which a driver ends whose store answers."""
BRIEF_SECONDS = 10.0
"""Seconds of an outage that all retries of drivers bridge."""
LIMIT = 3 * 3600.0
"""Simulated seconds after which a driver that has not ended is stuck."""


CORES = Machines((DeviceKind(False, "", (2,)),))
CLUSTERS = (
    *(CORES, CORES, Machines((DeviceKind(False, "", (1,)),)), Machines((DeviceKind(False, "", (4, 2)),))),
    Machines((DeviceKind(False, "", (2,)),), "simulated:6379"),
    Machines((DeviceKind(True, "A100", (2,), 8.0), DeviceKind(True, "T4", (1, 1), 4.0))),
    Machines((DeviceKind(True, "T4", (1,), 4.0, on_demand=True),), "simulated:6379"),
)
"""Clusters that worlds draw."""
TELLS_APART = ("grid", "grids")
"""Presets of grids, whose trials do not depend on each other."""


@dataclass
class Session:
    """Drivers that run at the same time."""

    drivers: int = 1
    die_at: tuple[tuple[int, bool] | None, ...] = (None, None)
    """For each: number of the operation at which it dies, and whether that takes effect."""
    signal_at: float | None = None
    """Seconds after which the first gets a signal."""
    unheard: bool = False
    """Whether what the signal raises is lost in foreign code."""
    sleeps: tuple[float, float] = (0.0, 0.0)
    """From when until when the machine of the first sleeps, in seconds."""
    fresh: bool = False
    narrow: bool = False
    """Whether the request is for one seed alone."""
    cohort: int | None = None
    """Another size of cohorts than the request's."""
    hours: float | None = None
    machines: Machines | None = None
    """Another cluster than the scenario's."""
    elsewhere: bool = False
    """Whether it is on another machine than the session before."""


@dataclass
class Scenario:
    """What a world is."""

    kind: sweeps.Kind
    store: files.Kind = files.OBJECTS
    machines: Machines = CORES
    faults: Faults = field(default_factory=Faults)
    mishaps: Mishaps = field(default_factory=Mishaps)
    sessions: list[Session] = field(default_factory=list)
    """What happens before the last driver, which nothing disturbs."""
    jumps: bool = False
    """Whether the wall clock jumps."""
    merging: bool = False
    """Whether two files are many, so that they are merged."""
    save_every: float = 0.0
    reports: bool = False
    """Whether tables and pages are written, which takes a second."""
    retries: int = 3
    patience: float = 600.0


def drawn(random: Random) -> Scenario:
    """The scenario of a world. Each has few kinds of what can happen, and much of these: then they meet."""

    def some(share: float) -> bool:
        return random.random() < share

    scenario = Scenario(random.choice(sweeps.KINDS), random.choice((files.OBJECTS, files.OBJECTS, files.SHARE)))
    scenario.machines, grid = random.choice(CLUSTERS), scenario.kind.preset in TELLS_APART
    scenario.retries, scenario.save_every = random.choice((0, 1, 1, 3)), random.choice((0.0, 0.0, 1e9))
    mishaps, faults = scenario.mishaps, scenario.faults
    if some(0.7):
        for name in random.sample(OF_MACHINES if some(0.2) else MISHAPS, random.choice((1, 2, 3))):
            setattr(mishaps, name, random.choice((0.01, 0.05)))
    mishaps.epoch_seconds = random.choice((3.0, 10.0, 30.0))
    mishaps.delay, mishaps.twice = random.choice((0.0, 0.1, 3.0)), random.choice((0.0, 0.0, 0.2))
    if grid and some(0.3):
        trained = [row for row in expected(scenario).rows.values() if row["status"] == "finished"]
        mishaps.poisoned, mishaps.poisoned_in = frozenset({poison_of(random.choice(trained))}), random.choice((0, 1))
    if some(0.5):
        for name in random.sample(("fail", "fail", "lie", "lie", "silent", "slow"), 2):
            setattr(faults, name, random.choice((0.02, 0.06) if name in ("fail", "lie") else (0.003, 0.01)))
        if some(0.3):
            begin = random.uniform(0.0, 200.0)
            faults.outage = begin, begin + random.choice((3.0, 20.0, 300.0))
    several, cuts, limited = some(0.6 if grid else 0.15), some(0.3), some(0.2)
    elsewhere, fresh, signals, moves, sleeps = some(0.4), some(0.25), some(0.25), some(0.2), several and some(0.25)
    narrow = grid and some(0.6 if fresh else 0.2)
    if sleeps and some(0.7):  # what fails while its driver sleeps
        scenario.retries, mishaps.raises = 0, 0.05
    mean = random.choice((15, 40, 80))
    for number in range(random.choice((1, 1, 2, 2, 3))):
        session = Session(2 if several and some(0.8) else 1, elsewhere=elsewhere and some(0.5))
        session.die_at = tuple(
            (int(random.expovariate(1 / mean)) + 1, some(0.5)) if some(share) else None for share in (0.6, 0.1)
        )
        if signals and some(0.7):
            session.signal_at, session.unheard = random.expovariate(1 / 40), some(0.5)
        if grid and cuts and some(0.7):
            session.cohort = random.choice((1, 2, 4))
        session.narrow = narrow and some(0.6)
        session.machines = random.choice(CLUSTERS[:4]) if grid and moves and scenario.machines in CLUSTERS[:4] else None
        session.hours = random.choice((0.01, 0.02)) if limited and some(0.7) else None
        session.fresh = fresh and number > 0 and some(0.8)
        if session.fresh:
            session.drivers = 1
        elif session.drivers == 2 and sleeps:
            begin = random.uniform(2.0, 60.0)
            session.sleeps = begin, begin + random.uniform(100.0, 400.0)
        scenario.sessions.append(session)
    if fresh:
        first = Session(narrow=narrow and some(0.5))
        if some(0.5):
            first.die_at = (random.randint(20, 120), False), None
        scenario.sessions.insert(0, first)
    scenario.merging, scenario.jumps = some(0.4), some(0.15)
    scenario.patience = random.choice((60.0, 600.0))
    scenario.reports = some(0.01)
    return scenario


class World:
    """A store, a cluster and drivers."""

    def __init__(self, scenario: Scenario, seed: int, expected: Expected | None = None) -> None:
        self.scenario, self.random = scenario, Random(f"world {seed}")
        self.time = Time(self.random)
        self.memory = Memory(self.time, self.random, scenario.store, scenario.faults)
        faults, sessions = scenario.faults, scenario.sessions
        asleep = any(session.sleeps[1] for session in sessions)
        brief = not scenario.jumps and not faults.silent and faults.outage[1] - faults.outage[0] < BRIEF_SECONDS
        sure = not (faults.silent or faults.outage[1] or asleep or scenario.store.staleness)
        self.auditor = Auditor(self.memory, scenario.retries, expected, brief, sure)
        blamed = [name for name in MISHAPS if name not in OF_MACHINES and getattr(scenario.mishaps, name)]
        self.auditor.excused = not (blamed or scenario.mishaps.poisoned) and faults == Faults()
        self.auditor.cut_anew = asleep or any(session.cohort or session.narrow for session in sessions)
        self.memory.watch = self.watch
        self.readers = 0
        """How many readers read now."""
        self.elsewhere = False
        """Whether the last session was on another machine."""

    def surroundings(self, client: Client) -> Surroundings:
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

        return Surroundings(
            monotonic=lambda: time.now,
            now=time.wall,
            sleep=lambda seconds: time.current.sleep(seconds),
            wait=wait,
            begin=begin,
            map=lambda act, names: [act(name) for name in names],
            lock=lambda: Lock(time),
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
        own = SimulatedFiles(self.memory, client, self.surroundings(client))
        observed = Observed(partial(self.auditor.started, client, machines), partial(self.auditor.told, client))
        cluster = SimulatedBackend(
            *(self.time, self.random, machines, mishaps, own, client, observed, request.patience)
        )
        client.stopping = stopping = StopSignal(lambda: self.time.now)
        try:
            planned = plan_request(request, own, lambda *_: contextlib.nullcontext(cluster))
            run = planned.begin(stopping)
            client.begun_at = self.time.now
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
        finally:
            cluster.close()

    def session(self, session: Session, number: int, request: Request) -> None:
        """Run the drivers of a session to their ends."""
        machine = f"host{number}" if session.elsewhere else "host"
        processes = []
        for index in range(session.drivers):
            name = f"{machine}{index or ''} driver {number}"
            client = Client(name, die_at=session.die_at[index], fresh=session.fresh)
            own = replace(request, fresh=session.fresh, cohort=session.cohort or request.cohort, hours=session.hours)
            own = replace(own, fixed={"seed": 0}) if session.narrow else own
            # To go to another machine takes somebody longer than a listing is stale.
            after = 5.0 if session.elsewhere or self.elsewhere else 0.0
            after += 5.0 * index if self.scenario.store.staleness else 0.0
            if session.sleeps[1] and not index:
                client.asleep = self.time.now + session.sleeps[0], self.time.now + session.sleeps[1]
            judge, mishaps = partial(self._judge, own), self.scenario.mishaps
            processes.append(self.drive(client, own, mishaps, judge, after, session.machines))
            if session.signal_at is not None and not index:
                signal = partial(self._signal, client, processes[0], session.unheard)
                self.time.begin("signal", signal, after=session.signal_at)
        self.elsewhere = session.elsewhere or session.drivers > 1
        self.time.run(lambda: all(process.ended for process in processes), self.time.now + LIMIT)

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

    def _judge(self, request: Request, client: Client, status: int | None) -> None:
        self.auditor.ended(request, client, status)
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
            self._judge(request, client, status)

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
        own = SimulatedFiles(self.memory, client, self.surroundings(client))
        since = self.auditor.moment
        try:
            self.auditor.loaded(load("simulated", own).to_dict("records"), since)
        except StoreError as error:
            if not trials_set_aside(contents(self.memory)):
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


@functools.lru_cache(maxsize=2048)
def _parsed(data: bytes, names: tuple[str, ...] | None) -> Any:
    return parquet_to_table(data, None if names is None else [*names])


def _parquet_to_table(data: bytes, names: list[str] | None = None) -> Any:
    """As the real one, which parses the same bytes again and again."""
    return _parsed(data, None if names is None else tuple(names))


@contextlib.contextmanager
def simulated(time: Time, reports: bool, merging: bool = False) -> Iterator[None]:
    """Context in which a world runs: its cohorts train nothing, and what its drivers print is kept.

    No picture is drawn, which takes seconds. Without `reports` no tables and pages are written either, nor is the best
    setting named.
    """
    with (
        pytest.MonkeyPatch.context() as patched,
        contextlib.redirect_stdout(_Output(time)),
        contextlib.redirect_stderr(_Output(time)),
    ):
        patched.setattr(train, "Cohort", CannedCohort)
        patched.setattr(worker, "StepWatchdog", Watchdog)
        patched.setattr(Watchdog, "process", staticmethod(lambda: time.current), raising=False)
        patched.setattr(CannedCohort, "during_step", staticmethod(lambda epoch: time.current.on_step(epoch)))
        patched.setattr(version, "_git", lambda *_: None)  # a process
        patched.setattr(page, "_writing", Lock(time))
        patched.setattr(parquet_files, "parquet_to_table", _parquet_to_table)
        patched.setattr(charts, "png", lambda *_, **__: b"")
        if merging:
            patched.setattr(parquet_files, "MANY", 2)
            patched.setattr(conclusion, "COMPACT_ABOVE", 2)
        if not reports:
            patched.setattr(publish, "write", lambda *_, **__: "")
            patched.setattr(conclusion, "_answer", lambda *_: ())
            patched.setattr(page, "write", lambda files, sweep: report_path(sweep))
            patched.setattr(journal, "write", lambda *_: "")
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
    with simulated(world.time, reports=False):
        status = world.last(kind.request())
    assert status == 0, "\n".join([*world.time.history, *world.auditor.problems])
    return Expected.of(world.memory)


def run(seed: int) -> Outcome:
    """Run the world of a seed to its end."""
    return run_scenario(drawn(Random(f"scenario {seed}")), seed)


def run_scenario(scenario: Scenario, seed: int) -> Outcome:
    """Run a world to its end."""
    world = World(scenario, seed, expected(scenario))
    auditor, poisoned, poisoned_in = world.auditor, scenario.mishaps.poisoned, scenario.mishaps.poisoned_in
    request = scenario.kind.request(
        retries=scenario.retries, save_every=scenario.save_every, patience=scenario.patience
    )
    with simulated(world.time, scenario.reports, scenario.merging):
        try:
            if scenario.jumps:
                world.time.begin("clock", world.jump)
            for number, session in enumerate(scenario.sessions):
                world.session(session, number, request)
            auditor.judge(world.last(request, Mishaps(poisoned=poisoned, poisoned_in=poisoned_in)), poisoned)
        except Stuck as stuck:
            auditor.note(f"no progress: {stuck}")
        except Exception as error:
            auditor.note(f"an exception: {''.join(traceback.format_exception(error))}")
    return Outcome(seed, scenario, world.time.history, auditor.problems, world.time.now)
