"""The launcher's files pass Ray's own checks, and Ray's autoscaler requests the intended nodes for them."""

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.exceptions import ParamValidationError
from botocore.validate import validate_parameters
from ray.autoscaler._private.node_provider_availability_tracker import NodeAvailabilitySummary
from ray.autoscaler._private.resource_demand_scheduler import _default_utilization_scorer, get_nodes_for
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.cluster.files import LAUNCHED, launched

SPOT: Mapping[str, Mapping[str, Any]] = {
    "aws": {"InstanceMarketOptions": {"MarketType": "spot"}},
    "gcp": {
        "scheduling": {
            "provisioningModel": "SPOT",
            "instanceTerminationAction": "DELETE",
            "onHostMaintenance": "TERMINATE",
            "automaticRestart": False,
        }
    },
}
"""Cloud -> configuration that makes a machine a spot machine."""


def prepared(name: str) -> dict[str, Any]:
    """The file merged with Ray's defaults and checked by Ray. Ray has no defaults for the local one."""
    config = launched(name) if name == "local" else prepare_config(launched(name))
    validate_config(config)
    return dict(config)


def requested_nodes(name: str, demands: list[dict[str, Any]], existing: dict[str, int] | None = None) -> dict[str, int]:
    """Node type -> number of nodes that Ray adds for the demands, if the `existing` nodes are fully used."""
    config = prepared(name)
    nodes, _ = get_nodes_for(
        config["available_node_types"],
        {config["head_node_type"]: 1, **(existing or {})},
        config["head_node_type"],
        config["max_workers"] - sum((existing or {}).values()),
        demands,
        partial(_default_utilization_scorer, node_availability_summary=NodeAvailabilitySummary({})),
    )
    return dict(nodes)


@pytest.mark.parametrize("name", [*LAUNCHED, "local"])
def test_ray_accepts_the_file(name: str) -> None:
    types = prepared(name)["available_node_types"]
    assert all(set(kind) >= {"resources", "node_config", "min_workers", "max_workers"} for kind in types.values())


@pytest.mark.parametrize("name", [*LAUNCHED, "local"])
@pytest.mark.parametrize("wrong", ["max_worker", "available_node_types.gpu", "head_node_type", "resources"])
def test_ray_refuses_a_slip(name: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = launched(name)
    types, head = config["available_node_types"], config["head_node_type"]
    if wrong == "max_worker":
        config[wrong] = config.pop("max_workers")
    elif wrong == "head_node_type":
        config[wrong] = "haed"
    elif wrong == "resources":
        del types[head][wrong]
    else:
        types[head]["gpu"] = 1
    monkeypatch.setattr(f"{__name__}.launched", lambda _: copy.deepcopy(config))
    with pytest.raises(Exception, match=r"(?s)max_worker|head_node_type|resources|gpu"):
        prepared(name)


@pytest.mark.parametrize("name", [*LAUNCHED, "local"])
def test_the_head_trains_nothing_and_workers_begin_at_none(name: str) -> None:
    config = prepared(name)
    types = dict(config["available_node_types"])
    head = types.pop(config["head_node_type"])
    assert head["resources"] == {"CPU": 0} and head["max_workers"] == 0
    for kind in types.values():
        assert kind["min_workers"] == 0 < kind["max_workers"] and kind["resources"]["GPU"] == 1
    assert sum(kind["max_workers"] for kind in types.values()) == config["max_workers"]
    assert 0 < config["idle_timeout_minutes"] <= 10


@pytest.mark.parametrize("name", LAUNCHED)
def test_one_kind_of_worker_is_spot_and_the_others_are_not(name: str) -> None:
    types = launched(name)["available_node_types"]
    [key] = SPOT[name]
    spot = {type_name for type_name, kind in types.items() if kind["node_config"].get(key) == SPOT[name][key]}
    assert spot == {"gpu_spot"}
    plain = {
        type_name: {field: value for field, value in kind["node_config"].items() if field != key}
        for type_name, kind in types.items()
    }
    assert plain["gpu_spot"] == plain["gpu_on_demand"]  # they do not differ in anything else


@pytest.mark.parametrize(("name", "node_type"), [("aws", "gpu_spot"), ("gcp", "gpu_spot"), ("local", "gpu")])
@pytest.mark.parametrize(
    ("cohorts", "share", "nodes"), [(0, 0.25, 0), (1, 0.25, 1), (4, 0.25, 1), (5, 0.25, 2), (6, 1 / 3, 2), (3, 1.0, 3)]
)
def test_pending_cohorts_request_the_gpus_that_they_share(
    name: str, node_type: str, cohorts: int, share: float, nodes: int
) -> None:
    assert requested_nodes(name, [{"GPU": share, "CPU": share}] * cohorts) == ({node_type: nodes} if nodes else {})


@pytest.mark.parametrize("name", LAUNCHED)
def test_spot_machines_are_requested_first_and_others_when_they_are_used_up(name: str) -> None:
    demands = [{"GPU": 1.0, "CPU": 1.0}] * 100
    assert requested_nodes(name, demands) == {"gpu_spot": 16, "gpu_on_demand": 4}
    assert requested_nodes(name, demands, {"gpu_spot": 16}) == {"gpu_on_demand": 4}


@pytest.mark.parametrize("kind", launched("aws")["available_node_types"])
def test_the_api_of_aws_accepts_the_configuration_of_each_machine(kind: str) -> None:
    """Ray passes this configuration on unchecked. boto3 has AWS's own schema of it."""
    machine = launched("aws")["available_node_types"][kind]["node_config"]
    schema = boto3.client("ec2", region_name="us-west-2").meta.service_model.operation_model("RunInstances").input_shape
    validate_parameters({**machine, "MinCount": 1, "MaxCount": 1}, schema)
    assert machine["InstanceType"] in schema.members["InstanceType"].enum
    with pytest.raises(ParamValidationError, match="Instancetype"):
        validate_parameters({**machine, "Instancetype": "g5.xlarge", "MinCount": 1, "MaxCount": 1}, schema)


@pytest.mark.parametrize("name", LAUNCHED)
def test_the_same_token_is_on_every_node_and_required_from_the_start(name: str) -> None:
    config = launched(name)
    assert config["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token"}
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        [start] = [command for command in config[key] if "ray start" in command]
        assert start.startswith("export RAY_AUTH_MODE=token;")


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_spot_worker_listens_for_its_notice(name: str) -> None:
    assert launched(name)["worker_start_ray_commands"][-1].startswith(
        f"nohup setsid python /opt/sweeper/spot_notice.py --cloud {name} "
    )
