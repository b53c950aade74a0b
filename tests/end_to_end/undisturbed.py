"""A sweep that runs undisturbed, without figures. Tests that disturb the same sweep compare their rows with its rows.

It runs once in a run of the tests, without Ray, in the process that needs it first; the others wait for it.
"""

import contextlib
import io
import os
from pathlib import Path

import pandas as pd
import pytest
from filelock import FileLock

from sweeper.commands import run
from sweeper.storage.load import load_history
from tests.end_to_end.sweeps import assert_same_results, rows
from tests.fake_executor import report_nothing, without_ray

GRID = [
    *("--axis", "beta=0.5,1", "--axis", "nu=0.5,3,inf", "--axis", "normal_class=0,1"),
    *("--set", "epochs=40", "--cohort", "2", "--save-every", "0.05"),
]
"""12 trials in 6 cohorts, over 1 s each on one core."""
TRIALS, COHORTS, EPOCHS = 12, 6, 40


def undisturbed_store() -> Path:
    """A store with the rows of GRID. It must not be changed."""
    folder = Path(os.environ["SWEEPER_TESTS_FOLDER"])
    store, printed, scratch = folder / "undisturbed", folder / "undisturbed.txt", folder / "undisturbed.scratch"
    with FileLock(folder / "undisturbed.lock"):
        if not printed.exists():
            scratch.mkdir()
            out, err = io.StringIO(), io.StringIO()
            with pytest.MonkeyPatch.context() as patched, without_ray(scratch), contextlib.ExitStack() as printing:
                report_nothing(patched)
                printing.enter_context(contextlib.redirect_stdout(out))
                printing.enter_context(contextlib.redirect_stderr(err))
                status = run.main(["anomaly_grid", "--preset", "digits", "--store", str(store), *GRID])
            assert status == 0 and err.getvalue() == "" and len(rows(store)) == TRIALS, out.getvalue() + err.getvalue()
            printed.write_text(out.getvalue())
    return store


def undisturbed_output() -> str:
    """Standard output of that sweep."""
    return undisturbed_store().with_suffix(".txt").read_text()


def assert_undisturbed(store: Path) -> None:
    """Assert that each row and report of `store` equals the undisturbed sweep's, and that no checkpoint is left."""
    undisturbed = undisturbed_store()
    assert_same_results(rows(store), rows(undisturbed))
    assert set(rows(store)["status"]) == {"finished"}
    pd.testing.assert_frame_equal(
        load_history("anomaly_grid", store), load_history("anomaly_grid", undisturbed), check_exact=True
    )
    assert not list(store.glob("checkpoints/*/*.pt"))
