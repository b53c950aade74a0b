"""Views per second: ours for a whole batch beside torchvision's transforms image by image, in one process.

python -m tests.benchmarks.bench_views [--device cuda] [--threads 1]
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torchvision.transforms import v2

from search_spaces._protocols import MOCO_V2_VIEWS
from tests.trainables.small import image_trial
from trainables.data.views import Views

CIFAR = image_trial({"method": "vje", **MOCO_V2_VIEWS}).views
DIGITS = Views(rotation=15, shift=1)

TORCHVISION_CIFAR = v2.Compose(
    [
        v2.RandomResizedCrop(32, scale=(0.2, 1.0)),
        v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
        v2.RandomGrayscale(0.2),
        v2.RandomHorizontalFlip(),
    ]
)
TORCHVISION_DIGITS = v2.RandomAffine(15, translate=(1 / 8, 1 / 8), interpolation=v2.InterpolationMode.BILINEAR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"device {arguments.device}, {arguments.threads} threads, torch {torch.__version__}")
    for name, views, theirs, shape in (
        ("cifar10 moco v2", CIFAR, TORCHVISION_CIFAR, (256, 3, 32, 32)),
        ("digits affine", DIGITS, TORCHVISION_DIGITS, (64, 1, 8, 8)),
    ):
        compare(name, views, theirs, torch.rand(shape), arguments.device)


def compare(name: str, views: Views, theirs: Callable[[Tensor], Tensor], x_BCHW: Tensor, device: str) -> None:
    """Print one line: both speeds and their ratio. torchvision runs on the CPU, as in a data loader's worker."""
    generator = torch.Generator().manual_seed(0)
    on_device_BCHW = x_BCHW.to(device)
    ours = speed(lambda: views.apply(on_device_BCHW, views.draw(generator, x_BCHW.shape)), len(x_BCHW), device)
    plain = speed(lambda: torch.stack([theirs(x_CHW) for x_CHW in x_BCHW]), len(x_BCHW), "cpu")
    print(f"{name:16} batch {len(x_BCHW):3}: ours {ours:9.0f}/s, torchvision {plain:7.0f}/s, ratio {ours / plain:.1f}")


def speed(make: Callable[[], Tensor], views: int, device: str, seconds: float = 2.0) -> float:
    """Views per second, after a warm-up."""
    wait = torch.cuda.synchronize if torch.device(device).type == "cuda" else lambda: None
    for _ in range(3):
        make()
    wait()
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        make()
        calls += 1
    wait()
    return calls * views / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
