"""A spot machine is to be taken back: Ray is told, and every training process gets SIGTERM while there is time.

    python cluster/spot_notice.py --cloud aws     # asks until there is a notice
    python cluster/spot_notice.py --now           # there is one: the `preStop` of a pod

Ray then places nothing new on the node, so that a cohort which ends there goes on elsewhere. It is for a container that
is one Ray node, with processes of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import psutil

METADATA = "http://169.254.169.254"
"""Where both clouds tell a machine about itself; reachable from that machine alone."""
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


def trainers(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those of the processes that work for Ray; they carry what they do as their title, `ray::...`."""
    found = []
    for process in processes:
        try:
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::"):
                found.append(process)
        except psutil.Error:
            continue
    return found


def stop(processes: Sequence[psutil.Process], seconds: float) -> int:
    """SIGTERM to all of them; returns how many are still there when the time is over."""
    for process in processes:
        try:
            process.terminate()
        except psutil.Error:
            continue
    return len(psutil.wait_procs(processes, timeout=seconds)[1])


def drain(seconds: float) -> None:
    """Tell Ray that this node goes in so many seconds. Where that fails the node is lost unannounced, as any may be."""
    command = ["ray", "drain-node", "--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot notice"]
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
    words = parser.parse_args(arguments)
    grace = words.grace if words.grace is not None else GRACE_SECONDS.get(words.cloud, min(GRACE_SECONDS.values()))
    while words.cloud and not CLOUDS[words.cloud]():
        time.sleep(BETWEEN_SECONDS)
    end = time.monotonic() + grace
    raylets = sum(process.name() == "raylet" for process in psutil.process_iter())
    if raylets > 1:
        print(f"a container must be one Ray node, but here are {raylets} raylets", file=sys.stderr)
        return 2
    drain(grace)
    left = stop(trainers(list(psutil.process_iter())), max(0.0, end - time.monotonic()))
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
