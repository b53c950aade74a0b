"""A classifier that judges generated images: it is trained on real ones with their classes.

Shapes: N training images, B images of a batch, C channels, H rows, W columns, L classes.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPOCHS, BATCH, LR = 3, 128, 2e-3
"""Adam on the cross-entropy, with half a cosine of learning rates."""
WIDTHS = (32, 64)
"""Channels of two 3x3 convolutions, each followed by BatchNorm, ReLU and a pooling that halves height and width."""
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
    with a label below 0 are left out. Weights and order of the images are drawn by `generator`, on the CPU; the states
    of torch's global generators are unchanged."""
    labelled_N = labels_N >= 0
    images_NCHW, labels_N = images_NCHW[labelled_N], labels_N[labelled_N]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator.initial_seed())  # torch.manual_seed would seed accelerators too
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
