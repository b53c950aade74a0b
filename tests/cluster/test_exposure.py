"""Clusters expose nothing to strangers, and no file contains a secret."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray._common.utils import get_default_ray_temp_dir

from sweeper.execution.session import LOOPBACK
from tests.cluster.files import (
    EVERY,
    FOLDER,
    LAUNCHED,
    MANIFESTS,
    cluster_spec,
    instructions,
    launched,
    leaves,
    pods,
)

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


@pytest.mark.parametrize(
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
