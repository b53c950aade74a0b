"""Several real processes on one device, here the CPU. Each takes the seconds that importing torch needs."""

import io
import json
from pathlib import Path

import pytest
import torch

from trainables.config import resolve
from trainables.sections import TrialConfig
from trainables.training import profiling
from trainables.training.profiling import measure_slowdowns

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
    monkeypatch.setattr(profiling, "TIMEOUT", 0.0)
    assert measure_slowdowns(CONFIGS, Path(), "cpu", widths=[1], max_processes=2) == {}


def test_a_process_replies_with_one_line_to_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot step before a cohort is built."""
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    task = {"configs": [config.flat() for config in CONFIGS], "data": "", "device": "cpu"}
    step = {"seconds": 0.0, "threads": 1}
    requests, replies = [task, step, {"width": 2}, step], io.StringIO()
    profiling._serve(io.StringIO("".join(json.dumps(request) + "\n" for request in requests)), replies)
    ready, unbuilt, built, seconds = map(float, replies.getvalue().split())
    assert (ready, unbuilt, built) == (1.0, 0.0, 1.0) and 0 < seconds < 60


def test_a_device_without_memory_replies_zero_until_another_cohort_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scarce:
        def __init__(self, configs: list[TrialConfig], *_: object, width: None) -> None:
            if len(configs) > 1:
                raise torch.OutOfMemoryError

        def orders(self, epoch: int) -> None: ...

        def step(self, *_: object, rate: float) -> None: ...

    monkeypatch.setattr(profiling, "Cohort", Scarce)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    task = {"configs": [config.flat() for config in CONFIGS], "data": "", "device": "cpu"}
    step = {"seconds": 0.0, "threads": 1}
    requests, replies = [task, {"width": 1}, step, {"width": 2}, step, {"width": 1}, step], io.StringIO()
    profiling._serve(io.StringIO("".join(json.dumps(request) + "\n" for request in requests)), replies)
    assert [reply != "0.0" for reply in replies.getvalue().split()] == [True, True, True, False, False, True, True]
