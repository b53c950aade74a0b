"""Where measurements are made, with which resources, and what becomes of those that fail. Ray is a fake.

What is replaced inside Ray. That a sweep lacks nothing of what is left out, the end-to-end tests show.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray._private.node
import ray._private.services
import ray._private.utils
import torch
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

from sweeper.errors import ClusterError, NodeLost
from sweeper.execution import ray_backend as module
from sweeper.execution import ray_internals, ray_nodes
from sweeper.execution.backend import Ended, Event, MessageReceived, Started
from sweeper.execution.ray_backend import LOST_ROUNDS, RayBackend, announcement, ray_cluster
from sweeper.execution.ray_internals import UNUSED, lean_start, own_sigterm
from sweeper.execution.signals import StopSignal
from sweeper.packing.cluster import DeviceKind, MeasurementRequest, SlotResources, profile_devices
from tests.cases import for_each
from tests.sweeper.packing.fake_cluster import CORES, LARGE
from tests.test_imports import modules
from trainables.reports import UnusableGpu
from trainables.training.measurement import DeviceMeasurement, DeviceMemory, MeasurementWork
from trainables.worker.messages import CohortSpec, CohortTask, Failure
from trainables.worker.worker import Dispatch, WorkerSettings

CONFIGS = [{"method": "vje"}]
PROBE = DeviceMeasurement(DeviceMemory("cpu", 2**30, 2**20))


def node_ids(count: int) -> list[str]:
    """Return ids as Ray has them, for so many nodes: `00...`, `11...` and so on."""
    return [f"{index}" * 56 for index in range(count)]


class FakeRay:
    """Runs every remote call at once, and keeps the resources that it asked for."""

    exceptions = ray.exceptions

    def __init__(self, *nodes: dict[str, float]) -> None:
        self.later_nodes = self._alive(nodes)
        self.options: list[dict[str, Any]] = []
        self._first_nodes: list[Any] | None = None

    def grown_from(self, *nodes: dict[str, float]) -> FakeRay:
        """The same cluster, which had only these nodes before the first remote call."""
        self._first_nodes = self._alive(nodes)
        return self

    def nodes(self) -> list[Any]:
        return self.later_nodes if self._first_nodes is None or self.options else self._first_nodes

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        self.options.append(options)

        def call(function: Callable[..., Any], *arguments: Any) -> Any:
            try:
                return function(*arguments)
            except UnusableGpu as error:
                return RayTaskError("measure", "Traceback\n", error)
            except RuntimeError:
                return ray.exceptions.WorkerCrashedError()

        return lambda function: SimpleNamespace(remote=lambda *arguments: call(function, *arguments))

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="no:1")

    def available_resources(self) -> dict[str, float]:
        return {"GPU": 0.5, "CPU": 3.0}

    def wait(self, tasks: Sequence[Any], **_: Any) -> tuple[Sequence[Any], list[Any]]:
        return tasks, []

    def get(self, result: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    @staticmethod
    def _alive(nodes: Sequence[dict[str, float]]) -> list[Any]:
        ids = node_ids(len(nodes))
        return [
            {"Alive": True, "Resources": resources, "NodeID": ids[index], "NodeName": f"10.0.0.{index}"}
            for index, resources in enumerate(nodes)
        ]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Arguments of the measurements. Those of the method `crash` fail."""
    arguments: list[Any] = []

    def measure_device(work: MeasurementWork, data: str, device: object, *_: object) -> DeviceMeasurement:
        arguments.append((work.configs, data, work.threads))
        if work.configs and work.configs[0]["method"] == "crash":
            raise RuntimeError
        return PROBE

    monkeypatch.setattr(module, "measure_device", measure_device)
    monkeypatch.setattr(module, "assigned_device", lambda: torch.device("cpu"))
    return arguments


def install(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    for each in (module, ray_nodes):
        monkeypatch.setattr(each, "ray", fake)


def measure(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch, address: str | None, *requests: MeasurementRequest
) -> tuple[tuple[DeviceKind, ...], Sequence[DeviceMeasurement | None]]:
    install(monkeypatch, fake)
    cluster = ray_cluster(address, "data", StopSignal(), lambda line: None)
    return cluster.kinds, cluster.measure(requests) if requests else []


def test_a_measurement_is_announced_with_the_seconds_it_may_take() -> None:
    timed = MeasurementRequest(CONFIGS, seconds=3.0, kind=CORES)
    assert announcement([timed]) == "measuring speed and memory of one shape of cohort, for up to 3 s"
    assert announcement([timed, timed]) == "measuring speed and memory of 2 shapes of cohort, for up to 6 s"


def test_a_measurement_of_sharing_is_announced_and_an_inspection_is_not() -> None:
    assert "share a device" in announcement([MeasurementRequest(CONFIGS, processes=4, widths=[1], kind=CORES)])
    assert announcement([MeasurementRequest(kind=CORES)]) == ""


def test_the_cores_of_this_machine_are_measured_in_this_process(
    measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRay({"CPU": 4.0})
    kinds, probes = measure(fake, monkeypatch, None, MeasurementRequest(CONFIGS, threads=2, kind=CORES))
    assert [kind.gpus for kind in kinds] == [False] and probes == [PROBE]
    assert measured == [(CONFIGS, "data", 2)] and fake.options == []


@pytest.mark.parametrize("address", [None, "10.0.0.1:6379"])
def test_a_gpu_is_measured_by_a_worker_that_has_it_for_itself_and_then_ends(
    address: str | None, measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRay({"CPU": 16.0, "GPU": 2.0, "accelerator_type:A": 1.0})
    (kind,), probes = measure(fake, monkeypatch, address, MeasurementRequest(CONFIGS, kind=LARGE))
    assert (kind.accelerator, kind.nodes) == ("A", (2,)) and probes == [PROBE]
    (options,) = fake.options
    assert (options["num_gpus"], options["num_cpus"], options["max_calls"]) == (1, 1.0, 1)


def test_a_measurement_whose_worker_dies_is_missing_and_the_others_count(
    measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [MeasurementRequest([{"method": "crash"}], kind=LARGE), MeasurementRequest(CONFIGS, kind=LARGE)]
    fake = FakeRay({"CPU": 16.0, "GPU": 2.0, "accelerator_type:A": 1.0})
    assert measure(fake, monkeypatch, "auto", *requests)[1] == [None, PROBE]


def unusable_on(monkeypatch: pytest.MonkeyPatch, fake: FakeRay, *bad: int) -> None:
    """Let looks at the GPUs of these nodes find what PyTorch cannot use."""

    def measure_device(*_: object) -> DeviceMeasurement:
        node = fake.options[-1]["scheduling_strategy"].node_id
        if int(node[0]) in bad:
            error = UnusableGpu("no NVIDIA driver")
            error.node = node
            raise error
        return replace(PROBE, memory=DeviceMemory("gpu", 2**30, len(fake.options)))

    monkeypatch.setattr(module, "measure_device", measure_device)
    monkeypatch.setattr(module, "assigned_device", lambda: torch.device("cpu"))
    install(monkeypatch, fake)


def test_each_node_is_looked_at_and_one_with_an_unusable_gpu_is_left_out_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, said = FakeRay(*[{"CPU": 4.0, "GPU": 2.0}] * 3), list[str]()
    unusable_on(monkeypatch, fake, 1)
    first, second, third = node_ids(3)
    (device,) = profile_devices(ray_cluster("auto", "data", StopSignal(), said.append))
    assert device.kind.nodes == (2, 2) and device.kind.node_ids == (first, third)
    assert said == ["node 10.0.0.1 (11111111) is left out: no NVIDIA driver"]
    assert [options["scheduling_strategy"].node_id for options in fake.options] == [first, second, third]
    assert not any(options["scheduling_strategy"].soft for options in fake.options)


def test_a_cluster_on_which_all_gpus_are_unusable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, said = FakeRay(*[{"CPU": 4.0, "GPU": 1.0}] * 2, {"CPU": 64.0}), list[str]()
    unusable_on(monkeypatch, fake, 0, 1)
    with pytest.raises(
        ClusterError, match=r"no node of the cluster has a GPU .*; node 10.0.0.1 \(11111111\): no NVIDIA dr"
    ):
        profile_devices(ray_cluster("auto", "data", StopSignal(), said.append))
    assert said == ["node 10.0.0.0 (00000000) is left out: no NVIDIA driver"]


def test_a_busy_gpu_is_not_waited_for_once_another_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node counts as one of the same kind."""
    fake, cancelled = FakeRay(*[{"CPU": 4.0, "GPU": 1.0}] * 2), list[Any]()
    unusable_on(monkeypatch, fake)
    monkeypatch.setattr(fake, "wait", lambda tasks, **_: (tasks[:-1], tasks[-1:]))
    monkeypatch.setattr(fake, "cancel", lambda task, force: cancelled.append(task), raising=False)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    (device,) = profile_devices(ray_cluster("auto", "data", StopSignal(), lambda line: None))
    assert list(device.kind.node_ids) == node_ids(2) and len(cancelled) == 1


def test_cohorts_start_on_no_node_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor that waits for a device is requested anew."""
    fake, killed = FakeRay(*[{"CPU": 4.0, "GPU": 1.0}] * 2), list[Any]()
    actor = SimpleNamespace(node=SimpleNamespace(remote=lambda: "pending"))

    def options(**options: Any) -> Any:
        fake.options.append(options)
        return SimpleNamespace(remote=lambda *_: actor)

    monkeypatch.setattr(fake, "remote", lambda _: SimpleNamespace(options=options))
    monkeypatch.setattr(fake, "wait", lambda tasks, **_: ([], tasks))
    monkeypatch.setattr(fake, "kill", killed.append, raising=False)
    install(monkeypatch, fake)
    backend = RayBackend("auto", "data", "scratch", StopSignal(), lambda line: None)
    backend.start(CohortTask("c0", CohortSpec.of(CONFIGS, 1, "c.pt")), SlotResources({"GPU": 1.0}, 2))
    for _ in range(2):
        backend.advance(lambda event: None)
        backend.leave_out(node_ids(2)[1], "its GPU is unusable")
    assert killed == [actor] and "label_selector" not in fake.options[0]
    backend.advance(lambda event: None)
    assert fake.options[-1]["label_selector"] == {"ray.io/node-id": f"!in({node_ids(2)[1]})"} and len(fake.options) == 2


def test_a_gpu_is_requested_of_a_cluster_without_workers_that_can_grow(
    measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRay({"CPU": 16.0, "GPU": 1.0, "accelerator_type:A": 1.0}).grown_from({})
    (kind,), _ = measure(fake, monkeypatch, "10.0.0.1:6379")
    assert kind.accelerator == "A" and kind.on_demand
    assert [options["num_gpus"] for options in fake.options] == [1] and measured == [((), "data", 1)]


@pytest.mark.parametrize("types", [{"cores": {"CPU": 2.0}}, {"cores": {"CPU": 2.0}, "gpu": {"CPU": 4.0, "GPU": 1.0}}])
def test_a_cluster_without_nodes_is_asked_for_what_its_autoscaler_can_start(
    types: dict[str, dict[str, float]], measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core of a node that is there does not make it train on cores while nodes with GPUs may come."""
    monkeypatch.setattr(ray_nodes, "node_types", lambda address: types)
    with_gpus = "gpu" in types
    fake = FakeRay({"CPU": 2.0, "GPU": 1.0 if with_gpus else 0.0}).grown_from({"CPU": 1.0} if with_gpus else {})
    (kind,), _ = measure(fake, monkeypatch, "10.0.0.1:6379")
    assert kind.gpus == with_gpus and kind.on_demand
    assert [options["num_gpus"] for options in fake.options] == [int(with_gpus)]


def test_while_nothing_trains_a_line_says_what_is_waited_for_and_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A demand that nothing can meet is said at once."""
    fake, said = FakeRay({"CPU": 4.0, "GPU": 1.0}, {"CPU": 2.0}), list[str]()
    actor = SimpleNamespace(node=SimpleNamespace(remote=lambda: "pending"))
    request = SimpleNamespace(remote=lambda *_: actor)
    monkeypatch.setattr(fake, "remote", lambda _: SimpleNamespace(options=lambda **_: request))
    monkeypatch.setattr(fake, "wait", lambda tasks, **_: ([], tasks))
    install(monkeypatch, fake)
    monkeypatch.setattr(ray_nodes, "node_types", lambda address: {"small": {"CPU": 2.0}})
    monkeypatch.setattr(ray_nodes, "LINE_SECONDS", 0.0)
    backend = RayBackend("auto", "data", "scratch", StopSignal(), said.append)
    for name in ("c0", "c1"):
        backend.start(CohortTask(name, CohortSpec.of(CONFIGS, 1, "c.pt")), SlotResources({"GPU": 1.0, "CPU": 8.0}, 2))
    has = "the cluster has 0.5 of 1 GPUs and 3 of 6 CPUs free on 2 nodes; it may start small (2 CPU)"
    assert said == [f"no node and no node type has 1 GPU, 8 CPU; {has}"]
    backend.advance(lambda event: None)
    assert re.fullmatch(
        rf"waiting since [\d:]{{8}} UTC \(0 s\) for 2 cohorts to start, on 8 CPU, 1 GPU each; {re.escape(has)}", said[1]
    )


def test_a_group_of_workers_that_is_not_heard_of_waits_for_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray says that the process which starts the group trains."""
    fake, said, messages = FakeRay({"CPU": 2.0, "GPU": 2.0}), list[str](), iter(["a heartbeat"])
    train = SimpleNamespace(remote=lambda task: messages)
    actor = SimpleNamespace(
        node=SimpleNamespace(remote=lambda: "node"), train=SimpleNamespace(options=lambda **_: train)
    )
    request = SimpleNamespace(remote=lambda *_: actor)
    monkeypatch.setattr(fake, "remote", lambda _: SimpleNamespace(options=lambda **_: request))
    monkeypatch.setattr(fake, "put", lambda value: value, raising=False)
    monkeypatch.setattr(fake, "kill", lambda actor: None, raising=False)
    install(monkeypatch, fake)
    monkeypatch.setattr(ray_nodes, "LINE_SECONDS", 0.0)
    backend = RayBackend("auto", "data", "scratch", StopSignal(), said.append)
    slot = SlotResources({"GPU": 1.0, "CPU": 1.0}, 2)
    settings = WorkerSettings("run", "data", checkpoints=None)  # type: ignore[arg-type]
    with backend.training(Dispatch(settings, slot.resources, workers=2)):
        backend.start(CohortTask("c0", CohortSpec.of(CONFIGS, 1, "c.pt")), slot)
        emitted = list[Event]()
        backend.advance(emitted.append)  # the actor starts
        for _ in range(2):
            backend.advance(emitted.append)
    assert [type(event) for event in emitted] == [Started, MessageReceived, Ended]
    assert len(said) == 2 and all(
        "for a cohort to start, on 2 workers with 1 GPU, 1 CPU each;" in line for line in said
    )


def test_a_node_that_is_left_out_while_another_actor_starts_there_ends_that_one_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the one that trains there, once its cohort has ended."""
    fake, killed = FakeRay(*[{"CPU": 4.0, "GPU": 3.0}] * 2), list[str]()
    ids = node_ids(2)
    trainings = {"c0": iter([RayTaskError("train", "Traceback\n", UnusableGpu("ECC"))]), "c1": iter(())}

    class Actor:
        def __init__(self, name: str) -> None:
            self.name = name
            self.node = SimpleNamespace(remote=lambda: name)
            self.train = SimpleNamespace(
                options=lambda **_: SimpleNamespace(remote=lambda task: trainings[task.cohort])
            )

    actors = iter([Actor("first"), Actor("second"), Actor("third"), Actor("fourth")])
    request = SimpleNamespace(remote=lambda *_: next(actors))
    monkeypatch.setattr(fake, "remote", lambda _: SimpleNamespace(options=lambda **_: request))
    monkeypatch.setattr(fake, "kill", lambda actor: killed.append(actor.name), raising=False)
    install(monkeypatch, fake)

    def get(result: Any) -> Any:
        """The node of an actor that has started, unless it was killed."""
        if isinstance(result, str):
            if result in killed:
                raise ActorDiedError
            return ids[0]
        raise result

    monkeypatch.setattr(fake, "get", get)
    backend = RayBackend("auto", "data", "scratch", StopSignal(), lambda line: None)

    def start(name: str) -> None:
        backend.start(CohortTask(name, CohortSpec.of(CONFIGS, 1, "c.pt")), SlotResources({"GPU": 1.0}, 2))

    def emit(event: Event) -> None:
        if isinstance(event, Ended) and event.failure:
            backend.leave_out(ids[0], "ECC")

    for name in ("c0", "c1"):
        start(name)
    backend.advance(emit)  # both actors start
    start("c2")
    backend.advance(emit)  # a third one starts while the first fails
    assert sorted(killed) == ["first", "second", "third"] and next(actors).name == "fourth"


@for_each(
    ("error", "failure"),
    [
        (ActorDiedError(), Failure("error", "its worker process has died")),
        (
            ActorUnavailableError("no answer", None),
            Failure("machine", "ActorUnavailableError: The actor"),
        ),
        (UnusableGpu("no driver"), Failure("device", "no driver")),
        (ValueError("out of luck"), Failure("error", "ValueError: out of luck")),
    ],
)
def test_the_death_of_one_of_several_workers_is_judged_as_that_of_a_single_one(
    error: Exception, failure: Failure
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        install(patched, FakeRay({"CPU": 1.0}))
        found = module._failure(RayTaskError("train", "Traceback\n", error), node_ids(1)[0])
    assert (found.cause, found.reason[: len(failure.reason)]) == (failure.cause, failure.reason)


def test_a_request_to_stop_ends_the_wait_for_measurements(measured: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fake, stopping = FakeRay({"CPU": 16.0, "GPU": 2.0}), StopSignal()
    monkeypatch.setattr(fake, "wait", lambda tasks, **_: ([], tasks))
    install(monkeypatch, fake)
    cluster = ray_cluster("auto", "data", stopping, lambda line: None)
    stopping.asked = True
    with pytest.raises(KeyboardInterrupt):
        cluster.measure([MeasurementRequest(CONFIGS, kind=LARGE)])


class RefusingRay(FakeRay):
    """Ends every actor before it starts, but for the one with this number, which dies while it trains."""

    def __init__(self, starting: int) -> None:
        super().__init__()
        self.starting = starting

    def remote(self, *_: Any, **__: Any) -> Any:
        raised = ray.exceptions.RayTaskError("__init__", "Traceback\nAttributeError: no Cohort\n", AttributeError())
        dead = ray.exceptions.ActorDiedError(raised)

        def request(*_: object) -> Any:
            self.options.append({})
            train = SimpleNamespace(remote=lambda task: iter([dead]))
            return SimpleNamespace(
                node=SimpleNamespace(remote=lambda: "node" if len(self.options) == self.starting else dead),
                train=SimpleNamespace(options=lambda **_: train),
            )

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=request))

    def kill(self, _: object) -> None: ...


@pytest.mark.parametrize(("starting", "rounds"), [(0, LOST_ROUNDS), (11, 6 + LOST_ROUNDS)])
def test_a_cluster_on_which_no_worker_starts_any_more_is_lost(
    starting: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two tasks two actors are requested a round: the one that starts is of round 6."""
    install(monkeypatch, RefusingRay(starting))
    backend = RayBackend(None, "data", "scratch", StopSignal(), print)
    for name in ("c0", "c1"):
        backend.start(CohortTask(name, CohortSpec.of(CONFIGS, 1, "c.pt")), SlotResources({"CPU": 1.0}, 2))
    emitted = list[Event]()
    for _ in range(rounds - 1):
        backend.advance(emitted.append)
    with pytest.raises(NodeLost, match="started, 50 times in succession, the last with 'AttributeError: no Cohort'; "):
        backend.advance(emitted.append)
    assert [type(event) for event in emitted] == ([Started, Ended] if starting else [])


CHILDREN = """
import psutil
from sweeper.execution.session import connected
with connected(None):
    print(*sorted(child.name() for child in psutil.Process().children()))
"""
PRIVATE = re.compile(r"\bray(?:\.\w+)*\._(?!_)\w+(?:\.\w+)*|\b_raylet\b")
"""A private name of Ray, in source."""


@pytest.mark.slow
def test_ray_starts_what_a_sweep_uses_and_nothing_else() -> None:
    started = subprocess.run([sys.executable, "-c", CHILDREN], capture_output=True, text=True, check=True)
    assert (started.stdout.split(), started.stderr) == (["gcs_server", "raylet"], "")


def test_ray_is_afterwards_as_it_was() -> None:
    node, services = ray._private.node.Node, ray._private.services
    before = [getattr(node, name) for name in UNUSED], services.get_node
    with lean_start():
        assert all(getattr(node, name) is not method for name, method in zip(UNUSED, before[0], strict=True))
    assert ([getattr(node, name) for name in UNUSED], services.get_node) == before


def test_what_another_version_lacks_is_left_alone_and_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_internals, "_missing", set())
    monkeypatch.delattr(ray._private.node.Node, "start_monitor")
    monkeypatch.delattr(ray._private.services, "get_node")
    for _ in range(2):
        with lean_start():
            assert not hasattr(ray._private.node.Node, "start_monitor")
    assert capsys.readouterr().err == "".join(
        f"note: Ray {ray.__version__} has no {name}; a local Ray starts more slowly\n"
        for name in ("Node.start_monitor", "ray._private.services.get_node")
    )


def test_a_sigterm_while_ray_starts_reaches_our_handler() -> None:
    """Ray's own ends the process with status 15 and without a word."""
    stopping, rays = StopSignal(), ray._private.utils.set_sigterm_handler
    with stopping.on_signals():
        ours = signal.getsignal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), own_sigterm():
            ray._private.utils.set_sigterm_handler(lambda number, _: sys.exit(number))
            signal.raise_signal(signal.SIGTERM)
        assert stopping.asked and signal.getsignal(signal.SIGTERM) == ours
    assert ray._private.utils.set_sigterm_handler is rays


def test_no_other_file_names_what_is_private_in_ray() -> None:
    found = {name: sorted(set(PRIVATE.findall(text))) for name, text in modules().items()}
    assert {name: private for name, private in found.items() if private} == {
        "sweeper.execution.ray_internals": [
            *("ray._private.node", "ray._private.node.Node", "ray._private.services", "ray._private.utils"),
            *("ray._private.worker", "ray._raylet"),
        ]
    }
