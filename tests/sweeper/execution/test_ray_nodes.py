"""The node types of an autoscaler, and the rhythm of the lines about a wait. `test_ray_backend.py` shows the lines."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from sweeper.execution import ray_nodes
from sweeper.execution.ray_nodes import NODE_ID, RayNodes, node_types
from tests.cluster.files import FOLDER


def process(*command: str) -> Any:
    return SimpleNamespace(cmdline=lambda: ["python", "monitor.py", *command])


@pytest.mark.parametrize("name", ["local", "gcp"])
def test_the_types_are_those_of_the_file_of_the_clusters_own_autoscaler(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's type, which starts no node, is none of them."""
    file = FOLDER / f"{name}.yaml"
    content = yaml.safe_load(file.read_text())
    processes = [process(), process("--gcs-address=h:2", f"--autoscaling-config={tmp_path}/none.yaml")]
    monkeypatch.setattr(ray_nodes.psutil, "process_iter", lambda: processes)
    assert node_types("h:1") is None and node_types("h:2") is None
    processes.append(process("--gcs-address=h:1", f"--autoscaling-config={file}"))
    assert node_types("h:1") == {
        name: of_type["resources"]
        for name, of_type in content["available_node_types"].items()
        if name != content["head_node_type"]
    }


def test_workers_start_on_nodes_of_their_kind_that_are_not_left_out() -> None:
    nodes = RayNodes(lambda line: None)
    assert nodes.selector() == {}
    assert nodes.selector(("a", "b")) == {NODE_ID: "in(a,b)"} and nodes.selector((), ("c",)) == {NODE_ID: "!in(c)"}
    nodes.left_out["b"] = "its GPU is unusable"
    assert nodes.selector() == {NODE_ID: "!in(b)"} and nodes.selector((), ("c", "b")) == {NODE_ID: "!in(c,b)"}
    assert nodes.selector(("a", "b")) == {NODE_ID: "in(a)"} and nodes.selector(("b",)) == {NODE_ID: "in(none)"}


def test_a_wait_is_said_once_in_a_while_and_a_new_one_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [100.0], list[str]()
    monkeypatch.setattr(ray_nodes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(ray_nodes, "ray", SimpleNamespace(nodes=list, available_resources=dict))
    monkeypatch.setattr(RayNodes, "types", None)
    nodes = RayNodes(said.append)

    def waits(*seconds: float) -> list[str]:
        """The seconds of the lines that are said by then."""
        said.clear()
        for moment in seconds:
            now[0] = 100.0 + moment
            nodes.waits("a GPU")
        return [line.partition("(")[2].partition(")")[0] for line in said]

    assert waits(0, 1, 29.9) == [] and waits(30, 31, 59, 60.5, 61) == ["30 s", "60 s"]
    assert waits(200, 201, 211) == ["200 s", "211 s"]
    nodes.goes_on()
    assert waits(500, 520) == [] and waits(530) == ["30 s"]
