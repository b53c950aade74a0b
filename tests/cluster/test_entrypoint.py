"""A job's shell command runs the sweep with a Python that has Ray, or prints one line if there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.entrypoint import HAS_RAY, entrypoint

WORDS = ["anomaly_grid", "--store", "/a b;$(rm) 'c'"]


def interpreter(folder: Path, has_ray: bool) -> Path:
    """Create a fake `python` in the folder that prints its own path and its arguments."""
    folder.mkdir()
    path = folder / "python"
    path.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit {int(not has_ray)}\nprintf "%s\\n" "$0" "$@"\nexit 7\n')
    path.chmod(0o755)
    return path


def told(line: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run the command as on a head whose PATH is this one folder."""
    return subprocess.run(["/bin/sh", "-c", line], env={"PATH": str(path)}, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("mine", "heads", "taken"),
    [(True, None, "mine"), (True, True, "mine"), (None, True, "heads"), (False, True, "heads"), (True, False, "mine")],
)
def test_the_first_python_that_has_ray_becomes_the_sweep(
    mine: bool | None, heads: bool | None, taken: str, tmp_path: Path
) -> None:
    """`mine` is the submitter's interpreter, `heads` the one on the head's PATH: None if absent, False without Ray."""
    for name, has_ray in (("mine", mine), ("heads", heads)):
        if has_ray is not None:
            interpreter(tmp_path / name, has_ray)
    done = told(entrypoint(WORDS, str(tmp_path / "mine/python")), tmp_path / "heads")
    assert done.returncode == 7 and done.stderr == "", done
    assert done.stdout.splitlines() == [str(tmp_path / taken / "python"), "-m", "sweeper.run", *WORDS]


def test_where_no_python_has_ray_one_line_says_what_to_do(tmp_path: Path) -> None:
    path = interpreter(tmp_path / "heads", has_ray=False).parent
    done = told(entrypoint(WORDS, f"{tmp_path}/it's/python"), path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: the cluster's head has no Python with Ray: tried {tmp_path}/it's/python, and python on its PATH; "
        "start the head with its environment on PATH: PATH=VENV/bin:$PATH ray start ...\n"
    )


def test_it_is_seen_whether_a_python_has_ray() -> None:
    assert subprocess.run([sys.executable, "-c", HAS_RAY]).returncode == 0
    assert subprocess.run([sys.executable, "-I", "-S", "-c", HAS_RAY]).returncode == 1
