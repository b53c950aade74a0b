"""Step time and memory of a cohort, measured with a few real steps; also with several real processes on one device,
here the CPU, each of which takes the seconds that importing torch needs.
"""

import gc
import io
import itertools
import json
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
from trainables.training import profiling
from trainables.training import profiling as module
from trainables.training.measurement import Measurement, memory_of_process, stack_widths
from trainables.training.profiling import device_memory, measure, measure_slowdowns, peak_bytes
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


def test_each_width_is_measured() -> None:
    measured = measure(_configs(3), Path(), "cpu", seconds=60)
    assert [measurement.width for measurement in measured] == stack_widths(3) == [1, 2, 3]
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
        measurement.width: measurement.seconds for measurement in measure(_configs(3), Path(), "cpu", seconds=600)
    }
    assert measured == {width: 1 / width for width in (1, 2, 3)}


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


@pytest.mark.slow
def test_objects_are_frozen_afterwards_if_some_were_before() -> None:
    for frozen in (False, True):
        gc.unfreeze()
        if frozen:
            gc.freeze()
        measure(_configs(1), Path(), "cpu")
        assert bool(gc.get_freeze_count()) == frozen


CONFIGS = [
    resolve({"method": "vje", "normal_class": 3, "width": 8, "bottleneck": 4, "batch_size": 60, "beta": beta})
    for beta in (0.5, 1.0)
]


@pytest.mark.slow
def test_each_width_has_a_slowdown_for_each_number_of_processes() -> None:
    slowdowns = measure_slowdowns(CONFIGS, Path(), "cpu", widths=[2, 1], max_processes=2, seconds=0.05)
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

    monkeypatch.setattr(profiling, "TrainingCohort", Scarce)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    task = {"configs": [config.flat() for config in CONFIGS], "data": "", "device": "cpu"}
    step = {"seconds": 0.0, "threads": 1}
    requests, replies = [task, {"width": 1}, step, {"width": 2}, step, {"width": 1}, step], io.StringIO()
    profiling._serve(io.StringIO("".join(json.dumps(request) + "\n" for request in requests)), replies)
    assert [reply != "0.0" for reply in replies.getvalue().split()] == [True, True, True, False, False, True, True]


@pytest.mark.parametrize(
    ("members", "widths"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9])]
)
def test_widths_are_powers_of_two_and_all_members(members: int, widths: list[int]) -> None:
    assert stack_widths(members) == widths


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_memory_is_in_bytes_and_grows_with_what_is_held() -> None:
    before = memory_of_process("VmData")
    allocated = torch.empty(1 << 30, dtype=torch.uint8)  # untouched; other threads may free some MiB meanwhile
    after = memory_of_process("VmData")
    assert before and after and after - before >= allocated.nbytes // 2
    assert memory_of_process("VmHWM")


def test_an_unknown_field_has_no_value() -> None:
    assert memory_of_process("VmNothing") is None
