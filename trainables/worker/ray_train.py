"""Train cohorts in processes of a Ray cluster, each in a Ray Train TorchTrainer.

A cohort on one device, or a fraction of one, runs in TorchTrainer's in-process mode (`num_workers=0`), which starts in
milliseconds where a worker group needs tens of seconds. A cohort with `workers` above 1 gets a worker group with one
device per worker; its first worker sends the messages.
"""

import contextlib
import functools
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray
import ray.util.queue
import torch

from trainables.learners.data_parallel import Peers
from trainables.reports import UnusableGpu
from trainables.worker.messages import CohortTask, DeviceShare, Message
from trainables.worker.resources import usable_gpu, use_cores
from trainables.worker.watchdog import GRACE, on_termination
from trainables.worker.worker import Dispatch, train_cohort

ACCELERATOR = "accelerator_type:"
"""Prefix of the Ray resource that names the kind of a node's GPUs."""
SIMULATED = "simulated_gpu"
"""Ray resource of nodes that have no GPU, though Ray is told that they have: cohorts train on their CPUs."""
TURN = 0.2
"""Seconds after which a thread that waits for a message lets Python run pending calls, such as installing a signal
handler."""
Messages = queue.SimpleQueue[Message | None] | ray.util.queue.Queue
"""The messages of a cohort; None after the last one."""


class CohortActor:
    """Class of the Ray actors that train cohorts, one after the other."""

    def __init__(self, run: Callable[[CohortTask, Dispatch, Messages], None], dispatch: Dispatch) -> None:
        """`run` is `run_cohort`."""
        import_from(dispatch.module_folders, dispatch.settings.folder)
        self._run, self._dispatch = run, dispatch

    def node(self) -> str:
        """Return the id of the node of this process."""
        node: str = ray.get_runtime_context().get_node_id()
        return node

    def train(self, task: CohortTask) -> Iterator[Message]:
        """Train a cohort and yield its messages as they arrive. Raises the exceptions of the training.

        A process that is asked to end, or that hangs, exits and writes the reason to a file
        (`trainables.worker.messages`).
        """
        messages: Messages = queue.SimpleQueue()
        if task.spec.config(0).training.processes > 1:
            messages = ray.util.queue.Queue(actor_options={"num_cpus": 0})
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self._run(task, self._dispatch, messages)
            except BaseException as error:
                errors.append(error)
            finally:
                messages.put(None)

        threading.Thread(target=run, name="training", daemon=True).start()
        while True:
            try:
                message = messages.get(timeout=TURN)
            except queue.Empty:
                continue
            if message is None:
                break
            yield message
        if errors:
            raise errors[0]


def run_cohort(task: CohortTask, dispatch: Dispatch, messages: Messages) -> None:
    """Train a cohort in this process or in a group of workers, and put its messages into the queue.

    Raises OutOfMemory if the cohort needs more memory than it may use.
    """
    workers = task.spec.config(0).training.processes
    # Imported here because it takes a second, and the driver, which imports this module, does not need it.
    if workers == 1:
        from ray.train import ScalingConfig
        from ray.train.torch import TorchTrainer

        def alone(_: dict[str, Any]) -> None:
            resources = ray.get_runtime_context().get_assigned_resources()
            use_cores(resources.get("CPU", 1.0))
            share = device_share(resources, _node_resources(), 1)
            train_cohort(task, dispatch.settings, assigned_device(), messages.put, share=share)

        TorchTrainer(alone, train_loop_config={}, scaling_config=ScalingConfig(num_workers=0)).fit()
        return

    from ray.train import get_context
    from ray.train.torch import get_device

    from trainables.worker.ray_group import process_group, train_group

    def together() -> None:
        import_from(dispatch.module_folders, dispatch.settings.folder)
        use_cores(dispatch.resources.get("CPU", 1.0))
        context = get_context()
        peers = Peers(context.get_world_rank(), context.get_world_size())
        share = device_share(dispatch.resources, _node_resources(), peers.size)
        send = messages.put if peers.rank == 0 else _send_nothing
        device = get_device() if assigned_device().type == "cuda" else torch.device("cpu")
        with naming_this_node(), process_group(peers, device):
            train_cohort(task, dispatch.settings, device, send, peers, share)

    with on_termination(_exit_after_grace):  # this process, which started the workers, stays alive while they save
        train_group(together, workers, dispatch.resources, task.labels, str(dispatch.storage))


def import_from(folders: Sequence[str], working_folder: str = "") -> None:
    """Make this process import modules from these folders first. Relative paths of the user's code refer to the
    `working_folder`, if given."""
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    if os.path.isdir(working_folder):
        os.chdir(working_folder)


def _send_nothing(message: Message) -> None:
    """Drop the message, because the first worker sends it."""


def _exit_after_grace() -> None:
    """End this process after `GRACE` seconds, even if no worker has ended by then."""
    timer = threading.Timer(GRACE, os._exit, (1,))
    timer.daemon = True
    timer.start()


def assigned_device() -> torch.device:
    """Return the GPU that Ray gave this worker; the CPU if it gave none or if the node's GPUs are simulated. Raises
    UnusableGpu if PyTorch cannot use the GPU."""
    if not ray.get_gpu_ids() or SIMULATED in _node_resources():
        return torch.device("cpu")
    with naming_this_node():
        return usable_gpu()


@contextlib.contextmanager
def naming_this_node() -> Iterator[None]:
    """Context whose UnusableGpu names the node of this process."""
    try:
        yield
    except UnusableGpu as error:
        error.node = ray.get_runtime_context().get_node_id()
        raise


def device_share(resources: Mapping[str, float], node: Mapping[str, float], processes: int) -> DeviceShare:
    """The share that a cohort reserves, from the Ray `resources` of each of its `processes` and of their whole
    `node`."""
    name = "GPU" if resources.get("GPU", 0) > 0 else "CPU"
    devices = resources.get(name, 1.0)
    kinds = [key.removeprefix(ACCELERATOR) for key in sorted(node) if key.startswith(ACCELERATOR)]
    kind = kinds[0] if name == "GPU" and kinds else ""
    return DeviceShare(devices * processes, max(node.get(name, 1.0), devices), kind)


@functools.cache
def _node_resources() -> Mapping[str, float]:
    """All Ray resources of the node of this process."""
    here = ray.get_runtime_context().get_node_id()
    return next((node["Resources"] for node in ray.nodes() if node["NodeID"] == here), {})
