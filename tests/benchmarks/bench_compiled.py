"""Compiled steps beside eager ones and a plain PyTorch loop under torch.compile, in turns in one run, by medians.

python -m tests.benchmarks.bench_compiled [--methods vje,simclr] [--encoders mlp] [--members 8] [--folder DIR]

All methods that learn images by gradients, with the MLP and the convnet of the digits presets, on one core and random
images: no views, no data. A stack's members differ in nothing and share a batch. The plain loop is one nn.Module under
torch.optim.SGD; its loss and its optimiser are compiled by torch.compile, its gradients with the loss.
"""

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from search_spaces._protocols import DIGITS, METHODS_DIGITS, ONE_CLASS_DIGITS
from tests.benchmarks.loops import Workload, random_noise
from tests.trainables.small import IMAGE_METHODS
from trainables.config import resolve
from trainables.learners.compiled import Library
from trainables.learners.stack import Stack
from trainables.sections import Value
from trainables.training.compile_step import StepTask
from trainables.training.compiled_steps import LibraryFolder
from trainables.training.stacks import build_models

VJE_KEYS = frozenset({"method", "bottleneck"})
PRESETS: Mapping[str, Mapping[str, Value]] = {
    "mlp": {key: value for key, value in ONE_CLASS_DIGITS.items() if key not in VJE_KEYS},
    "convnet": DIGITS,
}
"""Encoder -> a preset of the digits with it, without a method."""
METHODS = [name for name, method in IMAGE_METHODS.items() if method.trains() and not method.fitted()]
COMPARED = 5
"""Steps after which the weights of eager and compiled stacks are compared."""
ROUNDING = 1e-7
"""Standard deviation of random relative changes of the weights, about the resolution of float32. BatchNorm would undo
one factor for all."""
ROUNDS = 7
"""Measurements of each step, in turns."""
HEADER = (
    f"{'':24} {'ms a model-step':^33} {'times as fast':^15} {'seconds of compiling':^25} {'weights differ by':^18}\n"
    f"{'method':16} {'encoder':7} {'eager':>8} {'compiled':>8} {'alone':>7} {'plain':>7} {'eager':>7} {'plain':>7} "
    f"{'cold':>9} {'found':>9} {'plain':>5} {'compiled':>8} {'rounding':>9}"
)
"""`eager` over `compiled`, and `plain` over `alone`. Cold and found: of the step of the stack and of that alone."""


class CompileTimes:
    """A folder of compiled steps that notes what it takes to find or make them."""

    def __init__(self, folder: Path) -> None:
        self._folder = LibraryFolder(folder)
        self.cold, self.found = list[float](), list[float]()
        """Seconds of each compilation, and of each look-up with the loading of the library."""

    def __call__(self, task: StepTask) -> Library:
        if not self._folder.find(task):
            begun = time.perf_counter()
            self._folder.find_or_compile(task)
            self.cold.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        library = self._folder.find(task)
        assert library
        library.load("cpu")
        self.found.append(time.perf_counter() - begun)
        return library


class Result(NamedTuple):
    """Seconds of a step of each kind, and what they cost."""

    seconds: Mapping[str, float]
    times: CompileTimes
    plain_compile_seconds: float
    difference: float
    """Of the weights of the compiled stack from those of the eager one."""
    rounding: float
    """The same of an eager stack whose initial weights were changed by ROUNDING, for ReLUs near 0."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=",".join(METHODS), help="default all: %(default)s")
    parser.add_argument("--encoders", default=",".join(PRESETS), help="default %(default)s")
    parser.add_argument("--members", type=int, default=8, help="of a stack, default 8")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a measurement, default 0.3")
    parser.add_argument("--folder", type=Path, help="where compiled steps are kept, else a temporary folder")
    arguments = parser.parse_args()
    torch._logging.set_logs(dynamo=logging.ERROR)  # it warns of the optimiser's profiling
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    print(f"one thread, torch {torch.__version__}, stacks of {arguments.members}\n{HEADER}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(temporary) / "inductor")
        for method in arguments.methods.split(","):
            for encoder in arguments.encoders.split(","):
                times = CompileTimes(arguments.folder or Path(temporary) / "steps")
                try:
                    work = workload(method, encoder, arguments.members)
                    line = _line(compare(work, times, arguments.seconds), arguments.members)
                except Exception as error:  # whatever a compiler raises
                    line = f"failed: {type(error).__name__}: {(str(error).strip() or 'no reason').splitlines()[0]}"
                print(f"{method:16} {encoder:7} {line}", flush=True)


def workload(method: str, encoder: str, members: int) -> Workload:
    """Equal members of a preset's trial."""
    config = resolve({**PRESETS[encoder], "method": method, **METHODS_DIGITS.get(method, {})})
    return Workload.of([config] * members, torch.device("cpu"))


def compare(work: Workload, find: CompileTimes, seconds: float) -> Result:
    """Measure the steps of a stack, eager and compiled, of a compiled model alone, and of a plain compiled one."""
    eager, compiled, alone, rounded = work.stack(), work.stack(find), work.member(0).stack(find), work.stack()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in rounded.parameters.values():
            weights.mul_(1 + ROUNDING * torch.randn(weights.shape, generator=generator))
    for _ in range(COMPARED):
        for stack in (eager, compiled, rounded):
            work.step(stack)
    difference, rounding = weights_difference(eager, compiled), weights_difference(eager, rounded)
    work.step(alone)
    plain = plain_step(work)
    begun = time.perf_counter()
    plain()
    plain_compile_seconds = time.perf_counter() - begun
    steps: dict[str, Callable[[], object]] = {
        "eager": lambda: work.step(eager),
        "compiled": lambda: work.step(compiled),
        "alone": lambda: work.step(alone),
        "plain": plain,
    }
    return Result(medians(steps, seconds), find, plain_compile_seconds, difference, rounding)


def plain_step(work: Workload) -> Callable[[], object]:
    """The step of a plain loop. Its first call compiles."""
    config, batch, noise = work.configs[0], work.inputs.batch, work.inputs.noise
    (model,) = build_models([config], work.shapes)
    training = config.gradient
    optimiser = torch.optim.SGD(
        model.parameters(), lr=training.lr, momentum=training.momentum, weight_decay=training.weight_decay
    )
    losses = torch.compile(model.losses, dynamic=False)
    update = torch.compile(optimiser.step, dynamic=False)

    def step() -> None:
        loss: Tensor = losses(batch, noise).total
        optimiser.zero_grad()
        loss.backward()
        update()
        with torch.no_grad():
            model.after_step(random_noise(model.after_step_noise(), work.device))

    return step


def weights_difference(first: Stack, second: Stack) -> float:
    """The largest difference of two stacks' weights, as a share of the largest weight of the same tensor."""

    def differs(name: str, weights: Tensor) -> float:
        difference = (weights - second.parameters[name]).detach().abs().max()
        return float(difference / weights.detach().abs().max().clamp(min=1e-30))

    return max(differs(name, weights) for name, weights in first.parameters.items())


def medians(steps: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Seconds of each step, the median of ROUNDS measurements of `seconds` each, in turns."""

    def timed(step: Callable[[], object], count: int) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            step()
        return (time.perf_counter() - begun) / count

    for step in steps.values():
        timed(step, 2)
    counts = {name: max(1, round(seconds / timed(step, 2))) for name, step in steps.items()}
    rounds = [{name: timed(step, counts[name]) for name, step in steps.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(times[name] for times in rounds) for name in steps}


def _line(result: Result, members: int) -> str:
    seconds = dict(result.seconds)
    for name in ("eager", "compiled"):
        seconds[name] /= members
    eager, compiled, alone, plain = (1e3 * seconds[name] for name in ("eager", "compiled", "alone", "plain"))
    cold, found = ("+".join(f"{took:.{digits}f}" for took in times) or "-" for times, digits in (
        (result.times.cold, 0), (result.times.found, 2)
    ))  # fmt: skip
    return (
        f"{eager:8.3f} {compiled:8.3f} {alone:7.3f} {plain:7.3f} {eager / compiled:7.2f} {plain / alone:7.2f}"
        f" {cold:>9} {found:>9} {result.plain_compile_seconds:5.0f} {result.difference:8.0e} {result.rounding:9.0e}"
    )


if __name__ == "__main__":
    main()
