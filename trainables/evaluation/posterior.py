"""Spread of the posterior's variance over dimensions (VJE, section 3.3): collapsed, isotropic or anisotropic.

Shapes: K members, M images, D dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.evaluation.anomaly import Floats

METRICS = ("var_mean", "var_cv")
"""What `statistics` returns."""
SMALLEST_MEAN = 0.01
"""Below this mean the posterior has collapsed (the paper prints 0.00), and its coefficient of variation is noise."""


def statistics(var_KMD: Tensor) -> dict[str, Floats]:
    """`statistics_of_sum` from the posterior variances of all images at once."""
    return statistics_of_sum(var_KMD.sum(1, dtype=torch.float64), var_KMD.shape[1])


def statistics_of_sum(var_sum_KD: Tensor, images: int) -> dict[str, Floats]:
    """`var_mean` and `var_cv`, `[K]`, from the variances summed over `images` images.

    `var_mean` is the mean over dimensions of the variance averaged over images; `var_cv` is the population standard
    deviation over dimensions of that average, divided by `var_mean`: 0 where it is isotropic, NaN where
    `var_mean < 0.01`. Both are NaN for a member with a sum that is not finite.
    """
    average_KD = var_sum_KD.double() / images
    average_KD = torch.where(average_KD.isfinite(), average_KD, torch.nan)
    mean_K = average_KD.mean(1)
    cv_K = torch.where(mean_K < SMALLEST_MEAN, torch.nan, average_KD.std(1, correction=0) / mean_K)
    return {name: values_K.cpu().numpy() for name, values_K in zip(METRICS, (mean_K, cv_K), strict=True)}
