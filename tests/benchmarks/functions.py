"""Functions that benchmarks sweep, as users write them: they import nothing of this project."""

import functools
import random
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn


def report_at_once(index: int = 0) -> dict[str, float]:
    """Seven random numbers, at once."""
    return {f"metric_{number}": random.random() for number in range(7)}


def last_ten_milliseconds(index: int = 0) -> dict[str, float]:
    """A trial of 10 ms."""
    time.sleep(0.01)
    return {"loss": random.random()}


def classify(
    lr: float = 0.1, weight_decay: float = 0.0, smoothing: float = 0.0, seed: int = 0, epochs: int = 20
) -> Iterator[dict[str, float]]:
    """A classifier of the digits: the network, epochs and batches of the sweep `supervised`."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    images, labels = digits()
    held_out, test, train = torch.arange(len(images)).split([288, 360, len(images) - 648])
    model = nn.Sequential(*(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 32), nn.Linear(32, 10)))
    steps = epochs * (len(train) // 60)
    optimiser = torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for epoch in range(1, epochs + 1):
        for batch in train[torch.randperm(len(train))].split(60)[: steps // epochs]:
            loss = F.cross_entropy(model(images[batch]), labels[batch], label_smoothing=smoothing)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        if epoch % 5 == 0:
            model.eval()
            with torch.no_grad():
                shares = [(model(images[of]).argmax(1) == labels[of]).float().mean() for of in (held_out, test)]
            model.train()
            yield {"epoch": epoch, "loss": loss.item(), "val_accuracy": float(shares[0]), "accuracy": float(shares[1])}


@functools.cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images `[1797, 64]` of mean 0 and standard deviation 1 over all pixels, and their classes, in a random order."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    pixels = torch.tensor(images, dtype=torch.float32)
    return ((pixels - pixels.mean()) / pixels.std())[order], torch.tensor(labels)[order]
