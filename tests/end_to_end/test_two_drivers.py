"""Two drivers of one sweep at once: each trial has one row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.sweeps import Sweeps, rows

pytestmark = pytest.mark.slow


def test_one_command_twice_at_once(sweeps: Sweeps, tmp_path: Path) -> None:
    """Both measure and cut for themselves, but the first cut is for both; each writes the same rows."""
    words = ["--axis", "beta=0.5,1,2", "--axis", "nu=0.5,20", "--axis", "normal_class=0,1", "--set", "epochs=20"]
    outcomes = [sweep.outcome() for sweep in [sweeps.start(tmp_path, *words, cores=1) for _ in range(2)]]
    assert [outcome.status for outcome in outcomes] == [0, 0], outcomes
    assert len(rows(tmp_path)) == 12
