"""Measure a cohort with a few real steps on its device: step time and memory at several stack widths, the slowdown of
processes that share the device, and where the time of one trial's steps goes.

To measure the slowdown, each process (`python -m trainables.training.profiling`) reads requests from standard input,
one JSON object per line, and replies to each with a number: first all processes build their cohort, then all step it
for the same time. They inherit the device from the process that starts them.
"""

import contextlib
import ctypes
import gc
import json
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from trainables.catalog import is_function, method_of
from trainables.config import resolve_sent
from trainables.functions.method import FunctionMethod
from trainables.functions.steps import FunctionSteps
from trainables.learners.phases import PARTS, observed
from trainables.own_code import trial_call
from trainables.reports import is_out_of_memory
from trainables.sections import TrialConfig
from trainables.training.cohort import TrainingCohort
from trainables.training.compiled_steps import StepCompiler
from trainables.training.measurement import STEPS, DeviceMemory, Measurement, memory_of_process, stack_widths

STEP_SECONDS = 0.4
"""Seconds for which all processes step simultaneously in each measurement."""


TIMEOUT = 120.0
"""Seconds after which the processes are killed in any case."""


@trial_call()
def measure(
    configs: Sequence[TrialConfig], data: Path, device: torch.device | str, seconds: float = 3.0
) -> list[Measurement]:
    """Measure stacks of width 1, 2, 4, ... and finally all of `configs`, for at most about `seconds`. Width 1 is always
    measured. Measuring stops at the first larger width whose estimated time exceeds the limit or at which the device
    runs out of memory. Returns nothing for configs that do not train or that use several workers. For functions only
    the first config is measured, by the time between reports."""
    of_function = is_function(configs[0].method)
    if configs[0].training.processes > 1 or (configs[0].training.epochs == 0 and not of_function):
        return []
    configs = configs[:1] if of_function else configs
    device = torch.device(device)
    measured: list[Measurement] = []
    begun = time.perf_counter()
    with _frozen_objects():
        for width in stack_widths(len(configs)):
            if measured and time.perf_counter() - begun + 6 * measured[-1].seconds * width > seconds:
                break
            try:
                measured.append(_measure(configs[:width], data, device, measured[0].held if measured else None))
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                break
    return measured


@contextlib.contextmanager
def _frozen_objects() -> Iterator[None]:
    """Context in which the garbage collector ignores the existing objects: there are millions if Ray is imported, and
    the collector runs before each width. Objects that the process itself has frozen stay frozen."""
    frozen_before = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not frozen_before:
            gc.unfreeze()


def memory_in_use(device: torch.device) -> int | None:
    """Bytes of a GPU that all processes use, by `nvidia-smi`, which unlike CUDA takes none itself; None if unknown, as
    for a part of a GPU, and on a CPU."""
    if device.type != "cuda":
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[device.index or 0]
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", f"--id={visible}"]
    try:
        return int(subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout) << 20
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def device_memory(device: torch.device | str, before: int | None = None) -> DeviceMemory:
    """The memory that processes sharing the device may use together. Call this after a measurement, when the process
    has loaded everything that counts as overhead. `before` is the memory in use before the process used the GPU;
    without it, what other processes use counts as overhead of this one."""
    device = torch.device(device)
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        name, reserved = f"{torch.cuda.get_device_name(device)}, {total >> 30} GiB", torch.cuda.memory_reserved(device)
        overhead = beside = max(0, total - free - reserved)
        if before is not None and (after := memory_in_use(device)) is not None:
            overhead = min(beside, max(0, after - before - reserved))
        return DeviceMemory(name, total - (beside - overhead), overhead)
    import psutil  # may be missing on machines with GPUs

    memory = psutil.virtual_memory()
    name = f"{_processor()}, {os.cpu_count()} cores, {memory.total >> 30} GiB"
    return DeviceMemory(name, memory.available, psutil.Process().memory_info().rss)


def _processor() -> str:
    """Model name of the CPU."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _measure(configs: Sequence[TrialConfig], data: Path, device: torch.device, held: int | None) -> Measurement:
    """Measure one stack of all `configs`. Pass `held` if it is known, because counting it copies the whole state."""
    bytes_before = peak_bytes(device, reset=True)
    cohort = _stepped(configs, data, device)
    seconds = _step_seconds(cohort, device)
    width, peak = len(configs), peak_bytes(device)
    held = _tensor_bytes(cohort.state()) // width if held is None else held
    return Measurement(width, seconds, max(0, peak - bytes_before), held)


def _stepped(configs: Sequence[TrialConfig], data: Path, device: torch.device) -> TrainingCohort | FunctionSteps:
    """The object that makes steps: a cohort of these configs, or the first config if they are of a function."""
    method = method_of(configs[0].method)
    if issubclass(method, FunctionMethod):
        return FunctionSteps(configs[0], method, device)
    return TrainingCohort(configs, data, device, width=None)


def _step_seconds(cohort: TrainingCohort | FunctionSteps, device: torch.device) -> float:
    """Seconds per step and member, the minimum of several. On one core only this thread's CPU time counts, because
    other processes may share the core."""
    alone = device.type == "cpu" and torch.get_num_threads() == 1 and isinstance(cohort, TrainingCohort)
    clock = time.thread_time if alone else time.perf_counter
    orders, times = cohort.orders(0), []
    for _ in range(STEPS):
        begun = clock()
        cohort.step(0, 0, orders, rate=0.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(clock() - begun)
    return min(times[1:]) / len(cohort.members)


def measure_compiled(
    configs: Sequence[TrialConfig],
    data: Path,
    device: torch.device | str,
    *,
    build: bool,
    wait: Callable[[], None] = lambda: None,
) -> float | None:
    """Seconds per step and member of one stack of all `configs` with compiled steps; None if they are not available.
    `build=False` only measures steps that were compiled before. `wait` is called while steps are compiled, and may
    raise to end the compilation."""
    device, compiler = torch.device(device), StepCompiler(build=build)
    seconds = _step_seconds(
        TrainingCohort(configs, data, device, None, raise_if_stopped=wait, compiler=compiler), device
    )
    return seconds if compiler.compiled else None


def _tensor_bytes(state: Any) -> int:
    """Bytes of all tensors in nested lists and mappings."""
    if isinstance(state, torch.Tensor):
        return state.nbytes
    return sum(map(_tensor_bytes, state.values() if isinstance(state, Mapping) else state))


def peak_bytes(device: torch.device, reset: bool = False) -> int:
    """Peak memory in use since the last reset, in bytes. With `reset=True` the peak is reset first. On a GPU this is
    what PyTorch has reserved, on which limits act, and more than its tensors take. On a CPU it is the resident memory
    of the process. Outside Linux the peak cannot be reset and counts from the start of the
    process."""
    if device.type != "cuda":
        if reset:
            gc.collect()
            with contextlib.suppress(OSError, AttributeError):  # another C library, another system
                ctypes.CDLL(None).malloc_trim(0)
                Path("/proc/self/clear_refs").write_text("5")
        if (peak := memory_of_process("VmHWM")) is not None:
            return peak
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if reset:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_reserved(device)
    return torch.cuda.max_memory_reserved(device)


# Contention: real steps of several simultaneous processes.


def measure_slowdowns(
    configs: Sequence[TrialConfig],
    data: Path,
    device: torch.device | str,
    *,
    widths: Sequence[int],
    max_processes: int,
    cores: int = 1,
    seconds: float = STEP_SECONDS,
) -> dict[int, dict[int, float]]:
    """Return the slowdown of a step by stack width and number of processes.

    `result[width][n]` is the time of a step while n processes share the device, divided by the time of a step of a
    single process (dimensionless, >= 1). n is 2, 4, ..., up to `max_processes` and the number of processes whose
    cohorts fit into memory. The processes share `cores` CPU cores and step for `seconds` each time.
    """
    with _started_processes(configs, data, torch.device(device), max_processes) as processes:
        slowdowns = {width: _slowdowns(processes, width, cores, seconds) for width in sorted(widths)}
    return {width: by_count for width, by_count in slowdowns.items() if by_count}


def _slowdowns(processes: Sequence[subprocess.Popen[str]], width: int, cores: int, seconds: float) -> dict[int, float]:
    """Number of processes -> slowdown of a step, for stacks of this width."""
    ready = [process for process, fits in zip(processes, _request(processes, {"width": width}), strict=True) if fits]
    slowdowns: dict[int, float] = {}
    alone, count = 0.0, 1
    while count <= len(ready):
        step_times = _request(ready[:count], {"seconds": seconds, "threads": max(1, cores // count)})
        if not all(step_times):
            break
        mean = sum(step_times) / count
        alone = alone or mean
        slowdowns |= {count: max(1.0, mean / alone)} if count > 1 else {}
        count *= 2
    return slowdowns


def _request(processes: Sequence[subprocess.Popen[str]], request: dict[str, Any]) -> list[float]:
    """Send a request to all processes, then read their replies. The reply of a failed or ended process is 0.0."""
    for process in processes:
        with contextlib.suppress(OSError):
            print(json.dumps(request), file=process.stdin, flush=True)
    return [float(process.stdout.readline() or 0.0) for process in processes if process.stdout]


@contextlib.contextmanager
def _started_processes(
    configs: Sequence[TrialConfig], data: Path, device: torch.device, count: int
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start `count` processes and kill them at the end."""
    task = {"configs": [config.flat() for config in configs], "data": str(data), "device": str(device)}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "trainables.training.profiling"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        for _ in range(count)
    ]

    def kill_all() -> None:
        for process in processes:
            process.kill()

    timer = threading.Timer(TIMEOUT, kill_all)
    timer.start()
    try:
        _request(processes, task)
        yield processes
    finally:
        timer.cancel()
        kill_all()
        for process in processes:
            process.communicate()


@trial_call()
def _serve(requests: IO[str], replies: IO[str]) -> None:
    """Main loop of a process that shares the device. The first line is the task: configs, data, device. Then `{"width":
    w}` builds a cohort (reply: 1), and `{"seconds": s, "threads": n}` steps it (reply: the seconds of a step). The
    reply is 0 if the device runs out of memory or has done so since the last cohort was built."""
    task = json.loads(requests.readline())
    configs, device = [resolve_sent(config) for config in task["configs"]], torch.device(task["device"])
    cohort: TrainingCohort | FunctionSteps | None = None
    print(1.0, file=replies, flush=True)
    for line in requests:
        request, reply = json.loads(line), 0.0
        try:
            if "width" in request:
                cohort = None
                cohort = _stepped(configs[: request["width"]], Path(task["data"]), device)
                _step_time(cohort, device, 0.0, least=3)
                reply = 1.0
            elif cohort:
                torch.set_num_threads(request["threads"])
                reply = _step_time(cohort, device, request["seconds"])
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            cohort = None
        print(reply, file=replies, flush=True)


def _step_time(cohort: TrainingCohort | FunctionSteps, device: torch.device, seconds: float, least: int = 1) -> float:
    """Mean seconds of a step, over at least `least` steps and `seconds` seconds."""
    orders, done, begun = cohort.orders(0), 0, time.perf_counter()
    while done < least or time.perf_counter() - begun < seconds:
        cohort.step(0, 0, orders, rate=0.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        done += 1
    return (time.perf_counter() - begun) / done


# Where the time of a step goes, for one trial.

WARM_UP_STEPS, PROFILED_STEPS = 3, 20
"""Number of warm-up steps and of measured steps."""


@dataclass(frozen=True)
class StepProfile:
    """Where the time of one trial goes."""

    seconds: Mapping[str, float]
    """Seconds per step in each part, a key of `trainables.learners.phases.PARTS`."""
    step: float
    """Seconds per step."""
    steps: int
    """Steps per epoch."""
    evaluation: float
    """Seconds of the evaluation of a report."""
    last_evaluation: float
    """Seconds of the evaluation of the last report."""


def profile_trial(config: TrialConfig, data: Path, device: torch.device | str, trace: Path) -> StepProfile:
    """Time `PROFILED_STEPS` steps of a trial and its evaluations, then write a trace of the same number of steps to the
    file `trace`, in Chrome's format. Raises OSError if the file cannot be written.

    Times are measured without the profiler, which slows down small operations. On a GPU the measurement waits for each
    part, so that work started by a part counts as the part's.
    """
    device = torch.device(device)
    cohort, seconds = TrainingCohort([config], data, device, width=None), dict.fromkeys(PARTS, 0.0)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def timed(call: Callable[[], object]) -> float:
        begun = time.perf_counter()
        call()
        wait()
        return time.perf_counter() - begun

    @contextlib.contextmanager
    def measured(part: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        wait()
        seconds[part] += time.perf_counter() - begun

    @contextlib.contextmanager
    def recorded(part: str) -> Iterator[None]:
        with torch.profiler.record_function(part):
            yield
            wait()

    def make_steps(count: int) -> None:
        for step in range(count):
            cohort.step(0, step % cohort.steps, orders, rate=1.0)

    step_seconds = 0.0
    if config.training.epochs:
        orders = cohort.orders(0)
        cohort.begin_epoch(0)
        make_steps(WARM_UP_STEPS)
        with observed(measured):
            step_seconds = timed(lambda: make_steps(PROFILED_STEPS)) / PROFILED_STEPS
        with torch.profiler.profile() as profiler, observed(recorded):
            make_steps(PROFILED_STEPS)
        profiler.export_chrome_trace(str(trace))
    return StepProfile(
        {part: of_part / PROFILED_STEPS for part, of_part in seconds.items()},
        step_seconds,
        cohort.steps,
        timed(lambda: cohort.evaluate(last=False)),
        timed(lambda: cohort.evaluate(last=True)),
    )


if __name__ == "__main__":
    reply_stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # anything else that is printed goes to standard error, so it is not read as a reply
    _serve(sys.stdin, reply_stream)
