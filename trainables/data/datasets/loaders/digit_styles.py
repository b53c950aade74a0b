"""Style attributes of handwritten digits: how much ink they have and how far they lean, each as a quintile
within their own digit.

A quintile within a digit says nothing about which digit it is, so that these labels are style without content.
Shapes: N images, H rows, W columns, K digits, T thresholds.
"""

import torch
from torch import Tensor

from trainables.data.datasets.dataset import Attribute

SHARES = (0.2, 0.4, 0.6, 0.8)
"""Shares of a digit's training images below the thresholds of the quintiles."""
QUINTILES = len(SHARES) + 1
"""Number of classes of each style attribute."""


def ink(images_NHW: Tensor) -> Tensor:
    """The mean grey of each image, float64 `[N]`."""
    return images_NHW.double().mean(dim=(1, 2))


def slant(images_NHW: Tensor) -> Tensor:
    """How far each digit leans to the right, float64 `[N]`: columns per row, `-mu_xy / mu_yy` of the central moments of
    its ink, where x counts columns and y counts rows downwards."""
    mass_NHW = images_NHW.double()
    total_N = mass_NHW.sum(dim=(1, 2))
    y_H, x_W = (torch.arange(side, dtype=torch.float64) for side in images_NHW.shape[1:])
    y_NH = y_H - (mass_NHW.sum(2) @ y_H / total_N)[:, None]
    x_NW = x_W - (mass_NHW.sum(1) @ x_W / total_N)[:, None]
    mu_xy_N = torch.einsum("nhw,nh,nw->n", mass_NHW, y_NH, x_NW)
    mu_yy_N = torch.einsum("nhw,nh->n", mass_NHW, y_NH.square())
    return -mu_xy_N / mu_yy_N


def quintiles(train_N: Tensor, train_labels_N: Tensor, test_N: Tensor, test_labels_N: Tensor) -> Attribute:
    """The quintile of each value (float64 `[N]`) among the training images with the same label (int64 `[N]`)."""
    shares_T = torch.tensor(SHARES, dtype=torch.float64)
    labels = range(int(train_labels_N.max()) + 1)
    thresholds_KT = torch.stack([train_N[train_labels_N == label].quantile(shares_T) for label in labels])
    return Attribute(
        train_labels=(train_N[:, None] >= thresholds_KT[train_labels_N]).sum(1),
        test_labels=(test_N[:, None] >= thresholds_KT[test_labels_N]).sum(1),
        classes=QUINTILES,
    )
