"""The classifier that judges generated digits: it is trained on the training digits, once in a process.

It is the yardstick of all trials, so it is one network with a fixed seed, whatever the seed of a trial is: distances in
its features could not be compared otherwise.

Shapes: B images of a batch, H = W = 8 pixels, F = 64 features.
"""

from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.data.augmentation import rotate_and_shift
from trainables.data.datasets.digits import digits
from trainables.data.views import scale_pixels

SEED = 0
EPOCHS, BATCH, LR = 100, 128, 2e-3
"""Adam on the cross-entropy reaches 98 % on the test digits in about a second."""
DEGREES, PIXELS = 10.0, 0.7
"""Largest rotation and largest shift along each axis of a training image."""


class DigitsClassifier(nn.Module):
    """A 64-128-64-10 network with ReLU, in float64: rounding would otherwise grow in training, and figures would depend
    on the number of threads."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.output = nn.Linear(64, 10)
        self.double()

    def features(self, images_B1HW: Tensor) -> Tensor:
        """The last hidden layer `[B, F]`, of images with pixels in [0, 1] on any device. Leading dimensions are
        kept."""
        return self.hidden(images_B1HW.to("cpu", torch.float64).flatten(-3))

    def forward(self, images_B1HW: Tensor) -> Tensor:
        """Logits `[B, 10]`."""
        return self.output(self.features(images_B1HW))


@cache
def digits_classifier() -> DigitsClassifier:
    """The trained classifier, on the CPU. The state of torch's global generators is unchanged."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # its matrices are small: more threads gain nothing, and are far slower on a busy machine
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(SEED)  # torch.manual_seed would seed the accelerators as well
            classifier = DigitsClassifier()
        _train(classifier, torch.Generator().manual_seed(SEED))
    finally:
        torch.set_num_threads(threads)
    return classifier.eval().requires_grad_(False)


@torch.enable_grad()
def _train(classifier: DigitsClassifier, generator: torch.Generator) -> None:
    dataset = digits(Path())  # needs no folder
    images_N1HW = scale_pixels(dataset.train_images[:], dataset.levels).double()
    labels_N = dataset.train_labels
    optimiser = torch.optim.Adam(classifier.parameters(), lr=LR)
    steps = len(labels_N) // BATCH
    for _ in range(EPOCHS):
        order_N = torch.randperm(len(labels_N), generator=generator)
        for indices_B in order_N[: steps * BATCH].split(BATCH):
            uniform_3B = 2 * torch.rand(3, BATCH, generator=generator, dtype=torch.float64) - 1
            degrees_B, right_B, down_B = uniform_3B[0] * DEGREES, uniform_3B[1] * PIXELS, uniform_3B[2] * PIXELS
            view_B1HW = rotate_and_shift(images_N1HW[indices_B], degrees_B, right_B, down_B)
            loss = F.cross_entropy(classifier(view_B1HW), labels_N[indices_B])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
