"""When a spot machine is about to be taken away, drain its Ray node and send SIGTERM to its training processes.

    python -m sweeper.submission.spot_notice --cloud aws     # wait for the cloud's notice
    python -m sweeper.submission.spot_notice --now           # the notice has come: for the `preStop` hook of a pod

Ray places nothing new on a draining node, so a cohort that ends there continues elsewhere. If several nodes run on one
machine, `--raylet PID` names the one to drain. Only descendants of its raylet process are stopped.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import psutil

from sweeper.printing import print

METADATA = "http://169.254.169.254"
"""Metadata server of both clouds, reachable from the machine itself only."""
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Titles of Ray's own processes, which must not be stopped."""
ANSWER_SECONDS, BETWEEN_SECONDS, DRAIN_SECONDS = 2.0, 5.0, 10.0
"""Timeout of a metadata request, time between two requests, and timeout of `ray drain-node`, in seconds."""
GRACE_SECONDS = {"aws": 110.0, "gcp": 25.0}
"""Cloud -> seconds between its notice and the machine's end, less a safety margin."""


def noticed_by_aws(metadata: str = METADATA) -> bool:
    """Whether AWS is about to stop or terminate the machine. The metadata page does not exist before."""
    token = _fetch(f"{metadata}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, method="PUT")
    page = f"{metadata}/latest/meta-data/spot/instance-action"
    return bool(token) and _fetch(page, {"X-aws-ec2-metadata-token": token}) != ""


def noticed_by_gcp(metadata: str = METADATA) -> bool:
    """Whether Google Cloud is preempting the machine."""
    return _fetch(f"{metadata}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"}) == "TRUE"


CLOUDS: Mapping[str, Callable[[], bool]] = {"aws": noticed_by_aws, "gcp": noticed_by_gcp}


@dataclass(frozen=True)
class Node:
    """A Ray node of this machine."""

    raylet: psutil.Process
    """Ancestor of all of the node's worker processes."""
    id: str
    """Ray's id of the node."""
    cluster: str
    """Address of the cluster's head, `host:port`."""


def nodes(processes: Iterable[psutil.Process]) -> list[Node]:
    """Ray nodes of the raylets among the processes, from their command lines."""
    ray_nodes = []
    for process in processes:
        try:
            if process.name() == "raylet":
                options = dict(word.removeprefix("--").split("=", 1) for word in process.cmdline()[1:] if "=" in word)
                ray_nodes.append(Node(process, options["node_id"], options["gcs-address"]))
        except (psutil.Error, KeyError):
            continue
    return ray_nodes


def trainers(node: Node) -> list[psutil.Process]:
    """Processes of the node that work for a driver, recognised by their titles, `ray::...`.

    Ray's own agents are left out: without them the raylet exits at once, and training with it.
    """
    workers = []
    try:
        processes = node.raylet.children(recursive=True)
    except psutil.Error:
        return []
    for process in processes:
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if title.startswith("ray::") and not title.startswith(AGENTS):
            workers.append(process)
    return workers


def stop(processes: Sequence[psutil.Process], seconds: float) -> int:
    """Send SIGTERM to all processes and wait for up to `seconds`. Returns how many still run then."""
    for process in processes:
        try:
            process.terminate()
        except psutil.Error:
            continue
    return len(psutil.wait_procs(processes, timeout=seconds)[1])


def drain(node: Node, seconds: float) -> None:
    """Notify Ray that the node ends in `seconds`. If that fails, Ray loses the node without announcement."""
    command = ["ray", "drain-node", "--address", node.cluster, "--node-id", node.id]
    command += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot notice"]
    try:
        subprocess.run(
            [*command, "--deadline-remaining-seconds", str(int(seconds))], timeout=DRAIN_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"Ray was not notified: {error}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Wait for a notice, drain the node and stop its training. Returns 2 unless exactly one node is meant, else 0."""
    parser = argparse.ArgumentParser(description="Wait for a spot notice, then have training write its checkpoints.")
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--cloud", choices=sorted(CLOUDS), help="cloud whose notice to wait for")
    when.add_argument("--now", action="store_true", help="do not wait: the notice has come")
    parser.add_argument("--grace", type=float, metavar="SECONDS", help="time that training has to end")
    parser.add_argument("--raylet", type=int, metavar="PID", help="raylet of the node, if there are several")
    words = parser.parse_args(arguments)
    grace = words.grace if words.grace is not None else GRACE_SECONDS.get(words.cloud, min(GRACE_SECONDS.values()))
    while words.cloud and not CLOUDS[words.cloud]():
        time.sleep(BETWEEN_SECONDS)
    end = time.monotonic() + grace
    candidates = [node for node in nodes(psutil.process_iter()) if words.raylet in (None, node.raylet.pid)]
    if len(candidates) != 1:
        pids = ", ".join(str(node.raylet.pid) for node in candidates) or "none"
        print(
            f"exactly one raylet must run here, or --raylet PID must name one of several; raylets found: {pids}",
            file=sys.stderr,
        )
        return 2
    drain(candidates[0], grace)
    running = stop(trainers(candidates[0]), max(0.0, end - time.monotonic()))
    print(f"spot notice: {running} processes still ran after {grace:g} s", flush=True)
    return 0


def _fetch(url: str, headers: Mapping[str, str], method: str = "GET") -> str:
    """Text of a metadata page; empty if there is no such page or no answer. Proxies are not used."""
    try:
        with build_opener(ProxyHandler({})).open(
            Request(url, headers=dict(headers), method=method), timeout=ANSWER_SECONDS
        ) as response:
            return str(response.read(4096).decode("ascii", "replace")).strip()
    except (URLError, OSError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
