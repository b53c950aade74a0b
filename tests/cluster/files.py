"""The cluster files as Python values, as Ray and Kubernetes read them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cluster"
LAUNCHED = ("aws", "gcp")
"""Files of Ray's cluster launcher."""
MANIFESTS = ("raycluster", "rayjob")
"""Files of KubeRay."""
EVERY = sorted(path for path in FOLDER.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc"))
"""All that is no code: cluster files, the image, the page about them."""


def launched(name: str) -> dict[str, Any]:
    """`cluster/NAME.yaml`, as its owner leaves it."""
    return dict(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))


def objects(name: str) -> list[dict[str, Any]]:
    """The objects of `cluster/kuberay/NAME.yaml`."""
    return list(yaml.safe_load_all((FOLDER / "kuberay" / f"{name}.yaml").read_text()))


def cluster_spec(name: str) -> dict[str, Any]:
    """What a RayCluster, or the cluster of a RayJob, is to be."""
    spec = objects(name)[0]["spec"]
    return dict(spec.get("rayClusterSpec", spec))


def pods(name: str) -> dict[str, dict[str, Any]]:
    """Who it is -> the template of a pod, of all pods of the manifest."""
    cluster, spec = cluster_spec(name), objects(name)[0]["spec"]
    groups = {group["groupName"]: group["template"] for group in cluster["workerGroupSpecs"]}
    submitter = {"submitter": spec["submitterPodTemplate"]} if "submitterPodTemplate" in spec else {}
    return {"head": cluster["headGroupSpec"]["template"], **groups, **submitter}


def images() -> set[str]:
    """Every container image that a file names."""
    found = {launched(name)["docker"]["image"] for name in LAUNCHED}
    for name in MANIFESTS:
        found |= {one["image"] for pod in pods(name).values() for one in pod["spec"]["containers"]}
    return found


def argument(name: str) -> str:
    """The default of an ARG of the Dockerfile."""
    [value] = re.findall(rf"^ARG {name}=(\S+)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    return str(value)


def project() -> dict[str, Any]:
    """What pyproject.toml says of the project."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, a line each: keyword and the rest."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [" ".join(line.split()).partition(" ") for line in text.splitlines() if line.strip()]
    return [(keyword, rest) for keyword, _, rest in lines]


def leaves(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """(the name of the nearest field around it, value) of every plain value within."""
    if isinstance(value, dict):
        return [leaf for key, one in value.items() for leaf in leaves(one, str(key))]
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one, name)]
    return [(name, value)]
