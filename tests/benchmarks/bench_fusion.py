"""Model-steps per second of stacked models, beside the same models in turn and a plain PyTorch loop, in one run.

python -m tests.benchmarks.bench_fusion [--device cuda] [--encoder resnet18] [--precision bfloat16] [--channels-last]

`mlp` takes the digits preset of search_spaces.anomaly_grid (and trains whole models), `resnet18` its paper preset on
random images of CIFAR's shape. The plain loop is one nn.Module under torch.optim.SGD; its views and noise are made
beforehand, so that it is given for nothing what ours pays for. It needs no Ray and no data.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from search_spaces.anomaly_grid import DIGITS, PAPER
from tests.benchmarks.loops import RANDOM, now, plain_step, register_random_images
from tests.trainables.small import image_trial
from trainables.data.datasets.catalog import DATASETS
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import draw_noise
from trainables.sections import Value
from trainables.tasks.images.stream import ImageStream, select_classes
from trainables.training.cohort import TrainingCohort
from trainables.training.profiling import peak_bytes
from trainables.training.train import train

WIDTHS = (1, 2, 4, 8, 16, 32, 56)
PAPER_STEPS = 560 * 800 * 78
"""Models x epochs x steps of one-class CIFAR-10 (VJE, Fig. 4)."""


@dataclass(frozen=True)
class Setting:
    precision: str
    channels_last: bool

    def __str__(self) -> str:
        return self.precision + (" channels_last" if self.channels_last else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--encoder", choices=("mlp", "resnet18"), default="mlp")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), help="else float32, and on CUDA both")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--widths", help="default 1,2,4,...,56; resnet18 on a CPU 1,2")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    arguments = parser.parse_args()
    device, small = torch.device(arguments.device), arguments.encoder == "mlp"
    cuda = device.type == "cuda"
    default = WIDTHS if cuda or small else (1, 2)
    widths = [int(width) for width in arguments.widths.split(",")] if arguments.widths else list(default)
    register_random_images(640)
    name = torch.cuda.get_device_name(device) if cuda else f"cpu, {torch.get_num_threads()} threads"
    print(f"{name}, torch {torch.__version__}, {arguments.encoder}")
    for setting in _settings(arguments.precision, arguments.channels_last, cuda and not small):
        compare(arguments.encoder, setting, device, widths, arguments.seconds)
    if small:
        whole_models(device, widths)


def _settings(precision: str | None, channels_last: bool, all_of_them: bool) -> list[Setting]:
    if precision or channels_last or not all_of_them:
        return [Setting(precision or "float32", channels_last)]
    return [Setting("float32", False), Setting("bfloat16", False), Setting("bfloat16", True)]


def grid_configs(encoder: str, setting: Setting, count: int) -> list[ImageTrial]:
    """The first `count` members of the preset's cohort: 56 values of beta and nu for one class."""
    grid, task = (DIGITS, {"normal_class": 0}) if encoder == "mlp" else (PAPER, {"dataset": RANDOM})
    changes: dict[str, Value] = {**task, "precision": setting.precision, "channels_last": setting.channels_last}
    cells = grid.changed(changes, {}).changed({}, {"seed": (0,)}).combinations()
    if encoder == "resnet18":
        cells = (cell for cell in cells if cell.pop("normal_class") == 0)
    return [image_trial(cell) for cell, _ in zip(cells, range(count), strict=False)]


def compare(encoder: str, setting: Setting, device: torch.device, widths: Sequence[int], seconds: float) -> None:
    """Print a line for the plain loop, the models in turn, and each width."""
    plain = plain_speed(grid_configs(encoder, setting, 1)[0], device, seconds)
    cohort = TrainingCohort(grid_configs(encoder, setting, 2), Path(), device, 1)
    in_turn = 2 * speed(_stepping(cohort), device, seconds)
    del cohort
    print(f"{setting}\n  plain loop {plain:9.4g} model-steps/s")
    print(f"  in turn    {in_turn:9.4g}, {in_turn / plain:.2f} of plain")
    for width in [1] if setting.channels_last else widths:
        before = peak_bytes(device, reset=True)
        try:
            cohort = TrainingCohort(grid_configs(encoder, setting, width), Path(), device, None)
            fused = width * speed(_stepping(cohort), device, seconds)
        except torch.OutOfMemoryError:
            print(f"  width {width:3}  out of memory")
            break
        line = f"  width {width:3}  {fused:9.4g}, {fused / in_turn:.2f} of in turn, {fused / plain:.2f} of plain"
        line += f", peak {(peak_bytes(device) - before) / 2**20:.0f} MiB"
        del cohort
        if encoder == "resnet18" and device.type == "cuda":
            line += f"; the paper's grid in {PAPER_STEPS / fused / 3600:.1f} h (training steps alone)"
        print(line, flush=True)


def whole_models(device: torch.device, widths: Sequence[int]) -> None:
    """Print models per second of the digits preset: set-up, 50 epochs, 5 evaluations."""
    print("whole models of the digits preset, float32")
    for label, count, width in [("in turn", 8, 1), *((f"width {width:3}", width, None) for width in widths)]:
        configs = grid_configs("mlp", Setting("float32", False), count)
        begun = time.perf_counter()
        report = list(train(configs, Path(), device=device, width=width))[-1]
        print(f"  {label:9} {len(report.members) / (time.perf_counter() - begun):7.2f} models/s", flush=True)


def _stepping(cohort: TrainingCohort) -> Callable[[], object]:
    orders = cohort.orders(0)
    return lambda: cohort.step(0, 0, orders, rate=1.0)


def plain_speed(config: ImageTrial, device: torch.device, seconds: float) -> float:
    """Model-steps per second of a plain loop on views that are there already."""
    dataset = DATASETS[config.data.dataset].load(Path())
    model, train_step = plain_step(config, tuple(dataset.train_images.shape[1:]), device)
    stream = ImageStream(config, type(model), select_classes(dataset, config.data), device)
    batch = stream.batch(stream.order(0)[0], 0, 0)
    noise = draw_noise(model.noise(config.gradient.batch_size), "noise", device=device)
    return speed(lambda: train_step(batch, noise), device, seconds)


def speed(step: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Steps per second after a warm-up, of at least two steps."""

    def timed(steps: int) -> float:
        begun = now(device)
        for _ in range(steps):
            step()
        return now(device) - begun

    timed(3 if device.type == "cuda" else 1)
    steps = max(2, int(seconds / max(timed(1), 1e-4)))
    return steps / timed(steps)


if __name__ == "__main__":
    main()
