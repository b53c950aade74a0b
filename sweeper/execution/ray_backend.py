"""Runs cohorts in actors of a Ray cluster, and makes measurements where they will train."""

import contextlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import ray
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweeper.definition import user_code
from sweeper.errors import NodeLost
from sweeper.execution.backend import Backend, Emit, Ended, MessageReceived, Started, failure_of
from sweeper.execution.ray_nodes import RayNodes, resources_text
from sweeper.execution.signals import StopSignal
from sweeper.option_values import DeviceChoice
from sweeper.packing.cluster import (
    ASSUMED_CORE,
    ASSUMED_GPU,
    Cluster,
    DeviceKind,
    MeasurementRequest,
    SlotResources,
    device_kinds,
    is_local,
    kind_resources,
)
from trainables.reports import UnusableGpu
from trainables.training.measurement import DeviceMeasurement
from trainables.worker.messages import CohortTask, Failure
from trainables.worker.ray_train import CohortActor, assigned_device, import_from, run_cohort
from trainables.worker.resources import measure_device
from trainables.worker.worker import Dispatch

POLL_SECONDS = 1.0
"""Longest time, in seconds, that a poll for events takes."""
IDLE_SECONDS = 5.0
"""Seconds for which an actor without a cohort is kept for the next one with equal resources."""
NODE_LOST = "node has died"
"""Part of Ray's message about an actor that was lost with its machine."""
LOST_ROUNDS = 50
"""Times in succession that workers may die before any has started. Machines come and go, but Ray may also cancel every
worker: a driver that has used a cluster with a token before answers no cluster without one, which takes it for dead."""


@dataclass(frozen=True)
class _Demand:
    """What an actor takes, and where it may run."""

    resources: tuple[tuple[str, float], ...] = ()
    """Ray resources: sorted pairs of name and amount."""
    only_on: tuple[str, ...] = ()
    """See `DeviceKind.only_on`, as is what follows."""
    never_on: tuple[str, ...] = ()

    @classmethod
    def of(cls, slot: SlotResources) -> Self:
        return cls(tuple(sorted(slot.resources.items())), slot.only_on, slot.never_on)


@dataclass(eq=False)
class _Actor:
    """An actor that trains cohorts, one at a time. Until it has a node, it is demand for an autoscaler."""

    handle: Any
    demand: _Demand
    event: Any
    """What its next event comes from: the reference of its start, or the messages of its cohort; None while idle."""
    node: str | None = None
    """Id of the node where it has started."""
    cohort: str | None = None
    """Id of the cohort that it trains."""
    heard: bool = False
    """Whether that cohort has sent a message."""
    since: float = field(default_factory=time.monotonic)
    """When it was requested, or became idle."""


class RayBackend(Backend):
    """One actor a slot, which is kept for further cohorts. A cohort is a call whose results are its messages.

    A task goes to the first actor with its resources that is free, so a pending actor, which no node has room for yet,
    holds no cohort back.
    """

    def __init__(
        self,
        address: str | None,
        data: str,
        scratch: str,
        stopping: StopSignal,
        say: Callable[[str], None],
        devices: DeviceChoice | None = None,
    ) -> None:
        """Ray is connected to `address`. `data` is the folder of the data sets, and `scratch` one of this machine for
        Ray's files. `say` is called with a line before anything is measured, and about nodes and long waits. `devices`
        is what is trained on if that is asked for."""
        self._address, self._data, self._scratch, self._stopping, self._say = address, data, scratch, stopping, say
        self._devices = devices
        self._nodes = RayNodes(say)
        self._dispatch: Any = None
        """Reference to the settings of the cohorts, in Ray's object store."""
        self._group = ""
        """The workers of a cohort, in words, if several processes train it together."""
        self._actors: list[_Actor] = []
        self._tasks: dict[_Demand, deque[tuple[CohortTask, SlotResources]]] = {}
        """Tasks that wait for an actor with this demand, and their slots."""
        self._lost_rounds = 0
        """Times that actors have died before they started, since one has started."""

    def cluster(self) -> Cluster:
        return ray_cluster(self._address, self._data, self._stopping, self._say, self._devices, self._nodes)

    @contextlib.contextmanager
    def training(self, dispatch: Dispatch) -> Iterator[None]:
        self._dispatch = ray.put(replace(dispatch, storage=dispatch.storage or self._scratch))
        each = resources_text(dispatch.resources)
        self._group = f"{dispatch.workers} workers with {each} each" if dispatch.workers > 1 else ""
        try:
            yield
        finally:
            for actor in self._actors:
                ray.kill(actor.handle)
            self._actors, self._tasks, self._dispatch = [], {}, None

    def start(self, task: CohortTask, slot: SlotResources) -> None:
        if not is_local(self._address):
            self._nodes.check_demand(slot.resources)
        # The process that starts several workers and waits for them takes nothing itself.
        demand = _Demand() if self._group else _Demand.of(slot)
        self._tasks.setdefault(demand, deque()).append((task, slot))

    def advance(self, emit: Emit) -> None:
        """As `Backend.advance`. Raises NodeLost if no actor starts any more."""
        self._assign(emit)
        self._say_waits()
        self._release()
        waiting = [actor for actor in self._actors if actor.event is not None]
        if not waiting:
            time.sleep(POLL_SECONDS)
            return
        events = [actor.event for actor in waiting]
        if ray.wait(events, num_returns=1, timeout=POLL_SECONDS, fetch_local=False)[0]:
            ready, _ = ray.wait(events, num_returns=len(events), timeout=0, fetch_local=False)
            due = [actor for actor in waiting if actor.event in ready]
            starting = [actor for actor in due if actor.cohort is None]
            for actor in due:
                if actor.cohort is not None:
                    self._take(actor, actor.cohort, emit)
            losses = [self._loss_at_start(actor) for actor in starting if actor in self._actors]
            self._lost_rounds = 0 if None in losses else self._lost_rounds + bool(losses)
            if self._lost_rounds == LOST_ROUNDS:
                *_, cause = str(losses[-1]).strip().splitlines()
                raise NodeLost(
                    f"workers were lost before they started, {LOST_ROUNDS} times in succession, the last with "
                    f"{cause.strip()!r}; after a cluster with a token, such as a local one, only a new process can use "
                    "one without"
                )

    def leave_out(self, node: str, reason: str) -> None:
        if node in self._nodes.left_out:
            return
        self._nodes.leave_out(node, reason)
        for actor in [actor for actor in self._actors if actor.cohort is None and actor.node in (node, None)]:
            self._end(actor)

    def take_back(self, node: str, reason: str) -> None:
        self._nodes.take_back(node, reason)

    def _assign(self, emit: Emit) -> None:
        """Give tasks to free actors, and request an actor for each task that is left."""
        for demand, tasks in self._tasks.items():
            alike = [actor for actor in self._actors if actor.demand == demand and actor.cohort is None]
            for actor in alike:
                if actor.node and tasks:
                    task, slot = tasks.popleft()
                    task = replace(task, labels=self._nodes.selector(slot.only_on, slot.never_on))
                    actor.cohort, actor.heard = task.cohort, False
                    actor.event = actor.handle.train.options(num_returns="streaming").remote(task)
                    emit(Started(task.cohort, actor.node))
            requested = sum(actor.node is None for actor in alike)
            self._actors += [self._request(demand) for _ in range(len(tasks) - requested)]

    def _say_waits(self) -> None:
        """Say from time to time what is waited for while nothing trains. A group of workers trains once it is heard
        of, for it waits for devices itself."""
        begun = [actor for actor in self._actors if actor.cohort]
        waiting = {demand: len(tasks) for demand, tasks in self._tasks.items() if tasks}
        count = sum(waiting.values()) + len(begun if self._group else ())
        if not count or any(actor.heard or not self._group for actor in begun):
            return self._nodes.goes_on()
        each = self._group or " or ".join(resources_text(dict(demand.resources)) for demand in waiting)
        self._nodes.waits(
            f"{f'{count} cohorts' if count > 1 else 'a cohort'} to start, on {each}{' each' * (count > 1)}"
        )

    def _request(self, demand: _Demand) -> _Actor:
        amounts = dict(demand.resources)
        options: dict[str, Any] = {
            "num_cpus": amounts.pop("CPU", 0),
            "num_gpus": amounts.pop("GPU", 0),
            "resources": amounts,
        }
        if selector := self._nodes.selector(demand.only_on, demand.never_on):
            options |= {"label_selector": selector}
        handle: Any = ray.remote(CohortActor).options(**options).remote(run_cohort, self._dispatch)
        return _Actor(handle, demand, handle.node.remote())

    def _release(self) -> None:
        """End actors that have had no cohort for a while, or that hold what other tasks wait for."""
        now, wanted = time.monotonic(), {demand for demand, tasks in self._tasks.items() if tasks}
        for actor in [actor for actor in self._actors if actor.cohort is None and actor.demand not in wanted]:
            if now - actor.since > IDLE_SECONDS or (actor.node and wanted):
                self._end(actor)

    def _loss_at_start(self, actor: _Actor) -> RayError | None:
        """Take the event of an actor's start. Returns Ray's error if it has died before; another one is requested
        then."""
        try:
            actor.node, actor.event, actor.since = ray.get(actor.event), None, time.monotonic()
        except RayError as error:
            self._end(actor)
            return error
        return None

    def _take(self, actor: _Actor, cohort: str, emit: Emit) -> None:
        """Take one event of an actor that trains a cohort."""
        try:
            message = ray.get(next(actor.event))
        except StopIteration:
            actor.cohort, actor.event, actor.since = None, None, time.monotonic()
            if actor.node in self._nodes.left_out:
                self._end(actor)
            emit(Ended(cohort))
        except RayError as error:
            self._end(actor)
            emit(Ended(cohort, _failure(error, actor.node)))
        else:
            actor.heard = True
            emit(MessageReceived(cohort, message))

    def _end(self, actor: _Actor) -> None:
        self._actors.remove(actor)
        ray.kill(actor.handle)


def _failure(error: RayError, node: str | None) -> Failure:
    """Return why a call to an actor on this node raised Ray's error: its training raised, its process died, or the
    machine was lost with it."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, RayError):  # one of several workers has died
        return _failure(error.cause, node)
    if isinstance(error, RayTaskError):
        return failure_of(error.cause) if isinstance(error.cause, Exception) else failure_of(error)
    if isinstance(error, OutOfMemoryError):  # Ray itself ended the process, because the machine had no memory left
        return failure_of(error)
    if not isinstance(error, ActorDiedError):  # a machine or a message that cannot be reached any more
        return Failure("machine", failure_of(error).reason)
    if error.preempted:
        return Failure("machine", "its node was preempted")
    if NODE_LOST in str(error) or not _lives(node):
        return Failure("machine", "its node has died")
    return Failure("error", "its worker process has died")


def _lives(node: str | None) -> bool:
    """Whether Ray knows the node, and not that it has died."""
    return any(known["NodeID"] == node and known["Alive"] for known in ray.nodes())


LOOK_SECONDS = 60.0
"""Seconds for which busy nodes are waited for after the first GPU was looked at."""
MEASUREMENT_TIMEOUT = 300.0
"""Seconds after which a worker that measures ends itself. What hangs there would hang in training, too."""


def ray_cluster(
    address: str | None,
    data: str,
    stopping: StopSignal,
    say: Callable[[str], None],
    devices: DeviceChoice | None = None,
    nodes: RayNodes | None = None,
) -> Cluster:
    """Return the cluster to which Ray is connected.

    If the cluster has no node yet with what is trained on (`devices`), this waits for its first. `data` is the folder
    of the data sets. `say` is called with a line before anything is measured, and about nodes and long waits.
    """
    local, nodes = is_local(address), nodes or RayNodes(say)
    types = nodes.types.values() if not local and nodes.types else None
    kinds = device_kinds(ray.nodes(), local, devices, types)
    if kinds[0] in (ASSUMED_GPU, ASSUMED_CORE):
        nodes.check_demand({"GPU": 1.0} if kinds[0].gpus else {"CPU": 1.0})
        _on_workers([MeasurementRequest(kind=kinds[0])], data, kinds, stopping, nodes)
        kinds = tuple(replace(kind, on_demand=True) for kind in device_kinds(ray.nodes(), local, devices, types))

    def measure(requests: Sequence[MeasurementRequest]) -> list[DeviceMeasurement | None]:
        if line := announcement(requests):
            say(line)
        if local and not kinds[0].gpus:  # in this process, to save the start of a worker
            return [measure_device(request, data, assigned_device(), stopping.check) for request in requests]
        return _on_workers(requests, data, kinds, stopping, nodes)

    return Cluster(address, kinds, measure, nodes.left_out.keys())


def announcement(requests: Sequence[MeasurementRequest]) -> str:
    """Say what is about to be measured, and for how long at most; empty if devices are only looked at."""
    timed = [request for request in requests if request.seconds]
    if timed:
        what = "one shape of cohort" if len(timed) == 1 else f"{len(timed)} shapes of cohort"
        seconds = sum(request.seconds for request in timed)
        return f"measuring speed and memory of {what}, for up to {seconds:.0f} s"
    if any(request.compiled and request.compiled.build for request in requests):
        return "compiling steps, which takes about half a minute for each shape that was not compiled before"
    if any(request.processes for request in requests):
        return "measuring what it gives when several cohorts share a device"
    return ""


def _on_workers(
    requests: Sequence[MeasurementRequest],
    data: str,
    among: Sequence[DeviceKind],
    stopping: StopSignal,
    nodes: RayNodes,
) -> list[DeviceMeasurement | None]:
    """Make each measurement on a worker that has a whole device for itself; None for one that fails, or that still
    waits for a busy device `LOOK_SECONDS` after another has described one. Leaves out nodes with unusable GPUs."""
    folders = user_code.folders()
    tasks = [
        ray.remote(**_options(request, among), **_place(request, nodes))(_measure_in_time).remote(
            request, data, folders
        )
        for request in requests
    ]
    pending, only_looks, deadline = tasks, not any(request.configs for request in requests), math.inf
    while pending and time.monotonic() < deadline:
        _, pending = ray.wait(pending, num_returns=len(pending), timeout=1.0)
        stopping.check()
        if only_looks and len(pending) == len(tasks):
            nodes.waits("a worker with 1 GPU" if requests[0].kind.gpus else "a worker with 1 CPU")
        elif only_looks:
            deadline = min(deadline, time.monotonic() + LOOK_SECONDS)
    nodes.goes_on()
    for task in pending:
        ray.cancel(task, force=True)
    return [None if task in pending else _result(task, nodes) for task in tasks]


def _place(request: MeasurementRequest, nodes: RayNodes) -> dict[str, Any]:
    """Return the arguments of `ray.remote` that place a measurement: a look on the node that is looked at, others on
    any node that is not left out."""
    if request.kind.gpus and len(request.kind.node_ids) == 1 and not request.configs:
        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(request.kind.node_ids[0], soft=False)}
    selector = nodes.selector(request.kind.only_on, request.kind.never_on)
    return {"label_selector": selector} if selector else {}


def _options(request: MeasurementRequest, among: Sequence[DeviceKind]) -> dict[str, Any]:
    """Return the arguments of `ray.remote`. The worker ends after its call, so that it frees the device for cohorts."""
    gpus = request.kind.gpus
    return {
        "num_gpus": int(gpus),
        "num_cpus": min(1.0, request.kind.cores) if gpus else request.threads,
        "resources": kind_resources(request.kind, among),
        "max_retries": 1,
        "max_calls": 1,
    }


def _measure_in_time(request: MeasurementRequest, data: str, folders: Sequence[str]) -> DeviceMeasurement:
    """Measure on this worker, which exits if it takes longer than `MEASUREMENT_TIMEOUT` seconds. `folders` are those of
    the user's modules."""
    import_from(folders)
    timer = threading.Timer(MEASUREMENT_TIMEOUT, os._exit, [1])
    timer.start()
    try:
        return measure_device(request, data, assigned_device())
    finally:
        timer.cancel()


def _result(task: Any, nodes: RayNodes) -> DeviceMeasurement | None:
    try:
        found: DeviceMeasurement = ray.get(task)
        return found
    except ray.exceptions.RayError as error:
        if isinstance(error, RayTaskError) and isinstance(error.cause, UnusableGpu):
            nodes.leave_out(error.cause.node, str(error.cause))
        return None
