"""The memory of a GPU: what limits act on, and what belongs to whom. `torch.cuda` and `nvidia-smi` are fakes."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import torch

from trainables.training import profiling
from trainables.training.profiling import device_memory, memory_in_use, peak_bytes

GPU, GIB, MIB = torch.device("cuda"), 2**30, 2**20
CONTEXT, RESERVED = 500 * MIB, 3 * GIB
"""Memory of this process beside its tensors, and for them."""


def fake_gpu(monkeypatch: pytest.MonkeyPatch, others: int, smi: list[str]) -> list[list[str]]:
    """A GPU of 40 GiB on which other processes use so much. Returns the calls of `nvidia-smi`, which prints `smi`."""
    calls = list[list[str]]()

    def run(command: list[str], **_: Any) -> Any:
        calls.append(command)
        if not smi:
            raise FileNotFoundError
        return subprocess.CompletedProcess(command, 0, smi[len(calls) - 1])

    monkeypatch.setattr(profiling.subprocess, "run", run)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (40 * GIB - others - CONTEXT - RESERVED, 40 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: RESERVED)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A100")
    return calls


@pytest.mark.parametrize("others", [0, 2 * GIB])
def test_memory_of_other_processes_is_neither_ours_nor_free(others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nvidia-smi` may count what the driver reserves, 600 MiB here."""
    driver = 600
    used = [driver + others // MIB, driver + (others + CONTEXT + RESERVED) // MIB]
    calls = fake_gpu(monkeypatch, others, [f"{mib}\n" for mib in used])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    memory = device_memory(GPU, memory_in_use(GPU))
    assert (memory.device, memory.bytes, memory.overhead) == ("A100, 40 GiB", 40 * GIB - others, CONTEXT)
    assert [call[-1] for call in calls] == ["--id=3", "--id=3"]


@pytest.mark.parametrize("smi", [[], ["[N/A]", "[N/A]"]])
def test_without_nvidia_smi_it_counts_as_overhead(smi: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer processes share the GPU then than could."""
    fake_gpu(monkeypatch, 2 * GIB, smi)
    memory = device_memory(GPU, memory_in_use(GPU))
    assert (memory.bytes, memory.overhead) == (40 * GIB, 2 * GIB + CONTEXT)


def test_processes_that_end_meanwhile_leave_no_negative_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpu(monkeypatch, 0, ["20000", "3584"])
    memory = device_memory(GPU, memory_in_use(GPU))
    assert memory.overhead == 0 and memory.bytes == 40 * GIB - CONTEXT


def test_a_peak_is_what_is_reserved_because_limits_act_on_that(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[str]()

    def noted(name: str, value: int | None) -> Callable[..., int | None]:
        def function(*_: object) -> int | None:
            called.append(name)
            return value

        return function

    for name, value in (("empty_cache", None), ("reset_peak_memory_stats", None), ("memory_reserved", GIB)):
        monkeypatch.setattr(torch.cuda, name, noted(name, value))
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 3 * GIB)
    assert peak_bytes(GPU, reset=True) == GIB and peak_bytes(GPU) == 3 * GIB
    assert called == ["empty_cache", "reset_peak_memory_stats", "memory_reserved"]


def test_a_cpu_asks_nobody() -> None:
    assert memory_in_use(torch.device("cpu")) is None
