import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper import version

CALL = "import version; print(version.code_version())"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The module in a new repository, not committed yet."""
    shutil.copy(version.__file__, tmp_path)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "first")
    return tmp_path


def said(folder: Path, **variables: str) -> str:
    environment = os.environ | variables
    run = subprocess.run([sys.executable, "-c", CALL], cwd=folder, env=environment, check=True, capture_output=True)
    return run.stdout.decode().strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_version_has_the_commit_and_says_whether_files_differ_from_it(copied: Path) -> None:
    git(copied, "add", "version.py")
    git(copied, "commit", "--quiet", "-m", "second")
    commit = git(copied, "rev-parse", "--short", "HEAD").strip()
    assert said(copied) == f"{version.VERSION}+{commit}"
    with (copied / "version.py").open("a") as file:
        file.write("# changed\n")
    assert said(copied) == f"{version.VERSION}+{commit}.dirty"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_an_installed_package_does_not_take_the_commit_of_the_project_around_it(copied: Path) -> None:
    assert said(copied) == version.VERSION


def test_a_job_has_the_version_that_was_submitted(tmp_path: Path) -> None:
    shutil.copy(version.__file__, tmp_path)
    assert said(tmp_path, **{version.SUBMITTED: "0.1.0+abc1234"}) == "0.1.0+abc1234"
