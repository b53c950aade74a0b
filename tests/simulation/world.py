"""One seed is one world: a sweep, a cluster, a store, and what goes wrong, all drawn from the seed, and run to the
end."""

from __future__ import annotations

import contextlib
import functools
import io
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest

from sweeper import version
from sweeper.errors import ClusterError, SpecError, StoreError, error_line
from sweeper.execution.signals import StopSignal
from sweeper.packing.cluster import DeviceKind
from sweeper.report import charts, publish
from sweeper.report.page import publish as page
from sweeper.request import Request
from sweeper.run import plan_request
from sweeper.search import journal
from sweeper.storage.layout import report_path
from sweeper.surroundings import Machine, Surroundings
from tests.simulation import files, sweeps
from tests.simulation.auditor import Auditor, Expected
from tests.simulation.backend import Machines, Mishaps, Observed, SimulatedBackend
from tests.simulation.files import Client, Faults, Memory, SimulatedFiles
from tests.simulation.processes import Killed, Process, Stuck, Time
from tests.simulation.training import CannedCohort, Watchdog
from trainables.training import train
from trainables.worker import worker

LIMIT = 3 * 3600.0
"""Simulated seconds after which a driver that has not ended is stuck."""


CORES = Machines((DeviceKind(False, "", (2,)),))


@dataclass
class Scenario:
    """What a world is."""

    kind: sweeps.Kind
    store: files.Kind = files.OBJECTS
    machines: Machines = CORES
    faults: Faults = field(default_factory=Faults)
    mishaps: Mishaps = field(default_factory=Mishaps)
    deaths: int = 0
    """Drivers that die."""
    save_every: float = 0.0
    reports: bool = False
    """Whether tables and pages are written, which takes a second."""
    retries: int = 3
    patience: float = 600.0


def drawn(random: Random) -> Scenario:
    """The scenario of a world."""
    scenario = Scenario(random.choice(sweeps.KINDS))
    mishaps = scenario.mishaps
    scenario.deaths = random.choice((0, 0, 1, 1, 2, 3))
    if random.random() < 0.7:
        for name in random.sample(("dies", "raises", "node_dies", "preempted", "noticed", "hangs", "memory"), 3):
            setattr(mishaps, name, random.choice((0.005, 0.02)))
    mishaps.delay, mishaps.twice = random.choice((0.0, 0.1, 3.0)), random.choice((0.0, 0.0, 0.1))
    scenario.save_every = random.choice((0.0, 0.0, 1e9))
    return scenario


@dataclass
class Ended:
    """How a driver ended."""

    status: int | None
    """Its exit status; None if it died."""
    output: str


class World:
    """A store, a cluster and drivers."""

    def __init__(self, scenario: Scenario, seed: int, expected: Expected | None = None) -> None:
        self.scenario, self.random = scenario, Random(f"world {seed}")
        self.time = Time(self.random)
        self.memory = Memory(self.time, self.random, scenario.store, scenario.faults)
        self.auditor = Auditor(
            self.memory, scenario.machines, scenario.retries, expected, poisoned=scenario.mishaps.poisoned
        )
        self.memory.watch = self.auditor.watch

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
            draw=random.random,
            token=lambda: f"{random.getrandbits(128):032x}",
            machine=lambda: Machine(client.name.partition(" ")[0], "0"),
        )

    def drive(self, client: Client, request: Request, mishaps: Mishaps) -> Ended:
        """Run a driver to its end, while the world goes on."""
        statuses: list[int] = []
        observed = Observed(partial(self.auditor.started, client), partial(self.auditor.told, client))
        act = partial(self._driver, client, request, mishaps, observed, statuses.append)
        process = self.time.begin(client.name, act, client)
        client.on_death = process.kill
        self.time.run(lambda: process.ended, self.time.now + LIMIT)
        self.time.say(f"{client.name} has {f'ended with status {statuses[0]}' if statuses else 'died'}")
        return Ended(statuses[0] if statuses else None, client.output.getvalue())

    def _driver(
        self, client: Client, request: Request, mishaps: Mishaps, observed: Observed, end: Callable[[int], None]
    ) -> None:
        """What the process of a driver does."""
        own = SimulatedFiles(self.memory, client, self.surroundings(client))
        cluster = SimulatedBackend(
            *(self.time, self.random, self.scenario.machines, mishaps, own, client, observed, request.patience)
        )
        stopping = StopSignal(lambda: self.time.now)
        try:
            planned = plan_request(request, own, lambda *_: contextlib.nullcontext(cluster))
            end(planned.begin(stopping).execute("the command"))
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


class _Output(io.TextIOBase):
    """Standard output of whichever process prints."""

    def __init__(self, time: Time) -> None:
        self._time = time

    def write(self, text: str) -> int:
        if isinstance(client := self._time.current.group, Client) and not client.dead:
            client.output.write(text)
        return len(text)


@contextlib.contextmanager
def simulated(time: Time, reports: bool) -> Iterator[None]:
    """Context in which a world runs: its cohorts train nothing, and what its drivers print is kept.

    No picture is drawn, which takes seconds. Without `reports` no tables and pages are written either.
    """
    with (
        pytest.MonkeyPatch.context() as patched,
        contextlib.redirect_stdout(_Output(time)),
        contextlib.redirect_stderr(_Output(time)),
    ):
        patched.setattr(train, "Cohort", CannedCohort)
        patched.setattr(worker, "StepWatchdog", Watchdog)
        patched.setattr(Watchdog, "process", staticmethod(lambda: time.current), raising=False)
        patched.setattr(CannedCohort, "during_step", staticmethod(lambda: time.current.on_step()))
        patched.setattr(version, "_git", lambda *_: None)  # a process
        patched.setattr(charts, "png", lambda *_, **__: b"")
        if not reports:
            patched.setattr(publish, "write", lambda *_, **__: "")
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


@functools.cache
def expected(kind: sweeps.Kind) -> Expected:
    """What a run of a request leaves in a world where nothing goes wrong."""
    world = World(Scenario(kind), 0)
    with simulated(world.time, reports=False):
        ended = world.drive(Client("driver", faulty=False), kind.request(), Mishaps())
    assert ended.status == 0, ended.output
    return Expected.of(world.memory)


def run(seed: int) -> Outcome:
    """Run the world of a seed to its end."""
    return run_scenario(drawn(Random(f"scenario {seed}")), seed)


def run_scenario(scenario: Scenario, seed: int) -> Outcome:
    world = World(scenario, seed, expected(scenario.kind))
    request = scenario.kind.request(
        retries=scenario.retries, save_every=scenario.save_every, patience=scenario.patience
    )
    with simulated(world.time, scenario.reports):
        try:
            for number in range(scenario.deaths):
                at = int(world.random.expovariate(1 / 40)) + 1, world.random.random() < 0.5
                ended = world.drive(Client(f"driver {number}", die_at=at), request, scenario.mishaps)
                if ended.status is not None:
                    world.auditor.ended(request, ended.status, ended.output)
            ended = world.drive(Client("driver", faulty=False), request, Mishaps(poisoned=scenario.mishaps.poisoned))
            world.auditor.ended(request, ended.status, ended.output)
            world.auditor.judge(ended.status)
        except Stuck as stuck:
            world.auditor.note(f"no progress: {stuck}")
        except Exception as error:
            world.auditor.note(f"an exception: {''.join(traceback.format_exception(error))}")
    return Outcome(seed, scenario, world.time.history, world.auditor.problems, world.time.now)
