"""The tests see nothing of the user's home, temporary files and shell, and leave nothing behind."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conftest import LONGEST, RUN_FOLDER

ROOT = Path(__file__).parents[1]
SHELL = {
    **{"HOME": "/absent", "TMPDIR": "/absent", "RAY_TMPDIR": "/absent", "RAY_ADDRESS": "10.0.0.1:6379"},
    **{"http_proxy": "http://10.0.0.1:1", "NO_PROXY": "*", "AWS_PROFILE": "mine", "RAY_AUTH_MODE": "token"},
    **{"SWEEPER_STORE_TIMEOUT": "0", "MPLCONFIGDIR": "/absent", "GIT_DIR": "/absent"},
}
"""Environment variables of a user, each of which would change what some test sees."""
OURS = {RUN_FOLDER, "RAY_TMPDIR", "MPLCONFIGDIR", "XDG_CACHE_HOME"}


def test_folders_belong_to_this_process_and_foreign_variables_are_removed() -> None:
    run = Path(os.environ[RUN_FOLDER])
    assert Path.home().parent == Path(tempfile.gettempdir()) == Path(os.environ["RAY_TMPDIR"])
    assert Path.home().parents[1] == run and run.parent == Path("/tmp") and run.stat().st_mode & 0o077 == 0
    assert len(tempfile.gettempdir()) <= 24, "Ray's sockets would find no room in it"
    assert [name for name, value in SHELL.items() if os.environ.get(name) == value] == []  # imports may set others
    print(f"folder: {run}")


def test_a_run_in_another_shell_is_isolated_too_and_leaves_no_files() -> None:
    code = f"{__file__}::test_folders_belong_to_this_process_and_foreign_variables_are_removed"
    environment = {name: value for name, value in os.environ.items() if name not in {*OURS, "PYTEST_XDIST_WORKER"}}
    command = [sys.executable, "-m", "pytest", code, "-s", "-q", "-p", "no:cacheprovider"]
    completed = subprocess.run(command, cwd=ROOT, env=environment | SHELL, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stdout
    (run,) = (line.removeprefix("folder: ") for line in completed.stdout.splitlines() if line.startswith("folder: "))
    assert run != os.environ[RUN_FOLDER] and not Path(run).exists()


def test_files_that_are_started_first_exist_and_are_named_once() -> None:
    assert len({*LONGEST}) == len(LONGEST) and all((ROOT / "tests" / name).is_file() for name in LONGEST)
