"""Several real processes on one device, here the CPU. Each takes the seconds that importing torch needs."""

from pathlib import Path

import pytest

from trainables.config.trial import resolve
from trainables.profiling import contention
from trainables.profiling.contention import measure_slowdowns

CONFIGS = [
    resolve({"method": "vje", "normal_class": 3, "width": 8, "bottleneck": 4, "batch_size": 60, "beta": beta})
    for beta in (0.5, 1.0)
]


@pytest.mark.slow
def test_each_width_has_a_slowdown_for_each_number_of_processes() -> None:
    slowdowns = measure_slowdowns(CONFIGS, Path(), "cpu", widths=[2, 1], max_processes=2, seconds=0.2)
    assert list(slowdowns) == [1, 2] and all(list(ratios) == [2] for ratios in slowdowns.values())
    assert all(1.0 <= ratio < 20 for ratios in slowdowns.values() for ratio in ratios.values())


def test_processes_that_have_ended_give_no_slowdown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes are killed at once, so none answers, and the measurement does not wait for them."""
    monkeypatch.setattr(contention, "TIMEOUT", 0.0)
    assert measure_slowdowns(CONFIGS, Path(), "cpu", widths=[1], max_processes=2) == {}
