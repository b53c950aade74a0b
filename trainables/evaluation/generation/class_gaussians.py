"""Conditional generation (SimVAE): a Gaussian is fitted to the training features of each class, and samples are drawn
from it. Fitted to the pixels themselves, it is the baseline that a generative model has to beat.

Shapes: N training images, D features, L classes, S samples of each class; C channels, H rows, W columns. Leading
dimensions of the features, such as that of the members, are kept.
"""

from typing import NamedTuple

import torch
from torch import Tensor

REGULARISATION = 1e-6
"""Added to the variance of each feature, as by scikit-learn's mixtures (`reg_covar`)."""


class ClassGaussians(NamedTuple):
    """One Gaussian for each class, in float64."""

    mean_LD: Tensor
    covariance_LDD: Tensor
    """With `REGULARISATION` on its diagonal."""


def fit_class_gaussians(features_ND: Tensor, labels_N: Tensor, classes: int) -> ClassGaussians:
    """Fit a Gaussian with a full covariance to the features of each class by maximum likelihood, in float64.

    This is scikit-learn's GaussianMixture of one component. Images whose label is not in 0..classes-1 are ignored.
    Raises ValueError if a class has no image.
    """
    means, covariances = [], []
    for label in range(classes):
        own_nD = features_ND[..., labels_N == label, :].double()
        count = own_nD.shape[-2]
        if not count:
            raise ValueError(f"each of the {classes} classes must have a training image, but class {label} has none")
        mean_1D = own_nD.mean(-2, keepdim=True)
        centred_nD = own_nD - mean_1D
        means.append(mean_1D.squeeze(-2))
        covariances.append(centred_nD.mT @ centred_nD / count)
    ridge_DD = REGULARISATION * torch.eye(features_ND.shape[-1], dtype=torch.float64, device=features_ND.device)
    return ClassGaussians(torch.stack(means, dim=-2), torch.stack(covariances, dim=-3) + ridge_DD)


def sample_class_gaussians(gaussians: ClassGaussians, noise_LSD: Tensor) -> Tensor:
    """Turn standard normal noise into `S` samples of each class, `[L, S, D]`, in the precision of the noise.

    NaN for a class whose covariance is not positive definite in float64, or whose mean is not finite.
    """
    factor_LDD, failed_L = torch.linalg.cholesky_ex(gaussians.covariance_LDD)
    defined_L = (failed_L == 0) & gaussians.mean_LD.isfinite().all(-1)
    samples_LSD = gaussians.mean_LD[..., None, :] + noise_LSD.double() @ factor_LDD.mT
    return torch.where(defined_L[..., None, None], samples_LSD, torch.nan).to(noise_LSD.dtype)


def sample_pixel_gaussians(images_NCHW: Tensor, labels_N: Tensor, noise_LSD: Tensor) -> Tensor:
    """Samples `[L, S, C, H, W]` from a Gaussian fitted to the pixels of each class, clipped to [0, 1]. The noise has a
    dimension for each of the `D = C * H * W` pixels."""
    gaussians = fit_class_gaussians(images_NCHW.flatten(1), labels_N, len(noise_LSD))
    return sample_class_gaussians(gaussians, noise_LSD).clamp(0, 1).unflatten(-1, images_NCHW.shape[1:])
