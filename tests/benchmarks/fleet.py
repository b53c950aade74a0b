"""A cluster on paper: nodes of several kinds of GPUs that are lost and replaced, on which cohorts train in no time.

Training is what a measurement says of a stack on a kind of GPU. An event follows the next, and the clock jumps there.
"""

import contextlib
import heapq
import itertools
import math
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from sweeper.execution.backend import Backend, Emit, Ended, Event, MessageReceived, Started
from sweeper.packing.cluster import MEMORY_MARGIN, PREFIX, Cluster, DeviceKind, MeasurementRequest, SlotResources
from trainables.reports import Member, Report, Status
from trainables.training.measurement import DeviceMeasurement, DeviceMemory, Measurement
from trainables.worker.messages import CohortReport, CohortTask, DeviceShare, Failure, Origin
from trainables.worker.worker import Dispatch

GIB = 2**30
MEMBER, OVERHEAD = GIB, GIB // 2
"""Memory of a member of a stack, and of a process."""
PER_NODE = 8
WIDTHS = (1, 2, 4, 8, 16, 32)
START, AWAY = 10.0, 120.0
"""Seconds in which a worker begins with a cohort, and for which a lost node is away."""
LOST = Failure("machine", "its spot node was taken")


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, and what is measured of stacks of a ResNet-18 on it."""

    name: str
    share: float
    """Its share of all GPUs."""
    slower: float
    """Times as long as on the fastest."""
    memory: int
    price: float
    """Of a node of eight per hour."""
    slowdowns: dict[int, float]
    """Processes that share it -> the time of a step over that of one alone."""

    def seconds(self, width: int) -> float:
        """Seconds per step and member of a stack."""
        return (0.012 / width + 0.003) * self.slower

    def rate(self, width: int, processes: int) -> float:
        """Member steps per second of the whole GPU."""
        return processes / (self.seconds(width) * self.slowdowns[processes])

    @property
    def best_rate(self) -> float:
        """Of all stacks and numbers of processes that fit into its memory."""
        fitting = (
            self.rate(width, processes)
            for width, processes in itertools.product(WIDTHS, self.slowdowns)
            if width * MEMBER <= MEMORY_MARGIN * self.memory / processes - OVERHEAD
        )
        return max(fitting)


GPUS = (
    Gpu("H100", 0.4, 1.0, 80 * GIB, 24.0, {1: 1.0, 2: 1.35, 4: 2.3}),
    Gpu("A100", 0.4, 1.7, 40 * GIB, 12.0, {1: 1.0, 2: 1.5, 4: 2.7}),
    Gpu("T4", 0.2, 8.0, 16 * GIB, 3.0, {1: 1.0, 2: 1.9, 4: 3.9}),
)
"""Speeds and prices are assumed, not measured."""


@dataclass(eq=False)
class Node:
    gpu: Gpu
    devices: int
    used: float = 0.0
    running: "dict[str, Running]" = field(default_factory=dict)


@dataclass(eq=False)
class Running:
    """A cohort that trains on a node."""

    task: CohortTask
    share: float
    begun: float
    """When its worker began."""
    fraction: float
    """What of its steps its checkpoint had."""
    seconds: float
    """All of its steps would take here."""

    def fraction_at(self, now: float) -> float:
        return min(1.0, self.fraction + max(0.0, now - self.begun - START) / self.seconds)


class Fleet(Backend):
    """So many GPUs, each node of which is lost once in `loss_every` seconds on average."""

    def __init__(self, gpus: int, steps: int, metrics: Sequence[str], loss_every: float, seed: int = 0) -> None:
        self.now, self.losses, self._steps, self._metrics = 0.0, 0, steps, metrics
        self._random, self._loss_every = random.Random(seed), loss_every
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._events, self._waiting = deque[Event](), list[tuple[CohortTask, SlotResources]]()
        self._saved: dict[str, float] = {}
        """Cohort -> what of its steps its checkpoint has."""
        self.spent: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
        """GPU and what it did -> from when, to when, and on how many devices."""
        self.counts = {gpu.name: round(gpus * gpu.share) for gpu in GPUS}
        self.nodes: list[Node] = []
        for gpu in GPUS:
            whole, rest = divmod(self.counts[gpu.name], PER_NODE)
            self.nodes += [Node(gpu, devices) for devices in [PER_NODE] * whole + [rest] * bool(rest)]
        for node in self.nodes:
            self._at(self._random.expovariate(1 / loss_every), partial(self._lose, node))

    @property
    def price(self) -> float:
        """Of all nodes per hour."""
        return sum(math.ceil(self.counts[gpu.name] / PER_NODE) * gpu.price for gpu in GPUS)

    def least_seconds(self, trials: int) -> float:
        """Seconds in which so many trials end if no GPU ever waits, and each has its fastest stacks."""
        return trials * self._steps / sum(self.counts[gpu.name] * gpu.best_rate for gpu in GPUS)

    def usage(self, begin: float, end: float) -> dict[tuple[str, str], float]:
        """GPU and what it did between two moments -> its share of the GPUs of its kind, on average."""
        shares = {}
        for (name, what), spans in self.spent.items():
            own = ((min(last, end) - max(first, begin)) * devices for first, last, devices in spans)
            shares[name, what] = sum(filter(lambda used: used > 0, own)) / (end - begin) / self.counts[name]
        for name in self.counts:
            shares[name, "is idle"] = 1 - sum(share for (gpu, _), share in shares.items() if gpu == name)
        return shares

    def cluster(self) -> Cluster:
        kinds = tuple(
            DeviceKind(True, gpu.name, tuple(node.devices for node in self.nodes if node.gpu is gpu), 8.0)
            for gpu in GPUS
        )
        return Cluster("paper", kinds, self._measure)

    def _measure(self, requests: Sequence[MeasurementRequest]) -> list[DeviceMeasurement | None]:
        return [self._probe(request) for request in requests]

    def _probe(self, request: MeasurementRequest) -> DeviceMeasurement:
        gpu = next(gpu for gpu in GPUS if gpu.name == request.kind.accelerator)
        stacks = [Measurement(width, gpu.seconds(width), width * MEMBER, MEMBER // 8) for width in WIDTHS]
        slowdowns = {width: {n: by for n, by in gpu.slowdowns.items() if n > 1} for width in request.widths}
        memory = DeviceMemory(f"{gpu.name} on paper", gpu.memory, OVERHEAD)
        return DeviceMeasurement(memory, stacks if request.configs else (), slowdowns if request.processes else None)

    @contextlib.contextmanager
    def training(self, dispatch: Dispatch) -> Iterator[None]:
        yield

    def start(self, task: CohortTask, slot: SlotResources) -> None:
        self._waiting.append((task, slot))

    def advance(self, emit: Emit) -> None:
        self._assign()
        while not self._events:
            self.now, _, act = heapq.heappop(self._heap)
            act()
        while self._events:
            emit(self._events.popleft())

    def _at(self, time: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._heap, (time, next(self._order), act))

    def _assign(self) -> None:
        free = {gpu.name: [node for node in self.nodes if node.gpu is gpu and node.devices] for gpu in GPUS}
        left = []
        for task, slot in self._waiting:
            share = slot.resources["GPU"]
            name = next(name.removeprefix(PREFIX) for name in slot.resources if name.startswith(PREFIX))
            nodes = free[name]
            while nodes and nodes[-1].used + share > nodes[-1].devices + 1e-6:
                nodes.pop()
            if nodes:
                self._begin(task, nodes[-1], share)
            else:
                left.append((task, slot))
        self._waiting = left

    def _begin(self, task: CohortTask, node: Node, share: float) -> None:
        width, processes = task.spec.width, round(1 / share)
        stacks = math.ceil(len(task.spec.own) / width)
        rate = node.gpu.rate(min(WIDTHS, key=lambda known: abs(known - width)), processes) / processes
        seconds = self._steps * stacks * width / rate * self._random.lognormvariate(0, 0.03)
        running = Running(task, share, self.now, self._saved.get(task.cohort, 0.0), seconds)
        node.used += share
        node.running[task.cohort] = running
        self._events.append(Started(task.cohort))
        epochs, every = (int(task.spec.shared[key]) for key in ("epochs", "report_every"))
        for epoch in range(every, epochs + 1, every):
            if epoch / epochs > running.fraction:
                at = self.now + START + (epoch / epochs - running.fraction) * seconds
                self._at(at, partial(self._report, node, running, epoch, epochs))

    def _report(self, node: Node, running: Running, epoch: int, epochs: int) -> None:
        task = running.task
        if node.running.get(task.cohort) is not running:  # its node was lost
            return
        done = epoch == epochs
        status: Status = "finished" if done else "running"
        members = tuple(
            Member(status, epoch, {name: self._random.random() for name in self._metrics}, seconds=running.seconds)
            for _ in task.spec.own
        )
        share = DeviceShare(running.share, node.devices, node.gpu.name)
        origin = Origin(node.gpu.name, "paper", 1, datetime.now(UTC), share=share)
        self._events.append(MessageReceived(task.cohort, CohortReport(Report(epoch, members, 0.0, done), origin)))
        if done:
            self._end(node, running, None)

    def _end(self, node: Node, running: Running, failure: Failure | None, saved_every: float = 30.0) -> None:
        cohort, name = running.task.cohort, node.gpu.name
        del node.running[cohort]
        node.used -= running.share
        trained = min(running.begun + START, self.now)
        useful = self.now
        if failure:  # the last checkpoint is what remains
            useful = trained + (self.now - trained) // saved_every * saved_every
            self._saved[cohort] = running.fraction_at(useful)
        for what, begin, end in (
            ("starts", running.begun, trained),
            ("trains", trained, useful),
            ("trains in vain", useful, self.now),
        ):
            self.spent[name, what].append((begin, end, running.share))
        self._events.append(Ended(cohort, failure))

    def _lose(self, node: Node) -> None:
        self.losses += 1
        for running in [*node.running.values()]:
            self._end(node, running, LOST)
        devices, node.devices = node.devices, 0
        self.spent[node.gpu.name, "is away"].append((self.now, self.now + AWAY, devices))

        def back() -> None:
            node.devices = devices
            self._assign()

        self._at(self.now + AWAY, back)
        self._at(self.now + AWAY + self._random.expovariate(1 / self._loss_every), lambda: self._lose(node))
