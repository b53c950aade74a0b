"""Milliseconds a model-step, share of the measured matmul peak and memory, for each way to step K members on a GPU.

python -m tests.benchmarks.bench_gpu [--device cpu] [--networks mlp,convnet] [--members 1,2] [--forms eager,graph]

VJE at its presets, on random images that lie on the device; `bench_views` measures views. A form that fails is a line
with the reason, and so is what does not fit into `--minutes`. Counted are the FLOP of one model's step, also in stacks,
by torch.utils.flop_counter. It needs neither Ray nor data.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

from search_spaces._protocols import ONE_CLASS, ONE_CLASS_DIGITS, VJE_DIGITS
from tests.benchmarks.gpu_cells import CHECKED, REPEATS, Cell, flop_of_step, matmul_peak, measure
from tests.benchmarks.gpu_forms import FORMS, Form, Tools
from tests.benchmarks.steps import StepsOfThisProcess, Workload, inductor
from trainables.config import resolve
from trainables.sections import Value
from trainables.training.compilation.folder import LibraryFolder

NETWORKS = {"mlp": ONE_CLASS_DIGITS, "convnet": VJE_DIGITS, "resnet18": ONE_CLASS}
"""Encoder -> a preset with it: 8x8 pixels and batches of 48 and 60, and 3x32x32 with batches of 64."""
LAYOUTS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
COMPILING = 60.0
"""Seconds that a compilation is assumed to take."""
HEADER = "network   form             K   ms/model-step   of peak       MiB   of eager   loss differs by"


@dataclass
class Clock:
    """The time that a run may take."""

    seconds: float
    begun: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.begun)


class Settings(NamedTuple):
    """What all cells of a run have in common."""

    device: torch.device
    layout: str
    """Of the images of members in turn."""
    peak: float
    """FLOP a second of a large matmul."""
    seconds: float
    """Of each measurement."""
    clock: Clock
    tools: Tools


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="default %(default)s")
    parser.add_argument("--forms", default=",".join(FORMS), help="default %(default)s")
    parser.add_argument("--members", default="1,2,4,8", help="default %(default)s")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), help="default bfloat16, on a CPU float32")
    parser.add_argument("--layout", choices=LAYOUTS, help="of members in turn; default NHWC, on a CPU and for mlp NCHW")
    parser.add_argument("--batch", type=int, help="images of a batch, else those of the presets")
    parser.add_argument("--streams", type=int, default=4, help="CUDA streams, default 4")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement, default 0.5")
    parser.add_argument("--minutes", type=float, default=7.0, help="of the whole run, default 7")
    parser.add_argument("--ahead", action="store_true", help="compile ahead of time, in a process, as sweeps do")
    arguments = parser.parse_args()
    clock, device = Clock(60 * arguments.minutes), torch.device(arguments.device)
    cuda = device.type == "cuda"
    if cuda and not torch.cuda.is_available():
        parser.error("there is no GPU; --device cpu measures the forms that a CPU has")
    precision = arguments.precision or ("bfloat16" if cuda else "float32")
    layout = arguments.layout or ("NHWC" if cuda else "NCHW")
    members = [int(count) for count in arguments.members.split(",")]
    peak = matmul_peak(device, getattr(torch, precision), 8192 if cuda else 1024)
    name = torch.cuda.get_device_name(device) if cuda else f"cpu, {torch.get_num_threads()} threads"
    print(f"{name}, torch {torch.__version__}, {precision}, members in turn in {layout}")
    print(f"peak: {peak / 1e12:.4g} TFLOP/s in a matmul of {precision}\n\n{HEADER}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        here = StepsOfThisProcess(inductor)
        find = LibraryFolder(Path(folder) / "steps").find_or_compile if arguments.ahead else here
        tools = Tools(find, arguments.streams)
        settings = Settings(device, layout, peak, arguments.seconds, clock, tools)
        changes: dict[str, Value] = {"batch_size": arguments.batch} if arguments.batch else {}
        for network in arguments.networks.split(","):
            work = workload(network, max(members), device, {"precision": precision, **changes})
            compare(network, work, arguments.forms.split(","), members, settings)
    print(f"\n{time.monotonic() - clock.begun:.0f} s, of which compiling in this process took {here.seconds:.0f}")


def workload(network: str, count: int, device: torch.device, changes: dict[str, Value]) -> Workload:
    """Members of a preset that differ in beta."""
    fixed = {**NETWORKS[network], **changes}
    return Workload.of([resolve({**fixed, "beta": 0.25 * (1 + index)}) for index in range(count)], device)


def compare(network: str, work: Workload, forms: Sequence[str], members: Sequence[int], settings: Settings) -> None:
    """Print the lines of a network: a form with K members each."""
    eager: dict[int, Cell] = {}
    flop = flop_of_step(work.member(0))
    for name in forms:
        form = FORMS[name]
        if reason := _unsuited(network, form, settings.device):
            print(f"{network:9} {name:16} -   skipped: {reason}", flush=True)
            continue
        laid_out = work.in_layout(LAYOUTS[form.stacked or ("NCHW" if network == "mlp" else settings.layout)])
        milliseconds = eager[min(eager)].milliseconds if eager else 0.0
        for count in members:
            start = f"{network:9} {name:16} {count}"
            if reason := _no_time(form, milliseconds * count / 1e3, not milliseconds or count == members[0], settings):
                print(f"{start}   skipped: {reason}", flush=True)
                break
            try:
                cell = measure(form, laid_out.first(count), settings.tools, settings.seconds)
            except Exception as error:  # what a form that never ran may raise
                print(f"{start}   failed, and not tried with more: {_reason(error)}", flush=True)
                break
            milliseconds = cell.milliseconds
            if name == "eager":
                eager[count] = cell
            print(f"{start}   {_line(cell, flop / settings.peak, eager.get(count))}", flush=True)


def _unsuited(network: str, form: Form, device: torch.device) -> str:
    """Why a form makes no sense; empty if it does."""
    if form.graph and device.type != "cuda":
        return f"there are no CUDA graphs on a {device.type.upper()}"
    return "mlp flattens its images" if network == "mlp" and form.stacked == "NHWC" else ""


def _no_time(form: Form, step_seconds: float, first: bool, settings: Settings) -> str:
    """Why there is no time for a cell; empty if there is."""
    compiling = COMPILING if form.compiled and first else 0.0
    needed = compiling + settings.seconds + (CHECKED + REPEATS + 2) * step_seconds
    left = settings.clock.left()
    return "" if left >= needed else f"it needs {needed:.0f} s, but {max(0.0, left):.0f} s are left"


def _line(cell: Cell, least: float, eager: Cell | None) -> str:
    """The numbers of a cell. `least`: seconds of a model-step at the peak."""
    line = f"{cell.milliseconds:13.4f} {least / cell.milliseconds * 1e3:9.2%} {cell.bytes / 2**20:9.0f}"
    if eager is None:
        return line
    differs = ((cell.losses_K - eager.losses_K) / eager.losses_K).abs().max().item()
    return f"{line} {cell.milliseconds / eager.milliseconds:10.3f}   {differs:.0e}"


def _reason(error: Exception) -> str:
    """What went wrong, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = f"{type(error).__name__}: {lines[0] if lines else 'no reason was given'}"[:200]
    first = error.__context__  # a capture that fails raises an error of its own at its end
    return f"{reason}; after {_reason(first)}" if isinstance(first, Exception) else reason


if __name__ == "__main__":
    main()
