"""A spot machine is to be taken back: Ray is told, and every training process gets SIGTERM while there is time.

    python cluster/spot_notice.py --cloud aws     # asks until there is a notice
    python cluster/spot_notice.py --now           # there is one: the `preStop` of a pod

Ray then places nothing new on the node, so that a cohort which ends there goes on elsewhere. A container is one node;
where there are several, `--raylet PID` says which is meant. Only what descends from its raylet is stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import psutil

METADATA = "http://169.254.169.254"
"""Where both clouds tell a machine about itself; reachable from that machine alone."""
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
ANSWER_SECONDS, BETWEEN_SECONDS, DRAIN_SECONDS = 2.0, 5.0, 10.0
GRACE_SECONDS = {"aws": 110.0, "gcp": 25.0}
"""What a cloud leaves between the notice and the end, less a margin."""


def noticed_by_aws(metadata: str = METADATA) -> bool:
    """Whether the machine is to be stopped or terminated: the page is not there before."""
    token = _ask(f"{metadata}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, method="PUT")
    page = f"{metadata}/latest/meta-data/spot/instance-action"
    return bool(token) and _ask(page, {"X-aws-ec2-metadata-token": token}) != ""


def noticed_by_gcp(metadata: str = METADATA) -> bool:
    """Whether the machine is being preempted."""
    return _ask(f"{metadata}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"}) == "TRUE"


CLOUDS: Mapping[str, Callable[[], bool]] = {"aws": noticed_by_aws, "gcp": noticed_by_gcp}


@dataclass(frozen=True)
class Node:
    """A Ray node of this machine."""

    raylet: psutil.Process
    """The parent of all that works for Ray on it."""
    id: str
    cluster: str
    """host:port of its head."""


def nodes(processes: Iterable[psutil.Process]) -> list[Node]:
    """One for each raylet among the processes, as its command line says."""
    found = []
    for process in processes:
        try:
            if process.name() == "raylet":
                said = dict(word.removeprefix("--").split("=", 1) for word in process.cmdline()[1:] if "=" in word)
                found.append(Node(process, said["node_id"], said["gcs-address"]))
        except (psutil.Error, KeyError):
            continue
    return found


def trainers(node: Node) -> list[psutil.Process]:
    """Its processes that work for a driver; they carry what they do as their title, `ray::...`.

    Not Ray's own agents, without which the raylet ends at once, and training with it.
    """
    found = []
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
            found.append(process)
    return found


def stop(processes: Sequence[psutil.Process], seconds: float) -> int:
    """SIGTERM to all of them; returns how many are still there when the time is over."""
    for process in processes:
        try:
            process.terminate()
        except psutil.Error:
            continue
    return len(psutil.wait_procs(processes, timeout=seconds)[1])


def drain(node: Node, seconds: float) -> None:
    """Tell Ray that this node goes in so many seconds. Where that fails the node is lost unannounced, as any may be."""
    command = ["ray", "drain-node", "--address", node.cluster, "--node-id", node.id]
    command += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot notice"]
    try:
        subprocess.run(
            [*command, "--deadline-remaining-seconds", str(int(seconds))], timeout=DRAIN_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"Ray was not told: {error}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Wait for a spot notice, then have training write its checkpoints.")
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--cloud", choices=sorted(CLOUDS), help="whose notice to wait for")
    when.add_argument("--now", action="store_true", help="the notice has come")
    parser.add_argument("--grace", type=float, metavar="SECONDS", help="how long training may take to end")
    parser.add_argument("--raylet", type=int, metavar="PID", help="whose node it is, where there are several")
    words = parser.parse_args(arguments)
    grace = words.grace if words.grace is not None else GRACE_SECONDS.get(words.cloud, min(GRACE_SECONDS.values()))
    while words.cloud and not CLOUDS[words.cloud]():
        time.sleep(BETWEEN_SECONDS)
    end = time.monotonic() + grace
    here = [node for node in nodes(psutil.process_iter()) if words.raylet in (None, node.raylet.pid)]
    if len(here) != 1:
        pids = ", ".join(str(node.raylet.pid) for node in here) or "none"
        print(f"one raylet must be here, or --raylet name one of several, but there are: {pids}", file=sys.stderr)
        return 2
    drain(here[0], grace)
    left = stop(trainers(here[0]), max(0.0, end - time.monotonic()))
    print(f"spot notice: {left} processes were still there after {grace:g} s", flush=True)
    return 0


def _ask(url: str, headers: Mapping[str, str], method: str = "GET") -> str:
    """What the machine's metadata says; nothing where there is no such page, or no answer. No proxy is asked."""
    try:
        with build_opener(ProxyHandler({})).open(
            Request(url, headers=dict(headers), method=method), timeout=ANSWER_SECONDS
        ) as answer:
            return str(answer.read(4096).decode("ascii", "replace")).strip()
    except (URLError, OSError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
