from typing import Any

import pytest

from sweeper.packing.device_kinds import UNSEEN, DeviceKind, kinds, requirement


def node(resources: dict[str, float], alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


A, B = {"CPU": 16.0, "GPU": 4.0, "accelerator_type:A": 1.0}, {"CPU": 6.0, "GPU": 1.0, "accelerator_type:B": 1.0}


def test_gpus_are_told_apart_and_cores_beside_them_are_theirs() -> None:
    nodes = [node({"CPU": 64.0}), node(B), node(A), node(A | {"CPU": 8.0}), node(B, alive=False)]
    gpu_kinds = kinds(nodes, grows=False)
    assert gpu_kinds == (DeviceKind(True, "A", (4, 4), cores=2.0), DeviceKind(True, "B", (1,), cores=6.0))
    assert [requirement(kind, gpu_kinds) for kind in gpu_kinds] == [
        {"accelerator_type:A": 0.001},
        {"accelerator_type:B": 0.001},
    ]


def test_one_kind_alone_is_not_asked_for_by_name() -> None:
    """Nodes that an autoscaler brings may not be called so before they are there."""
    (kind,) = kinds([node(A)], grows=True)
    assert requirement(kind, [kind]) == {}


def test_without_gpus_the_cores_count() -> None:
    assert kinds([node({"CPU": cores}) for cores in (2.0, 0.0, 3.0)], grows=True) == (DeviceKind(False, "", (2, 3)),)


@pytest.mark.parametrize("nodes", [[], [node({"memory": 1.0})], [node({"CPU": 0.0})]])
def test_a_cluster_that_grows_and_has_nothing_yet_means_gpus(nodes: list[dict[str, Any]]) -> None:
    assert kinds(nodes, grows=True) == (UNSEEN,)
    assert not kinds(nodes, grows=False)[0].gpus
