"""The nodes of the Ray cluster that this process is connected to, and those of them that are left out."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import ray

from sweeper.errors import ClusterError

NODE_ID = "ray.io/node-id"
"""Label that Ray gives each node."""


class RayNodes:
    """Leaves out nodes whose GPUs cannot be used: no worker is started there any more."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` is called with a line about each node that is left out."""
        self._say = say
        self.left_out: dict[str, str] = {}
        """Id of a node -> why it is left out."""

    def leave_out(self, node: str, reason: str) -> None:
        """Start nothing on a node any more. Raises ClusterError if no node with a GPU is left."""
        self.left_out[node] = reason
        if not any(resources.get("GPU") for _, resources in self.usable()):
            raise ClusterError(
                f"no node of the cluster has a GPU that can be used; {self._name(node)}: {reason}; to train on CPUs, "
                "start the nodes with --num-gpus=0, or a sweep on this machine with CUDA_VISIBLE_DEVICES="
            )
        self._say(f"{self._name(node)} is left out: {reason}")

    def usable(self) -> Iterator[tuple[str, Mapping[str, float]]]:
        """Yield the id and the resources of each node that lives and is not left out."""
        for node in ray.nodes():
            if node["Alive"] and node["NodeID"] not in self.left_out:
                yield node["NodeID"], node["Resources"]

    def selector(self) -> dict[str, str]:
        """Return the label selector of workers that start on no node that is left out."""
        return {NODE_ID: f"!in({','.join(self.left_out)})"} if self.left_out else {}

    @staticmethod
    def _name(node: str) -> str:
        known: Collection[Any] = ray.nodes()
        names = [each["NodeName"] for each in known if each["NodeID"] == node]
        return f"node {names[0]} ({node[:8]})" if names else f"node {node[:8]}"
