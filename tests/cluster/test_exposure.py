"""Nothing of a cluster is open to strangers, and no file holds a secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.cluster.files import EVERY, FOLDER, LAUNCHED, MANIFESTS, cluster_spec, launched, leaves, pods

SECRETS = {
    "a key of AWS": r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    "a private key": r"-----BEGIN",
    "a token": r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{32,}\b",
    "a token given as a value": r"(?i)(AUTH_TOKEN|password|secret_?(access_?)?key)\s*[=:]\s*[^\s$<~]",
    "an account": r"\b\d{12}\b",
    "somebody's image": r"\bami-[0-9a-f]{8,}",
    "somebody's address": r"[\w.]+@[\w-]+\.\w+",
    "a machine": r"\b(?!127\.0\.0\.1\b|0\.0\.0\.0\b|169\.254\.169\.254\b)\d{1,3}(\.\d{1,3}){3}\b",
}
"""What must stand in no file."""


def secrets(text: str) -> list[str]:
    return [name for name, pattern in SECRETS.items() if re.search(pattern, text)]


@pytest.mark.parametrize("path", EVERY, ids=[path.name for path in EVERY])
def test_no_file_holds_a_secret(path: Path) -> None:
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
def test_a_secret_would_be_seen(text: str, name: str) -> None:
    assert name in secrets(text)


def test_only_the_dashboard_of_a_job_listens_beyond_loopback() -> None:
    """The operator must reach it; the network policy lets nobody else in (`test_kuberay`)."""
    code = {path.name: re.sub(r"#.*", "", path.read_text()) for path in EVERY if path.suffix == ".yaml"}
    assert {name for name, text in code.items() if "0.0.0.0" in text} == {"rayjob.yaml"}
    assert cluster_spec("rayjob")["headGroupSpec"]["rayStartParams"]["dashboard-host"] == "0.0.0.0"


def test_every_head_is_started_with_its_dashboard_on_loopback() -> None:
    starts = [command for name in LAUNCHED for command in launched(name)["head_start_ray_commands"]]
    page = (FOLDER / "README.md").read_text().replace("\\\n", " ")
    starts += re.findall(r"ray start --head[^\n]*", page)
    heads = [command for command in starts if "--head" in command]
    assert len(heads) >= 3 and all(re.search(r"--dashboard-host[= ]127\.0\.0\.1(\s|$)", command) for command in heads)


@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_gives_no_node_a_door_of_its_own(name: str) -> None:
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
        [account] = gcp[kind]["node_config"]["serviceAccounts"]
        assert [scope.rsplit("/")[-1] for scope in account["scopes"]] == ["devstorage.read_write"]


def test_the_page_says_what_is_to_be_filled_in() -> None:
    page = (FOLDER / "README.md").read_text()
    gaps = set()
    for path in EVERY:
        if path.suffix == ".yaml":
            values = [leaf for one in yaml.safe_load_all(path.read_text()) for leaf in leaves(one)]
            gaps |= {(path.stem, name) for name, value in values if "REPLACE" in str(value)}
    assert {name for _, name in gaps} == {"image", "ImageId", "Name", "project_id", "entrypoint"}
    assert all(f"`{name}`" in page for _, name in gaps)
