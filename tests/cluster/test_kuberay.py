"""The manifests follow KubeRay's documentation, and Ray's own autoscaler derives the intended clusters from them."""

import copy
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.utils import ResourceRequestUtil

from tests.cases import for_each
from tests.cluster.files import MANIFESTS, cluster_spec, objects, pods

PART = {"app.kubernetes.io/part-of": "sweeper"}
TEXTS, ANY = "map of texts", "anything"
KINDS: Mapping[str, Mapping[str, Any]] = {
    "RayCluster": {
        "apiVersion!": ("ray.io/v1",), "kind!": ("RayCluster",), "metadata!": "Meta", "spec!": "ClusterSpec",
    },
    "RayJob": {"apiVersion!": ("ray.io/v1",), "kind!": ("RayJob",), "metadata!": "Meta", "spec!": "JobSpec"},
    "Meta": {"name!": str, "namespace": str, "labels": TEXTS, "annotations": TEXTS},
    "ClusterSpec": {
        "rayVersion": str, "headGroupSpec!": "Head", "workerGroupSpecs": ["Workers"], "authOptions": "Auth",
        "enableInTreeAutoscaling": bool, "autoscalerOptions": "Autoscaler", "headServiceAnnotations": TEXTS,
        "suspend": bool, "managedBy": str, "upgradeStrategy": ANY, "gcsFaultToleranceOptions": ANY,
    },
    "Auth": {"mode": ("disabled", "token"), "secretName": str, "enableK8sTokenAuth": bool},
    "Autoscaler": {
        "version": ("v1", "v2"), "upscalingMode": ("Default", "Aggressive", "Conservative"), "idleTimeoutSeconds": int,
        "resources": "Resources", "image": str, "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
        "securityContext": "ContainerSecurity", "env": ANY, "envFrom": ANY, "volumeMounts": ["Mount"],
    },
    "Head": {
        "template!": "PodTemplate", "rayStartParams": TEXTS, "serviceType": ("ClusterIP", "NodePort", "LoadBalancer"),
        "enableIngress": bool, "headService": ANY, "resources": TEXTS, "labels": TEXTS,
    },
    "Workers": {
        "groupName!": str, "template!": "PodTemplate", "replicas": int, "minReplicas!": int, "maxReplicas!": int,
        "priority": int, "rayStartParams": TEXTS, "idleTimeoutSeconds": int, "numOfHosts": int, "resources": TEXTS,
        "labels": TEXTS, "scaleStrategy": ANY, "suspend": bool,
    },
    "JobSpec": {
        "entrypoint": str, "rayClusterSpec": "ClusterSpec", "runtimeEnvYAML": str, "jobId": str, "metadata": TEXTS,
        "submissionMode": ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"), "backoffLimit": int,
        "submitterPodTemplate": "PodTemplate", "submitterConfig": "Submitter", "clusterSelector": TEXTS,
        "shutdownAfterJobFinishes": bool, "ttlSecondsAfterFinished": int, "activeDeadlineSeconds": int,
        "preRunningDeadlineSeconds": int, "entrypointNumCpus": float, "entrypointNumGpus": float,
        "entrypointResources": str, "suspend": bool, "managedBy": str, "deletionStrategy": ANY,
    },
    "Submitter": {"backoffLimit": int},
    "PodTemplate": {"metadata": "PodMeta", "spec!": "Pod"},
    "PodMeta": {"labels": TEXTS, "annotations": TEXTS},
    "Pod": {
        "containers!": ["Container"], "volumes": ["Volume"], "restartPolicy": ("Always", "OnFailure", "Never"),
        "serviceAccountName": str, "automountServiceAccountToken": bool, "terminationGracePeriodSeconds": int,
        "securityContext": "PodSecurity", "nodeSelector": TEXTS, "tolerations": ["Toleration"],
    },
    "Container": {
        "name!": str, "image": str, "resources": "Resources", "securityContext": "ContainerSecurity", "ports": ["Port"],
        "volumeMounts": ["Mount"], "lifecycle": "Lifecycle", "command": [str], "args": [str],
    },
    "Resources": {"requests": TEXTS, "limits": TEXTS},
    "PodSecurity": {
        "runAsNonRoot": bool, "runAsUser": int, "runAsGroup": int, "fsGroup": int, "seccompProfile": "Seccomp",
    },
    "Seccomp": {"type!": ("RuntimeDefault", "Localhost", "Unconfined"), "localhostProfile": str},
    "ContainerSecurity": {
        "allowPrivilegeEscalation": bool, "capabilities": "Capabilities", "privileged": bool, "runAsNonRoot": bool,
        "readOnlyRootFilesystem": bool,
    },
    "Capabilities": {"add": [str], "drop": [str]},
    "Port": {"containerPort!": int, "name": str, "protocol": ("TCP", "UDP", "SCTP")},
    "Mount": {"name!": str, "mountPath!": str, "readOnly": bool, "subPath": str},
    "Volume": {"name!": str, "emptyDir": "EmptyDir", "persistentVolumeClaim": ANY, "secret": ANY, "configMap": ANY},
    "EmptyDir": {"sizeLimit": str, "medium": ("", "Memory")},
    "Toleration": {
        "key": str, "operator": ("Exists", "Equal"), "value": str, "tolerationSeconds": int,
        "effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    },
    "Lifecycle": {"preStop": "Handler", "postStart": "Handler"},
    "Handler": {"exec": "Exec"},
    "Exec": {"command!": [str]},
}  # fmt: skip
"""Fields of KubeRay 1.7 and of Kubernetes' pods that the manifests may use: name -> type.

The sources are the field reference of ray.io/v1 in Ray's documentation, and that of core/v1 in Kubernetes' own. `!`
after a name marks a required field. A type in quotes is another entry of `KINDS`; a tuple lists the allowed texts.
"""


def offences(value: Any, kind: Any, path: str) -> Iterator[str]:
    """One line for each field that does not match its documentation. `path` is that of `value` in the manifest."""
    if kind == ANY:
        return
    if kind == TEXTS:
        if not isinstance(value, dict):
            yield f"{path} must hold texts by name, but is {value!r}"
        else:
            yield from (
                f"{path}.{key} must be a text, but is {text!r}" for key, text in value.items() if type(text) is not str
            )
    elif isinstance(kind, list):
        if not isinstance(value, list):
            yield f"{path} must be a list, but is {value!r}"
        else:
            for index, item in enumerate(value):
                yield from offences(item, kind[0], f"{path}[{index}]")
    elif isinstance(kind, tuple):
        if value not in kind:
            yield f"{path} must be one of {', '.join(kind)}, but is {value!r}"
    elif isinstance(kind, str):
        yield from _of_fields(value, KINDS[kind], path)
    elif type(value) is not kind:
        yield f"{path} must be of {kind.__name__}, but is {value!r}"


def _of_fields(value: Any, fields: Mapping[str, Any], path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path} must have fields, but is {value!r}"
        return
    kinds = {name.rstrip("!"): kind for name, kind in fields.items()}
    yield from (f"{path} has no field {name}; there are: {', '.join(kinds)}" for name in value if name not in kinds)
    yield from (f"{path} must have {name[:-1]}" for name in fields if name.endswith("!") and name[:-1] not in value)
    for name in value.keys() & kinds.keys():
        yield from offences(value[name], kinds[name], f"{path}.{name}")


def autoscaling(name: str) -> dict[str, Any]:
    """Configuration that Ray's autoscaler derives from the cluster, checked against the launcher's schema."""
    metadata = {"name": "sweeper", "namespace": "default"}
    return dict(_derive_autoscaling_config_from_ray_cr({"metadata": metadata, "spec": cluster_spec(name)}))


def requested_pods(name: str, cohorts: int, share: float, failed: tuple[str, ...] = ()) -> dict[str, int]:
    """Group -> number of pods that Ray's autoscaler requests. Pods of `failed` groups are unavailable."""
    config = AutoscalingConfig(autoscaling(name), skip_content_hash=True)
    requests = [ResourceRequestUtil.make({"GPU": share, "CPU": share}) for _ in range(cohorts)]
    reply = ResourceDemandScheduler().schedule(
        SchedulingRequest(
            disable_launch_config_check=True,
            node_type_configs=config.get_node_type_configs(),
            max_num_nodes=config.get_max_num_nodes(),
            resource_requests=ResourceRequestUtil.group_by_count(requests),
            recoverable_resource_availabilities=dict.fromkeys(failed, 0.0),
        )
    )
    return {launch.instance_type: launch.count for launch in reply.to_launch if launch.instance_type != "headgroup"}


def _lets_out(rule: dict[str, Any], address: str, port: int) -> bool:
    """Whether an egress rule of a NetworkPolicy admits TCP to an address outside the pods."""

    def within(network: str) -> bool:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network)

    blocks = [peer["ipBlock"] for peer in rule["to"] if "ipBlock" in peer]
    reached = any(within(block["cidr"]) and not any(map(within, block.get("except", ()))) for block in blocks)
    return reached and {"protocol": "TCP", "port": port} in rule["ports"]


@pytest.mark.parametrize(("name", "kind"), [("raycluster", "RayCluster"), ("rayjob", "RayJob")])
def test_every_field_is_documented_and_of_its_type(name: str, kind: str) -> None:
    [manifest] = objects(name)
    assert list(offences(manifest, kind, kind)) == []


@for_each(
    ("slip", "message"),
    [
        (lambda spec: spec.update(autoscaling=True), "RayCluster.spec has no field autoscaling"),
        (lambda spec: spec.update(rayVersion=2.6), "rayVersion must be of str"),
        (lambda spec: spec["authOptions"].update(mode="on"), "mode must be one of disabled, token"),
        (lambda spec: spec["workerGroupSpecs"][0].pop("maxReplicas"), "must have maxReplicas"),
        (lambda spec: spec["headGroupSpec"]["rayStartParams"].update({"num-cpus": 0}), "num-cpus must be a text"),
        (lambda spec: spec.update(workerGroupSpecs={}), "workerGroupSpecs must be a list"),
        (lambda spec: spec["headGroupSpec"].update(template=None), "template must have fields"),
    ],
)
def test_a_slip_is_detected(slip: Callable[[dict[str, Any]], Any], message: str) -> None:
    manifest = copy.deepcopy(objects("raycluster")[0])
    slip(manifest["spec"])
    [offence] = offences(manifest, "RayCluster", "RayCluster")
    assert message in offence


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_head_trains_nothing_and_workers_come_from_none(name: str) -> None:
    config = autoscaling(name)
    types = dict(config["available_node_types"])
    head = types.pop(config["head_node_type"])
    assert head["resources"]["CPU"] == 0 and "GPU" not in head["resources"] and head["max_workers"] == 0
    assert {group: kind["max_workers"] for group, kind in types.items()} == {"gpu-spot": 16, "gpu-on-demand": 4}
    assert all(kind["min_workers"] == 0 and kind["resources"]["GPU"] == 1 for kind in types.values())
    assert cluster_spec(name)["enableInTreeAutoscaling"] is True and config["idle_timeout_minutes"] == 5


@for_each("name", MANIFESTS)
@for_each(("cohorts", "share", "pods"), [(0, 0.25, 0), (1, 0.25, 1), (4, 0.25, 1), (5, 0.25, 2), (3, 1, 3)])
def test_pending_cohorts_request_the_pods_that_they_share(name: str, cohorts: int, share: float, pods: int) -> None:
    assert requested_pods(name, cohorts, share) == ({"gpu-spot": pods} if pods else {})


def test_if_spot_pods_are_unavailable_others_are_requested() -> None:
    assert requested_pods("raycluster", 3, 1.0, failed=("gpu-spot",)) == {"gpu-on-demand": 3}
    assert requested_pods("raycluster", 100, 1.0) == {"gpu-spot": 16, "gpu-on-demand": 4}


@pytest.mark.parametrize("name", MANIFESTS)
def test_tokens_are_required(name: str) -> None:
    assert cluster_spec(name)["authOptions"] == {"mode": "token"}


@pytest.mark.parametrize("name", MANIFESTS)
def test_no_pod_runs_as_root_or_can_become_it(name: str) -> None:
    for pod in pods(name).values():
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["runAsUser"] != 0
        for container in pod["spec"]["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }


@pytest.mark.parametrize("name", MANIFESTS)
def test_pods_that_need_no_kubernetes_have_no_token_for_it(name: str) -> None:
    """Only the head has one, because its autoscaler requests pods."""
    keyless = {role for role, pod in pods(name).items() if pod["spec"].get("automountServiceAccountToken") is False}
    assert keyless == set(pods(name)) - {"head"}


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_pod_is_behind_the_policy(name: str) -> None:
    """Pods of a sweep reach each other, the operator reaches the dashboard, and nobody else reaches anything."""
    account, policy, _ = objects("access")
    assert policy["spec"]["podSelector"] == {"matchLabels": PART}
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    own, operator = policy["spec"]["ingress"]
    assert own == {"from": [{"podSelector": {"matchLabels": PART}}]}
    assert operator["ports"] == [{"protocol": "TCP", "port": 8265}]
    [caller] = operator["from"]
    assert caller["podSelector"] == {"matchLabels": {"app.kubernetes.io/component": "kuberay-operator"}}
    assert caller["namespaceSelector"]["matchLabels"]  # an empty selector is every namespace
    for pod in pods(name).values():
        assert pod["metadata"]["labels"].items() >= PART.items()
        assert pod["spec"].get("serviceAccountName", account["metadata"]["name"]) == account["metadata"]["name"]


@for_each(
    ("address", "port", "from_head", "let_out"),
    [
        ("8.8.8.8", 443, False, True),  # a bucket
        ("8.8.8.8", 80, False, False),
        ("8.8.8.8", 22, True, False),
        ("10.0.0.1", 443, False, False),  # Kubernetes, and whatever else is in the cluster's networks
        ("10.0.0.1", 443, True, True),
        ("192.168.3.4", 6443, True, True),
        ("172.16.0.1", 5432, True, False),
        ("169.254.169.254", 80, True, False),  # the machine's own identity
        ("169.254.169.254", 443, True, False),
        ("169.254.169.252", 988, False, True),  # the pod's
    ],
)
def test_pods_reach_the_store_and_the_head_kubernetes(address: str, port: int, from_head: bool, let_out: bool) -> None:
    _, everybody, head = objects("access")
    assert head["spec"]["podSelector"]["matchLabels"] == {**PART, "ray.io/node-type": "head"}
    rules = everybody["spec"]["egress"] + (head["spec"]["egress"] if from_head else [])
    assert any(_lets_out(rule, address, port) for rule in rules) == let_out


def test_pods_talk_to_each_other_and_ask_for_names() -> None:
    own, names, *_ = objects("access")[1]["spec"]["egress"]
    assert own == {"to": [{"podSelector": {"matchLabels": PART}}]}
    assert {(port["protocol"], port["port"]) for port in names["ports"]} == {("UDP", 53), ("TCP", 53)}
    assert all(rule["namespaceSelector"]["matchLabels"] for rule in names["to"])


def test_both_manifests_describe_one_cluster() -> None:
    """They differ in the dashboard's address only, because the operator asks a RayJob's dashboard over the network."""
    of_cluster, of_job = cluster_spec("raycluster"), cluster_spec("rayjob")
    assert of_cluster["headGroupSpec"]["rayStartParams"].pop("dashboard-host") == "127.0.0.1"
    assert of_job["headGroupSpec"]["rayStartParams"].pop("dashboard-host") == "0.0.0.0"
    assert of_cluster == of_job


def test_a_job_that_lost_its_head_goes_on_in_a_new_cluster() -> None:
    """A retry runs the same command. Its store is outside the cluster, so the sweep continues."""
    spec = objects("rayjob")[0]["spec"]
    assert spec["backoffLimit"] >= 1 and spec["shutdownAfterJobFinishes"] is True
    assert "--store s3://" in spec["entrypoint"] and "--fresh" not in spec["entrypoint"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_worker_is_warned_before_it_ends(name: str) -> None:
    workers = {role: pod["spec"] for role, pod in pods(name).items() if role.startswith("gpu")}
    for spec in workers.values():
        command = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert command[:5] == ["python", "-m", "sweeper.submission.spot_notice", "--now", "--grace"]
        assert float(command[5]) < spec["terminationGracePeriodSeconds"]
