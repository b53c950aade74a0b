from typing import Any

import pytest

from sweeper.packing.profiling.device_kinds import ASSUMED_KIND, DeviceKind, device_kinds, kind_resources


def node(resources: dict[str, float], alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


A, B = {"CPU": 16.0, "GPU": 4.0, "accelerator_type:A": 1.0}, {"CPU": 6.0, "GPU": 1.0, "accelerator_type:B": 1.0}


def test_gpus_are_told_apart_and_cores_beside_them_are_theirs() -> None:
    nodes = [node({"CPU": 64.0}), node(B), node(A), node(A | {"CPU": 8.0}), node(B, alive=False)]
    gpu_kinds = device_kinds(nodes, local=True)
    assert gpu_kinds == (DeviceKind(True, "A", (4, 4), cores=2.0), DeviceKind(True, "B", (1,), cores=6.0))
    assert [kind_resources(kind, gpu_kinds) for kind in gpu_kinds] == [
        {"accelerator_type:A": 0.001},
        {"accelerator_type:B": 0.001},
    ]


def test_a_single_kind_is_not_requested_by_name() -> None:
    """Nodes that an autoscaler brings may not be called so before they are there."""
    (kind,) = device_kinds([node(A)], local=False)
    assert kind_resources(kind, [kind]) == {}


def test_without_gpus_the_cores_count() -> None:
    assert device_kinds([node({"CPU": cores}) for cores in (2.0, 0.0, 3.0)], local=False) == (
        DeviceKind(False, "", (2, 3)),
    )


@pytest.mark.parametrize("nodes", [[], [node({"memory": 1.0})], [node({"CPU": 0.0})]])
def test_a_growing_cluster_without_devices_is_expected_to_have_gpus(nodes: list[dict[str, Any]]) -> None:
    assert device_kinds(nodes, local=False) == (ASSUMED_KIND,)
    assert not device_kinds(nodes, local=True)[0].gpus
