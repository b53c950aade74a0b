"""Mixtures of Gaussians over latents of unit length: fitted, sampled and measured (GMJE, 4.8 and 5.3).

Shapes: N latents, S samples, M components, D dimensions. Everything is float64. A component whose covariance is not
positive definite gives NaN, in the samples of that component and in the volume.
"""

import math
import warnings
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.losses.linear_algebra import cholesky, log_det
from trainables.losses.particles import multinomial_indices
from trainables.validation import whole

REGULARISATION = 1e-6
"""Added to the variance of each dimension of a fitted density, as by scikit-learn's mixtures (`reg_covar`)."""


class Mixture(NamedTuple):
    """A mixture of Gaussians."""

    logits_M: Tensor
    """Logarithms of the weights up to a constant: zeros are uniform weights."""
    means_MD: Tensor
    covariances_MDD: Tensor


def fit_gaussian(z_ND: Tensor) -> Mixture:
    """One Gaussian with the mean and the covariance (divisor N) of latents."""
    mean_D, z_ND = z_ND.double().mean(0), z_ND.double()
    centred_ND = z_ND - mean_D
    covariance_DD = centred_ND.mT @ centred_ND / len(z_ND) + REGULARISATION * _identity(z_ND)
    return Mixture(z_ND.new_zeros(1), mean_D[None], covariance_DD[None])


def fit_gmm(z_ND: Tensor, components: int, steps: int, random_state: int) -> Mixture:
    """scikit-learn's mixture of Gaussians with full covariances, from k-means, after at most `steps` steps of EM. All
    NaN if a latent is not finite, or if the latents do not have as many different values as there are components.
    Raises ValueError unless `components` and `steps` are at least 1."""
    whole("components", components, 1)
    whole("steps", steps, 1)
    size, device = z_ND.shape[-1], z_ND.device
    mixture = None
    if bool(z_ND.isfinite().all()) and len(z_ND.unique(dim=0)) >= components:
        mixture = _fitted(z_ND, components, steps, random_state)
    if mixture is None:
        nan = torch.tensor(math.nan, dtype=torch.float64, device=device)
        return Mixture(nan.expand(components), nan.expand(components, size), nan.expand(components, size, size))
    return Mixture(*(part.to(device) for part in mixture))


def _fitted(z_ND: Tensor, components: int, steps: int, random_state: int) -> Mixture | None:
    """The mixture, on the CPU; None if a covariance cannot be inverted."""
    from sklearn.exceptions import ConvergenceWarning  # here: importing scikit-learn would delay every worker
    from sklearn.mixture import GaussianMixture

    gmm = GaussianMixture(components, max_iter=steps, reg_covar=REGULARISATION, random_state=random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            gmm.fit(z_ND.cpu().double().numpy())
        except ValueError:  # "some components have ill-defined empirical covariance"
            return None
    weights_M, *moments = map(torch.from_numpy, (gmm.weights_, gmm.means_, gmm.covariances_))
    return Mixture(weights_M.log(), *moments)


def sample(mixture: Mixture, uniform_S: Tensor, normal_SD: Tensor) -> Tensor:
    """Samples `[S, D]`: `z = mu_k + L_k eps`, where k is the first component up to which the weights sum to more than
    the uniform number, and L the Cholesky factor of its covariance (GMJE, 4.8)."""
    component_S = multinomial_indices(mixture.logits_M.double(), uniform_S.double())
    samples_SD = mixture.means_MD.double()[component_S]
    for component, factor_DD in enumerate(cholesky(mixture.covariances_MDD.double())):
        own_S = component_S == component
        samples_SD[own_S] += normal_SD[own_S].double() @ factor_DD.mT
    return samples_SD


def to_sphere(z_ND: Tensor) -> Tensor:
    """Latents scaled to unit length."""
    return F.normalize(z_ND, dim=-1)


def mean_volume(mixture: Mixture) -> float:
    """`logdet S_k`, the mean over components. Of latents of unit length it is at most `-D log D`: the trace of their
    covariance is at most 1."""
    return log_det(cholesky(mixture.covariances_MDD.double())).mean().item()


def mean_trace(mixture: Mixture) -> float:
    """`tr S_k`, the mean over components: at most 1 for latents of unit length."""
    return mixture.covariances_MDD.double().diagonal(dim1=-2, dim2=-1).sum(-1).mean().item()


def spread(mixture: Mixture) -> float:
    """Mean distance between the means of two components; NaN if there is only one. M points on the unit sphere have at
    most `sqrt(2 M / (M - 1))`, the distance of the corners of a regular simplex."""
    count = len(mixture.means_MD)
    return torch.pdist(mixture.means_MD.double().cpu()).mean().item() if count > 1 else math.nan


def _identity(z_ND: Tensor) -> Tensor:
    return torch.eye(z_ND.shape[-1], dtype=torch.float64, device=z_ND.device)
