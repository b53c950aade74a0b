"""A sweep that runs undisturbed. Tests that disturb the same sweep compare their rows with its rows.

It runs once in a run of the tests, in the process that needs it first; the others wait for it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from filelock import FileLock

from sweeper.storage.load import load_history
from tests.end_to_end.sweeps import Sweeps, assert_same_results, rows, sweeps

GRID = [
    *("--axis", "beta=0.5,1", "--axis", "nu=0.5,3,inf", "--axis", "normal_class=0,1"),
    *("--set", "epochs=60", "--cohort", "2", "--save-every", "0.05"),
]
"""12 trials in 6 cohorts, about 2 s each on one core."""
TRIALS, COHORTS, EPOCHS = 12, 6, 60


def undisturbed_store() -> Path:
    """A store with the rows of GRID. It must not be changed."""
    run = Path(os.environ["SWEEPER_TESTS_FOLDER"])
    store, printed = run / "undisturbed", run / "undisturbed.txt"
    with FileLock(run / "undisturbed.lock"):
        if not printed.exists():
            for fresh_sweeps in _sweeps_of_their_own():
                outcome = fresh_sweeps.run(store, *GRID, cores=1)
                assert outcome.status == 0 and outcome.err == "" and len(rows(store)) == TRIALS, outcome
                printed.write_text(outcome.out)
    return store


def undisturbed_output() -> str:
    """Standard output of that sweep."""
    return undisturbed_store().with_suffix(".txt").read_text()


def _sweeps_of_their_own() -> Iterator[Sweeps]:
    """Sweeps without the environment of a cluster that the test has started."""
    with pytest.MonkeyPatch.context() as patched:
        for name in [name for name in os.environ if name.startswith("RAY_") and name != "RAY_TMPDIR"]:
            patched.delenv(name)
        yield from sweeps()


def assert_undisturbed(store: Path) -> None:
    """Assert that each row and report of `store` equals the undisturbed sweep's, and that no checkpoint is left."""

    undisturbed = undisturbed_store()
    assert_same_results(rows(store), rows(undisturbed))
    assert set(rows(store)["status"]) == {"finished"}
    pd.testing.assert_frame_equal(
        load_history("anomaly_grid", store), load_history("anomaly_grid", undisturbed), check_exact=True
    )
    assert not list(store.glob("checkpoints/*/*.pt"))
