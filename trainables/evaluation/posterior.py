"""Spread of the posterior's variance over dimensions (VJE, section 3.3): collapsed, isotropic or anisotropic.

Shapes: K members, M images, D dimensions.
"""

import torch
from torch import Tensor

from trainables.evaluation.anomaly import Floats

METRICS = ("var_mean", "var_cv")
"""Names of the metrics that `statistics` returns."""
SMALLEST_MEAN = 0.01
"""Mean variance below which the posterior has collapsed (the paper prints 0.00); its variation is then noise."""


def statistics(var_KMD: Tensor) -> dict[str, Floats]:
    """Compute `var_mean` and `var_cv`, `[K]` each, from posterior variances.

    The variance of each dimension is averaged over the images. `var_mean` is the mean of these averages over
    dimensions. `var_cv` is their population standard deviation divided by `var_mean`: 0 if the posterior is isotropic,
    NaN if `var_mean < 0.01`. Both are NaN for a member whose variances have a sum that is not finite.
    """
    average_KD = var_KMD.sum(1, dtype=torch.float64) / var_KMD.shape[1]
    average_KD = torch.where(average_KD.isfinite(), average_KD, torch.nan)
    mean_K = average_KD.mean(1)
    cv_K = torch.where(mean_K < SMALLEST_MEAN, torch.nan, average_KD.std(1, correction=0) / mean_K)
    return {name: values_K.cpu().numpy() for name, values_K in zip(METRICS, (mean_K, cv_K), strict=True)}
