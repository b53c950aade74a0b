"""Trials that raise, hang, eat memory or kill their process fail alone, by name, and soon; all others finish."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.poisons import DIES, EATS, HANGS, POISON, RAISES
from tests.end_to_end.sweeps import Sweeps, rows

pytestmark = pytest.mark.slow

NUS = (3, 20, RAISES, 5, HANGS, DIES, EATS, 7)
WORDS = [
    *("--set", "normal_class=0", "--axis", "beta=1", "--axis", f"nu={','.join(map(str, NUS))}", "--set", "epochs=20"),
    *("--cohort", "8", "--retries", "0", "--patience", "2"),
]


def test_a_poisoned_trial_takes_no_other_with_it_and_is_named(
    sweeps: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", POISON)
    outcome = sweeps.run(tmp_path, *WORDS, cores=1)
    found = rows(tmp_path).set_index("nu")
    assert outcome.status == 1 and "4 finished, 4 failed of 8 trials" in outcome.out, outcome
    errors = found["error"].dropna()
    assert errors.map(lambda said: "\n" not in said).all() and set(errors.index) == {RAISES, HANGS, EATS, DIES}, errors
    assert "a poisoned trial" in errors[RAISES] and "died" in errors[DIES], errors
    assert errors[HANGS].startswith("hung: no step was completed within 10 s, at "), errors  # five times for the first
    assert "sitecustomize.py" in errors[HANGS] and "OutOfMemory" in errors[EATS], errors
