"""Trials that raise, hang, exhaust the memory or kill their process fail alone and are named; all others finish."""

from pathlib import Path

import pytest

from tests.end_to_end.poisons import DIES, EATS, HANGS, RAISES
from tests.end_to_end.shared_ray import SharedRay
from tests.end_to_end.sweeps import rows

pytestmark = pytest.mark.slow

NUS = (3, RAISES, HANGS, DIES, EATS, 20)
"""In three cohorts, two with a trial that is not poisoned."""
ARGUMENTS = [
    *("--set", "normal_class=0", "--axis", "beta=1", "--axis", f"nu={','.join(map(str, NUS))}", "--set", "epochs=5"),
    *("--cohort", "2", "--retries", "0", "--patience", "2"),
]


def test_a_poisoned_trial_takes_no_other_with_it_and_is_named(shared_ray: SharedRay, tmp_path: Path) -> None:
    outcome = shared_ray.run(tmp_path, *ARGUMENTS)
    frame = rows(tmp_path).set_index("nu")
    assert outcome.status == 1 and "4 failed, 2 finished of 6 trials" in outcome.out, frame["error"].to_dict()
    errors = frame["error"].dropna()
    assert set(errors.index) == {RAISES, HANGS, EATS, DIES} and not errors.str.contains("\n").any(), errors
    assert "a poisoned trial" in errors[RAISES] and "died" in errors[DIES], errors
    assert errors[HANGS].startswith("hung: no step was completed within 2 s, at "), errors
    assert "sitecustomize.py" in errors[HANGS] and "OutOfMemory" in errors[EATS], errors
