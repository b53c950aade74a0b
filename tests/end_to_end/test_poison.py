"""Trials that raise, hang, eat memory or kill their process fail alone, by name, and soon; all others finish."""

from pathlib import Path

import pytest

from tests.end_to_end.poisons import DIES, EATS, HANGS, RAISES
from tests.end_to_end.shared_ray import SharedRay
from tests.end_to_end.sweeps import rows

pytestmark = pytest.mark.slow

NUS = (3, RAISES, HANGS, DIES, EATS, 20)
"""In three cohorts, two with a trial that is not poisoned."""
WORDS = [
    *("--set", "normal_class=0", "--axis", "beta=1", "--axis", f"nu={','.join(map(str, NUS))}", "--set", "epochs=5"),
    *("--cohort", "2", "--retries", "0", "--patience", "2"),
]


def test_a_poisoned_trial_takes_no_other_with_it_and_is_named(shared_ray: SharedRay, tmp_path: Path) -> None:
    outcome = shared_ray.run(tmp_path, *WORDS)
    found = rows(tmp_path).set_index("nu")
    assert outcome.status == 1 and "4 failed, 2 finished of 6 trials" in outcome.out, found["error"].to_dict()
    errors = found["error"].dropna()
    assert errors.map(lambda said: "\n" not in said).all() and set(errors.index) == {RAISES, HANGS, EATS, DIES}, errors
    assert "a poisoned trial" in errors[RAISES] and "died" in errors[DIES], errors
    assert errors[HANGS].startswith("hung: no step was completed within 10 s, at "), errors  # five times for the first
    assert "sitecustomize.py" in errors[HANGS] and "OutOfMemory" in errors[EATS], errors
