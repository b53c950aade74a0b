"""Fields of KubeRay 1.7 and of Kubernetes' pods that the manifests may use: name -> type.

The sources are the field reference of ray.io/v1 in Ray's documentation, and that of core/v1 in Kubernetes' own. `!`
after a name marks a required field. A type in quotes is another entry of `KINDS`; a tuple lists the allowed texts.
"""

from collections.abc import Iterator, Mapping
from typing import Any

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
