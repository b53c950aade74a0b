"""The cluster files as Python values."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cluster"
LAUNCHED = ("aws", "gcp")
"""Files of Ray's cluster launcher."""
MANIFESTS = ("raycluster", "rayjob")
"""Files of KubeRay."""
EVERY = sorted(path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc")
"""All files of `cluster`: cluster files, the image, the README."""


def launched(name: str) -> dict[str, Any]:
    """Content of `cluster/NAME.yaml`."""
    return dict(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))


def objects(name: str) -> list[dict[str, Any]]:
    """Kubernetes objects in `cluster/kuberay/NAME.yaml`."""
    return list(yaml.safe_load_all((FOLDER / "kuberay" / f"{name}.yaml").read_text()))


def cluster_spec(name: str) -> dict[str, Any]:
    """Specification of a RayCluster, or of the cluster of a RayJob."""
    spec = objects(name)[0]["spec"]
    return dict(spec.get("rayClusterSpec", spec))


def pods(name: str) -> dict[str, dict[str, Any]]:
    """Role (`head`, a group of workers, or `submitter`) -> template of its pods."""
    cluster, spec = cluster_spec(name), objects(name)[0]["spec"]
    groups = {group["groupName"]: group["template"] for group in cluster["workerGroupSpecs"]}
    submitter = {"submitter": spec["submitterPodTemplate"]} if "submitterPodTemplate" in spec else {}
    return {"head": cluster["headGroupSpec"]["template"], **groups, **submitter}


def images() -> set[str]:
    """All container images that the files name."""
    images = {launched(name)["docker"]["image"] for name in LAUNCHED}
    for name in MANIFESTS:
        images |= {container["image"] for pod in pods(name).values() for container in pod["spec"]["containers"]}
    return images


def argument(name: str) -> str:
    """Default of an ARG of the Dockerfile."""
    [value] = re.findall(rf"^ARG {name}=(\S+)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    return str(value)


def project() -> dict[str, Any]:
    """Table `project` of pyproject.toml."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile, as (keyword, arguments)."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [" ".join(line.split()).partition(" ") for line in text.splitlines() if line.strip()]
    return [(keyword, arguments) for keyword, _, arguments in lines]


def leaves(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Every scalar inside `value`, as (name of the nearest enclosing field, scalar)."""
    if isinstance(value, dict):
        return [leaf for key, child in value.items() for leaf in leaves(child, str(key))]
    if isinstance(value, list):
        return [leaf for child in value for leaf in leaves(child, name)]
    return [(name, value)]
