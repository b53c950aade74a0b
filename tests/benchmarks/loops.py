"""The two training loops that benchmarks set side by side, ours and a plain one, on random images of CIFAR-10's shape.

Shapes: B images, C channels, H rows, W columns.
"""

import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data import Dataset as TorchDataset
from torchvision.transforms import v2

from trainables.contract import Batch, ImageMethod, Noises
from trainables.data.datasets.catalog import DATASETS
from trainables.data.datasets.dataset import Dataset, Declaration, Source
from trainables.sections import TrialConfig
from trainables.training.cohort import Cohort
from trainables.training.stacks import build_models

RANDOM = "random32"
"""The name in DATASETS of the random images."""
SHAPE = (3, 32, 32)
WARM_UP = 2
"""Steps that are not timed."""
PREFETCH = 2
"""Batches that a worker of the plain loop's DataLoader is ahead, as by default."""
TrainStep = Callable[[Batch, Mapping[str, Tensor]], None]
"""Makes one step with a batch and its noise."""
WORKERS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Those of the DataLoader: as many as there are cores."""


class Augmented(TorchDataset[tuple[Tensor, ...]]):
    """`count` views of an image, each made alone by torchvision from a PIL image, as its CIFAR10 does."""

    def __init__(self, dataset: Dataset, count: int) -> None:
        self.images = dataset.train_images[:]
        self.count = count
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

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(self.transform(self.images[index]) for _ in range(self.count))


def register_random_images(count: int) -> Dataset:
    """A data set of `count` random images of CIFAR-10's shape, under the name RANDOM in DATASETS."""
    source = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, *SHAPE), dtype=torch.uint8, generator=source)
    labels = torch.arange(count) % 10
    classes = tuple("0123456789")
    dataset = Dataset(RANDOM, images, labels, images[:64], labels[:64], classes, 255, (0.5,) * 3, (0.25,) * 3)
    declared = Declaration(SHAPE, 10, (count // 10,) * 10, (6,) * 10)
    cast(dict[str, Source], DATASETS)[RANDOM] = Source(lambda root: dataset, declared, "none")
    return dataset


def our_speed(configs: Sequence[TrialConfig], device: torch.device, steps: int) -> float:
    """Images per second of all members together, views included, over `steps` steps of the first epoch.

    The data must have images for WARM_UP more steps than that.
    """
    cohort = Cohort(configs, Path(), device, None)
    orders = cohort.orders(0)
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            begun = now(device)
        cohort.step(0, step, orders, rate=1.0)
    return steps * configs[0].gradient.batch_size * len(configs) / (now(device) - begun)


def plain_speed(config: TrialConfig, dataset: Dataset, device: torch.device, steps: int) -> float:
    """Images per second of one model: views by torchvision in a DataLoader of WORKERS workers, torch.optim.SGD.

    What the workers are ahead is used up before the clock starts, and they make batches until it stops. They may
    deliver all at once, so `steps` is rounded up to a multiple of their number.
    """
    batch, ahead = config.gradient.batch_size, PREFETCH * WORKERS
    warm_up, steps = WARM_UP + ahead, -(-steps // WORKERS) * WORKERS
    model, train = plain_step(config, SHAPE, device)
    views = Augmented(dataset, model.view_count(config.options))
    loader = DataLoader(
        views, batch, sampler=RandomSampler(views, replacement=True, num_samples=(warm_up + steps + ahead) * batch),
        num_workers=WORKERS, prefetch_factor=PREFETCH, pin_memory=device.type == "cuda",
    )  # fmt: skip
    layout = torch.channels_last if config.gradient.channels_last else torch.contiguous_format
    batches = iter(loader)

    def advance(count: int) -> None:
        for views_BCHW in itertools.islice(batches, count):
            on_device = (view_BCHW.to(device, non_blocking=True, memory_format=layout) for view_BCHW in views_BCHW)
            train({"views": tuple(on_device)}, random_noise(model.noise(batch), device))

    advance(warm_up)
    begun = now(device)
    advance(steps)
    return steps * batch / (now(device) - begun)


def plain_step(
    config: TrialConfig, image_shape: tuple[int, ...], device: torch.device
) -> tuple[ImageMethod, TrainStep]:
    """A fresh model for images `(C, H, W)`, and what trains it by one step."""
    training = config.gradient
    (model,) = build_models([config], {"views": image_shape})
    assert isinstance(model, ImageMethod)
    model = model.to(device)
    if training.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(
        model.parameters(), lr=training.lr, momentum=training.momentum, weight_decay=training.weight_decay
    )

    def step(batch: Batch, noise: Mapping[str, Tensor]) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=training.precision == "bfloat16"):
            loss = model.losses(batch, noise).total
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        model.after_step(random_noise(model.after_step_noise(), device))

    return model, step


def random_noise(noises: Noises, device: torch.device) -> dict[str, Tensor]:
    """The declared noise from torch's global generator."""
    return {
        name: (torch.randn if noise.kind == "normal" else torch.rand)(noise.shape, device=device)
        for name, noise in noises.items()
    }


def now(device: torch.device) -> float:
    """Seconds, once all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
