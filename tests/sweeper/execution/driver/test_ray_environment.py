"""What the workers of a local cluster inherit."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from sweeper.execution.session import NO_SERVER, environment_of_workers, quiet_stderr
from sweeper.spec.user_code import search_folder
from tests.user_files import user_folder

__all__ = ["user_folder"]


def test_workers_of_a_local_cluster_inherit_the_folders(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/before")
    with environment_of_workers():
        assert os.environ["PYTHONPATH"] == "/before"
    search_folder(user_folder)
    with environment_of_workers():
        assert os.environ["PYTHONPATH"] == f"{user_folder}{os.pathsep}/before"
    assert os.environ["PYTHONPATH"] == "/before"
    monkeypatch.delenv("PYTHONPATH")
    with environment_of_workers():
        assert os.environ["PYTHONPATH"] == str(user_folder)
    assert "PYTHONPATH" not in os.environ


def test_workers_do_not_look_for_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """And later job submissions of this process look for the one that is."""
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    with environment_of_workers():
        assert os.environ["RAY_API_SERVER_ADDRESS"] == NO_SERVER
    assert "RAY_API_SERVER_ADDRESS" not in os.environ


def test_a_call_of_ray_after_its_end_starts_no_other_cluster() -> None:
    code = (
        "from sweeper.execution.session import set_environment\n"
        "set_environment(local=True)\n"
        "import ray\n"
        "try:\n"
        "    ray.put(1)\n"
        "except ray.exceptions.RaySystemError as error:\n"
        "    assert 'has not been started' in str(error), error\n"
        "assert not ray.is_initialized()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ENABLE_AUTO_CONNECT"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_what_rays_code_prints_is_dropped_and_what_we_print_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patched, open(2, "w", closefd=False) as stderr:
        patched.setattr(sys, "stderr", stderr)
        with quiet_stderr():
            os.write(2, b"from C++\n")
            warnings.warn("of Ray", stacklevel=1)
            print("ours", file=sys.stderr)
        assert sys.stderr is stderr
        os.write(2, b"after\n")
    assert capfd.readouterr().err == "ours\nafter\n"
