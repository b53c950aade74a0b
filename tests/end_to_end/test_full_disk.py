"""A disk that is full, for a while and for good: the rows in the store stay, and the same command continues.

`test_files.py` and `test_local_disk.py` of `tests/sweeper/storage` assert what is said and tried again, the worlds of
`tests/simulation` that no failing operation costs a row.
"""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.commands import run
from tests.end_to_end.sweeps import Sweeps, row_files, rows, survivors
from tests.end_to_end.undisturbed import GRID, TRIALS, assert_undisturbed
from tests.fake_executor import without_ray

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.usefixtures("unreported")]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 80 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path: Path) -> None:
    """Fill the disk of this file."""
    with path.open("ab", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(1 << 16))


def test_a_disk_that_is_full_for_a_while_and_then_for_good(
    sweeps: Sweeps,
    small_disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SWEEPER_STORE_TIMEOUT", "2")
    store, filler = small_disk / "store", small_disk / "filler"
    waits = "No space left on device; trying again for 2 s"
    sweep = sweeps.start(store, *GRID, "--debug", cores=1)
    sweep.wait_until(lambda: row_files(store), "a cohort")

    def waiting() -> bool:
        fill(filler)  # again and again: a checkpoint that goes makes room
        return waits in sweep.printed

    sweep.wait_until(waiting, "a write that fails")
    filler.unlink()
    sweep.wait_until(lambda: "works again" in sweep.printed, "write that succeeds")
    while sweep.running():
        fill(filler)
        time.sleep(0.05)
    outcome = sweep.outcome()
    frame = rows(store)
    assert outcome.status == 1 and outcome.out.count(waits) >= 2, outcome
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"error: store {store}: cannot write") and "No space left on device" in line, outcome
    assert "the same command continues" in outcome.out and "Traceback" not in outcome.out, outcome
    assert 0 < len(frame) < TRIALS and set(frame["status"]) == {"finished"} and survivors(sweep) == []
    command = ["anomaly_grid", "--preset", "digits", "--store", str(store), *GRID]
    with without_ray(tmp_path):
        assert run.main(command) == 2 and "must have 64 MiB free" in capsys.readouterr().err
        filler.unlink()
        assert run.main(command) == 0, capsys.readouterr()
    assert_undisturbed(store)
