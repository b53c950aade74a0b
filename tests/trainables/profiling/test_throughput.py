"""Step time and memory of a cohort, measured with a few real steps."""

import gc
import itertools
import os
import sys
from functools import partial
from pathlib import Path
from typing import Never

import psutil
import pytest
import torch

from trainables.config import resolve
from trainables.sections import TrialConfig, Value
from trainables.training import profiling as module
from trainables.training.measurement import Measurement
from trainables.training.profiling import device_memory, measure, peak_bytes
from trainables.training.stacks import build_models


def _configs(count: int, **changes: Value) -> list[TrialConfig]:
    small: dict[str, Value] = {
        "method": "vje",
        "normal_class": 3,
        "width": 8,
        "features": 4,
        "bottleneck": 4,
        "batch_size": 60,
    }
    return [resolve({**small, "beta": float(index), **changes}) for index in range(count)]


@pytest.mark.parametrize(("members", "widths"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_each_width_is_measured(members: int, widths: list[int]) -> None:
    measured = measure(_configs(members), Path(), "cpu", seconds=60)
    assert [measurement.width for measurement in measured] == widths
    assert all(measurement.seconds > 0 and measurement.bytes >= 0 for measurement in measured)


@pytest.mark.parametrize(("threads", "clock"), [(1, "thread_time"), (2, "perf_counter")])
def test_the_seconds_of_a_step_are_shared_by_the_members(
    threads: int, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock advances by one second each time it is read, so every step takes one second. On one core it is that of
    this thread, which stands still while another process has the core."""
    monkeypatch.setattr(module.torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(module.time, clock, partial(next, itertools.count()))
    measured = {
        measurement.width: measurement.seconds for measurement in measure(_configs(16), Path(), "cpu", seconds=600)
    }
    assert measured == {width: 1 / width for width in (1, 2, 4, 8, 16)}


def test_width_one_is_measured_whatever_the_time() -> None:
    assert [measurement.width for measurement in measure(_configs(8), Path(), "cpu", seconds=0.0)] == [1]


def test_the_time_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes 0.02 s per member here: widths 1, 2 and 4 take 0.42 s in total; width 8 would add 0.48 s."""

    now = 0.0

    def slow(configs: list[TrialConfig], *_: object) -> Measurement:
        nonlocal now
        now += 3 * 0.02 * len(configs)
        return Measurement(len(configs), 0.02, 1, 1)

    monkeypatch.setattr(module, "_measure", slow)
    monkeypatch.setattr(module.time, "perf_counter", lambda: now)
    measured = measure(_configs(64), Path(), "cpu", seconds=1.0)
    assert [measurement.width for measurement in measured] == [1, 2, 4] and now < 1.0


def test_a_width_that_does_not_fit_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def scarce(configs: list[TrialConfig], *_: object) -> Measurement:
        if len(configs) > 2:
            raise torch.OutOfMemoryError
        return Measurement(len(configs), 1e-3, 1, 1)

    monkeypatch.setattr(module, "_measure", scarce)
    assert [measurement.width for measurement in measure(_configs(16), Path(), "cpu", seconds=60)] == [1, 2]


@pytest.mark.parametrize("changes", [{"epochs": 0}, {"workers": 2}])
def test_trials_without_training_or_with_several_workers_are_not_measured(
    changes: dict[str, Value], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> Never:
        raise AssertionError("no step must be taken")

    monkeypatch.setattr(module, "_measure", never)
    assert measure(_configs(4, **changes), Path(), "cpu", seconds=60) == []
    with pytest.raises(AssertionError, match="no step"):
        measure(_configs(4), Path(), "cpu", seconds=60)


def test_an_untrained_encoder_is_not_measured() -> None:
    configs = [resolve({"method": "random", "epochs": 0, "seed": seed}) for seed in range(3)]
    assert measure(configs, Path(), "cpu") == []


def test_a_member_holds_its_weights_buffers_and_momentum() -> None:
    """Each weight has a velocity; buffers have none."""
    configs = _configs(2)
    model = build_models(configs[:1], {"views": (1, 8, 8)})[0]
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    expected = 2 * parameters + sum(buffer.nbytes for buffer in model.buffers())
    for measurement in measure(configs, Path(), "cpu", seconds=60):
        assert expected <= measurement.held <= expected + 64


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak cannot be reset")
def test_a_wider_stack_takes_more_memory_whatever_was_measured_before() -> None:
    """Measured after a first step has loaded everything."""
    configs = _configs(32, width=256)

    def grown(width: int) -> int:
        return module._measure(configs[:width], Path(), torch.device("cpu"), 0).bytes

    grown(1)
    first, narrow, again = grown(32), grown(2), grown(32)
    assert 8 * 2**20 < again < 80 * 2**20 and narrow < again / 3
    assert again == pytest.approx(first, rel=0.4)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak cannot be reset")
def test_the_peak_of_memory_is_that_since_the_last_reset() -> None:
    cpu, size = torch.device("cpu"), 256 << 20
    torch.ones(size, dtype=torch.uint8)
    before = peak_bytes(cpu, reset=True)
    torch.ones(size // 2, dtype=torch.uint8)
    assert 0.4 * size < peak_bytes(cpu) - before < 0.6 * size


def test_memory_of_a_machine_is_its_available_memory_and_the_overhead_of_a_process() -> None:
    memory = device_memory("cpu")
    assert memory.bytes <= psutil.virtual_memory().total and f"{os.cpu_count()} cores" in memory.device
    assert 50 * 2**20 < memory.overhead <= peak_bytes(torch.device("cpu"))


def test_measuring_does_not_change_the_global_generator() -> None:
    before = torch.get_rng_state()
    measure(_configs(2), Path(), "cpu", seconds=60)
    assert torch.equal(before, torch.get_rng_state())


def test_objects_are_frozen_afterwards_if_some_were_before() -> None:
    for frozen in (False, True):
        gc.unfreeze()
        if frozen:
            gc.freeze()
        measure(_configs(1), Path(), "cpu")
        assert bool(gc.get_freeze_count()) == frozen
