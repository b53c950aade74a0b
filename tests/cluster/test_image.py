"""One image serves all nodes, with versions that the project's requirements admit."""

import re

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

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
    project,
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
def test_kuberay_is_told_the_version_in_the_image(name: str) -> None:
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


def test_the_image_installs_what_the_project_requires_and_no_list_of_its_own() -> None:
    installs = [arguments for keyword, arguments in instructions() if keyword == "RUN" and "pip install" in arguments]
    assert installs[-1].endswith('".[cluster]" "ray==${RAY_VERSION}"')  # cannot move Ray away from the pin
    ours = {Requirement(text).name for text in project()["dependencies"]} - {"ray"}
    assert not [name for name in ours if re.search(rf"\b{name}\b", " ".join(installs))]


def test_the_image_has_the_packages_of_the_project_and_the_spot_notice() -> None:
    packages = {"search_spaces", "sweeper", "trainables"}
    assert copied() == packages | {"pyproject.toml", "README.md", "LICENSE", "cluster/spot_notice.py"}
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


def test_the_spot_notice_is_where_the_files_start_it() -> None:
    before = instructions()[: instructions().index(("COPY", "cluster/spot_notice.py ./"))]
    folder = [arguments for keyword, arguments in before if keyword == "WORKDIR"][-1]
    texts = [(FOLDER / f"{name}.yaml").read_text() for name in LAUNCHED]
    texts += [(FOLDER / "kuberay" / f"{name}.yaml").read_text() for name in MANIFESTS]
    assert {path for text in texts for path in re.findall(r"\S*spot_notice\.py", text)} == {f"{folder}/spot_notice.py"}
