"""The packing that measurements choose, beside one trial a device and other sizes and fractions, in the same run.

python -m tests.benchmarks.bench_packing                  # whole sweeps through Ray, on this machine's devices
python -m tests.benchmarks.bench_packing --device cuda    # without Ray: stacks and processes that share the device

Without Ray, steps are of the digits as 3x32x32 in a ResNet-18 (`--encoder mlp`: the digits preset); `fits` says whether
what the processes need stays within the memory of the device, with the margin.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from search_spaces.anomaly_grid import DIGITS, PAPER
from sweeper.packing.cluster import MEMORY_MARGIN, Devices
from sweeper.packing.packer import pack
from sweeper.packing.workloads import Workload
from sweeper.planning.cohorts import Cut, Trial
from trainables.config import resolve
from trainables.sections import TrialConfig, Value
from trainables.training.measurement import Measurement
from trainables.training.profiling import device_memory, measure, measure_slowdowns

CASES = {
    "chosen": (),
    "one trial a device": ("--cohort", "1"),
    "cohorts of 8": ("--cohort", "8"),
    "cohorts of 56, in turn": ("--cohort", "56", "--stack", "1"),
    "chosen, half devices": ("--gpu-fraction", "0.5"),
}
SWEEP = ("anomaly_grid", "--preset", "digits", "--axis", "normal_class=0,1,2,3")
MEMBERS = 64
TRIALS, STEPS = 512, 20_000
"""Of the grid for which a packing is chosen without Ray."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="without Ray, on this device of PyTorch")
    parser.add_argument("--encoder", choices=("mlp", "resnet18"), default="resnet18")
    parser.add_argument("--most", type=int, default=8, help="processes that share the device")
    parser.add_argument("--seconds", type=float, default=30.0, help="for the widths of a stack")
    arguments = parser.parse_args()
    if arguments.device:
        steps(torch.device(arguments.device), arguments.encoder, arguments.most, arguments.seconds)
    else:
        sweeps()


def sweeps() -> None:
    """Whole sweeps, each in a process and a Ray of its own; the second time the chosen one has its measurements."""
    print(f"{'':28}{'seconds':>9}{'over chosen':>13}")
    with tempfile.TemporaryDirectory() as store:
        cases = {"chosen, measuring first": (), **CASES}
        took = {name: _sweep(store, arguments) for name, arguments in cases.items()}
    for name, seconds in took.items():
        print(f"{name:28}{seconds:9.1f}{seconds / took['chosen']:13.2f}", flush=True)


def _sweep(store: str, arguments: Sequence[str]) -> float:
    command = [sys.executable, "-m", "sweeper.run", *SWEEP, "--store", store, "--fresh", *arguments]
    for path in Path(store).glob("cuts"):
        path.rename(Path(store) / f"_cuts-{time.monotonic_ns()}")  # else the cohorts are those of the case before
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def steps(device: torch.device, encoder: str, max_processes: int, seconds: float) -> None:
    """Print member-steps per second by width and number of processes, relative to one trial alone, and the packing."""

    configs = _configs(encoder)
    measured = measure(configs, Path(), device, seconds)
    memory, cores = device_memory(device), os.cpu_count() or 1
    slowdowns = measure_slowdowns(
        configs,
        Path(),
        device,
        widths=[stack.width for stack in measured],
        max_processes=min(max_processes, cores),
        cores=cores,
    )
    counts = sorted({1} | {count for ratios in slowdowns.values() for count in ratios})
    print(f"{memory.device}, torch {torch.__version__}, {encoder}; a process takes {memory.overhead >> 20} MiB beside")
    print(f"{'width':>6}{'MiB':>8}{'steps/s':>10}" + "".join(f"{f'{count} share':>12}" for count in counts[1:]))
    for stack in measured:
        cells = [
            f"{_rate(stack, count, slowdowns) / _rate(measured[0], 1, {}):.2f}"
            for count in counts[1:]
            if _known(stack, count, slowdowns)
        ]
        print(
            f"{stack.width:6}{stack.bytes >> 20:8}{1 / stack.seconds:10.1f}" + "".join(f"{cell:>12}" for cell in cells)
        )
    kind = Devices(1, memory.bytes, cores, overhead=memory.overhead, slowdowns=slowdowns)
    packed = pack([Workload([[Trial(str(number), {}) for number in range(TRIALS)]], measured, STEPS)], [kind])
    print(
        f"chosen for {TRIALS} trials of {STEPS} steps: 1/{packed.slots_per_device[0]} of the device, {packed.cuts[0]}"
    )
    for name, share, cut in _others(measured, counts):
        if share * _need(measured, cut.width, memory.overhead) <= MEMORY_MARGIN * memory.bytes:
            workload = Workload([[Trial(str(number), {}) for number in range(TRIALS)]], measured, STEPS, cut)
            seconds_of_other = pack([workload], [kind], [share]).seconds
            print(f"  {name:32}{seconds_of_other / packed.seconds:8.2f} times as long")
    need = packed.slots_per_device[0] * _need(measured, packed.cuts[0].width, memory.overhead)
    print(f"memory: {need / memory.bytes:.2f} of the device, fits: {need <= MEMORY_MARGIN * memory.bytes}")


def _others(measured: Sequence[Measurement], counts: Sequence[int]) -> list[tuple[str, int, Cut]]:
    widest = measured[-1].width
    single_trials = [(f"one trial, {count} a device", count, Cut(1, 1)) for count in counts]
    stacks = [(f"stacks of {widest}, {count} a device", count, Cut(widest, widest)) for count in counts]
    return single_trials + stacks


def _need(measured: Sequence[Measurement], width: int, overhead: int) -> int:
    return overhead + next(stack.bytes for stack in measured if stack.width >= width)


def _known(stack: Measurement, count: int, slowdowns: dict[int, dict[int, float]]) -> bool:
    return count in slowdowns.get(stack.width, {})


def _rate(stack: Measurement, count: int, slowdowns: dict[int, dict[int, float]]) -> float:
    """Member-steps a second of so many processes together."""
    return count / stack.seconds / (slowdowns[stack.width][count] if count > 1 else 1.0)


def _configs(encoder: str) -> list[TrialConfig]:
    grid = DIGITS if encoder == "mlp" else PAPER
    config: dict[str, Value] = {**next(iter(grid.combinations()))}
    if encoder != "mlp":
        config |= {"dataset": "digits32", "batch_size": 64}
    return [resolve({**config, "beta": 0.1 + index / MEMBERS}) for index in range(MEMBERS)]


if __name__ == "__main__":
    main()
