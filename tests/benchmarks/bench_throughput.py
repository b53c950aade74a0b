"""Images per second and memory of each method that reads views: our loop, solo and fused, beside a plain DataLoader's.

python -m tests.benchmarks.bench_throughput [--device cuda] [--methods byol,vje] [--steps 48] [--members 2,4,8]

Random images of 32x32, MoCo v2 views without blur, each method's default, published-size projector, SGD. `plain` makes
views by torchvision image by image in as many workers as there are cores, and trains one model by torch.optim.SGD.
`solo` is our loop with a cohort of one, views included; `K=4` is one of four members that differ in their learning
rate, in images times members per second. `/plain` is solo over plain, `/solo` fused over solo. `MiB` is the most that
PyTorch had allocated, solo and fused; `GPU` is the share of the GPU, 1/n, that a solo training fits in with 20 % to
spare, counting in what the GPU holds besides: the process's own context, and others' work, if it is not idle. `OOM`
says that memory ran out, `-` that there is no such number. It needs no Ray and no data.
"""

import argparse
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from search_spaces._protocols import MOCO_V2_VIEWS
from tests.benchmarks.loops import RANDOM, WARM_UP, WORKERS, our_speed, plain_speed, register_random_images
from trainables.catalog import METHODS
from trainables.config import resolve
from trainables.contract import ImageMethod
from trainables.data.datasets.dataset import Dataset
from trainables.networks.encoders import ENCODERS
from trainables.sections import TrialConfig, Value
from trainables.validation import choices

TRAINED = [
    name
    for name, method in METHODS.items()
    if issubclass(method, ImageMethod) and method.trains() and method.reads == {"views"}
]
LR = 1e-3
MARGIN = 1.2
"""Memory asked for over memory measured."""


@dataclass(frozen=True)
class Cost:
    speed: float
    """Images per second, times members."""
    bytes: int | None
    """The most allocated on the GPU; None on a CPU, where no number is reliable."""
    share: str
    """Of the GPU's memory, with the margin; `-` on a CPU."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--methods", type=_names, default=TRAINED, help=f"default {','.join(TRAINED)}")
    parser.add_argument("--steps", type=_number, help="that are timed; default 48 on CUDA, 2 on a CPU")
    parser.add_argument("--batch", type=_number, help="default 256 on CUDA, 32 on a CPU")
    parser.add_argument("--members", type=_numbers, default=[2, 4, 8], help="of the fused cohorts, default 2,4,8")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--encoder", choices=ENCODERS, default="resnet18")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    cuda = device.type == "cuda"
    steps, batch = arguments.steps or (48 if cuda else 2), arguments.batch or (256 if cuda else 32)
    name = torch.cuda.get_device_name(device) if cuda else f"cpu, {torch.get_num_threads()} threads"
    layout = " channels_last" if arguments.channels_last else ""
    print(f"{name}, torch {torch.__version__}, {arguments.encoder}, {arguments.precision}{layout}, batch {batch}")
    print(f"{steps} steps after {WARM_UP}, {WORKERS} workers of the plain loop; images/s")
    dataset = register_random_images((WARM_UP + steps) * batch)
    fixed: dict[str, Value] = {
        "dataset": RANDOM, "encoder": arguments.encoder, "batch_size": batch, "weight_decay": 5e-4,
        "precision": arguments.precision, "channels_last": arguments.channels_last, **MOCO_V2_VIEWS,
    }  # fmt: skip
    columns = [column for count in arguments.members for column in (f"K={count}", "/solo")]
    memory = ["MiB", *(f"MiB K={count}" for count in arguments.members)]
    print(_line(["", "plain", "solo", "/plain", *columns, *memory, "GPU"]))
    for method in arguments.methods:
        print(
            _line([method, *cells({"method": method, **fixed}, arguments.members, dataset, device, steps)]), flush=True
        )


def cells(
    fixed: dict[str, Value], members: Sequence[int], dataset: Dataset, device: torch.device, steps: int
) -> list[str]:
    """A row of the table, its name apart."""
    single = cohort(fixed, 1)
    plain = cost(partial(plain_speed, single[0], dataset, device, steps), device)
    solo = cost(partial(our_speed, single, device, steps), device)
    fused = [cost(partial(our_speed, cohort(fixed, count), device, steps), device) for count in members]
    row = [_speed(plain), _speed(solo), _ratio(solo, plain)]
    for fused_cost in fused:
        row += [_speed(fused_cost), _ratio(fused_cost, solo)]
    return [*row, *(_mebibytes(fused_cost) for fused_cost in (solo, *fused)), solo.share if solo else "OOM"]


def cohort(fixed: dict[str, Value], count: int) -> list[TrialConfig]:
    """Members of one stream whose learning rates differ."""
    return [resolve({**fixed, "lr": LR * (1 + index / count)}) for index in range(count)]


def cost(measure: Callable[[], float], device: torch.device) -> Cost | None:
    """What `measure` returns and the memory that it takes; None where that runs out."""
    gc.collect()
    if device.type != "cuda":
        return Cost(measure(), None, "-")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    try:
        speed = measure()
    except torch.OutOfMemoryError:
        return None
    free, total = torch.cuda.mem_get_info(device)
    peak, beside = torch.cuda.max_memory_allocated(device), total - free - torch.cuda.memory_reserved(device)
    return Cost(speed, peak, share(peak + max(0, beside), total))


def share(needed: int, total: int) -> str:
    """`1/n` of `total` bytes, n whole: the least that holds `needed` with the margin, or 1/1."""
    return f"1/{max(1, int(total / (MARGIN * needed)))}"


def _speed(cost: Cost | None) -> str:
    return "OOM" if cost is None else f"{cost.speed:.{1 if cost.speed < 100 else 0}f}"


def _ratio(numerator: Cost | None, denominator: Cost | None) -> str:
    return f"{numerator.speed / denominator.speed:.2f}" if numerator and denominator else "-"


def _mebibytes(cost: Cost | None) -> str:
    if cost is None:
        return "OOM"
    return "-" if cost.bytes is None else f"{cost.bytes / 2**20:.0f}"


def _line(row: Sequence[str]) -> str:
    return f"{row[0]:12}" + "".join(f"{cell:>8}" for cell in row[1:])


def _names(text: str) -> list[str]:
    names = text.split(",")
    try:
        for name in names:
            choices("method", name, TRAINED)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return names


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on must be given, but got {text!r}")
    return int(text)


def _numbers(text: str) -> list[int]:
    return [_number(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
