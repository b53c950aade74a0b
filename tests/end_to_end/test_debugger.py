"""Breakpoints in the user's code, in real processes whose debugger reads a script."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.user_files import DENOISE, user_folder

__all__ = ["user_folder"]

ROOT = Path(__file__).parents[2]
SWEEP = """
from sweeper import Grid, Metric, Sweep, Table

KEYS = {"method": "own_method:Denoise", "dataset": "digits", "epochs": 1, "encoder": "mlp", "width": 8, "knn": 5}
TABLE = Table("knn", ("seed",), (Metric("knn_z", "maximize"),))
SWEEP = Sweep("mine", {"tiny": Grid({**KEYS, "batch_size": 100}, {"seed": (0, 1)})}, figures=(TABLE,))
"""
IN_TRAINING = "(Pdb) 100\n(Pdb) "
"""What the debugger prints for the size of a batch. The batches of checks are smaller."""


def debugged(folder: Path, code: str, typed: str, *command: str) -> tuple[int, str, str]:
    """Run a command with `code` at the beginning of the losses, and the keys that are `typed` in its debugger. Returns
    its exit status, output and errors."""
    (folder / "own_sweep.py").write_text(SWEEP)
    (folder / "own_method.py").write_text(
        DENOISE.replace("first, second = batch", f"{code}\n        first, second = batch")
    )
    terminal, end = os.openpty()
    os.write(terminal, typed.encode())
    process = subprocess.run(
        [sys.executable, "-m", "sweeper", command[0], "own_sweep.py", *command[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=end,
        capture_output=True,
        text=True,
    )
    os.close(terminal)
    os.close(end)
    return process.returncode, process.stdout, process.stderr


@pytest.mark.slow
@for_each(
    ("code", "command"),
    [
        ("print('seen'); breakpoint()", ["run", "--debug"]),
        ("from pdb import set_trace; set_trace()", ["trial", "seed=0"]),
    ],
)
def test_breakpoints_stop_in_training_alone_and_quitting_ends_the_program(
    code: str, command: list[str], tmp_path: Path
) -> None:
    size = "p len(batch['views'][0])\n"
    status, out, err = debugged(tmp_path, code, f"{size}c\n{size}q\n", *command)
    assert status == 130 and out.count(IN_TRAINING) == 2 and out.count("(Pdb)") == 4, out + err
    assert "Traceback" not in out + err and "BdbQuit" not in out + err and out.count("seen\n") in (0, 2)
    assert not [*tmp_path.glob("results/trials/*/*.parquet")]  # no trial has failed


@pytest.mark.slow
def test_the_debugger_opens_where_a_check_fails(tmp_path: Path) -> None:
    code = "size = len(batch['views'][0]); print('seen'); assert size > 8, 'small'"
    status, out, err = debugged(tmp_path, code, "p size\nq\n", "run", "--debug")
    assert status == 2 and "(Pdb) 8\n" in out and "seen\n" in err
    assert err.splitlines()[-1].startswith("error: the method own_method:Denoise breaks the contract"), err
