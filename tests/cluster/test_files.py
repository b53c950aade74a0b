"""The cluster files: Ray accepts them and asks for the intended nodes, one image serves all, nothing is exposed."""

import copy
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.exceptions import ParamValidationError
from botocore.validate import validate_parameters
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from ray._common.utils import get_default_ray_temp_dir
from ray.autoscaler._private.node_provider_availability_tracker import NodeAvailabilitySummary
from ray.autoscaler._private.resource_demand_scheduler import _default_utilization_scorer, get_nodes_for
from ray.autoscaler._private.util import prepare_config, validate_config

from sweeper.definition import user_code
from sweeper.execution.session import LOOPBACK
from tests.cases import for_each
from tests.cluster.files import (
    EVERY,
    FOLDER,
    LAUNCHED,
    MANIFESTS,
    ROOT,
    argument,
    cluster_spec,
    images,
    instructions,
    launched,
    leaves,
    pods,
    project,
)

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


@for_each("name", [*LAUNCHED, "local"])
@for_each("wrong", ["max_worker", "available_node_types.gpu", "head_node_type", "resources"])
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


@for_each(("name", "node_type"), [("aws", "gpu_spot"), ("gcp", "gpu_spot"), ("local", "gpu")])
@for_each(
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
        f"nohup setsid python -m sweeper.submission.spot_notice --cloud {name} "
    )


RAY = argument("RAY_VERSION")


def copied() -> set[str]:
    """Files and folders of the project that are copied into the image."""
    return {source for keyword, arguments in instructions() if keyword == "COPY" for source in arguments.split()[:-1]}


def test_every_node_runs_the_same_image_whose_tag_names_the_version_of_ray() -> None:
    [image] = images()
    assert image.endswith(f"/sweeper:ray-{RAY}")
    assert image in (FOLDER / "Dockerfile").read_text() and image in (FOLDER / "README.md").read_text()


@pytest.mark.parametrize("name", MANIFESTS)
def test_kuberay_gets_the_version_in_the_image(name: str) -> None:
    assert cluster_spec(name)["rayVersion"] == RAY


def test_no_file_names_another_version_of_ray() -> None:
    versions = {version for path in EVERY for version in re.findall(r"\b2\.\d+\.\d+\b", path.read_text())}
    assert versions == {RAY}


def test_the_projects_own_requirements_admit_the_versions_of_the_image() -> None:
    extras = project()["optional-dependencies"]
    requirements = [Requirement(text) for text in (*project()["dependencies"], *extras["cluster"])]
    of_ray = [requirement for requirement in requirements if requirement.name == "ray"]
    assert len(of_ray) >= 2 and all(requirement.specifier.contains(RAY) for requirement in of_ray)
    assert SpecifierSet(project()["requires-python"]).contains(f"{argument('PYTHON_VERSION')}.0")
    [of_torch] = [requirement for requirement in requirements if requirement.name == "torch"]
    assert of_torch.specifier.contains(argument("TORCH_VERSION").replace("*", "0"))


def test_the_image_can_compile_steps() -> None:
    installed = next(arguments for keyword, arguments in instructions() if "apt-get install" in arguments)
    assert "g++" in installed.split()


def test_the_instance_types_that_the_readme_names_are_known_to_aws() -> None:
    types = re.findall(r"`([a-z]\w+\.\d*x?large)`", (FOLDER / "README.md").read_text())
    schema = boto3.client("ec2", region_name="us-west-2").meta.service_model.operation_model("RunInstances").input_shape
    assert types and set(types) <= set(schema.members["InstanceType"].enum)


def test_the_image_installs_what_the_project_requires_and_no_list_of_its_own() -> None:
    installs = [arguments for keyword, arguments in instructions() if keyword == "RUN" and "pip install" in arguments]
    pins = '"ray==${RAY_VERSION}" "torch==${TORCH_VERSION}"'
    assert installs[-1].endswith(f'".[cluster]" {pins}')  # nothing moves them away from the pins
    ours = {Requirement(text).name for text in project()["dependencies"]} - {"ray", "torch"}
    assert not [name for name in ours if re.search(rf"\b{name}\b", " ".join(installs))]


def test_the_image_has_the_packages_of_the_project() -> None:
    assert copied() == {*user_code.PACKAGES, "pyproject.toml", "README.md", "LICENSE"}
    assert all((ROOT / source).exists() for source in copied())


def test_the_build_context_is_what_the_image_copies() -> None:
    lines = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"  # everything is left out, but
    assert {rule[1:] for rule in rules if rule.startswith("!")} == copied()


def test_the_image_runs_as_an_ordinary_user_and_not_without_a_token() -> None:
    users = [arguments for keyword, arguments in instructions() if keyword == "USER"]
    assert users == ["1000:1000"]
    after = instructions()[instructions().index(("USER", "1000:1000")) :]
    assert {keyword for keyword, _ in after} == {"USER", "WORKDIR", "CMD"}
    [environment] = [arguments for keyword, arguments in instructions() if keyword == "ENV"]
    assert "RAY_AUTH_MODE=token" in environment.split() and "PATH=" not in environment


def test_the_spot_notice_that_the_files_start_is_in_the_image() -> None:
    texts = [(FOLDER / f"{name}.yaml").read_text() for name in LAUNCHED]
    texts += [(FOLDER / "kuberay" / f"{name}.yaml").read_text() for name in MANIFESTS]
    (module,) = {name for text in texts for name in re.findall(r"[\w./]*spot_notice\b(?!\.log)", text)}
    assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file() and module.split(".")[0] in copied()


SECRETS = {
    "a key of AWS": r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    "a private key": r"-----BEGIN",
    "a token": r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{32,}\b",
    "a token given as a value": r"(?i)(AUTH_TOKEN|password|secret_?(access_?)?key)\s*[=:]\s*[^\s$<~]",
    "an account": r"\b\d{12}\b",
    "somebody's image": r"\bami-[0-9a-f]{8,}",
    "somebody's address": r"[\w.]+@[\w-]+\.\w+",
    "a machine": r"\b(?!127\.0\.0\.1\b|0\.0\.0\.0\b|169\.254\.)\d{1,3}(\.\d{1,3}){3}\b(?!/(8|10|12|16)\b)",
}
"""Kind of secret -> regular expression that must match no file."""


def secrets(text: str) -> list[str]:
    return [name for name, pattern in SECRETS.items() if re.search(pattern, text)]


@pytest.mark.parametrize("path", EVERY, ids=[path.name for path in EVERY])
def test_no_file_contains_a_secret(path: Path) -> None:
    assert secrets(path.read_text()) == []


@for_each(
    ("text", "name"),
    [
        ("aws_access_key_id: AKIA" + "A1" * 8, "a key of AWS"),
        ("-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        ("f3b2c1" * 6, "a token"),
        ("-e RAY_AUTH_TOKEN=hush", "a token given as a value"),
        ("secret_access_key: hush", "a token given as a value"),
        ("arn:aws:iam::123456789012:role/x", "an account"),
        ("ImageId: ami-0a2b85e15b7c0ac34", "somebody's image"),
        ("email: someone@project.iam", "somebody's address"),
        ("gcs_address: 10.128.0.7:6379", "a machine"),
    ],
)
def test_a_secret_is_detected(text: str, name: str) -> None:
    assert name in secrets(text)


def test_only_the_dashboard_of_a_job_listens_beyond_loopback() -> None:
    """The operator must reach it; the network policy admits nobody else (see `test_kuberay`)."""
    code = {path.name: re.sub(r"#.*", "", path.read_text()) for path in EVERY if path.suffix == ".yaml"}
    assert {name for name, text in code.items() if re.search(r"0\.0\.0\.0(?!/)", text)} == {"rayjob.yaml"}
    assert cluster_spec("rayjob")["headGroupSpec"]["rayStartParams"]["dashboard-host"] == "0.0.0.0"


def test_every_head_is_started_with_its_dashboard_on_loopback() -> None:
    starts = [command for name in LAUNCHED for command in launched(name)["head_start_ray_commands"]]
    page = (FOLDER / "README.md").read_text().replace("\\\n", " ")
    starts += re.findall(r"ray start --head[^\n]*", page)
    heads = [command for command in starts if "--head" in command]
    assert len(heads) >= 3 and all(re.search(r"--dashboard-host[= ]127\.0\.0\.1(\s|$)", command) for command in heads)


def test_a_head_on_this_machine_is_closed_to_other_machines_and_other_users() -> None:
    """The README exports the variables of a sweep's own cluster (see `test_autoscaling` and `test_object_store`)."""
    closed = " ".join(f"{name}={value}" for name, value in LOOPBACK.items())
    exported = [line for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("export ")]
    assert f"export {closed}" in exported
    assert any(line.startswith("export RAY_TMPDIR=$(mktemp -d) ") for line in exported)


def test_ray_keeps_its_files_where_the_readmes_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert Path(get_default_ray_temp_dir()).parent == tmp_path


def test_the_image_leaves_out_metrics_whose_ports_ask_for_no_token() -> None:
    [variables] = [arguments.split() for keyword, arguments in instructions() if keyword == "ENV"]
    metrics = {name: value for name, value in LOOPBACK.items() if name != "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"}
    assert {f"{name}={value}" for name, value in metrics.items()} <= set(variables) and len(metrics) == 3


@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_exposes_no_node_by_itself(name: str) -> None:
    head = cluster_spec(name)["headGroupSpec"]
    assert head["serviceType"] == "ClusterIP" and not head.get("enableIngress")
    for pod in pods(name).values():
        names = {key for key, _ in leaves(pod)}
        assert not names & {"hostNetwork", "hostPort", "hostPID", "hostPath", "privileged"}


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_launched_cluster_opens_no_port_of_ours(name: str) -> None:
    assert "security_group" not in launched(name)["provider"] and "firewall" not in str(launched(name))


def test_workers_reach_the_store_and_no_other_service() -> None:
    aws, gcp = (launched(name)["available_node_types"] for name in LAUNCHED)
    for kind in ("gpu_spot", "gpu_on_demand"):
        assert set(aws[kind]["node_config"]["IamInstanceProfile"]) == {"Name"}
        assert aws[kind]["node_config"]["MetadataOptions"]["HttpTokens"] == "required"
        assert scopes(gcp[kind]) == ["devstorage.read_write"]


def test_the_head_starts_machines_and_reaches_the_store_and_no_other_service() -> None:
    """Ray's default account has the scope `cloud-platform`, with a project-wide role for all buckets."""
    types = launched("gcp")["available_node_types"]
    assert scopes(types["head"]) == ["compute", "devstorage.read_write"]
    assert all(kind["node_config"]["serviceAccounts"][0]["email"] == "REPLACE" for kind in types.values())
    page = (FOLDER / "README.md").read_text()
    assert "gcloud storage buckets add-iam-policy-binding gs://BUCKET" in page and "roles/storage.objectUser" in page


def scopes(kind: dict[str, Any]) -> list[str]:
    """Last path components of the scopes of a node type's only service account."""
    [account] = kind["node_config"]["serviceAccounts"]
    return [scope.rsplit("/")[-1] for scope in account["scopes"]]


def test_the_readme_lists_what_is_to_be_filled_in() -> None:
    page = (FOLDER / "README.md").read_text()
    gaps = set()
    for path in EVERY:
        if path.suffix == ".yaml":
            values = [leaf for document in yaml.safe_load_all(path.read_text()) for leaf in leaves(document)]
            gaps |= {(path.stem, name) for name, value in values if "REPLACE" in str(value)}
    assert {name for _, name in gaps} == {"image", "ImageId", "Name", "project_id", "email", "entrypoint"}
    assert all(f"`{name}`" in page for _, name in gaps)
