"""Errors of reconstructions and spread of samples in pixels.

Shapes: N images, M test images, C channels, H rows, W columns. Pixels are in [0, 1]. Leading dimensions of
reconstructions and samples, such as that of the members, are kept; results are float64.
"""

import torch
from torch import Tensor


def reconstruction_mse(images_NCHW: Tensor, reconstructions_NCHW: Tensor) -> Tensor:
    """Mean over images and pixels of the squared difference (SimVAE, table 7). Lower is better."""
    return (reconstructions_NCHW - images_NCHW).square().mean((-4, -3, -2, -1), dtype=torch.float64)


def diversity(samples_NCHW: Tensor, test_images_MCHW: Tensor) -> Tensor:
    """Variance of a pixel over the samples, divided by that over the test images, both summed over the pixels: 1 if the
    samples vary as much as the images, 0 if all are equal."""
    return _total_variance(samples_NCHW) / _total_variance(test_images_MCHW)


def _total_variance(images_NCHW: Tensor) -> Tensor:
    return images_NCHW.double().var(-4).sum((-3, -2, -1))
