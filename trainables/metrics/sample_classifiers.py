"""Classifiers that evaluate generated images: one for scikit-learn's digits, trained once per process, and one trained
on the real images of a trial.

The digit classifier has a fixed seed, independent of the trial's seed, so that distances in its feature space are
comparable between trials. Shapes: N training images, B images of a batch, C channels, H rows, W columns (8 by 8 for
digits), F = 64 features, L classes.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.data.augmentation import rotate_and_shift
from trainables.data.datasets.digits import digits
from trainables.data.views import scale_pixels

DIGITS_SEED = 0
DIGITS_EPOCHS, DIGITS_BATCH, DIGITS_LR = 100, 128, 2e-3
"""Adam on the cross-entropy reaches an accuracy of 98 % on the test digits in about a second."""
DEGREES, PIXELS = 10.0, 0.7
"""Maximum rotation (degrees) and maximum shift along each axis (pixels) of a training image."""


class DigitsClassifier(nn.Module):
    """A 64-128-64-10 network with ReLU, in float64. In float32, rounding errors would grow during training, and results
    would depend on the number of threads."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.output = nn.Linear(64, 10)
        self.double()

    def features(self, images_B1HW: Tensor) -> Tensor:
        """The last hidden layer `[B, F]` for images with pixels in [0, 1] on any device. Leading dimensions are
        kept."""
        return self.hidden(images_B1HW.to("cpu", torch.float64).flatten(-3))

    def forward(self, images_B1HW: Tensor) -> Tensor:
        """Logits `[B, 10]`."""
        return self.output(self.features(images_B1HW))


@cache
def digits_classifier() -> DigitsClassifier:
    """The trained classifier, on the CPU. torch's global generators keep their state."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small matrices gain nothing from more threads, which are far slower on a busy machine
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(DIGITS_SEED)  # torch.manual_seed would also seed the accelerators
            classifier = DigitsClassifier()
        _train(classifier, torch.Generator().manual_seed(DIGITS_SEED))
    finally:
        torch.set_num_threads(threads)
    return classifier.eval().requires_grad_(False)


@torch.enable_grad()
def _train(classifier: DigitsClassifier, generator: torch.Generator) -> None:
    dataset = digits(Path())  # needs no folder
    images_N1HW = scale_pixels(dataset.train_images[:], dataset.levels).double()
    labels_N = dataset.train_labels
    optimiser = torch.optim.Adam(classifier.parameters(), lr=DIGITS_LR)
    steps = len(labels_N) // DIGITS_BATCH
    for _ in range(DIGITS_EPOCHS):
        order_N = torch.randperm(len(labels_N), generator=generator)
        for indices_B in order_N[: steps * DIGITS_BATCH].split(DIGITS_BATCH):
            uniform_3B = 2 * torch.rand(3, DIGITS_BATCH, generator=generator, dtype=torch.float64) - 1
            degrees_B, right_B, down_B = uniform_3B[0] * DEGREES, uniform_3B[1] * PIXELS, uniform_3B[2] * PIXELS
            view_B1HW = rotate_and_shift(images_N1HW[indices_B], degrees_B, right_B, down_B)
            loss = F.cross_entropy(classifier(view_B1HW), labels_N[indices_B])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


EPOCHS, BATCH, LR = 3, 128, 2e-3
"""Adam on the cross-entropy; the learning rate follows half a cosine."""
WIDTHS = (32, 64)
"""Channels of two 3x3 convolutions, each followed by BatchNorm, ReLU and pooling that halves height and width."""
HIDDEN = 128


@torch.enable_grad()
def train_image_classifier(
    images_NCHW: Tensor,
    labels_N: Tensor,
    classes: int,
    generator: torch.Generator,
    raise_if_stopped: Callable[[], None] = lambda: None,
) -> nn.Module:
    """A small convolutional network from images with pixels in [0, 1] to logits `[B, L]`, in evaluation mode. Images
    with a label below 0 are left out. `generator`, on the CPU, draws the weights and the order of the images; torch's
    global generators keep their state."""
    labelled_N = labels_N >= 0
    images_NCHW, labels_N = images_NCHW[labelled_N], labels_N[labelled_N]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator.initial_seed())  # torch.manual_seed would also seed accelerators
        classifier = _network(tuple(images_NCHW.shape[1:]), classes).to(images_NCHW.device)
    optimiser = torch.optim.Adam(classifier.parameters(), lr=LR)
    steps = EPOCHS * max(1, len(labels_N) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(EPOCHS):
        raise_if_stopped()
        order_N = torch.randperm(len(labels_N), generator=generator)
        for indices_B in order_N.tensor_split(max(1, len(labels_N) // BATCH)):
            indices_B = indices_B.to(images_NCHW.device)
            loss = F.cross_entropy(classifier(images_NCHW[indices_B]), labels_N[indices_B])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return classifier.eval().requires_grad_(False)


def _network(image_shape: tuple[int, ...], classes: int) -> nn.Module:
    channels, height, width = image_shape
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip((channels, *WIDTHS), WIDTHS, strict=False):
        layers += [nn.Conv2d(fan_in, fan_out, 3, padding=1), nn.BatchNorm2d(fan_out), nn.ReLU(), nn.MaxPool2d(2)]
    flat = WIDTHS[-1] * (height // 4) * (width // 4)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(flat, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))
