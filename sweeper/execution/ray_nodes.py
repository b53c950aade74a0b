"""The nodes of the Ray cluster that this process is connected to: those that are left out, and those that may come.

While nothing trains, a line says every `LINE_SECONDS` seconds what is waited for.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import psutil
import ray

from sweeper.errors import ClusterError

NODE_ID = "ray.io/node-id"
"""Label that Ray gives each node."""
LINE_SECONDS = 30.0
"""Seconds between two lines about what is waited for."""
Resources = Mapping[str, float]
"""Ray resources by name, such as GPU and CPU."""


class RayNodes:
    """The nodes of the cluster, without those whose GPUs cannot be used: no worker is started there any more."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` is called with a line about each node that is left out, and about each long wait."""
        self._say = say
        self.left_out: dict[str, str] = {}
        """Id of a node -> why it is left out."""
        self._since: tuple[float, datetime] | None = None
        """When the present wait began, by two clocks; None if nothing is waited for."""
        self._lines = 0
        """Lines about the present wait."""
        self._checked = set[frozenset[tuple[str, float]]]()
        """The demands that `check_demand` has checked."""

    def leave_out(self, node: str, reason: str) -> None:
        """Start nothing on a node any more. Raises ClusterError if no node with a GPU is left."""
        self.left_out[node] = reason
        if not any(resources.get("GPU") for resources in self._usable()):
            raise ClusterError(
                f"no node of the cluster has a GPU that can be used; {_name(node)}: {reason}; "
                "--devices cpu trains on CPUs"
            )
        self._say(f"{_name(node)} is left out: {reason}")

    def take_back(self, node: str, reason: str) -> None:
        """Use a node again that was left out."""
        if self.left_out.pop(node, None) is not None:
            self._say(f"{_name(node)} is used again: {reason}")

    def selector(self, only_on: Collection[str] = (), never_on: Collection[str] = ()) -> dict[str, str]:
        """Return the label selector of workers that start on no node that is left out, and on no other than these."""
        if only_on:
            return {NODE_ID: f"in({','.join(node for node in only_on if node not in self.left_out) or 'none'})"}
        without = list(dict.fromkeys([*never_on, *self.left_out]))
        return {NODE_ID: f"!in({','.join(without)})"} if without else {}

    @functools.cached_property
    def types(self) -> Mapping[str, Resources] | None:
        """Resources of the node types that an autoscaler may start, by name; None if they are unknown."""
        return node_types(ray.get_runtime_context().gcs_address)

    def waits(self, what: str) -> None:
        """Say what is waited for if `LINE_SECONDS` have passed since the wait began or since the last line."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._lines = (now, datetime.now(UTC)), 0
        begun, moment = self._since
        if now - begun >= LINE_SECONDS * (self._lines + 1):
            self._lines = int((now - begun) // LINE_SECONDS) if LINE_SECONDS else 0
            self._say(f"waiting since {moment:%H:%M:%S} UTC ({now - begun:.0f} s) for {what}; {self._inventory()}")

    def goes_on(self) -> None:
        """Record that nothing is waited for."""
        self._since = None

    def check_demand(self, resources: Resources) -> None:
        """Say so at once, the first time, if neither a node nor a known node type has the resources of a worker."""
        if (demand := frozenset(resources.items())) in self._checked:
            return
        self._checked.add(demand)
        if self.types is not None and not any(
            _has(node, resources) for node in [*self._usable(), *self.types.values()]
        ):
            self._say(f"no node and no node type has {resources_text(resources)}; {self._inventory()}")

    def _usable(self) -> Iterator[Resources]:
        """Yield the resources of each node that lives and is not left out."""
        for node in ray.nodes():
            if node["Alive"] and node["NodeID"] not in self.left_out:
                yield node["Resources"]

    def _inventory(self) -> str:
        """Say what the cluster has, and what its autoscaler may start."""
        nodes, free = list(self._usable()), ray.available_resources()
        total = {name: sum(node.get(name, 0.0) for node in nodes) for name in ("GPU", "CPU")}
        parts = " and ".join(
            f"{min(free.get(name, 0.0), all_of):g} of {all_of:g} {name}s" for name, all_of in total.items()
        )
        out = f", and {len(self.left_out)} more that are left out" if self.left_out else ""
        types = "; ".join(f"{name} ({resources_text(of_type)})" for name, of_type in (self.types or {}).items())
        growth = f"; it may start {types}" if types else ""
        return f"the cluster has {parts} free on {len(nodes)} node{'s' * (len(nodes) != 1)}{out}{growth}"


def resources_text(resources: Resources) -> str:
    """Return e.g. `0.5 GPU, 2 CPU`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items() if amount) or "nothing"


def node_types(gcs_address: str) -> dict[str, Resources] | None:
    """Return the resources of the node types in the cluster file of the autoscaler, by name.

    None if no process of this machine is the autoscaler of the cluster at `gcs_address`: on other machines than the
    head, on Kubernetes, and for clusters without an autoscaler.
    """
    import yaml

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError, yaml.YAMLError, AttributeError, KeyError):
            options = dict(word.split("=", 1) for word in process.cmdline() if word.startswith("--") and "=" in word)
            if options.get("--gcs-address") == gcs_address and (file := options.get("--autoscaling-config")):
                content = yaml.safe_load(Path(file).expanduser().read_text())
                return {
                    name: {resource: float(amount) for resource, amount in (of_type.get("resources") or {}).items()}
                    for name, of_type in content["available_node_types"].items()
                    if of_type.get("max_workers", name != content["head_node_type"])
                }
    return None


def _has(node: Resources, resources: Resources) -> bool:
    return all(node.get(name, 0.0) >= amount for name, amount in resources.items())


def _name(node: str) -> str:
    names = [each["NodeName"] for each in ray.nodes() if each["NodeID"] == node]
    return f"node {names[0]} ({node[:8]})" if names else f"node {node[:8]}"
