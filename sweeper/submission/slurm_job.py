"""What a job of `sweeper submit --slurm` runs: a Ray cluster of the nodes of the job, and the sweep on it.

1. The batch script becomes this process, on the first node. It starts a Ray head, which trains nothing.
2. `srun` starts one Ray node on each node of the job, with the CPUs and GPUs that SLURM has given to the job there.
   The head of a job of one node trains itself.
3. When all of them have joined, the sweep starts, on the first node. The job ends with its status.

At SIGUSR1, which SLURM sends before the time is over, and at SIGTERM the sweep stops in order. If the job still runs
then (it was not cancelled) and the sweep has not ended, it requeues itself, and its next run continues the sweep. All
Ray processes end with it.

Jobs that share a node do not meet: each has ports of its own, which the system chooses, a token of its own, and a
temporary folder of its own on each node, which no other user can reach. A job of one node listens on the loopback only.
"""

import argparse
import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from sweeper.commands.command_line import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from sweeper.errors import ClusterError, error_line
from sweeper.execution.session import LOOPBACK, NO_SERVER, QUIET, scratch_folder, users_of
from sweeper.printing import print
from sweeper.submission.jobs import MODE, TOKEN

HEAD_SECONDS, JOIN_SECONDS = 60.0, 300.0
"""Seconds in which the head must answer, and in which all nodes are waited for."""
HEAD_TRIES = 3
"""How often a head is started: another process may have taken its port."""
END_SECONDS = 20.0
"""Seconds that a process has to end after SIGTERM before it is killed."""
POLL_SECONDS = 0.2
OBJECT_STORE_BYTES = 10**9
"""Memory of each node for what Ray's processes send each other, which is little. Ray would take 30 % of all."""
ON_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""The setting of `LOOPBACK` with which no other machine can join."""
RAY = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats")
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1
"""The system's C library, and the option of its `prctl` that names the signal to get when the parent ends."""
STARTED_AGAIN = "SLURM_RESTART_COUNT"
"""SLURM's environment variable: how often the job was requeued."""


class Stop:
    """Whether SLURM or the user has asked the job to stop, and how to stop the process that runs then."""

    def __init__(self) -> None:
        self.asked = False
        self.stop_process: Callable[[], None] = lambda: None

    def on_signals(self) -> None:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if not self.asked:
            self.asked = True
            self.stop_process()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job, or one of its nodes. Returns the exit status."""
    parser = argparse.ArgumentParser("python -m sweeper.submission.slurm_job")
    parser.add_argument("--requeue", action="store_true", help="requeue the job after it was asked to stop")
    parser.add_argument("--join", metavar="ADDRESS", help="be a node of the cluster whose head is there")
    parser.add_argument("--await-nodes", type=int, metavar="N", help="wait for N nodes of the cluster at RAY_ADDRESS")
    parser.add_argument("words", nargs="*", help="arguments of `python -m sweeper.run`")
    options = parser.parse_args(arguments)
    if options.await_nodes is not None:
        return await_nodes(options.await_nodes)
    stop = Stop()
    stop.on_signals()
    try:
        return join(options.join, stop) if options.join else lead(options.words, options.requeue, stop)
    except ClusterError as error:
        _print(error_line(error))
        return EXIT_FAILED


def lead(words: Sequence[str], requeue: bool, stop: Stop) -> int:
    """Start the cluster, run the sweep on it, end the cluster, and requeue the job if it was asked to stop before the
    sweep had ended."""
    names = node_names()
    host = own_address(node_address(names[-1])) if len(names) > 1 else "127.0.0.1"
    os.environ.update(settings(len(names)))
    with scratch_folder() as scratch, contextlib.ExitStack() as running:
        head, port = start_head(host, scratch, running, stop, trains=len(names) == 1)
        os.environ["RAY_ADDRESS"] = address = f"{host}:{port}"
        cluster = {"head": head}
        if len(names) > 1:
            step = subprocess.Popen(node_command(len(names), address), text=True)
            cluster["nodes"] = running.enter_context(_ended(step))
        status = EXIT_INTERRUPTED if stop.asked else _sweep(words, len(names), cluster, stop)
    if status == EXIT_INTERRUPTED and stop.asked and requeue:
        requeue_job(os.environ.get("SLURM_JOB_ID", ""))
    return status


def node_names() -> list[str]:
    """Names of the nodes of the job, this one first. Raises ClusterError outside a job."""
    listed = os.environ.get("SLURM_JOB_NODELIST", "")
    if not listed:
        raise ClusterError("a job of SLURM must have SLURM_JOB_NODELIST; submit the sweep with sweeper submit --slurm")
    return _scontrol("show", "hostnames", listed).split()


def node_address(name: str) -> str:
    """The address of a node by SLURM, which may be one of a name that no other service knows."""
    words = _scontrol("show", "node", "--oneliner", name).split()
    return next((word.partition("=")[2] for word in words if word.startswith("NodeAddr=")), name)


def own_address(other: str) -> str:
    """The address at which another machine reaches this one: that of the interface on the way to it."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # sends nothing
            probe.connect((other, 9))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ClusterError(f"the nodes of a job must reach each other by name, but {other}: {error}") from error


def settings(nodes: int) -> dict[str, str]:
    """Environment of all Ray processes of a job of so many nodes."""
    own = {name: value for name, value in LOOPBACK.items() if nodes == 1 or name != ON_LOOPBACK}
    paths = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **QUIET,
        **own,
        MODE: "token",
        TOKEN: secrets.token_hex(32),
        "RAY_API_SERVER_ADDRESS": NO_SERVER,
        "PYTHONPATH": os.pathsep.join(paths),
    }


def start_head(
    host: str, scratch: Path, running: contextlib.ExitStack, stop: Stop, trains: bool = False
) -> tuple[subprocess.Popen[str], int]:
    """Start the head, which has no resources unless it `trains`, and return its process and port. Raises ClusterError
    if it does not answer."""
    resources = resources_here(os.environ) if trains else ["--num-cpus=0", "--num-gpus=0"]
    for attempt in range(HEAD_TRIES):
        port, client_port, agent_port = free_ports(host, 3)
        own = ["--head", f"--port={port}", f"--ray-client-server-port={client_port}", "--include-dashboard=false"]
        own.append(f"--dashboard-agent-listen-port={agent_port}")
        log = scratch / f"head{attempt}.log"
        head = running.enter_context(ray_node([*own, *resources], host, scratch, log))
        deadline = time.monotonic() + HEAD_SECONDS
        while head.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
                return head, port
            if stop.asked:
                return head, port
            time.sleep(POLL_SECONDS)
    raise ClusterError(f"a Ray head must start on {host}, but it did not: {_last_line(log)}")


def free_ports(host: str, count: int) -> list[int]:
    """Ports of `host` on which nothing listens, chosen by the system."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]


def node_command(nodes: int, address: str) -> list[str]:
    """The command that starts a Ray node on each node of the job. The loss of one ends no other."""
    step = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--export=ALL", "--cpu-bind=none"]
    step += ["--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--overlap"]
    return [*step, sys.executable, "-m", "sweeper.submission.slurm_job", "--join", address]


def join(address: str, stop: Stop) -> int:
    """Be a node of the cluster whose head is at `address`, until that ends or the job does."""
    head, _, port = address.partition(":")
    host = own_address(head)
    (agent_port,) = free_ports(host, 1)
    own = [f"--address={head}:{port}", f"--dashboard-agent-listen-port={agent_port}", *resources_here(os.environ)]
    with scratch_folder() as scratch, ray_node(own, host, scratch, log := scratch / "node.log") as node:
        while node.poll() is None and not stop.asked:
            time.sleep(POLL_SECONDS)
        if not stop.asked:
            raise ClusterError(f"a Ray node must run on {socket.gethostname()}, but it ended: {_last_line(log)}")
    return EXIT_OK


def resources_here(environment: Mapping[str, str]) -> list[str]:
    """Options of a Ray node that trains on what SLURM has given to the job on this node."""
    return [f"--num-cpus={cpus(environment)}", f"--num-gpus={gpus(environment)}"]


def cpus(environment: Mapping[str, str]) -> int:
    """CPUs that SLURM has given to the job on this node."""
    given = environment.get("SLURM_CPUS_ON_NODE", "")
    return int(given) if given.isdecimal() else len(os.sched_getaffinity(0))


def gpus(environment: Mapping[str, str]) -> int:
    """GPUs that SLURM has given to the job on this node."""
    given = environment.get("SLURM_GPUS_ON_NODE", "")
    visible = [device for device in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if device.strip()]
    return int(given) if given.isdecimal() else len(visible)


@contextlib.contextmanager
def ray_node(own: Sequence[str], host: str, scratch: Path, log: Path) -> Iterator[subprocess.Popen[str]]:
    """Context in which a Ray node runs on this machine. At its end none of its processes is left.

    The node has a session of its own, so that no signal to the job's processes ends it before the sweep. SLURM may then
    not find it (`ProctrackType=proctrack/pgid`): the kernel ends it where this process is killed.
    """
    command = [
        *RAY,
        f"--node-ip-address={host}",
        f"--temp-dir={scratch}",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
    ]
    with log.open("w") as output:
        node = subprocess.Popen(
            [*command, *own],
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
            preexec_fn=partial(LIBC.prctl, PR_SET_PDEATHSIG, signal.SIGTERM),
        )
    try:
        with _ended(node):
            yield node
    finally:
        for process in users_of(scratch):
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def await_nodes(count: int) -> int:
    """Wait until so many nodes that train have joined the cluster at `RAY_ADDRESS`, and say so if they do not."""
    import ray  # here: it takes seconds, and the environment is that of the cluster

    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, configure_logging=False)
    deadline, joined = time.monotonic() + JOIN_SECONDS, 0
    while joined < count and time.monotonic() < deadline:
        joined = sum(node["Alive"] and node["Resources"].get("CPU", 0) > 0 for node in ray.nodes())
        time.sleep(POLL_SECONDS)
    if joined < count:
        _print(f"{joined} of {count} nodes have joined the cluster within {JOIN_SECONDS:.0f} s; going on with these")
    return EXIT_OK if joined else EXIT_FAILED


def _sweep(words: Sequence[str], nodes: int, cluster: Mapping[str, subprocess.Popen[str]], stop: Stop) -> int:
    """Wait for the nodes, and run the sweep to its end, or until it is asked to stop. Returns its exit status, or that
    of a failure if a part of the `cluster` ends before it."""
    if os.environ.get(STARTED_AGAIN, "0") != "0":
        words = [word for word in words if word != "--fresh"]  # what this job has trained is not archived
    commands = [[sys.executable, "-m", "sweeper.run", *words]]
    if nodes > 1:  # the head of a job of one node is that node
        commands.insert(0, [sys.executable, "-m", "sweeper.submission.slurm_job", "--await-nodes", str(nodes)])
    status = EXIT_INTERRUPTED
    for command in commands:
        with _ended(subprocess.Popen(command, text=True)) as process:
            stop.stop_process = process.terminate
            if stop.asked:  # before there was a process to stop
                process.terminate()
            while (ended := process.poll()) is None:
                if lost := [name for name, part in cluster.items() if part.poll() is not None and not stop.asked]:
                    raise ClusterError(f"Ray must run as long as the sweep, but its {lost[0]} ended; see the job's log")
                time.sleep(POLL_SECONDS)
        status = ended
        if stop.asked or status:
            break
    return EXIT_INTERRUPTED if stop.asked and status < 0 else status


def requeue_job(job: str) -> None:
    """Put the job back into the queue if it still runs. One that was cancelled does not, nor one that was preempted,
    which SLURM requeues."""
    state = next((word for word in _scontrol("show", "job", "--oneliner", job).split() if "JobState=" in word), "")
    if state != "JobState=RUNNING":
        _print(f"SLURM itself ends or requeues the job: {state or 'it is not known any more'}")
        return
    _print("the job requeues itself, and then continues the sweep")
    _scontrol("requeue", job)


def _scontrol(*words: str) -> str:
    """Output of a call of `scontrol`. Raises ClusterError with one line."""
    try:
        return subprocess.run(["scontrol", *words], capture_output=True, text=True, check=True).stdout
    except OSError as error:
        raise ClusterError(f"a job of SLURM needs the command scontrol: {error}") from error
    except subprocess.CalledProcessError as error:
        raise ClusterError(f"scontrol {words[0]} failed: {error.stderr.strip()}") from error


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Context at whose end the process has ended: by SIGTERM, and after `END_SECONDS` it is killed."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _last_line(log: Path) -> str:
    """The last line of a log that is not blank."""
    return next(filter(str.strip, reversed(log.read_text(errors="replace").split("\n"))), "it does not say why")


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
