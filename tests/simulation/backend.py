"""A simulated cluster below the real dispatch: nodes that come and go, and workers on them that run the real
`train_cohort`, of cohorts that train nothing (see `training`)."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import torch

from sweeper.execution.backend import Backend, Emit, Ended, Event, MessageReceived, Started, failure_of
from sweeper.packing.cluster import PREFIX, Cluster, DeviceKind, MeasurementRequest, SlotResources
from tests.simulation.accounts import Accounts
from tests.simulation.files import Client, SimulatedFiles
from tests.simulation.processes import Killed, Process, Time
from trainables.reports import OutOfMemory, Stopped
from trainables.training.measurement import DeviceMeasurement, DeviceMemory, Measurement
from trainables.worker.messages import CohortReport, CohortTask, DeviceShare, Failure, Message, write_failure
from trainables.worker.worker import Dispatch, train_cohort

CPU = torch.device("cpu")
DIED = Failure("error", "its worker process has died")
NODE_DIED = Failure("machine", "its node has died")
PREEMPTED = Failure("machine", "its node was preempted")
GIB = 2**30
MISHAPS = ("dies", "raises", "node_dies", "preempted", "noticed", "hangs", "memory", "quits")
"""What happens to workers, by the names of the probabilities of `Mishaps`."""
OF_MACHINES = ("node_dies", "preempted", "noticed")
"""Those that are not a trial's fault."""


@dataclass(frozen=True)
class Machines:
    """The cluster of a world."""

    kinds: tuple[DeviceKind, ...]
    address: str | None = None
    """None for a local one, to which no node comes."""


@dataclass
class Mishaps:
    """How often workers and nodes fail. Each is a probability for a step of a worker."""

    epoch_seconds: float = 10.0
    """Mean time of an epoch; no probability."""
    dies: float = 0.0
    """The worker's process."""
    raises: float = 0.0
    node_dies: float = 0.0
    preempted: float = 0.0
    """The node goes without notice."""
    noticed: float = 0.0
    """The node goes, and its workers get SIGTERM before."""
    hangs: float = 0.0
    memory: float = 0.0
    """The worker needs more memory than there is."""
    quits: float = 0.0
    """The worker ends without a word."""
    delay: float = 0.0
    """Mean time that a message takes."""
    twice: float = 0.0
    """A message comes twice."""
    poisoned: frozenset[str] = frozenset()
    """Trials, by `poison_of` their configs, that can never be trained."""
    poisoned_in: int = 0
    """Epoch in which that shows."""


def poison_of(config: Any) -> str:
    """What a trial is poisoned by."""
    flat = config.flat() if hasattr(config, "flat") else config
    return f"{flat['lr']!r} {flat['seed']}"


@dataclass(eq=False)
class Node:
    kind: DeviceKind
    devices: float
    client: Client
    used: float = 0.0
    alive: bool = True
    workers: list[Worker] = field(default_factory=list)


@dataclass(eq=False)
class Worker:
    """A process that trains one cohort."""

    cohort: str
    node: Node
    amount: float
    process: Process | None = None


@dataclass(frozen=True)
class Observed:
    """What an auditor learns of a dispatch."""

    started: Callable[[CohortTask, Mapping[str, float]], None]
    """Called with a task, and the devices that all begun cohorts take, by kind."""
    emitted: Callable[[CohortTask, Event], None]
    stepped: Callable[[CohortTask, int], None]
    stopped: Callable[[], None]
    failed: Callable[[CohortTask], None]
    """Called where a function of a task fails for good."""
    accounts: Accounts


class SimulatedBackend(Backend):
    """The cluster as one driver sees it."""

    def __init__(
        self,
        time: Time,
        random: Random,
        machines: Machines,
        mishaps: Mishaps,
        files: SimulatedFiles,
        client: Client,
        observed: Observed,
        patience: float,
    ) -> None:
        self._time, self._random, self._machines, self._mishaps = time, random, machines, mishaps
        self._files, self._client, self._observed, self._patience = files, client, observed, patience
        self._inbox: list[Event] = []
        self._waiting: list[tuple[CohortTask, SlotResources]] = []
        self._tasks: dict[str, CohortTask] = {}
        self._mailed: dict[str, float] = {}
        self._dispatch: Dispatch | None = None
        self._driver: Process | None = None
        self._number = 0
        self._nodes = [self._node(kind, devices) for kind in machines.kinds for devices in kind.nodes]

    def _node(self, kind: DeviceKind, devices: float) -> Node:
        self._number += 1
        client = Client(f"{self._client.name} node {self._number}", faulty=self._client.faulty)
        node = Node(kind, devices, client)
        client.on_death = lambda: self._lose(node, NODE_DIED)
        return node

    def cluster(self) -> Cluster:
        return Cluster(self._machines.address, self._machines.kinds, self._measure)

    def _measure(self, requests: Sequence[MeasurementRequest]) -> list[DeviceMeasurement | None]:
        self._time.current.sleep(1.0)
        probes: list[DeviceMeasurement | None] = []
        for request in requests:
            speed = 1.0 + self._machines.kinds.index(request.kind)
            widths = (1, 2, 4, 8, 12)
            measured = [Measurement(width, 0.05 * speed, GIB // 8, GIB // 64) for width in widths]
            slowdowns = {width: {2: 1.2, 4: 1.9} for width in request.widths} if request.processes else None
            memory = DeviceMemory(f"simulated {request.kind.accelerator}", 16 * GIB, GIB // 4)
            probes.append(DeviceMeasurement(memory, measured if request.configs else (), slowdowns))
        return probes

    @contextlib.contextmanager
    def training(self, dispatch: Dispatch) -> Iterator[None]:
        settings = replace(dispatch.settings, step_timeout=math.inf)
        self._dispatch, self._driver = replace(dispatch, settings=settings), self._time.current
        try:
            yield
        finally:
            self.stop(0.2)
            self._waiting, self._inbox = [], []
            self._tasks, self._mailed = {}, {}

    def stop(self, most: float) -> None:
        """End all workers, within so many seconds."""
        self._observed.stopped()
        for node in self._nodes:
            for worker in [*node.workers]:
                if worker.process:
                    after = self._random.uniform(0.0, most)
                    self._time.begin("end", worker.process.kill, after=after)
                node.used -= worker.amount
            node.workers.clear()

    def start(self, task: CohortTask, slot: SlotResources) -> None:
        self._waiting.append((task, slot))
        self._tasks[task.cohort] = task
        outstanding: defaultdict[str, float] = defaultdict(float)
        for _, waiting in self._waiting:
            outstanding[_accelerator(waiting) or ""] += _amount(waiting)
        for node in self._nodes:
            for worker in node.workers:
                outstanding[node.kind.accelerator if _accelerator(slot) else ""] += worker.amount
        self._observed.started(task, outstanding)

    def advance(self, emit: Emit) -> None:
        self._assign()
        deadline = self._time.now + 1.0
        while not self._inbox and self._time.now < deadline:
            self._time.current.sleep(deadline - self._time.now)
        events, self._inbox = self._inbox, []
        while events:
            event = events.pop(0)
            task = self._tasks[event.cohort]
            self._observed.emitted(task, event)
            emit(event)

    def _assign(self) -> None:
        """Start what waits on nodes that have room."""
        for node in self._nodes:
            for task, slot in [*self._waiting]:
                amount = _amount(slot)
                accelerator = _accelerator(slot)
                fits = accelerator in (None, node.kind.accelerator) and node.used + amount <= node.devices + 1e-9
                if node.alive and fits:
                    self._waiting.remove((task, slot))
                    self._begin(task, node, amount)
        if self._waiting and self._machines.address and self._random.random() < 0.2:
            kind = self._random.choice(self._machines.kinds)
            self._nodes.append(self._node(kind, kind.nodes[0]))
            self._time.say(f"{self._nodes[-1].client.name} comes")

    def _begin(self, task: CohortTask, node: Node, amount: float) -> None:
        worker = Worker(task.cohort, node, amount)
        node.used += amount
        node.workers.append(worker)
        self._mail(Started(task.cohort))
        delay = self._random.uniform(0.5, 5.0)
        worker.process = self._time.begin(f"worker of {task.cohort}", lambda: self._work(task, worker), node, delay)

    def _mail(self, event: Event) -> None:
        """Bring an event to the driver. Those of one cohort come in order."""
        delay = self._random.expovariate(1.0) * self._mishaps.delay
        moment = max(self._time.now + delay, self._mailed.get(event.cohort, 0.0) + 1e-6)
        self._mailed[event.cohort] = moment

        def arrive() -> None:
            if event.cohort in self._tasks:
                self._inbox.append(event)
                if self._driver:
                    self._driver.wake()

        self._time.begin("mail", arrive, after=moment - self._time.now)

    # What a worker does

    def _work(self, task: CohortTask, worker: Worker) -> None:
        assert self._dispatch
        settings, process, begun = self._dispatch.settings, self._time.current, self._time.now
        share = DeviceShare(worker.amount, worker.node.devices, worker.node.kind.accelerator)
        files = self._files.of(worker.node.client)

        def here(storage: Any) -> Any:
            """The storage as this node sees it."""
            return storage and replace(storage, files=files.with_retries(storage.files.retry_policy))

        checkpoints, models = here(settings.checkpoints), here(settings.models)
        # What it prints would be taken from the whole process, and not from this worker alone.
        settings = replace(settings, checkpoints=checkpoints, models=models, logs=None)

        def write_file(path: str, content: bytes) -> None:
            checkpoints.write(path, content, task.trials)

        def send(message: Message) -> None:
            if isinstance(message, CohortReport):
                by_member = process.cohort.seconds if process.cohort else {}
                self._observed.accounts.sent(task, message, process.stepped, by_member)
            for _ in range(1 + (self._random.random() < self._mishaps.twice)):
                self._mail(MessageReceived(task.cohort, message))

        failure: Failure | None = None
        try:
            process.on_step = lambda epoch, config: self._step(task, worker, epoch, config)
            failed = partial(self._failed, task)
            train_cohort(replace(task, memory=None), settings, CPU, send, share=share, show_exception=failed)
        except Stopped as stopped:
            write_failure(write_file, task.spec.checkpoint, settings.run, Failure("machine", f"stopped: {stopped}"))
            failure = DIED
        except _Hung:
            write_failure(write_file, task.spec.checkpoint, settings.run, Failure("hung", "it made no step"))
            failure = DIED
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError):
            raise  # a mistake, which ends the world
        except Exception as error:
            failure = failure_of(error)
        finally:
            self._observed.accounts.occupied[task.cohort] += self._time.now - begun
        self._leave(worker, failure)

    def _failed(self, task: CohortTask, error: BaseException) -> None:
        """A function of a cohort fails for good."""
        if not str(error).startswith("simulated: "):
            self._time.failure = AssertionError(f"a function is said to have raised what it has not: {error!r}")
        self._observed.failed(task)

    def _leave(self, worker: Worker, failure: Failure | None) -> None:
        """A worker has ended."""
        if worker in worker.node.workers:
            worker.node.workers.remove(worker)
            worker.node.used -= worker.amount
            if failure:
                self._time.say(f"{worker.cohort} ends: {failure.reason}")
            self._mail(Ended(worker.cohort, failure))

    def _step(self, task: CohortTask, worker: Worker, epoch: int, config: Mapping[str, Any] | None) -> float:
        """A step of a worker: time passes, and mishaps happen. `config`: that of the trial which alone makes it.
        Returns the seconds that it takes."""
        process, begun = self._time.current, self._time.now
        try:
            self._make_step(task, worker, epoch, config)
        finally:
            process.stepped += self._time.now - begun
        return self._time.now - begun

    def _make_step(self, task: CohortTask, worker: Worker, epoch: int, config: Mapping[str, Any] | None) -> None:
        process, mishaps, random = self._time.current, self._mishaps, self._random
        self._observed.stepped(task, epoch)
        process.sleep(random.expovariate(1.0) * mishaps.epoch_seconds / 2)
        if mishaps.poisoned and epoch >= mishaps.poisoned_in:
            for each in [config] if config else task.spec.configs():
                if poison_of(each) in mishaps.poisoned:
                    raise RuntimeError("simulated: a trial is poisoned")
        drawn = random.random()
        for name in MISHAPS:
            drawn -= getattr(mishaps, name)
            if drawn < 0:
                self._time.say(f"{task.cohort}: {name}")
                return self._mishap(name, worker, config is not None)

    def _mishap(self, name: str, worker: Worker, in_function: bool) -> None:
        if name == "raises":
            raise RuntimeError("simulated: raised")
        if name == "memory":
            raise OutOfMemory("simulated: memory")
        if name == "hangs":
            self._time.current.sleep(self._patience)
            if in_function:  # nobody knows how long its epochs take
                return
            raise _Hung
        if name in ("dies", "quits"):
            self._leave(worker, DIED if name == "dies" else None)
            raise Killed
        if name == "noticed":
            for other in worker.node.workers:
                if other.process:
                    other.process.asked = True
            self._time.begin("loss", lambda: self._lose(worker.node, PREEMPTED), after=self._random.uniform(1.0, 120.0))
            return
        self._lose(worker.node, PREEMPTED if name == "preempted" else NODE_DIED)
        raise Killed

    def _lose(self, node: Node, failure: Failure) -> None:
        """A node goes, and where it was the last one another comes."""
        if not node.alive:
            return
        node.alive = False
        for worker in [*node.workers]:
            if worker.process and worker.process is not self._time.current:
                worker.process.kill()
            self._leave(worker, failure)
        local = self._machines.address is None
        if local or not any(other.alive for other in self._nodes) or self._random.random() < 0.7:
            self._nodes.append(self._node(node.kind, node.devices))


def _accelerator(slot: SlotResources) -> str | None:
    """The kind of device that a slot is on, where that matters."""
    return next((name.removeprefix(PREFIX) for name in slot.resources if name.startswith(PREFIX)), None)


def _amount(slot: SlotResources) -> float:
    """The part of a device that a slot takes."""
    return slot.resources.get("GPU") or slot.resources.get("CPU", 1.0)


class _Hung(Exception):
    """The worker's watchdog ends it."""
