"""Images per second of our training loop beside a plain one with torchvision and a DataLoader, in one run.

python -m tests.benchmarks.bench_loop [--device cuda] [--steps 200] [--precision bfloat16] [--channels-last]

Both train VJE with a ResNet-18 on random images of 32x32 in batches of 64, MoCo v2 views without blur. The plain loop
transforms image by image in as many workers as there are cores, as is usual; its start-up is not counted.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from torchvision.transforms import v2

from tests.benchmarks.bench_fusion import RANDOM, register_random_images
from trainables.cohort import Cohort
from trainables.config import TrialConfig, resolve
from trainables.data.datasets import Dataset
from trainables.data.views import MOCO_V2
from trainables.streams import models

BATCH, WARM_UP = 64, 2


class TwoViews(TorchDataset[tuple[Tensor, Tensor]]):
    """Two views of an image, each made alone by torchvision from a PIL image, as its CIFAR10 does."""

    def __init__(self, dataset: Dataset) -> None:
        self.images = dataset.train_images
        self.transform = v2.Compose(
            [
                v2.ToPILImage(),
                v2.RandomResizedCrop(32, scale=(0.2, 1.0)),
                v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
                v2.RandomGrayscale(0.2),
                v2.RandomHorizontalFlip(),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(dataset.mean, dataset.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.transform(self.images[index]), self.transform(self.images[index])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--channels-last", action="store_true")
    arguments = parser.parse_args()
    device, steps = torch.device(arguments.device), arguments.steps
    dataset = register_random_images((WARM_UP + steps) * BATCH)
    config = resolve(
        {
            "method": "vje", "dataset": RANDOM, "encoder": "resnet18", "batch_size": BATCH, "lr": 5e-6,
            "weight_decay": 5e-6, "precision": arguments.precision, "channels_last": arguments.channels_last,
            **asdict(replace(MOCO_V2, blur=0.0)),
        }
    )  # fmt: skip
    workers = len(os.sched_getaffinity(0))
    print(f"{device}, torch {torch.__version__}, {arguments.precision}, {steps} steps, {workers} workers")
    ours = our_speed(config, device, steps)
    print(f"ours  {ours:8.1f} images/s")
    plain = plain_speed(config, dataset, device, steps, workers)
    print(f"plain {plain:8.1f} images/s\nratio {ours / plain:.2f}")


def our_speed(config: TrialConfig, device: torch.device, steps: int) -> float:
    cohort = Cohort([config], Path(), device, None)
    orders = cohort.orders(0)
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            begun = _now(device)
        cohort.step(0, step, orders, rate=1.0)
    return steps * BATCH / (_now(device) - begun)


def plain_speed(config: TrialConfig, dataset: Dataset, device: torch.device, steps: int, workers: int) -> float:
    training = config.training
    model = models([config], (3, 32, 32))[0].to(device)
    layout = torch.channels_last if training.channels_last else torch.contiguous_format
    model = model.to(memory_format=layout)
    optimiser = torch.optim.SGD(
        model.parameters(), lr=training.lr, momentum=training.momentum, weight_decay=training.weight_decay
    )
    loader = DataLoader(
        TwoViews(dataset), BATCH, shuffle=True, drop_last=True, num_workers=workers, pin_memory=device.type == "cuda"
    )
    for step, views in enumerate(loader):
        if step == WARM_UP:
            begun = _now(device)
        first, second = (view.to(device, non_blocking=True, memory_format=layout) for view in views)
        noise = torch.randn(model.noise_shape(BATCH), device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=training.precision == "bfloat16"):
            loss: Tensor = model.losses(first, second, noise=noise).total
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return steps * BATCH / (_now(device) - begun)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
